package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/state"
)

var (
	// ErrNotForShard reports that a shard asks for arrivals that are for another one.
	ErrNotForShard = errors.New("store: the organisation moves to another shard")
	// ErrArrivalsBusy reports that there is no memory for the arrivals of a move now, because those
	// of others are being fetched.
	ErrArrivalsBusy = errors.New("store: the arrivals of other moves have all the memory")
)

const (
	// packedAtOnce is up to how many entries arrivals are made while the new home's question is
	// answered, if besides the state has up to searchedAtOnce entries to search. Else a task makes
	// them beside.
	packedAtOnce   = 1 << 9
	searchedAtOnce = 1 << 16
	// keptBytes bounds the encoded arrivals in memory, unless they are those of one move. How many
	// bytes a move has is not known before its arrivals are made for the first time, so until then
	// only its entries count.
	keptBytes = 256 << 20
	// keepArrivals is how long arrivals stay in memory after they were last asked for.
	keepArrivals = time.Minute
	// inUse is how long after they were last asked for arrivals give way to no others, and turn how
	// long that holds after they were made. So a shard that goes on asking keeps no other move
	// away.
	inUse = 5 * time.Second
	turn  = time.Minute
)

// departures are the organisations that have left this shard, and those of their arrivals that are
// in memory: up to MaxMoved entries and keptBytes together, or those of one move. The first
// arrival's id is kept for good, so the new home's question for it makes no arrivals again.
//
// Nobody who holds the mutex waits. Each move has at most one task that makes its arrivals.
type departures struct {
	mutex sync.Mutex
	by    map[uint64]*departed
	// make makes the arrivals of a move. begin begins a task, and end ends it.
	make  func(number uint64) ([]*ledger.Bundle, error)
	begin func() error
	end   func()
	now   func() time.Time
	// most is keptBytes, or less in tests.
	most int
}

// departed is an organisation that left.
type departed struct {
	// at is a height at which it had left.
	at ledger.Height
	// first is the id of the first arrival once it is known.
	first ledger.Hash
	// entries are those of the arrivals that are in memory or being made, or 0.
	entries  int
	arrivals []*ledger.Bundle
	// bytes are those of the arrivals as they were made last, whether they are in memory or not.
	bytes int
	// made is when the arrivals were made, and asked when they were last asked for.
	made, asked time.Time
	// expiry drops the arrivals.
	expiry *time.Timer
	// making is the task that makes them, or nil, and failed why the last one did not.
	making *making
	failed error
}

// making is how a task ended that made arrivals, once done is closed.
type making struct {
	done     chan struct{}
	arrivals []*ledger.Bundle
	err      error
}

// found returns what is known of an organisation that has left as of a height.
func (d *departures) found(number uint64, at ledger.Height) *departed {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	found := d.by[number]
	if found == nil {
		found = &departed{at: at}
		if d.by == nil {
			d.by = make(map[uint64]*departed)
		}
		d.by[number] = found
	}
	return found
}

// firstOf returns the id of the first arrival of a move, if it is known. Else it makes the
// arrivals, unless there is no room, at once or with a task. It does not wait for others. Entries
// is about how many there are.
func (d *departures) firstOf(number uint64, found *departed, entries int, atOnce bool) (
	first ledger.Hash, err error) {
	d.mutex.Lock()
	first, err = found.first, found.failed
	if first != (ledger.Hash{}) {
		err = nil // it is known, whatever became of arrivals that were made again
	}
	if found.failed = nil; first != (ledger.Hash{}) || err != nil || found.making != nil ||
		!d.clear(entries, found.bytes) {
		d.mutex.Unlock()
		return first, err // it is tried again next time
	}
	task, err := d.task(found, entries)
	d.mutex.Unlock()
	if err != nil {
		return first, err
	}
	if !atOnce {
		go d.run(number, found, task)
		return first, nil
	}
	d.run(number, found, task)
	d.mutex.Lock()
	defer d.mutex.Unlock()
	found.failed = nil
	return found.first, task.err
}

// of returns the arrivals of a move. It waits until they are made.
func (d *departures) of(ctx context.Context, number uint64, found *departed, entries int) (
	[]*ledger.Bundle, error) {
	d.mutex.Lock()
	if found.arrivals != nil {
		defer d.mutex.Unlock()
		d.expectMore(found)
		return found.arrivals, nil
	}
	task := found.making
	if task == nil {
		var err error
		if !d.clear(entries, found.bytes) {
			err = ErrArrivalsBusy
		} else if task, err = d.task(found, entries); err == nil {
			go d.run(number, found, task)
		}
		if err != nil {
			d.mutex.Unlock()
			return nil, err
		}
	}
	d.mutex.Unlock()
	select {
	case <-task.done:
		return task.arrivals, task.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// task begins a task that makes arrivals. The caller holds the mutex.
func (d *departures) task(found *departed, entries int) (*making, error) {
	if err := d.begin(); err != nil {
		return nil, err
	}
	found.entries, found.making = max(entries, 1), &making{done: make(chan struct{})}
	return found.making, nil
}

// run is a task that makes arrivals.
func (d *departures) run(number uint64, found *departed, task *making) {
	defer d.end()
	arrivals, err := d.make(number)
	if err != nil {
		err = fmt.Errorf("what move %d takes along: %w", number, err)
	}
	entries, bytes := 0, 0
	for _, each := range arrivals {
		bytes += len(each.Encode()) // it keeps the encoding, which several calls read at a time
		entries += len(each.Transaction(0).Arrival.Entries)
	}
	d.mutex.Lock()
	defer d.mutex.Unlock()
	task.arrivals, task.err = arrivals, err
	found.entries, found.making, found.failed = 0, nil, err
	if len(arrivals) > 0 {
		found.first = arrivals[0].ID(0)
		found.made, found.bytes = d.now(), bytes
		d.expectMore(found)
		if d.clear(max(entries, 1), bytes) {
			found.arrivals, found.entries = arrivals, max(entries, 1)
		} // or else only callers that wait now get them, and the next call makes them again
	}
	close(task.done)
}

// expectMore keeps arrivals in memory a while longer. The caller holds the mutex.
func (d *departures) expectMore(found *departed) {
	found.asked = d.now()
	if found.expiry != nil {
		found.expiry.Reset(keepArrivals)
		return
	}
	found.expiry = time.AfterFunc(keepArrivals, func() {
		d.mutex.Lock()
		defer d.mutex.Unlock()
		if found.arrivals != nil && d.now().Sub(found.asked) >= keepArrivals {
			found.drop()
		}
	})
}

func (f *departed) drop() { f.arrivals, f.entries = nil, 0 }

// kept returns the bytes of the arrivals in memory.
func (f *departed) kept() int {
	if f.entries == 0 {
		return 0
	}
	return f.bytes
}

// clear makes room for more entries and bytes, and reports whether there is. It drops arrivals that
// are not in use, those first that were asked for longest ago, and none if that does not suffice.
// The caller holds the mutex.
func (d *departures) clear(entries, bytes int) bool {
	var idle []*departed
	var used, usedBytes, freed, freedBytes int
	now := d.now()
	for _, each := range d.by {
		used, usedBytes = used+each.entries, usedBytes+each.kept()
		if each.arrivals != nil && (now.Sub(each.asked) >= inUse || now.Sub(each.made) >= turn) {
			idle = append(idle, each)
			freed, freedBytes = freed+each.entries, freedBytes+each.kept()
		}
	}
	fits := func(used, usedBytes int) bool {
		return used == 0 || used+entries <= MaxMoved && usedBytes+bytes <= d.most
	}
	if !fits(used-freed, usedBytes-freedBytes) {
		return false
	}
	slices.SortFunc(idle, func(a, b *departed) int { return a.asked.Compare(b.asked) })
	for ; !fits(used, usedBytes); idle = idle[1:] {
		used, usedBytes = used-idle[0].entries, usedBytes-idle[0].kept()
		idle[0].drop()
	}
	return true
}

// Arrivals returns the arrivals of a move away from this shard, for a shard that asks, or none if
// the organisation has not left with a block up to a height. That must be one that a majority of
// the members have on disk. It waits until they are made. They stay in memory for a while. Errors
// include ErrNotForShard and ErrArrivalsBusy.
func (s *Store) Arrivals(ctx context.Context, number uint64, asks ledger.ShardID,
	upTo ledger.Height) ([]*ledger.Bundle, error) {
	s.mutex.RLock()
	away := s.state.Departures()
	s.mutex.RUnlock()
	at := slices.IndexFunc(away, func(m state.Move) bool { return m.Number == number })
	if at < 0 {
		return nil, nil
	}
	if away[at].To != asks {
		return nil, fmt.Errorf("%w: shard %d, not %d", ErrNotForShard, away[at].To, asks)
	}
	found, entries, _ := s.gone(&away[at])
	if found == nil || found.at > upTo {
		return nil, nil
	}
	return s.departures.of(ctx, number, found, entries)
}

// departure returns the word that an organisation has left, for the shard that asks with the id of
// a move. It does not wait: if arrivals have to be made that are not few, it has none until a task
// has made them.
func (s *Store) departure(asked ledger.Hash, asks ledger.ShardID, upTo ledger.Height) (
	word ledger.Verdict, made bool, err error) {
	s.mutex.RLock()
	away := s.state.Departures()
	s.mutex.RUnlock()
	for i := range away {
		each := &away[i]
		if each.To != asks || ledger.MoveID(s.genesis.Book(), each.Number) != asked {
			continue
		}
		if s.neverDeparts(each.Number, upTo) {
			return ledger.Departure(each.Number, s.genesis.Shard, asked), true, nil
		}
		found, entries, few := s.gone(each)
		if found == nil || found.at > upTo {
			return ledger.Verdict{}, false, nil
		}
		first, err := s.departures.firstOf(each.Number, found, entries, few)
		if err != nil || first == (ledger.Hash{}) {
			return ledger.Verdict{}, false, err
		}
		return ledger.Departure(each.Number, s.genesis.Shard, first), true, nil
	}
	return ledger.Verdict{}, false, nil
}

// gone returns what is known of an organisation if it has left, about how many entries it has, and
// whether its arrivals are made fast.
func (s *Store) gone(move *state.Move) (found *departed, entries int, few bool) {
	s.mutex.RLock()
	left, at := s.state.Departed(move.Number), s.head.Header.Height
	use, searched := s.state.Use(move.Organisation), s.state.Searched()
	s.mutex.RUnlock()
	if !left {
		return nil, 0, false
	}
	entries = int(use.Accounts + use.Records + use.Streams)
	return s.departures.found(move.Number, at), entries,
		entries <= packedAtOnce && searched <= searchedAtOnce
}
