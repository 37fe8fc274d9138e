package home

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// A fresh folder cannot be named on a full disk. Nothing has changed then, and it can be named once
// there is room.
func TestDiskIsFullWhenFreshFolderIsNamed(t *testing.T) {
	mount := filepath.Join(t.TempDir(), "disk")
	if err := os.Mkdir(mount, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", mount, "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("needs the right to mount a tmpfs: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(mount, unix.MNT_DETACH) })
	h := create(t, filepath.Join(mount, "node-0"))
	before := run(t, h)
	d, err := h.OpenDisk()
	if err != nil {
		t.Fatal(err)
	}
	hold(t, d.Fresh(), "fresh")
	big := filepath.Join(mount, "big")
	if err := os.WriteFile(big, make([]byte, 2<<20), 0o600); !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("the disk is not full: %v", err)
	}
	if err := d.NameFresh(); !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("named on a full disk: %v", err)
	}
	entries, err := os.ReadDir(d.Fresh())
	if err != nil || len(entries) != 1 {
		t.Errorf("the fresh folder holds %v, %v", entries, err)
	}
	if err := errors.Join(os.Remove(big), d.NameFresh(), d.SetAside(h.Data()+".rolled-back-3-1"),
		d.Close()); err != nil {
		t.Fatal(err)
	}
	if after := run(t, h); after.ID != before.ID || !after.Original {
		t.Errorf("the disk was %v and is %+v", before.ID, after)
	}
}
