package store

import (
	"bytes"
	"flag"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ledgerd/ledgerd/ledger"
)

var (
	powerCuts = flag.Int("power-cuts", 40, "how often TestPowerCuts cuts the power")
	powerSeed = flag.Uint64("power-seed", 1, "the seed of TestPowerCuts")
)

// platter is a model of what a disk has of a store's folder: what was synced, and of the rest any
// part. It learns from the store's steps of writing what was synced.
type platter struct {
	t      testing.TB
	dir    string
	random *rand.Rand

	mutex sync.Mutex
	// rows says that each row counts as a step.
	rows bool
	// left is how many steps are left until the power is cut. onCut is called then, once, while
	// all steps wait.
	left  int
	onCut func(step string)
	// synced are the contents of the write-ahead logs and segments as they were last synced. The
	// segments are named by their inodes.
	logs     map[string][]byte
	segments map[uint64][]byte
	// entries are the synced entries of the journal's folder.
	entries map[string]uint64
}

func newPlatter(t testing.TB, dir string, random *rand.Rand) *platter {
	p := &platter{t: t, dir: dir, random: random, logs: make(map[string][]byte),
		segments: make(map[uint64][]byte)}
	p.syncLogs()
	p.syncSegments()
	p.entries = p.list()
	return p
}

func (p *platter) glob(folder, suffix string) []string {
	names, err := filepath.Glob(filepath.Join(p.dir, folder, "*"+suffix))
	if err != nil {
		p.t.Fatal(err)
	}
	return names // sorted
}

func content(path string) []byte {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	return data
}

func (p *platter) syncLogs() {
	for _, name := range p.glob(databaseFolder, ".mem") {
		p.logs[filepath.Base(name)] = content(name)
	}
}

func (p *platter) list() map[string]uint64 {
	entries := make(map[string]uint64)
	for _, name := range p.glob(journalFolder, ".log") {
		var status unix.Stat_t
		if unix.Stat(name, &status) == nil {
			entries[filepath.Base(name)] = status.Ino
		}
	}
	return entries
}

func (p *platter) syncSegments() {
	for name, inode := range p.list() {
		p.segments[inode] = content(filepath.Join(p.dir, journalFolder, name))
	}
}

// step is the store's onWrite.
func (p *platter) step(step string) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if p.onCut == nil {
		return
	}
	switch step {
	case "durable":
		p.syncSegments()
	case "head":
		p.syncLogs()
	case "marker":
		if strings.Contains(string(debug.Stack()), "Store).settle(") {
			p.syncLogs()
		}
	case "segment claim", "segment remove", "segment reuse", "segment zeros":
		p.entries = p.list()
		for name, inode := range p.entries {
			if p.segments[inode] == nil {
				p.segments[inode] = content(filepath.Join(p.dir, journalFolder, name))
			}
		}
	}
	switch step {
	case "body", "header", "history", "state", "run", "remove":
		if !p.rows {
			return
		}
	}
	if p.left--; p.left <= 0 {
		onCut := p.onCut
		p.onCut = nil
		onCut(step)
	}
}

// mix returns what a disk has of data when before was synced: any of the units that differ.
func (p *platter) mix(before, data []byte, unit int) []byte {
	mixed := bytes.Clone(data)
	mode := p.random.IntN(4)
	for at := 0; at < len(data); at += unit {
		end := min(at+unit, len(data))
		if mode == 0 || mode >= 2 && p.random.IntN(2) == 0 {
			clear(mixed[at:end])
			if at < len(before) {
				copy(mixed[at:end], before[at:])
			}
		}
	}
	return mixed
}

// whole returns the folder's content, at a moment when the database changes no files.
func (p *platter) whole() folder {
	look := func() string {
		manifest := content(filepath.Join(p.dir, databaseFolder, "MANIFEST"))
		return strings.Join(append(p.glob(databaseFolder, "*"), string(manifest)), "\n")
	}
	for {
		before := look()
		if whole := readFolder(p.t, p.dir); look() == before {
			return whole
		}
	}
}

// cut returns a folder that the disk may hold after the power was cut now.
func (p *platter) cut() folder {
	whole := p.whole()
	left := folder{}
	full := func(name string) []byte {
		return append(bytes.Clone(whole[name].data),
			make([]byte, whole[name].size-int64(len(whole[name].data)))...)
	}
	put := func(name string, data []byte) {
		left[name] = file{data: trimZeros(data), size: int64(len(data))}
	}
	for name, content := range whole {
		switch {
		case strings.HasSuffix(name, ".mem"):
			before, known := p.logs[filepath.Base(name)]
			if !known && p.random.IntN(3) == 0 {
				continue
			}
			put(name, p.mix(before, full(name), slotSize))
		case strings.HasPrefix(name, leavesFile):
			// Open must not believe any part of it.
			data := full(name)
			put(name, p.mix(nil, data[:p.random.IntN(len(data)+1)], 512))
		case strings.HasSuffix(name, ".log"):
		default:
			left[name] = content
		}
	}
	now := p.list()
	before := make(map[uint64]string)
	for name, inode := range p.entries {
		before[inode] = name
	}
	for name, inode := range now {
		was, known := before[inode]
		delete(before, inode)
		path := filepath.Join(journalFolder, name)
		if _, read := whole[path]; !read {
			p.t.Fatal("a segment went away during the cut")
		}
		data := full(path)
		if known {
			data = p.mix(p.segments[inode], data, 512)
		}
		switch {
		case was == name:
		case p.random.IntN(2) == 0: // the operation is not on the disk
			if !known {
				continue
			}
			name = was
		}
		put(filepath.Join(journalFolder, name), data)
	}
	for inode, name := range before { // removed
		if p.random.IntN(2) == 0 {
			put(filepath.Join(journalFolder, name), p.segments[inode])
		}
	}
	return left
}

// TestPowerCuts cuts the power at any step, again and again, also while the store is being opened.
func TestPowerCuts(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(*powerSeed, 5))
	records := rand.New(rand.NewPCG(*powerSeed, 6)) // draws records
	dir := t.TempDir()
	var acknowledged ledger.Height
	var recorded ledger.Round // of the last record
	var hash ledger.Hash
	steps := make(map[string]int)
	opening := 0
	for round := range *powerCuts {
		options := small()
		options.checkpointBlocks = 1 + random.IntN(12)
		options.fanOut = 2 + random.IntN(3)
		options.DecodedCacheBytes = 1 << 20
		options.releaseBytes = int64(1+records.IntN(8)) * options.SegmentBytes
		if acknowledged > 0 && random.IntN(4) == 0 { // as an older version leaves a store
			edit(t, dir, without(rowGuide, rowHashes))
		}
		p := newPlatter(t, dir, rand.New(rand.NewPCG(random.Uint64(), 0)))
		if p.rows = random.IntN(4) == 0; p.rows {
			p.left = 1 + random.IntN(1500)
		} else {
			p.left = 1 + random.IntN(100)
		}
		var next folder
		var at string
		var acked, done = acknowledged, acknowledged
		var ackedHash, doneHash = hash, hash
		var ackedRecord, doneRecord = recorded, recorded
		cut := make(chan struct{})
		p.onCut = func(step string) {
			at, done, doneHash, doneRecord = step, acked, ackedHash, ackedRecord
			next = p.cut()
			close(cut)
		}
		options.onWrite = p.step
		s, err := Open(dir, testGenesis(), options)
		if err != nil {
			t.Fatalf("round %d, seed %d: after a cut at %q: %v", round, *powerSeed, at, err)
		}
		if perhaps, from, why := s.Perhaps(); perhaps {
			t.Fatalf("round %d: perhaps from %d: %s", round, from, why)
		}
		if s.AppendedHeight() < acknowledged {
			t.Fatalf("round %d: block %d was acknowledged, the head is %d", round, acknowledged,
				s.AppendedHeight())
		}
		if _, found, err := s.Header(acknowledged); acknowledged > 0 && (err != nil ||
			found != hash) {
			t.Fatalf("round %d: block %d is %s, was %s: %v", round, acknowledged, found, hash, err)
		}
		if err := checkRecord(s, recorded); err != nil {
			t.Fatalf("round %d, seed %d: %v", round, *powerSeed, err)
		}
		select {
		case <-cut:
			opening++
		default:
		}
		if random.IntN(4) == 0 {
			mustReadAll(t, s)
			mustCheck(t, s)
		}
		p.mutex.Lock()
		acked, ackedHash = s.Head().Height, s.Head().Hash
		p.mutex.Unlock()
		b := newBook(20)
		b.next(0)
		b.round = ledger.Round(s.AppendedHeight())
		b.client.Stream, b.client.Sequence = uint64(round+1), 0
		b.operator.Stream, b.operator.Sequence = uint64(round+1), 0
		for going := true; going; {
			select {
			case <-cut:
				going = false
				continue
			default:
			}
			count := 1 + random.IntN(8)
			if random.IntN(10) == 0 {
				count = 300 + random.IntN(300)
			}
			b.apply(t, s, count)
			if random.IntN(3) == 0 {
				s.RecordDurable(s.AppendedHeight())
			}
			for records.IntN(6) < 4 && putRecordOf(t, s, b.round+1) {
				if err := s.Sync(); err != nil {
					t.Fatal(err)
				}
				p.mutex.Lock()
				acked, ackedHash, ackedRecord = s.Head().Height, s.Head().Hash, b.round+1
				p.mutex.Unlock()
			}
			if random.IntN(4) > 0 {
				head := s.Head()
				if err := s.Sync(); err != nil {
					t.Fatal(err)
				}
				p.mutex.Lock()
				acked, ackedHash = head.Height, head.Hash
				p.mutex.Unlock()
			}
		}
		if round%8 == 7 {
			if err := s.verify(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
		}
		closeStore(t, s)
		steps[at]++
		if acknowledged, hash, recorded = done, doneHash, doneRecord; acknowledged > 120 {
			acknowledged, recorded, next = 0, 0, folder{} // a store that is small opens quickly
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		dir = t.TempDir()
		next.write(t, dir)
	}
	t.Logf("%d cuts during Open; steps %v", opening, steps)
}
