package journal

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// bypasses reports whether writes of a file bypass the system's cache.
func bypasses(t *testing.T, file *os.File) bool {
	t.Helper()
	flags, err := unix.FcntlInt(file.Fd(), unix.F_GETFL, 0)
	if err != nil {
		t.Fatal(err)
	}
	return flags&unix.O_DIRECT != 0
}

// All segments are written without the system's cache, if the file system can do that: new ones,
// those that are used again, and those that were found.
func TestWritesBypassTheCache(t *testing.T) {
	t.Parallel()
	o := newOwner(t.TempDir(), 2*pageSize)
	probe, err := os.Create(filepath.Join(filepath.Dir(o.dir), "probe"))
	if err != nil {
		t.Fatal(err)
	}
	can := bypassCache(probe, true)
	if err := probe.Close(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, _, err := o.open(); err != nil {
			t.Fatal(err)
		}
		for range 20 {
			group, err := o.j.Append(make([]byte, 100))
			if err != nil {
				t.Fatal(err)
			}
			o.j.mutex.Lock()
			segment := o.j.segments[o.j.current]
			direct, bypassed := segment.direct, bypasses(t, segment.file)
			o.j.mutex.Unlock()
			if direct != can || bypassed != can {
				t.Fatalf("segment %d: %v and %v, want %v", segment.number, direct, bypassed, can)
			}
			o.known.Group = group
			o.j.Release(group)
		}
		if err := o.j.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// A disk that needs larger units than pages refuses to write without the cache. The segment then
// goes through it.
func TestDiskNeedsLargerUnits(t *testing.T) {
	t.Parallel()
	file, err := os.Create(filepath.Join(t.TempDir(), "segment"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	s := segment{file: file, direct: bypassCache(file, true)}
	if !s.direct {
		t.Skip("this file system always uses the cache")
	}
	content := []byte("not a multiple of any unit")
	if err := s.write(content, 0); err != nil || s.direct != bypasses(t, file) {
		t.Errorf("direct %v: %v", s.direct, err)
	}
	if read, err := os.ReadFile(file.Name()); err != nil || !bytes.Equal(read, content) {
		t.Errorf("%q: %v", read, err)
	}
	if s.direct {
		t.Skip("this file system takes units of any size")
	}
}
