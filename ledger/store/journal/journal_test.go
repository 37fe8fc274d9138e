package journal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"
)

// owner is what uses a journal: it records the claims and releases durably.
type owner struct {
	dir   string
	known Known
	j     *Journal
	size  int64
}

func newOwner(dir string, size int64) *owner {
	return &owner{dir: filepath.Join(dir, "journal"), size: size}
}

func (o *owner) options() Options {
	return Options{SegmentBytes: o.size, Claim: func(segment uint64) error {
		if segment != o.known.Segment+1 && segment != o.known.Segment {
			return fmt.Errorf("segment %d is claimed after %d", segment, o.known.Segment)
		}
		o.known.Segment = segment
		return nil
	}}
}

// open returns the groups in the journal, and its doubt.
func (o *owner) open() (groups map[uint64][]byte, doubt string, err error) {
	if o.j, err = Open(o.dir, o.known, o.options()); err != nil {
		return nil, "", err
	}
	groups = make(map[uint64][]byte)
	err = o.j.Groups(func(group uint64, payload []byte) error {
		groups[group] = bytes.Clone(payload)
		return nil
	})
	doubt = o.j.Doubt()
	return groups, doubt, errors.Join(err, o.j.Start())
}

func payload(random *rand.Rand, size int) []byte {
	made := make([]byte, size)
	for i := range made {
		made[i] = byte(random.Uint32())
	}
	return made
}

// files is a journal's folder in memory.
type files map[string][]byte

func readFiles(t testing.TB, dir string) files {
	t.Helper()
	kept := files{}
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			kept[entry.Name()], err = os.ReadFile(path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return kept
}

func (f files) clone() files {
	cloned := files{}
	for name, content := range f {
		cloned[name] = bytes.Clone(content)
	}
	return cloned
}

func (f files) write(t testing.TB, dir string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, content := range f {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// Whatever is appended and released, a journal that is opened again has all groups that were not
// released, and few segments.
func TestGroupsComeBack(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		dir, err := os.MkdirTemp("", "journal")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		o := newOwner(dir, 4*pageSize)
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "content"), 0))
		kept := map[uint64][]byte{}
		reopen := func() {
			if o.j != nil {
				if err := o.j.Close(); err != nil {
					t.Fatal(err)
				}
			}
			groups, doubt, err := o.open()
			if err != nil || doubt != "" {
				t.Fatalf("%v, doubt %q", err, doubt)
			}
			for group, payload := range kept {
				if group > o.known.Group && !bytes.Equal(groups[group], payload) {
					t.Fatalf("group %d: %d bytes, were %d", group, len(groups[group]),
						len(payload))
				}
			}
		}
		reopen()
		last := uint64(0)
		t.Repeat(map[string]func(*rapid.T){
			"append": func(t *rapid.T) {
				size := rapid.SampledFrom([]int{0, 1, bodySize - lengthSize, 500, 3000, 9000,
					20_000, 70_000}).Draw(t, "size")
				made := payload(random, size)
				cut := rapid.IntRange(0, size).Draw(t, "cut")
				group, err := o.j.Append(made[:cut], made[cut:])
				if err != nil || group != last+1 || o.j.Last() != group {
					t.Fatalf("group %d after %d: %v", group, last, err)
				}
				last, kept[group] = group, made
			},
			"release": func(t *rapid.T) {
				if last > 0 {
					o.known.Group = rapid.Uint64Range(o.known.Group, last).Draw(t, "group")
					o.j.Release(o.known.Group)
				}
			},
			"reopen": func(t *rapid.T) {
				o.size = pageSize * rapid.Int64Range(1, 6).Draw(t, "pages of new segments")
				reopen()
			},
		})
		if err := o.j.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// Released segments are used again: the journal does not grow.
func TestSegmentsAreUsedAgain(t *testing.T) {
	t.Parallel()
	o := newOwner(t.TempDir(), 4*pageSize)
	if _, _, err := o.open(); err != nil {
		t.Fatal(err)
	}
	for range 200 {
		group, err := o.j.Append(make([]byte, 3000))
		if err != nil {
			t.Fatal(err)
		}
		o.known.Group = group
		o.j.Release(group)
	}
	if err := o.j.Close(); err != nil {
		t.Fatal(err)
	}
	numbers, err := list(o.dir)
	if err != nil || len(numbers) > keepFree+3 || numbers[len(numbers)-1] < 40 {
		t.Errorf("segments %v: %v", numbers, err)
	}
	var many []*os.File
	// Many groups that were not released need many segments, but only until they are.
	if _, _, err := o.open(); err != nil {
		t.Fatal(err)
	}
	for i := range 200 {
		group, err := o.j.Append(make([]byte, 3000))
		if err != nil {
			t.Fatal(err)
		}
		if i == 150 {
			o.j.mutex.Lock()
			for _, segment := range o.j.segments {
				many = append(many, segment.file)
			}
			o.j.mutex.Unlock()
		}
		if i >= 150 {
			o.j.Release(group)
		}
	}
	if err := o.j.Close(); err != nil {
		t.Fatal(err)
	}
	if numbers, err = list(o.dir); err != nil || len(numbers) > keepFree+3 {
		t.Errorf("segments %v after many: %v", numbers, err)
	}
	for _, file := range many {
		if _, err := file.Stat(); !errors.Is(err, os.ErrClosed) {
			t.Errorf("%s is left open: %v", file.Name(), err)
		}
	}
}

// torn is a journal before and after its last group was written. The group was never flushed, as
// far as the copy before shows.
type torn struct {
	before, after files
	known         Known
	last          uint64
	differ        []place512
}

// place512 is a sector of a file.
type place512 struct {
	name string
	at   int
}

func tornJournal(t testing.TB, random *rand.Rand, size int) torn {
	t.Helper()
	o := newOwner(t.TempDir(), 16*pageSize)
	if _, _, err := o.open(); err != nil {
		t.Fatal(err)
	}
	for range 25 { // around the end of a segment that was used before
		group, err := o.j.Append(payload(random, 100+random.IntN(9000)))
		if err != nil {
			t.Fatal(err)
		}
		if group%10 == 0 {
			o.known.Group = group - 4
			o.j.Release(o.known.Group)
		}
	}
	made := torn{last: o.j.Last()}
	if _, err := o.j.Append(payload(random, size)); err != nil {
		t.Fatal(err)
	}
	if err := o.j.Close(); err != nil {
		t.Fatal(err)
	}
	made.after, made.known = readFiles(t, o.dir), o.known
	made.before = files{}
	for name, content := range made.after {
		var number uint64
		if _, err := fmt.Sscanf(name, "%d", &number); err != nil {
			t.Fatal(err)
		}
		before := bytes.Clone(content)
		for at := 0; at < len(content); at += sectorSize {
			if condition, h := read(content[at:at+sectorSize], number); condition == whole &&
				h.group > made.last {
				clear(before[at : at+sectorSize])
				made.differ = append(made.differ, place512{name, at})
			}
		}
		made.before[name] = before
	}
	slices.SortFunc(made.differ, func(a, b place512) int {
		if a.name != b.name {
			return bytes.Compare([]byte(a.name), []byte(b.name))
		}
		return a.at - b.at
	})
	return made
}

// mixed returns the journal as a power cut may leave it: of the last group, only the chosen sectors
// are written.
func (k *torn) mixed(written func(i int) bool) files {
	mixed := k.before.clone()
	for i, place := range k.differ {
		if written(i) {
			copy(mixed[place.name][place.at:][:sectorSize],
				k.after[place.name][place.at:][:sectorSize])
		}
	}
	return mixed
}

// judge opens a journal, and appends to it so that anything that was left would show.
func (k *torn) judge(t *testing.T, content files) (groups uint64, doubt string, err error) {
	t.Helper()
	o := newOwner(t.TempDir(), 16*pageSize)
	content.write(t, o.dir)
	o.known = k.known
	found, doubt, err := o.open()
	if err != nil {
		return 0, "", err
	}
	groups = k.known.Group + uint64(len(found))
	for range 3 {
		if _, err := o.j.Append(make([]byte, 1000)); err != nil {
			t.Fatal(err)
		}
	}
	if err := o.j.Close(); err != nil {
		t.Fatal(err)
	}
	again, left, err := o.open()
	if err != nil || len(again) != len(found)+3 || doubt != "" && left != "" {
		t.Fatalf("opened again: %d groups after %d, doubt %q: %v", len(again), len(found), left,
			err)
	}
	return groups, doubt, o.j.Close()
}

// A power cut leaves any subset of the sectors of a group whose flush did not return. The journal
// ends before that group then, without a doubt, unless all of it is there.
func TestTornGroup(t *testing.T) {
	t.Parallel()
	for seed := range uint64(40) {
		random := rand.New(rand.NewPCG(seed, 1))
		k := tornJournal(t, random, 100+random.IntN(40_000))
		share := random.Float64()
		chosen := make([]bool, len(k.differ))
		all := true
		for i := range chosen {
			chosen[i] = random.Float64() < share
			all = all && chosen[i]
		}
		want := k.last
		if all {
			want++
		}
		groups, doubt, err := k.judge(t, k.mixed(func(i int) bool { return chosen[i] }))
		if err != nil || groups != want || doubt != "" {
			t.Errorf("seed %d: %d groups, want %d, doubt %q: %v", seed, groups, want, doubt, err)
		}
	}
}

// A harmed sector of the last group is a doubt; one of an earlier group is damage; one of a
// released group is neither.
func TestHarmedSector(t *testing.T) {
	t.Parallel()
	for seed := range uint64(60) {
		random := rand.New(rand.NewPCG(seed, 2))
		k := tornJournal(t, random, 100+random.IntN(40_000))
		content := k.mixed(func(int) bool { return true })
		victim := k.differ[random.IntN(len(k.differ))]
		content[victim.name][victim.at+random.IntN(sectorSize)] ^= 1 << random.IntN(8)
		groups, doubt, err := k.judge(t, content)
		if err != nil || groups != k.last || doubt == "" {
			t.Errorf("seed %d, the last group: %d groups, want %d, doubt %q: %v", seed, groups,
				k.last, doubt, err)
		}
		// An earlier one.
		content = k.mixed(func(int) bool { return true })
		var damaged uint64
		for name, data := range content {
			var number uint64
			if _, err := fmt.Sscanf(name, "%d", &number); err != nil {
				t.Fatal(err)
			}
			for at := 0; at < len(data) && damaged == 0; at += sectorSize {
				condition, h := read(data[at:at+sectorSize], number)
				if condition == whole && h.group <= k.last && random.IntN(20) == 0 {
					data[at+random.IntN(sectorSize)] ^= 1 << random.IntN(8)
					damaged = h.group
				}
			}
		}
		groups, doubt, err = 0, "", nil
		switch groups, doubt, err = k.judge(t, content); {
		case damaged == 0:
		case damaged <= k.known.Group && (err != nil || groups != k.last+1):
			t.Errorf("seed %d, released group %d: %d groups, doubt %q: %v", seed, damaged, groups,
				doubt, err)
		case damaged > k.known.Group && !errors.Is(err, ErrDamaged):
			t.Errorf("seed %d, group %d of %d: %d groups, doubt %q: %v", seed, damaged, k.last+1,
				groups, doubt, err)
		}
	}
}

// A segment that is missing or cut is damage, whichever it is.
func TestMissingSegment(t *testing.T) {
	t.Parallel()
	for seed := range uint64(10) {
		k := tornJournal(t, rand.New(rand.NewPCG(seed, 3)), 5000)
		for name := range k.after {
			for how, harm := range map[string]func(files){
				"missing":      func(f files) { delete(f, name) },
				"cut":          func(f files) { f[name] = f[name][:len(f[name])-100] },
				"a cut sector": func(f files) { f[name] = f[name][:len(f[name])-sectorSize] },
				"empty":        func(f files) { f[name] = nil },
			} {
				content := k.mixed(func(int) bool { return true })
				harm(content)
				_, _, err := k.judge(t, content)
				released := false
				if how == "missing" && name == slices.Min(slices.Collect(keys(k.after))) {
					// The lowest segment may have released groups only.
					released = err == nil
				}
				if !released && !errors.Is(err, ErrDamaged) {
					t.Errorf("seed %d: %s is %s: %v", seed, name, how, err)
				}
			}
		}
	}
}

func keys(f files) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for name := range f {
			if !yield(name) {
				return
			}
		}
	}
}

// A process that is killed at any step leaves a journal that opens with every group whose Append
// has returned.
func TestKillBetweenSteps(t *testing.T) {
	t.Parallel()
	errKilled := errors.New("killed")
	for step := 1; step < 120; step++ {
		random := rand.New(rand.NewPCG(uint64(step), 4))
		o := newOwner(t.TempDir(), 2*pageSize)
		options := o.options()
		var left atomic.Int64
		left.Store(int64(step))
		killed := make(chan files, 1)
		options.Before = func(string) {
			if left.Add(-1) == 0 {
				killed <- readFiles(t, filepath.Dir(o.dir))
			}
		}
		claim := options.Claim
		var claimed atomic.Uint64
		options.Claim = func(segment uint64) error {
			if left.Load() <= 0 {
				return errKilled
			}
			claimed.Store(segment)
			return claim(segment)
		}
		j, err := Open(o.dir, Known{}, options)
		if err == nil {
			err = j.Start()
		}
		var appended, released uint64
		for err == nil && left.Load() > 0 {
			var group uint64
			if group, err = j.Append(payload(random, random.IntN(6000))); err == nil &&
				left.Load() > 0 {
				appended = group
				if group%5 == 0 {
					released = group - 1
					j.Release(released)
				}
			}
		}
		if j != nil {
			if err := j.Close(); err != nil {
				t.Fatal(err)
			}
		}
		again := newOwner(t.TempDir(), 2*pageSize)
		again.known = Known{Segment: claimed.Load(), Group: released}
		select {
		case content := <-killed:
			content.write(t, again.dir)
		default:
			t.Fatalf("step %d was not reached: %v", step, err)
		}
		groups, doubt, err := again.open()
		if err != nil || doubt != "" || released+uint64(len(groups)) < appended {
			t.Errorf("step %d: %d groups after %d, %d were appended, doubt %q: %v", step,
				len(groups), released, appended, doubt, err)
		}
		if err := again.j.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// After a failed write, the journal takes nothing more.
func TestFailure(t *testing.T) {
	t.Parallel()
	errClaim := errors.New("no claim")
	o := newOwner(t.TempDir(), pageSize)
	options := o.options()
	claim := options.Claim
	options.Claim = func(segment uint64) error {
		if segment > 1 {
			return errClaim
		}
		return claim(segment)
	}
	j, err := Open(o.dir, Known{}, options)
	if err == nil {
		err = j.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := j.Append(make([]byte, 2*pageSize)); !errors.Is(err, errClaim) {
		t.Error(err)
	}
	if _, err := j.Append(nil); !errors.Is(err, errClaim) {
		t.Error(err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := j.Append(nil); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
}

// FuzzSector checks that any bytes are read as a condition, and whole ones only under their
// checksum.
func FuzzSector(f *testing.F) {
	sector := make([]byte, sectorSize)
	head{segment: 3, group: 9, place: 1, count: 2}.put(sector)
	f.Add(sector, uint64(3))
	f.Add(sector, uint64(2))
	f.Add(sector, uint64(4))
	beyond := make([]byte, sectorSize)
	head{segment: 3, group: 9, place: 2, count: 2}.put(beyond)
	f.Add(beyond, uint64(3))
	f.Add(make([]byte, sectorSize), uint64(1))
	f.Add(append(make([]byte, sectorSize-1), 1), uint64(1))
	f.Fuzz(func(t *testing.T, data []byte, segment uint64) {
		sector := make([]byte, sectorSize)
		copy(sector, data)
		switch condition, h := read(sector, segment); condition {
		case unwritten:
			sum := crc32.Checksum(sector[4:], castagnoli)
			if [sectorSize]byte(sector) != zeros && (binary.BigEndian.Uint32(sector) != sum ||
				binary.BigEndian.Uint64(sector[4:]) >= segment) {
				t.Error("a sector that was not written in an earlier use counts as that")
			}
		case whole:
			written := bytes.Clone(sector)
			h.put(written)
			if !bytes.Equal(written, sector) || h.segment != segment || h.place >= h.count {
				t.Errorf("%+v", h)
			}
		}
	})
}

func BenchmarkAppend(b *testing.B) {
	for _, size := range []int{500, 60_000} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			o := newOwner(b.TempDir(), SegmentBytesDefault)
			if _, _, err := o.open(); err != nil {
				b.Fatal(err)
			}
			made := make([]byte, size)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				group, err := o.j.Append(made)
				if err != nil {
					b.Fatal(err)
				}
				o.known.Group = group
				o.j.Release(group)
			}
			if err := o.j.Close(); err != nil {
				b.Fatal(err)
			}
		})
	}
}

// Use counts the segments that hold groups which were not released, and what a Release would free.
func TestUse(t *testing.T) {
	t.Parallel()
	o := newOwner(t.TempDir(), pageSize) // a segment for each small group
	if _, _, err := o.open(); err != nil {
		t.Fatal(err)
	}
	append := func(size int) {
		t.Helper()
		if _, err := o.j.Append(make([]byte, size)); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(what string, group uint64, held, free int64) {
		t.Helper()
		if h, f := o.j.Use(group); h != held*pageSize || f != free*pageSize {
			t.Errorf("%s: %d bytes are held, %d would be free", what, h, f)
		}
	}
	expect("empty", 0, 1, 0)
	append(9)
	append(9)
	append(2*pageSize + 9) // group 3 fills three segments
	expect("three groups", 0, 5, 0)
	expect("of the first", 1, 5, 1)
	expect("of all", 3, 5, 4) // the segment in use stays
	o.j.Release(2)
	expect("two are released", 0, 3, 0)
	expect("and the third", 3, 3, 2)
	append(9)
	expect("a fourth", 3, 4, 3)
	if err := o.j.Close(); err != nil {
		t.Fatal(err)
	}
}
