package segment

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/ledgerd/ledgerd/rdmanet"
)

// Before it parks, a waiter checks its condition spinRounds times, and the bell spinLooks times in
// between: some microseconds in all.
const (
	spinRounds = 16
	spinLooks  = 32
)

// Doorbell wakes goroutines that wait for memory to change. The zero value is ready to use. All
// methods may be called from several goroutines.
type Doorbell struct {
	sequence atomic.Uint64 // rings so far
	parked   atomic.Int64  // length of waiters
	parks    atomic.Uint64
	closed   atomic.Bool

	mu      sync.Mutex
	waiters []chan struct{} // each has room for its one token
}

// wakes holds the channels of waiters that are not waiting.
var wakes = sync.Pool{New: func() any { return make(chan struct{}, 1) }}

// Ring makes every waiter check again. Everything that the caller stored before is visible to them.
func (d *Doorbell) Ring() {
	// A waiter increments parked before it checks the sequence a last time. Ring does the opposite.
	// So at least one of the two sees the other.
	d.sequence.Add(1)
	if d.parked.Load() > 0 {
		d.wake()
	}
}

func (d *Doorbell) wake() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, w := range d.waiters {
		w <- struct{}{}
	}
	clear(d.waiters)
	d.waiters = d.waiters[:0]
	d.parked.Store(0)
}

// Close makes all waiters return ErrClosed.
func (d *Doorbell) Close() {
	d.closed.Store(true)
	d.Ring()
}

// Parks returns how often a waiter has parked.
func (d *Doorbell) Parks() uint64 { return d.parks.Load() }

// Await waits until ready returns true. It calls ready immediately, a few times while it spins,
// then after each Ring. It returns ctx's error or ErrClosed. It does not allocate.
func (d *Doorbell) Await(ctx context.Context, ready func() bool) error {
	for {
		seen := d.sequence.Load()
		if d.closed.Load() {
			return rdmanet.ErrClosed
		}
		if ready() {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		found, rung := d.spin(seen, ready)
		if found {
			return nil
		}
		if rung {
			continue
		}
		if err := d.park(ctx, seen); err != nil {
			return err
		}
	}
}

// spin checks briefly whether ready returns true or the bell was rung.
func (d *Doorbell) spin(seen uint64, ready func() bool) (found, rung bool) {
	for range spinRounds {
		for range spinLooks {
			if d.sequence.Load() != seen {
				return false, true
			}
		}
		runtime.Gosched() // the writer may be waiting for this processor
		if ready() {
			return true, false
		}
	}
	return false, false
}

// park waits for a ring after the one numbered seen.
func (d *Doorbell) park(ctx context.Context, seen uint64) error {
	w := wakes.Get().(chan struct{})
	defer wakes.Put(w)
	d.mu.Lock()
	d.parked.Add(1)
	if d.sequence.Load() != seen {
		d.parked.Add(-1)
		d.mu.Unlock()
		return nil
	}
	d.waiters = append(d.waiters, w)
	d.mu.Unlock()
	d.parks.Add(1)
	select {
	case <-w:
		return nil
	case <-ctx.Done():
	}
	d.mu.Lock()
	if i := slices.Index(d.waiters, w); i >= 0 {
		d.waiters = slices.Delete(d.waiters, i, i+1)
		d.parked.Add(-1)
	} else {
		<-w // it was woken too
	}
	d.mu.Unlock()
	return ctx.Err()
}
