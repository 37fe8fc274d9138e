package store

import (
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestDiskFullIsRefusedEarly(t *testing.T) {
	t.Parallel()
	var free atomic.Uint64
	free.Store(1 << 40)
	options := small()
	options.ReserveBytes = 1 << 20
	options.FreeSpace = func(string) (uint64, error) { return free.Load(), nil }
	s := open(t, t.TempDir(), options)
	b := newBook(5)
	b.apply(t, s, 0)
	b.apply(t, s, 10)
	before := mustReadAll(t, s)
	free.Store(1 << 19)
	payload := b.next(10)
	if _, err := s.Apply(1, b.round, [][]byte{payload}); !errors.Is(err, ErrDiskFull) {
		t.Fatalf("apply on a full disk: %v", err)
	}
	if err := s.Sync(); err != nil {
		t.Fatalf("what was appended before cannot be synced: %v", err)
	}
	if mustReadAll(t, s) != before {
		t.Fatal("a refused round changed the store")
	}
	free.Store(1 << 40)
	block, err := s.Apply(1, b.round, [][]byte{payload})
	if err != nil || block.Header.Height != 3 {
		t.Fatalf("apply with space again: %v", err)
	}
}

// TestLockIsGivenBack checks that the lock is released even while a child that was just forked
// holds a copy of the file.
func TestLockIsGivenBack(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir, small())
	forked, err := unix.Dup(int(s.lock.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(forked)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	open(t, dir, small())
}

// A child that was just forked holds a copy of the database's folder, and so its lock, for a
// moment. That is no damage: Open waits for a while.
func TestDatabaseIsLocked(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir, small())
	newBook(5).apply(t, s, 0)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	held, err := os.Open(filepath.Join(dir, databaseFolder))
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	if err := unix.Flock(int(held.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir, testGenesis(), small()); !errors.Is(err, ErrLocked) {
		t.Fatalf("opened while the database is locked: %v", err)
	}
	released := make(chan error, 1)
	time.AfterFunc(300*time.Millisecond, func() {
		released <- unix.Flock(int(held.Fd()), unix.LOCK_UN)
	})
	open(t, dir, small())
	if err := <-released; err != nil {
		t.Fatal(err)
	}
}

// Once Close has begun, nothing waits for descriptors or space any more, so that Close ends.
func TestNothingWaitsOnceCloseBegins(t *testing.T) {
	t.Parallel()
	full := Options{FreeSpace: func(string) (uint64, error) { return 0, nil }}.withDefaults()
	s := &Store{options: full}
	s.closing.Store(true)
	for name, wait := range map[string]func() error{
		"descriptors": func() error {
			return s.retryDescriptors(func() error { return unix.EMFILE })
		},
		"a file of the journal": func() error {
			return s.retryPassing(func() error { return unix.ENOSPC })
		},
		"space": func() error { return s.retrySpace(1) },
	} {
		ended := make(chan error, 1)
		go func() { ended <- wait() }()
		select {
		case err := <-ended:
			if err == nil {
				t.Errorf("%s: no error", name)
			}
		case <-time.After(30 * time.Second):
			t.Fatalf("%s: it waits", name)
		}
	}
}
