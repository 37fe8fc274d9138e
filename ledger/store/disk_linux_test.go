package store

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

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
	if block, err := s.Block(s.AppendedHeight()); err != nil || block.Len() == 0 {
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

// A Sync that waits for space for the journal's next file does not keep the store from closing.
func TestCloseWhileSyncWaitsForSpace(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir, small())
	b := newBook(20)
	b.apply(t, s, 0)
	closeStore(t, s)
	// The journal gets a small file system of its own: the database fails badly without space.
	folder := filepath.Join(dir, journalFolder)
	kept := readFolder(t, folder)
	if err := unix.Mount("tmpfs", folder, "tmpfs", 0, "size=100k"); err != nil {
		t.Skipf("needs the right to mount a tmpfs: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(folder, unix.MNT_DETACH) })
	kept.write(t, folder)
	options := small()
	options.MemTableBytes, options.checkpointBlocks = 16<<20, 1000 // nothing goes to the database
	s = open(t, dir, options)
	b.apply(t, s, 2000)
	synced := make(chan error)
	go func() { synced <- s.Sync() }()
	for waits := false; !waits; { // until the journal tries to make a file
		select {
		case err := <-synced:
			t.Fatalf("Sync returned %v", err)
		default:
			_, err := os.Stat(filepath.Join(folder, "draft"))
			waits = err == nil
		}
	}
	if err := s.Close(); !errors.Is(err, ErrFailed) || !errors.Is(err, unix.ENOSPC) {
		t.Error(err)
	}
	if err := <-synced; !errors.Is(err, unix.ENOSPC) {
		t.Error(err)
	}
}
