package store

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dgraph-io/badger/v4"
	"golang.org/x/sys/unix"
)

// The database may begin a new log between the fence and the head row, because the merger, Fill and
// certificates write beside the checkpoint. The head row must not be on the disk without its layer.
func TestHeadRowInANewLog(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	options := small()
	options.checkpointBlocks = 3
	var before map[string][]byte
	var s *Store
	var left folder
	taken, flushes := false, uint64(0)
	logs := func() map[string][]byte {
		p := &platter{t: t, dir: dir}
		p.logs = make(map[string][]byte)
		p.syncLogs()
		return p.logs
	}
	var armed atomic.Bool
	options.onWrite = func(step string) {
		if !armed.Load() {
			return
		}
		switch step {
		case "body":
			if before == nil {
				before = logs()
			}
		case "fence":
			flushes = s.logs.flushes.Load()
		case "head":
			if left != nil {
				return
			}
			if s.logs.flushes.Load() > flushes {
				before = logs()
			}
			count := len(logs())
			for k := 0; ; k++ {
				folder := readFolder(t, dir)
				if err := s.db.Update(func(transaction *badger.Txn) error {
					key := fmt.Appendf(nil, "%cfiller %d", rowEvidence, k)
					return transaction.Set(key, seal(key, make([]byte, 64<<10)))
				}); err != nil {
					t.Error(err)
					return
				}
				if len(logs()) != count {
					left = folder
					return
				}
			}
		case "sync database":
			if taken {
				return
			}
			taken = true
			p := &platter{t: t, dir: dir}
			names := p.glob(databaseFolder, ".mem")
			newest := filepath.Join(databaseFolder, filepath.Base(names[len(names)-1]))
			if _, known := left[newest]; known {
				t.Error("no new log")
			}
			for name := range left {
				old, known := before[filepath.Base(name)]
				switch {
				case filepath.Ext(name) != ".mem":
				case known:
					left[name] = file{data: trimZeros(old), size: int64(len(old))}
				default:
					delete(left, name)
				}
			}
			left[newest] = readFolder(t, dir)[newest]
		}
	}
	s = open(t, dir, options)
	b := newBook(20)
	for range 3 {
		b.apply(t, s, 5)
	}
	if err := s.awaitWritten(3); err != nil {
		t.Fatal(err)
	}
	armed.Store(true)
	for range 3 {
		b.apply(t, s, 5)
	}
	if err := s.awaitWritten(6); err != nil {
		t.Fatal(err)
	}
	armed.Store(false)
	again := t.TempDir()
	left.write(t, again)
	opened := open(t, again, small())
	if opened.AppendedHeight() != 6 {
		t.Fatalf("height %d", opened.AppendedHeight())
	}
	mustReadAll(t, opened)
}

// Both copies of the newest marker are damaged, and the database is ahead of the one before. Open
// is killed after its first marker: the doubt must have been in it.
func TestDoubtOutlivesACrashOfOpen(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	options := small()
	var killed folder
	options.checkpointBlocks = 3
	options.onWrite = func(step string) {
		if step == "sync database" {
			killed = readFolder(t, dir)
		}
	}
	s := open(t, dir, options)
	b := newBook(5)
	for range 6 {
		b.apply(t, s, 3)
	}
	if err := s.awaitWritten(6); err != nil {
		t.Fatal(err)
	}
	harmed := t.TempDir()
	killed.write(t, harmed)
	m, _, err := openMarker(harmed)
	if err != nil {
		t.Fatal(err)
	}
	one, two := slotsOf(m.last.generation + 1)
	if err := m.file.Close(); err != nil {
		t.Fatal(err)
	}
	writeSlots(t, harmed, nil, one, two)
	markers := 0
	var again []folder
	options = small()
	options.onWrite = func(step string) {
		if step == "marker" {
			markers++
		}
		if markers > 0 && len(again) < 8 {
			again = append(again, readFolder(t, harmed))
		}
	}
	s = open(t, harmed, options)
	if perhaps, _, _ := s.Perhaps(); !perhaps {
		t.Fatal("no doubt")
	}
	for i, killed := range again {
		dir := t.TempDir()
		killed.write(t, dir)
		s = open(t, dir, small())
		if perhaps, from, _ := s.Perhaps(); !perhaps || from != 7 {
			t.Errorf("killed at step %d: perhaps %v from %d", i, perhaps, from)
		}
	}
}

// The markers that named the journal are damaged. What was acknowledged since must survive a kill:
// the journal must not be taken for a leftover of its creation.
func TestJournalIsNamedAgain(t *testing.T) {
	t.Parallel()
	killed, _, _ := lastGroup(t)
	dir := t.TempDir()
	killed.write(t, dir)
	loseMarkers(t, dir)
	options := small()
	options.checkpointBlocks = 1000
	var again []folder
	options.onWrite = func(string) { again = append(again, readFolder(t, dir)) }
	s := open(t, dir, options)
	options.onWrite = nil
	opening := len(again)
	b := newBook(5)
	b.next(0)
	b.round = 6
	b.client.Stream, b.operator.Stream = 9, 9
	b.apply(t, s, 3)
	if err := s.Sync(); err != nil {
		t.Fatal(err)
	}
	again = append(again, readFolder(t, dir))
	for i, killed := range again {
		dir := t.TempDir()
		killed.write(t, dir)
		s := open(t, dir, small())
		want := 6
		if i == len(again)-1 {
			want = 7
		}
		height := int(s.AppendedHeight())
		if perhaps, from, _ := s.Perhaps(); !perhaps || from != 7 || height < want {
			t.Errorf("killed at step %d of %d: perhaps %v from %d, height %d, want %d", i, opening,
				perhaps, from, height, want)
		}
	}
}

// Once a store has a journal, a program that knows of none must find no marker that it can read.
func TestNoMarkerOfAnOlderVersionIsLeft(t *testing.T) {
	t.Parallel()
	dir, _, last := grown(t, 3, 3)
	before := last
	before.generation--
	one, two := slotsOf(last.generation)
	three, four := slotsOf(before.generation)
	writeSlots(t, dir, encodeV1(&last), one, two)
	writeSlots(t, dir, encodeV1(&before), three, four)
	if err := os.RemoveAll(filepath.Join(dir, journalFolder)); err != nil {
		t.Fatal(err)
	}
	s := open(t, dir, small())
	data := readFolder(t, dir)[markerFile].data
	for slot := range markerSlots {
		if at := data[slot*slotSize:]; !bytes.HasPrefix(at, markerMagic[:]) {
			t.Errorf("slot %d begins with %q", slot, at[:8])
		}
	}
	closeStore(t, s)
	closeStore(t, open(t, dir, small()))
}

// A layer must become full before Apply waits for room.
func TestCheckpointBytesAreBounded(t *testing.T) {
	t.Parallel()
	options := Options{MemTableBytes: 4 << 30, CheckpointBytes: 1 << 30}.withDefaults()
	if options.CheckpointBytes > maxPendingBytes/2 {
		t.Errorf("a layer is full with %d MiB, and Apply waits at %d MiB",
			options.CheckpointBytes>>20, maxPendingBytes>>20)
	}
}

// mergeFolder is in the environment of a child that runs TestMergeChild.
const mergeFolder = "LEDGER_MERGE_FOLDER"

// A process may run out of descriptors while it merges runs. The merge waits then: the database
// cannot go on after it failed to open its next log.
func TestMergeWithoutDescriptors(t *testing.T) {
	t.Parallel()
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestMergeChild$", "-test.v")
	child.Env = append(os.Environ(), mergeFolder+"="+t.TempDir())
	if output, err := child.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
}

func TestMergeChild(t *testing.T) {
	dir := os.Getenv(mergeFolder)
	if dir == "" {
		t.Skip("runs as a child of TestMergeWithoutDescriptors only")
	}
	options := small()
	options.checkpointBlocks = 2
	var s *Store
	rows := 0
	put := func() {
		rows++
		if err := s.db.Update(func(transaction *badger.Txn) error {
			key := fmt.Appendf(nil, "%cfiller %d", rowEvidence, rows)
			return transaction.Set(key, seal(key, make([]byte, 60<<10)))
		}); err != nil {
			t.Error(err)
		}
	}
	newest := func() string {
		names := (&platter{t: t, dir: dir}).glob(databaseFolder, ".mem")
		return names[len(names)-1]
	}
	fill := func() (count int) {
		for before := newest(); newest() == before; count++ {
			put()
		}
		return count
	}
	var taken []int
	take := func() { // all descriptors that there are
		for {
			descriptor, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
			if err != nil {
				return
			}
			taken = append(taken, descriptor)
		}
	}
	exhausted := make(chan struct{})
	options.onWrite = func(step string) {
		if step != "run" || taken != nil ||
			!strings.Contains(string(debug.Stack()), "mergeRuns") {
			return
		}
		// The next row begins a new log.
		fill()
		for range fill() - 1 {
			put()
		}
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 128, Max: 128}); err != nil {
			t.Error(err)
		}
		take()
		close(exhausted)
	}
	s = open(t, dir, options)
	b := newBook(20)
	for range options.fanOut {
		b.apply(t, s, 5)
		b.apply(t, s, 5)
		if err := s.awaitWritten(s.AppendedHeight()); err != nil {
			t.Fatal(err)
		}
	}
	<-exhausted
	ended := func() bool {
		s.mutex.RLock()
		defer s.mutex.RUnlock()
		return s.failure != nil || s.merging.made != nil
	}
	for deadline := time.Now().Add(time.Minute); !s.starved.Load() && !ended(); runtime.Gosched() {
		take() // the database closes what it has moved to tables
		if time.Now().After(deadline) {
			t.Fatal("the merge neither waits nor ends")
		}
	}
	for _, descriptor := range taken {
		_ = unix.Close(descriptor)
	}
	for range 20 {
		b.apply(t, s, 5)
	}
	if err := s.Sync(); err != nil {
		t.Fatal(err)
	}
	if err := s.verify(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
}

// Open removes rows because of what a killed process left in the logs: the runs that a row of runs
// no longer names. If the power is cut then, the disk must not have the removal alone. So the logs
// are on the disk first.
func TestOpenFencesBeforeItRemoves(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir, small())
	b := newBook(10)
	for range 20 {
		b.apply(t, s, 9)
	}
	closeStore(t, s)
	options := small()
	var mutex sync.Mutex
	var steps []string
	options.onWrite = func(step string) {
		mutex.Lock()
		defer mutex.Unlock()
		steps = append(steps, step)
	}
	s = open(t, dir, options)
	if s.logs.flushes.Load() == 0 {
		t.Error("no log is synced")
	}
	mutex.Lock()
	defer mutex.Unlock() // before the store is closed
	fence, remains := slices.Index(steps, "fence"), slices.Index(steps, "remains")
	if fence < 0 || remains < fence {
		t.Errorf("the logs are synced in step %d, rows are removed in step %d", fence, remains)
	}
}
