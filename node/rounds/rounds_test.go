package rounds_test

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/node/rounds"
	"github.com/ledgerd/ledgerd/order"
)

func note(r *rounds.Recorder, round order.Round, servers ...order.ServerID) {
	r.Note(&rounds.Event{Kind: rounds.Waits, Round: round, Servers: servers})
}

// Nothing is noted unless a client watches, and again nothing after the last one has gone. Runs are
// noted always.
func TestNotesWhileWatched(t *testing.T) {
	t.Parallel()
	var none *rounds.Recorder
	none.Note(&rounds.Event{})
	none.Begin(1, 1, nil)
	none.End(1, "over")
	if none.Watched() {
		t.Error("a recorder that does not exist is watched")
	}
	r := rounds.New()
	note(r, 1)
	r.Begin(7, 1, []order.ServerID{0, 2})
	first, second := r.Watch(), r.Watch()
	note(r, 2, 2, 0)
	first()
	first() // a second release counts for nothing
	note(r, 3)
	second()
	note(r, 4)
	r.End(7, "over")
	r.End(7, "later")
	w := r.Last(1, 10)
	if len(w.Events) != 2 || w.Events[0].Round != 2 || w.Events[1].Round != 3 || w.Next != 3 ||
		w.Events[0].Number != 1 || w.Events[1].Number != 2 ||
		!slices.Equal(w.Events[0].Servers, []order.ServerID{2, 0}) || w.Dropped != 0 {
		t.Errorf("%+v", w)
	}
	runs, _ := r.Runs()
	if len(runs) != 1 || runs[0].Number != 7 || runs[0].End != "over" || runs[0].Ended == 0 ||
		len(runs[0].Members) != 2 {
		t.Errorf("runs %+v", runs)
	}
}

// Readers get the events in order and each once. A slow reader learns how many it lost.
func TestReadersLearnWhatTheyLost(t *testing.T) {
	t.Parallel()
	r := rounds.New()
	defer r.Watch()()
	const over = 100
	for i := range rounds.Capacity + over {
		note(r, order.Round(i+1))
	}
	next, seen := uint64(1), 0
	for first := true; ; first = false {
		w := r.From(next, 1000)
		if len(w.Events) == 0 {
			break
		}
		if want := uint64(0); first && w.Dropped != over || !first && w.Dropped != want {
			t.Fatalf("dropped %d from %d", w.Dropped, next)
		}
		for _, e := range w.Events {
			if seen++; e.Number != uint64(over+seen) || e.Round != order.Round(e.Number) {
				t.Fatalf("event %d has number %d and round %d", seen, e.Number, e.Round)
			}
		}
		next = w.Next
	}
	if seen != rounds.Capacity || next != rounds.Capacity+over+1 {
		t.Errorf("%d events, next %d", seen, next)
	}
	if w := r.Last(1, 10); len(w.Events) != 10 || w.Events[9].Number != next-1 ||
		w.Dropped != next-11 {
		t.Errorf("last: %d events, dropped %d", len(w.Events), w.Dropped)
	}
	if w := r.From(next+50, 10); len(w.Events) != 0 || w.Dropped != 0 || w.Next != next {
		t.Errorf("beyond the end: %+v", w)
	}
}

// Events whose lists were replaced are gone too: a list is whole or not there.
func TestListsAreWhole(t *testing.T) {
	t.Parallel()
	r := rounds.New()
	defer r.Watch()()
	servers := make([]order.ServerID, 1000)
	const events = 2 * rounds.ServersCapacity / 1000
	for i := range events {
		for k := range servers {
			servers[k] = order.ServerID(i)
		}
		note(r, order.Round(i), servers...)
	}
	w := r.From(1, events)
	if got := rounds.ServersCapacity / 1000; len(w.Events) != got ||
		w.Dropped != uint64(events-got) {
		t.Fatalf("%d events, %d dropped", len(w.Events), w.Dropped)
	}
	for _, e := range w.Events {
		if len(e.Servers) != 1000 || e.Servers[0] != order.ServerID(e.Round) ||
			e.Servers[999] != order.ServerID(e.Round) {
			t.Fatalf("round %d has servers %v", e.Round, e.Servers[:3])
		}
	}
}

// TestRunsAreBounded: the oldest runs go.
func TestRunsAreBounded(t *testing.T) {
	t.Parallel()
	r := rounds.New()
	for i := range uint64(rounds.RunsMax + 3) {
		r.Begin(i, 1, nil)
	}
	if runs, changed := r.Runs(); len(runs) != rounds.RunsMax || runs[0].Number != 3 ||
		changed != rounds.RunsMax+3 {
		t.Errorf("%d runs from %d, %d changes", len(runs), runs[0].Number, changed)
	}
}

// Writers, readers and watchers do not disturb each other.
func TestConcurrentUse(t *testing.T) {
	t.Parallel()
	r := rounds.New()
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			for i := range 2000 {
				note(r, order.Round(i), 1, 2)
			}
		})
		all.Go(func() {
			defer r.Watch()()
			for next := uint64(1); next < 500; next = r.From(next, 100).Next {
				note(r, 1)
			}
		})
		all.Go(func() {
			for i := range uint64(100) {
				r.Begin(i, 1, []order.ServerID{1})
				r.End(i, "over")
				r.Runs()
			}
		})
	}
	all.Wait()
}

// TestNotingDoesNotAllocate, watched or not.
func TestNotingDoesNotAllocate(t *testing.T) {
	r := rounds.New()
	servers := []order.ServerID{1, 2, 3}
	once := func() { note(r, 1, servers...) }
	if allocated := testing.AllocsPerRun(100, once); allocated > 0 {
		t.Errorf("unwatched: %v allocations", allocated)
	}
	defer r.Watch()()
	if allocated := testing.AllocsPerRun(100, once); allocated > 0 {
		t.Errorf("watched: %v allocations", allocated)
	}
}

// BenchmarkNote measures an event, unwatched and watched.
func BenchmarkNote(b *testing.B) {
	for _, watched := range []bool{false, true} {
		b.Run(map[bool]string{false: "unwatched", true: "watched"}[watched], func(b *testing.B) {
			r := rounds.New()
			if watched {
				defer r.Watch()()
			}
			e := rounds.Event{Kind: rounds.Received, Frame: "BCAST", Bytes: 100}
			for b.Loop() {
				r.Note(&e)
			}
		})
	}
}

// Times are those of the monotonic clock.
func TestTimesAscend(t *testing.T) {
	t.Parallel()
	r := rounds.New()
	defer r.Watch()()
	for range 50 {
		note(r, 1)
	}
	last, events := time.Duration(0), r.From(1, 50).Events
	for _, e := range events {
		if e.At < last {
			t.Fatalf("event %d at %s after %s", e.Number, e.At, last)
		}
		last = e.At
	}
	if passed := time.Since(r.Begun()); last > passed {
		t.Errorf("at %s of %s", last, passed)
	}
}
