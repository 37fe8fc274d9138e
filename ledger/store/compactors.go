package store

import (
	"time"
	_ "unsafe" // for go:linkname

	"github.com/dgraph-io/badger/v4"

	"github.com/ledgerd/ledgerd/internal/beat"
)

// Badger's compactors look for work every 50 ms each, for as long as the database is open. In an
// idle node that was more than half of all processor time, and Badger has no option for it. So the
// store stops the compactors while the database has nothing for them, and starts them again once it
// has.

// The store looks whether there is work for compactors every compactorsLook. They stop when
// compactorsIdle looks in a row found none.
//
// Work comes with writes. It begins with five tables at level 0, and writers wait only at fifteen.
// So the compactors, which take up to a second to start, are there before a writer waits.
const (
	compactorsLook = time.Second
	compactorsIdle = 10
)

// Badger itself stops and starts its compactors with these, for example to drop data. A start after
// a start, or a stop beside another, is not allowed. A database without compactors can be closed.
//
//go:linkname stopCompactors github.com/dgraph-io/badger/v4.(*DB).stopCompactions
func stopCompactors(*badger.DB)

//go:linkname startCompactors github.com/dgraph-io/badger/v4.(*DB).startCompactions
func startCompactors(*badger.DB)

// compactors decides when the compactors run.
type compactors struct {
	stopped bool
	idle    int // looks in a row that found no work
}

// look takes whether there is work for the compactors, and reports whether to stop or to start them
// now.
func (c *compactors) look(work bool) (stop, start bool) {
	if work {
		start = c.stopped
		*c = compactors{}
		return false, start
	}
	c.idle++
	stop = !c.stopped && c.idle >= compactorsIdle
	c.stopped = c.stopped || stop
	return stop, false
}

// restCompactors stops and starts the compactors of a database until ending is closed. They run
// then, in case the rest of the writes needs them.
func restCompactors(db *badger.DB, every time.Duration, ending <-chan struct{}) {
	look := time.NewTimer(beat.Until(time.Now(), every))
	defer look.Stop()
	var c compactors
	for {
		select {
		case <-ending:
			if c.stopped {
				startCompactors(db)
			}
			return
		case <-look.C:
			look.Reset(beat.Until(time.Now(), every))
		}
		switch stop, start := c.look(hasCompactions(db)); {
		case stop:
			stopCompactors(db)
		case start:
			startCompactors(db)
		}
	}
}

// hasCompactions reports whether a compactor would compact a level now. Badger shows the score of
// such levels only.
func hasCompactions(db *badger.DB) bool {
	for _, level := range db.Levels() {
		if level.Score > 0 {
			return true
		}
	}
	return false
}
