package store

import "time"

// What is done behind, while blocks are executed, rests for a multiple of the time for which it
// worked: what clients wait for comes first. Nobody waits for its end, but it must come: a check
// that does not end finds no damage, and a process that is killed before it has ended makes the
// next start check everything. So it gets less of a processor the more of the time the store spends
// with blocks, and never less than one part in mostRest+1.

// sliceDefault is how long work goes on without a rest. It rests for leastRest times as long as it
// worked, and for restOfBusy times as long besides if the store spent all of the time with blocks,
// but for no more than mostRest times as long. A slice that lasted longer than mostSlices counts
// for no more: it may have waited for the disk.
const (
	sliceDefault = 20 * time.Millisecond
	leastRest    = 3
	restOfBusy   = 300
	mostRest     = 60
	mostSlices   = 5
)

// pace makes work behind rest.
type pace struct {
	store *Store
	// began is when the work went on after its last rest. counted is when busy was read, which is
	// the time that the store had spent with blocks by then.
	began, counted time.Time
	busy           time.Duration
	// least is for how many times as long as it worked the work rests, however little the store has
	// to do.
	least float64
	// presses reports whether blocks wait for what the work does. Then it rests for least times as
	// long as it worked. Nil means that they never do.
	presses func() bool
	// steady says that the work rests for least times as long as it worked in any case: it is
	// short, or must not take long.
	steady bool
}

func (s *Store) newPace() *pace {
	now := time.Now()
	return &pace{store: s, began: now, counted: now, busy: s.busyWithBlocks(), least: leastRest}
}

// busyWithBlocks returns how much time the store has spent with blocks since it was opened.
func (s *Store) busyWithBlocks() time.Duration { return time.Duration(s.busy.Load()) }

// spendsWithBlocks counts the time until the returned function is called.
func (s *Store) spendsWithBlocks() (ended func()) {
	began := time.Now()
	return func() { s.busy.Add(int64(time.Since(began))) }
}

// step is called after each bit of work. It returns ErrClosed if the store is being closed.
func (p *pace) step() error {
	switch {
	case p.due():
		return p.rest()
	case p.store.isEnding():
		return ErrClosed
	}
	return nil
}

// due reports whether the work should rest.
func (p *pace) due() bool { return time.Since(p.began) >= p.store.options.slice }

// rest lets the work rest. It returns ErrClosed if the store is being closed.
func (p *pace) rest() error {
	if err := p.wait(p.length(time.Now())); err != nil {
		return err
	}
	return p.skip()
}

// wait waits. It returns ErrClosed if the store is being closed.
func (p *pace) wait(length time.Duration) error {
	rest := time.NewTimer(length)
	defer rest.Stop()
	select {
	case <-p.store.ending:
		return ErrClosed
	case <-rest.C:
		return nil
	}
}

// skip lets the work go on without a rest that is due.
func (p *pace) skip() error {
	if p.store.isEnding() {
		return ErrClosed
	}
	p.began = time.Now()
	return nil
}

// length returns for how long the work rests.
func (p *pace) length(now time.Time) time.Duration {
	busy, passed := p.store.busyWithBlocks(), now.Sub(p.counted)
	share := 0.0
	if passed > 0 {
		share = float64(busy-p.busy) / float64(passed)
	}
	p.busy, p.counted = busy, now
	if p.steady || p.presses != nil && p.presses() || p.store.options.Eager {
		share = 0
	}
	worked := min(now.Sub(p.began), mostSlices*p.store.options.slice)
	return time.Duration(restFactor(p.least, share) * float64(worked))
}

// restFactor returns for how many times as long as it worked the work rests, if the store spends a
// share of the time with blocks.
func restFactor(least, share float64) float64 { return min(least+restOfBusy*share, mostRest) }
