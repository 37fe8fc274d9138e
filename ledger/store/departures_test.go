package store

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
)

// departing are departures of moves with some numbers of entries.
type departing struct {
	*departures
	t       *testing.T
	entries map[uint64]int
	time    time.Time
	mutex   sync.Mutex
	packed  map[uint64]int // how often, by move
	hold    map[uint64]chan struct{}
	failure error
}

func newDeparting(t *testing.T) *departing {
	t.Helper()
	d := &departing{t: t, entries: map[uint64]int{}, packed: map[uint64]int{},
		hold: map[uint64]chan struct{}{}, time: time.Unix(1000, 0)}
	d.departures = &departures{make: d.pack, begin: func() error { return nil }, end: func() {},
		now: func() time.Time { return d.time }, most: keptBytes}
	return d
}

// pack makes an arrival with as many entries as the move has, which are empty.
func (d *departing) pack(number uint64) ([]*ledger.Bundle, error) {
	d.mutex.Lock()
	d.packed[number]++
	hold := d.hold[number]
	d.mutex.Unlock()
	if hold != nil {
		<-hold
	}
	if d.failure != nil {
		return nil, d.failure
	}
	arrivals, _, err := ledger.PackArrivals(ledger.Hash{}, number, []ledger.MovedEntry{
		{Key: []byte("key"), Value: []byte("value")}}, ledger.ArrivalBytes)
	if err == nil {
		entry := arrivals[0].Transaction(0).Arrival
		all := make([]ledger.MovedEntry, d.entries[number])
		copy(all, entry.Entries)
		entry.Entries = all
	}
	return arrivals, err
}

// get asks for the arrivals of a move.
func (d *departing) get(number uint64) error {
	d.t.Helper()
	arrivals, err := d.of(d.t.Context(), number, d.found(number, 1), d.entries[number])
	if err == nil && len(arrivals) != 1 {
		d.t.Errorf("%d arrivals", len(arrivals))
	}
	return err
}

// Several calls encode the same arrivals at a time.
func TestArrivalsAreEncodedOnce(t *testing.T) {
	t.Parallel()
	d := newDeparting(t)
	d.entries[1] = 1
	var calls sync.WaitGroup
	for range 4 {
		calls.Go(func() {
			arrivals, err := d.of(t.Context(), 1, d.found(1, 1), 1)
			if err != nil || len(arrivals) != 1 {
				t.Errorf("%d arrivals: %v", len(arrivals), err)
				return
			}
			if _, err := ledger.DecodeBundle(arrivals[0].Encode()); err != nil {
				t.Error(err)
			}
		})
	}
	calls.Wait()
}

// The arrivals of several moves stay in memory as long as they fit, and one that is in use gives
// way only after its turn.
func TestArrivalsOfSeveralMovesStay(t *testing.T) {
	t.Parallel()
	d := newDeparting(t)
	d.entries = map[uint64]int{1: MaxMoved / 2, 2: MaxMoved / 2, 3: 10, 4: 2 * MaxMoved}
	expect := func(number uint64, want error, packed int) {
		t.Helper()
		if err := d.get(number); !errors.Is(err, want) || d.packed[number] != packed {
			t.Errorf("move %d: %v, made %d times, want %v and %d", number, err,
				d.packed[number], want, packed)
		}
	}
	for range 3 {
		expect(1, nil, 1)
		expect(2, nil, 1)
		d.time = d.time.Add(time.Second)
	}
	expect(3, ErrArrivalsBusy, 0)
	d.time = d.time.Add(inUse - time.Second)
	expect(2, nil, 1)
	expect(3, nil, 1) // the first one is not in use
	expect(2, nil, 1)
	expect(1, ErrArrivalsBusy, 1)
	expect(4, ErrArrivalsBusy, 0)
	for range turn / time.Second {
		d.time = d.time.Add(time.Second)
		for _, number := range []uint64{2, 3} {
			if err := d.get(number); err != nil {
				t.Fatal(err)
			}
		}
	}
	expect(4, nil, 1) // they had their turns
	expect(3, ErrArrivalsBusy, 1)
	if first, err := d.firstOf(3, d.found(3, 1), 10, true); err != nil || first == (ledger.Hash{}) {
		t.Errorf("the first arrival is forgotten: %v, %v", first, err)
	}
	d.time = d.time.Add(inUse)
	expect(1, nil, 2)
	if len(d.by) != 4 || d.by[4].arrivals != nil || d.by[4].entries != 0 {
		t.Error("the large one is still in memory")
	}
}

// Few entries may be many bytes. Arrivals beyond the bound of bytes are not kept, and made again
// once those of others are not in use any more. Those of one move are always kept.
func TestArrivalsAreBoundedInBytes(t *testing.T) {
	t.Parallel()
	d := newDeparting(t)
	d.entries = map[uint64]int{1: 1, 2: 1, 3: 1}
	expect := func(number uint64, want error, packed int, kept ...uint64) {
		t.Helper()
		if err := d.get(number); !errors.Is(err, want) || d.packed[number] != packed {
			t.Errorf("move %d: %v, made %d times, want %v and %d", number, err,
				d.packed[number], want, packed)
		}
		for _, each := range []uint64{1, 2, 3} {
			if is := d.by[each] != nil && d.by[each].arrivals != nil; is !=
				slices.Contains(kept, each) {
				t.Errorf("after move %d, those of move %d are kept: %v", number, each, is)
			}
		}
	}
	expect(1, nil, 1, 1)
	size := d.by[1].bytes
	d.most = 2*size + size/2
	expect(2, nil, 1, 1, 2)
	expect(3, nil, 1, 1, 2) // nobody knew that they are so large
	expect(3, ErrArrivalsBusy, 1, 1, 2)
	d.time = d.time.Add(inUse / 2)
	expect(2, nil, 1, 1, 2)
	d.time = d.time.Add(inUse / 2)
	expect(3, nil, 2, 2, 3)
	d.most = size - 1
	d.time = d.time.Add(inUse)
	expect(1, nil, 2, 1)
	expect(1, nil, 2, 1)
}

// Arrivals that were asked for longest ago give way first, and no more than need be.
func TestOldestArrivalsGiveWay(t *testing.T) {
	t.Parallel()
	d := newDeparting(t)
	d.entries = map[uint64]int{1: MaxMoved / 2, 2: MaxMoved / 2, 3: 10}
	for _, number := range []uint64{2, 1, 2} {
		if err := d.get(number); err != nil {
			t.Fatal(err)
		}
		d.time = d.time.Add(inUse)
	}
	if err := d.get(3); err != nil || d.by[1].arrivals != nil || d.by[2].arrivals == nil {
		t.Errorf("%v, the first one stays: %v, the second one: %v", err, d.by[1].arrivals != nil,
			d.by[2].arrivals != nil)
	}
}

// While the arrivals of one move are made, others' are made, and only who fetches them waits.
func TestMakingArrivalsHoldsUpNobody(t *testing.T) {
	t.Parallel()
	d := newDeparting(t)
	d.entries = map[uint64]int{1: 100, 2: 1}
	release := make(chan struct{})
	d.hold[1] = release
	one := d.found(1, 1)
	for range 3 {
		if first, err := d.firstOf(1, one, 100, false); first != (ledger.Hash{}) || err != nil {
			t.Errorf("%v, %v", first, err)
		}
	}
	if first, err := d.firstOf(2, d.found(2, 1), 1, true); first == (ledger.Hash{}) || err != nil {
		t.Errorf("%v, %v", first, err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if _, err := d.of(ended, 1, one, 100); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	got := make(chan error)
	for range 2 {
		go func() {
			_, err := d.of(t.Context(), 1, one, 100)
			got <- err
		}()
	}
	close(release)
	for range 2 {
		if err := <-got; err != nil {
			t.Error(err)
		}
	}
	first, err := d.firstOf(1, one, 100, false)
	if d.mutex.Lock(); first == (ledger.Hash{}) || err != nil || d.packed[1] != 1 {
		t.Errorf("%v, %v, made %d times", first, err, d.packed[1])
	}
	d.mutex.Unlock()
}

// A failure is told once, and then it is tried again.
func TestArrivalsAreTriedAgain(t *testing.T) {
	t.Parallel()
	d := newDeparting(t)
	d.entries[1], d.failure = 1, errors.New("no disk")
	for range 2 {
		if err := d.get(1); !errors.Is(err, d.failure) {
			t.Error(err)
		}
	}
	one := d.found(1, 1)
	if _, err := d.firstOf(1, one, 1, false); !errors.Is(err, d.failure) {
		t.Error(err)
	}
	if _, err := d.firstOf(1, one, 1, true); !errors.Is(err, d.failure) {
		t.Error(err)
	}
	d.failure = nil
	if first, err := d.firstOf(1, one, 1, true); first == (ledger.Hash{}) || err != nil {
		t.Errorf("%v, %v", first, err)
	}
}
