package store

import (
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

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

// TestRealDiskFull fills a small file system of its own.
func TestRealDiskFull(t *testing.T) {
	if testing.Short() {
		t.Skip("fills a disk")
	}
	mount := filepath.Join(t.TempDir(), "disk")
	if err := os.Mkdir(mount, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", mount, "tmpfs", 0, "size=24m"); err != nil {
		t.Skipf("needs the right to mount a tmpfs: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(mount, unix.MNT_DETACH) })
	options := small()
	options.ReserveBytes = 10 << 20
	s := open(t, filepath.Join(mount, "store"), options)
	b := newBook(20)
	b.apply(t, s, 0)
	payload, full := []byte(nil), false
	for range 2000 {
		payload = b.next(1000)
		if _, err := s.Apply(1, b.round, [][]byte{payload}); err != nil {
			if full = errors.Is(err, ErrDiskFull); !full {
				t.Fatal(err)
			}
			break
		}
	}
	if !full {
		t.Fatal("the disk never got full")
	}
	if err := s.Sync(); err != nil {
		t.Fatal(err)
	}
	if block, err := s.Block(s.AppendedHeight()); err != nil || len(block.Entries) == 0 {
		t.Fatalf("reading on a full disk: %v", err)
	}
	if err := unix.Mount("tmpfs", mount, "tmpfs", unix.MS_REMOUNT, "size=64m"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Apply(1, b.round, [][]byte{payload}); err != nil {
		t.Fatalf("apply with space again: %v", err)
	}
	if err := s.verify(t.Context(), nil); err != nil {
		t.Fatal(err)
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
