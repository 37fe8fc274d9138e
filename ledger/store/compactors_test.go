package store

import (
	"bytes"
	"context"
	"fmt"
	"runtime/pprof"
	"strings"
	"testing"
	"time"

	"github.com/dgraph-io/badger/v4"
)

func TestCompactorsStopWhenIdle(t *testing.T) {
	t.Parallel()
	var c compactors
	look := func(work, stops, starts bool) {
		t.Helper()
		if stop, start := c.look(work); stop != stops || start != starts {
			t.Fatalf("work %v: stop %v, start %v; want %v, %v", work, stop, start, stops, starts)
		}
	}
	for range 2 { // they stop again after they were started again
		for range compactorsIdle - 1 {
			look(false, false, false)
		}
		look(true, false, false) // what was idle before does not count any more
		for range compactorsIdle - 1 {
			look(false, false, false)
		}
		look(false, true, false)
		look(false, false, false)
		look(true, false, true)
		look(true, false, false)
	}
}

// compactorsOf counts the goroutines of Badger's compactors that carry a label.
func compactorsOf(t *testing.T, label string) (count int) {
	t.Helper()
	var text bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&text, 1); err != nil {
		t.Fatal(err)
	}
	for stacks := range strings.SplitSeq(text.String(), "\n\n") {
		if strings.Contains(stacks, label) && strings.Contains(stacks, "runCompactor") {
			var same int
			if _, err := fmt.Sscanf(stacks, "%d @", &same); err != nil {
				t.Fatalf("%v in %q", err, stacks)
			}
			count += same
		}
	}
	return count
}

// Badger's own functions do what the store takes them for: no compactor runs between a stop and a
// start, and the compactors of after that do the work that came meanwhile.
func TestCompactorsStopAndStart(t *testing.T) {
	t.Parallel()
	db, label := openLabelled(t)
	await(t, "the compactors run", func() bool { return compactorsOf(t, label) == 2 })
	if hasCompactions(db) {
		t.Error("an empty database has something to compact")
	}
	stopCompactors(db)
	if count := compactorsOf(t, label); count != 0 {
		t.Fatalf("%d compactors run after they were stopped", count)
	}
	fillLevel0(t, db)
	startCompactors(db)
	await(t, "the compactors do their work", func() bool { return !hasCompactions(db) })
	if count := compactorsOf(t, label); count != 2 {
		t.Errorf("%d compactors run after they were started", count)
	}
	stopCompactors(db) // Close copes with that
}

// A store whose database has nothing to compact stops the compactors, and starts them once it has.
func TestStoreRestsCompactors(t *testing.T) {
	t.Parallel()
	options := small()
	options.compactorsLook = time.Millisecond
	label := labelled(t)
	s := open(t, t.TempDir(), options)
	await(t, "the compactors stop", func() bool { return compactorsOf(t, label) == 0 })
	fillLevel0(t, s.db)
	await(t, "the compactors do their work", func() bool { return !hasCompactions(s.db) })
	await(t, "the compactors stop again", func() bool { return compactorsOf(t, label) == 0 })
}

// What a store still writes while it is closed may need the compactors.
func TestCompactorsRunAtTheEnd(t *testing.T) {
	t.Parallel()
	db, label := openLabelled(t)
	ending, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		restCompactors(db, time.Millisecond, ending)
	}()
	await(t, "the compactors stop", func() bool { return compactorsOf(t, label) == 0 })
	close(ending)
	<-ended
	await(t, "the compactors run", func() bool { return compactorsOf(t, label) == 2 })
}

// labelled gives a label to the test's goroutine and those that it starts from now on.
func labelled(t *testing.T) (label string) {
	pprof.SetGoroutineLabels(pprof.WithLabels(context.Background(), pprof.Labels("test", t.Name())))
	return t.Name()
}

// openLabelled opens a database whose goroutines carry a label.
func openLabelled(t *testing.T) (db *badger.DB, label string) {
	t.Helper()
	label = labelled(t)
	db, err := badger.Open(badger.DefaultOptions(t.TempDir()).WithLogger(nil).
		WithMetricsEnabled(false).WithMemTableSize(1 << 20).WithNumCompactors(2).
		WithValueThreshold(1 << 16))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db, label
}

// fillLevel0 writes until the database has something to compact.
func fillLevel0(t *testing.T, db *badger.DB) {
	t.Helper()
	number := 0
	await(t, "there is something to compact", func() bool {
		if hasCompactions(db) {
			return true
		}
		batch := db.NewWriteBatch()
		defer batch.Cancel()
		for range 64 {
			if err := batch.Set(fmt.Appendf(nil, "key %d", number), make([]byte,
				16<<10)); err != nil {
				t.Fatal(err)
			}
			number++
		}
		if err := batch.Flush(); err != nil {
			t.Fatal(err)
		}
		return false
	})
}

// await waits until something is so.
func await(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not so after a minute: %s", what)
		}
	}
}
