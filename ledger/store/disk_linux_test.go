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
