package journal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// notFlushable takes writes, but its flush fails.
func notFlushable(t *testing.T) *os.File {
	t.Helper()
	file, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	return file
}

// A group is on the disk only when each segment that has a part of it was flushed. If one cannot be
// written or flushed, the journal takes nothing more.
func TestEachPartIsFlushed(t *testing.T) {
	t.Parallel()
	read, err := os.Open(os.DevNull) // refuses writes
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	for what, test := range map[string]struct {
		file *os.File
		size int
	}{
		"a part that is not written":  {read, 1000},
		"a part that is not flushed":  {notFlushable(t), 1000},
		"the first of several is not": {notFlushable(t), 3 * pageSize},
	} {
		o := newOwner(t.TempDir(), 2*pageSize)
		if _, _, err := o.open(); err != nil {
			t.Fatal(err)
		}
		before := o.j.Flushes()
		if _, err := o.j.Append(nil); err != nil || o.j.Flushes() != before+1 {
			t.Fatalf("%d flushes: %v", o.j.Flushes()-before, err)
		}
		segment := o.j.segments[0]
		whole := segment.file
		segment.file = test.file
		_, err := o.j.Append(make([]byte, test.size))
		segment.file = whole
		_, again := o.j.Append(nil)
		if err == nil || !errors.Is(again, err) || o.j.Last() != 1 {
			t.Errorf("%s: %v, then %v", what, err, again)
		}
		if err := o.j.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// A new segment is flushed before it has its name, and its name before it is claimed.
func TestSegmentIsFlushedBeforeItsClaim(t *testing.T) {
	t.Parallel()
	o := newOwner(t.TempDir(), pageSize)
	options := o.options()
	var j *Journal
	var flushes []uint64
	options.Before = func(step string) {
		if step == "segment name" || step == "segment claim" {
			flushes = append(flushes, j.Flushes())
		}
	}
	j, err := Open(o.dir, Known{}, options)
	if err == nil {
		err = j.Start()
	}
	if err != nil || !slices.Equal(flushes, []uint64{2, 3}) {
		t.Errorf("flushes %v: %v", flushes, err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	// The flush of its zeros must succeed.
	o = newOwner(t.TempDir(), pageSize)
	options.Before = func(step string) {
		if step == "journal folder" {
			err = errors.Join(os.MkdirAll(o.dir, 0o700),
				os.Symlink(os.DevNull, filepath.Join(o.dir, draft)))
		}
	}
	if j, err = Open(o.dir, Known{}, options); err != nil {
		t.Fatal(err)
	}
	if started := j.Start(); started == nil || err != nil {
		t.Errorf("%v, %v", started, err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
}

// Start flushes each segment: what Open found may not be on the disk yet.
func TestStartFlushesWhatWasFound(t *testing.T) {
	t.Parallel()
	o := newOwner(t.TempDir(), pageSize)
	for range 2 {
		if _, _, err := o.open(); err != nil {
			t.Fatal(err)
		}
		if _, err := o.j.Append(make([]byte, 3*pageSize)); err != nil {
			t.Fatal(err)
		}
		if err := o.j.Close(); err != nil {
			t.Fatal(err)
		}
	}
	j, err := Open(o.dir, o.known, o.options())
	if err != nil {
		t.Fatal(err)
	}
	segments := uint64(len(j.segments))
	if err := j.Start(); err != nil || segments < 8 || j.Flushes() < segments {
		t.Errorf("%d segments, %d flushes: %v", segments, j.Flushes(), err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
}

// released returns a journal that was closed, with groups that were all released.
func released(t *testing.T, size int) *owner {
	t.Helper()
	o := newOwner(t.TempDir(), 4*pageSize)
	if _, _, err := o.open(); err != nil {
		t.Fatal(err)
	}
	for i := range 30 {
		group, err := o.j.Append(bytes.Repeat([]byte{byte(i + 1)}, size))
		if err != nil {
			t.Fatal(err)
		}
		o.known.Group = group
		o.j.Release(group)
	}
	if err := o.j.Close(); err != nil {
		t.Fatal(err)
	}
	return o
}

// A journal whose groups were all released returns none, and goes on behind them. Damage to them is
// no doubt.
func TestEverythingIsReleased(t *testing.T) {
	t.Parallel()
	for _, size := range []int{1000, 8*bodySize - lengthSize, 3 * pageSize} {
		o := released(t, size)
		content := readFiles(t, o.dir)
		for name, data := range content {
			var number uint64
			if _, err := fmt.Sscanf(name, "%d", &number); err != nil {
				t.Fatal(err)
			}
			if condition, h := read(data[:sectorSize], number); condition == whole &&
				h.group < o.known.Group {
				data[100] ^= 1
			}
		}
		content.write(t, o.dir)
		groups, doubt, err := o.open()
		if err != nil || doubt != "" || len(groups) != 0 {
			t.Fatalf("size %d: %d groups, doubt %q: %v", size, len(groups), doubt, err)
		}
		if err := o.j.Close(); err != nil {
			t.Fatal(err)
		}
		// It goes on in another one. Here a damaged segment might be reused next, and damage behind
		// the last whole group is a doubt.
		o = released(t, size)
		if groups, doubt, err = o.open(); err != nil || doubt != "" || len(groups) != 0 {
			t.Fatalf("size %d: %d groups, doubt %q: %v", size, len(groups), doubt, err)
		}
		if group, err := o.j.Append(nil); group != 31 || err != nil {
			t.Fatalf("group %d: %v", group, err)
		}
		if err := o.j.Close(); err != nil {
			t.Fatal(err)
		}
		if groups, doubt, err = o.open(); err != nil || doubt != "" || len(groups) != 1 {
			t.Fatalf("size %d: %d groups, doubt %q: %v", size, len(groups), doubt, err)
		}
		if err := o.j.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// The caller may have lost its record of the last release. The segments of the groups that it does
// not know to be released are used again, and a group may have lost its beginning with them.
func TestOlderRecordOfTheRelease(t *testing.T) {
	t.Parallel()
	for _, size := range []int{1000, 3 * pageSize, 6 * pageSize} {
		o := released(t, size)
		if _, _, err := o.open(); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if _, err := o.j.Append(make([]byte, size)); err != nil {
				t.Fatal(err)
			}
		}
		if err := o.j.Close(); err != nil {
			t.Fatal(err)
		}
		firstWhole := uint64(0)
		for o.known.Group = range uint64(31) {
			groups, doubt, err := o.open()
			if errors.Is(err, ErrDamaged) && o.known.Group+2 == firstWhole {
				continue // a group that lacks its beginning follows the record
			}
			if err != nil || doubt != "" || o.j.Last() != 32 {
				t.Fatalf("size %d, released %d: doubt %q: %v", size, o.known.Group, doubt, err)
			}
			first := 33 - uint64(len(groups))
			if o.known.Group == 0 {
				firstWhole = first
			}
			if want := max(firstWhole, o.known.Group+1); first != want || first == 1 {
				t.Errorf("size %d, released %d: groups from %d", size, o.known.Group, first)
			}
			for group := first; group <= 32; group++ {
				want := byte(group)
				if group > 30 {
					want = 0
				}
				if !bytes.Equal(groups[group], bytes.Repeat([]byte{want}, size)) {
					t.Errorf("size %d, released %d: group %d differs", size, o.known.Group, group)
				}
			}
			if err := o.j.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// A group after one that is not whole proves that it was flushed, also if it is the only one after
// it. Behind a group that ends with its page, the first sector is judged like others.
func TestHarmAroundTheLastGroup(t *testing.T) {
	t.Parallel()
	o := newOwner(t.TempDir(), 16*pageSize)
	if _, _, err := o.open(); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := o.j.Append(make([]byte, 8*bodySize-lengthSize)); err != nil {
			t.Fatal(err)
		}
	}
	if err := o.j.Close(); err != nil {
		t.Fatal(err)
	}
	content := readFiles(t, o.dir)
	for page, want := range []struct {
		err    error
		groups int
		doubt  bool
	}{{ErrDamaged, 0, false}, {ErrDamaged, 0, false}, {nil, 2, true}, {nil, 3, true}} {
		harmed := content.clone()
		harmed[segmentName(1)][page*pageSize] ^= 1
		harmed.write(t, o.dir)
		groups, doubt, err := o.open()
		if !errors.Is(err, want.err) || len(groups) != want.groups || (doubt != "") != want.doubt {
			t.Errorf("page %d: %d groups, doubt %q: %v", page, len(groups), doubt, err)
		}
		if o.j != nil {
			if err := o.j.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// A group whose length is beyond its sectors is damage.
func TestWrongLength(t *testing.T) {
	t.Parallel()
	o := newOwner(t.TempDir(), pageSize)
	if _, _, err := o.open(); err != nil {
		t.Fatal(err)
	}
	if _, err := o.j.Append(make([]byte, 1000)); err != nil {
		t.Fatal(err)
	}
	if err := o.j.Close(); err != nil {
		t.Fatal(err)
	}
	content := readFiles(t, o.dir)
	sector := content[segmentName(1)][:sectorSize]
	for extra, want := range []error{nil, ErrDamaged, ErrDamaged} {
		binary.BigEndian.PutUint32(sector[headSize:], uint32(3*bodySize-lengthSize+extra))
		head{segment: 1, group: 1, place: 0, count: 3}.put(sector)
		content.write(t, o.dir)
		j, err := Open(o.dir, o.known, o.options())
		if err != nil {
			t.Fatal(err)
		}
		if err := j.Groups(func(uint64, []byte) error { return nil }); !errors.Is(err, want) {
			t.Errorf("%d bytes too many: %v", extra, err)
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// Before Start, a journal takes no groups; after it, it has none to return. What lies in the folder
// of a journal that was never claimed is not taken for one.
func TestOrderOfCalls(t *testing.T) {
	t.Parallel()
	o := released(t, 3*pageSize)
	j, err := Open(o.dir, Known{}, o.options())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := j.Append(nil); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	o.known = Known{}
	if err := j.Start(); err != nil {
		t.Fatal(err)
	}
	if err := j.Groups(nil); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	if err := j.Start(); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	if numbers, err := list(o.dir); err != nil || !slices.Equal(numbers, []uint64{1}) {
		t.Errorf("segments %v: %v", numbers, err)
	}
	part := make([]byte, 1<<20)
	parts := slices.Repeat([][]byte{part}, 2048)
	if _, err := j.Append(parts...); err == nil || j.Last() != 0 {
		t.Error("a group of 2 GiB is taken")
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
}

// A segment that was made, but not claimed, is claimed before it is used.
func TestSegmentWithoutClaim(t *testing.T) {
	t.Parallel()
	o := released(t, 3*pageSize)
	last := o.known.Segment
	for _, known := range []uint64{last - 1, last} {
		o.known.Segment = known
		j, err := Open(o.dir, o.known, o.options())
		if err != nil {
			t.Fatal(err)
		}
		if err := j.Start(); err != nil || o.known.Segment != last {
			t.Errorf("segment %d is claimed, %d exists: %v", o.known.Segment, last, err)
		}
		if known < last && j.Flushes() != uint64(len(j.segments))+1 {
			t.Errorf("%d flushes of %d segments and the folder", j.Flushes(), len(j.segments))
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// A file that a crash left before it became a segment is made anew.
func TestDraftThatIsLeft(t *testing.T) {
	t.Parallel()
	o := newOwner(t.TempDir(), pageSize)
	if _, _, err := o.open(); err != nil {
		t.Fatal(err)
	}
	files{draft: bytes.Repeat([]byte{1}, 3*pageSize)}.write(t, o.dir)
	if _, err := o.j.Append(make([]byte, 2*pageSize)); err != nil {
		t.Fatal(err)
	}
	if err := o.j.Close(); err != nil {
		t.Fatal(err)
	}
	if content := readFiles(t, o.dir); len(content[segmentName(2)]) != pageSize {
		t.Errorf("segment 2 has %d bytes", len(content[segmentName(2)]))
	}
	if groups, doubt, err := o.open(); len(groups) != 1 || doubt != "" || err != nil {
		t.Errorf("%d groups, doubt %q: %v", len(groups), doubt, err)
	}
	if err := o.j.Close(); err != nil {
		t.Fatal(err)
	}
}

// Close waits for the goroutine that prepares segments.
func TestCloseWaits(t *testing.T) {
	t.Parallel()
	o := newOwner(t.TempDir(), pageSize)
	options := o.options()
	claim, claiming, over := options.Claim, make(chan struct{}), false
	var j *Journal
	options.Claim = func(segment uint64) error {
		if segment == 2 {
			close(claiming)
			j.mutex.Lock()
			for !j.closed {
				j.changed.Wait()
			}
			j.mutex.Unlock()
			over = true
		}
		return claim(segment)
	}
	j, err := Open(o.dir, Known{}, options)
	if err == nil {
		err = j.Start()
	}
	if err == nil {
		_, err = j.Append(make([]byte, 3000))
	}
	if err != nil {
		t.Fatal(err)
	}
	<-claiming
	if err := j.Close(); err != nil || !over {
		t.Errorf("closed before it was over: %v", err)
	}
}

// An Append that needs another segment ends when the journal is closed.
func TestCloseWhileAppendWaits(t *testing.T) {
	t.Parallel()
	o := newOwner(t.TempDir(), pageSize)
	options := o.options()
	var j *Journal
	options.Before = func(step string) {
		if step == "journal flush" { // as Close does first
			j.mutex.Lock()
			j.closed = true
			j.changed.Broadcast()
			j.mutex.Unlock()
		}
	}
	j, err := Open(o.dir, Known{}, options)
	if err == nil {
		err = j.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := j.Append(make([]byte, 2*pageSize)); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
}
