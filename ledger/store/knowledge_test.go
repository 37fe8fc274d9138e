package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"maps"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
)

// encodeV1 returns a marker of version 1, which has no knowledge of durability.
func encodeV1(t *tip) []byte {
	encoded := t.encode()[:markerSizeV1-4]
	copy(encoded, markerMagicV1[:])
	return binary.BigEndian.AppendUint32(encoded, crc32.Checksum(encoded, castagnoli))
}

// writeSlots writes data, padded with zeros, into slots of a closed store's marker.
func writeSlots(t *testing.T, dir string, data []byte, slots ...int64) {
	t.Helper()
	file, err := os.OpenFile(filepath.Join(dir, markerFile), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for _, slot := range slots {
		content := make([]byte, slotSize)
		copy(content, data)
		if _, err := file.WriteAt(content, slot*slotSize); err != nil {
			t.Fatal(err)
		}
	}
}

// grown returns a closed store with some blocks. Heights up to known are known to be durable.
func grown(t *testing.T, blocks int, known ledger.Height) (dir string, book *book, last tip) {
	t.Helper()
	dir = t.TempDir()
	s := open(t, dir, small())
	book = newBook(5)
	for range blocks {
		book.apply(t, s, 3)
	}
	s.RecordDurable(known)
	closeStore(t, s)
	return dir, book, s.marker.last
}

func closeStore(t testing.TB, s *Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// slotsOf returns the slots of a marker of this generation.
func slotsOf(generation uint64) (int64, int64) {
	first := int64(generation % (markerSlots / 2) * 2)
	return first, first + 1
}

// The known durable height is written with the next Sync, not earlier, and is never higher than the
// height on the disk.
func TestKnownDurableIsWrittenWithTheNextSync(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir, small())
	b := newBook(5)
	b.apply(t, s, 3)
	s.RecordDurable(9)
	if known := s.KnownDurable(); known != 1 {
		t.Fatalf("known durable %d with one block", known)
	}
	persisted := func() ledger.Height {
		killed := t.TempDir()
		readFolder(t, dir).write(t, killed)
		again := open(t, killed, small())
		defer closeStore(t, again)
		return again.KnownDurable()
	}
	if known := persisted(); known != 0 {
		t.Fatalf("%d is persisted before any sync", known)
	}
	if err := s.Sync(); err != nil {
		t.Fatal(err)
	}
	b.apply(t, s, 3)
	b.apply(t, s, 3)
	s.RecordDurable(2)
	s.RecordDurable(1)
	if known := persisted(); known != 1 {
		t.Fatalf("%d is persisted before the sync, want 1", known)
	}
	before := s.Flushes()
	for range 3 {
		if err := s.Sync(); err != nil {
			t.Fatal(err)
		}
	}
	if known := persisted(); known != 2 || s.Flushes() > before+2 {
		t.Fatalf("%d is persisted after the sync with %d flushes, want 2 with 2", known,
			s.Flushes()-before)
	}
	// A Sync without new blocks writes a known height that is new.
	b.apply(t, s, 3)
	if err := s.Sync(); err != nil {
		t.Fatal(err)
	}
	s.RecordDurable(3)
	if err := s.Sync(); err != nil {
		t.Fatal(err)
	}
	if known := persisted(); known != 3 {
		t.Fatalf("%d is persisted after a sync without new blocks, want 3", known)
	}
	s.RecordDurable(4)
	closeStore(t, s)
	s = open(t, dir, small())
	if known := s.KnownDurable(); known != 4 {
		t.Fatalf("known durable %d after Close and Open, want 4", known)
	}
	generation := s.marker.last.generation
	closeStore(t, s)
	if s.marker.last.generation != generation {
		t.Error("Close wrote a marker although it knew nothing new")
	}
}

// A marker of version 1 can be read, has no knowledge, and is followed by one of version 2.
func TestMarkerOfTheFirstVersion(t *testing.T) {
	t.Parallel()
	dir, b, last := grown(t, 3, 3)
	before := last
	before.generation--
	one, two := slotsOf(last.generation)
	three, four := slotsOf(before.generation)
	writeSlots(t, dir, encodeV1(&last), one, two)
	writeSlots(t, dir, encodeV1(&before), three, four)
	s := open(t, dir, small())
	if perhaps, _, why := s.Perhaps(); s.AppendedHeight() != 3 || s.KnownDurable() != 0 || perhaps {
		t.Fatalf("height %d, known %d, perhaps %v: %s", s.AppendedHeight(), s.KnownDurable(),
			perhaps, why)
	}
	b.apply(t, s, 3)
	s.RecordDurable(2)
	closeStore(t, s)
	if s = open(t, dir, small()); s.KnownDurable() != 2 || s.AppendedHeight() != 4 {
		t.Fatalf("known %d at height %d", s.KnownDurable(), s.AppendedHeight())
	}
}

// The damage to slots of the marker determines whether this disk may have lost announced blocks.
// The newest marker has generation g, and the previous one g-1.
func TestPerhaps(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		damage  func(t *testing.T, dir string, last tip)
		perhaps bool
	}{
		"nothing is damaged": {func(*testing.T, string, tip) {}, false},
		"one copy of the newest": {func(t *testing.T, dir string, last tip) {
			one, _ := slotsOf(last.generation)
			writeSlots(t, dir, []byte("damage"), one)
		}, false},
		"the other copy of the newest": {func(t *testing.T, dir string, last tip) {
			_, two := slotsOf(last.generation)
			writeSlots(t, dir, nil, two)
		}, false},
		"one copy of the one before": {func(t *testing.T, dir string, last tip) {
			one, _ := slotsOf(last.generation - 1)
			writeSlots(t, dir, nil, one)
		}, false},
		// A torn write of the next marker, which was never announced.
		"the first copy of the next is torn": {func(t *testing.T, dir string, last tip) {
			last.generation++
			one, _ := slotsOf(last.generation)
			writeSlots(t, dir, last.encode()[:markerSize/2], one)
		}, false},
		"both copies of the newest": {func(t *testing.T, dir string, last tip) {
			one, two := slotsOf(last.generation)
			writeSlots(t, dir, nil, one, two)
		}, true},
		"both copies of the next, damaged": {func(t *testing.T, dir string, last tip) {
			one, two := slotsOf(last.generation + 1)
			writeSlots(t, dir, []byte("damage"), one)
			writeSlots(t, dir, nil, two)
		}, true},
		"one copy of each": {func(t *testing.T, dir string, last tip) {
			one, _ := slotsOf(last.generation)
			_, two := slotsOf(last.generation + 1)
			writeSlots(t, dir, nil, one, two)
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, b, last := grown(t, 4, 2)
			test.damage(t, dir, last)
			s := open(t, dir, small())
			perhaps, from, why := s.Perhaps()
			if perhaps != test.perhaps || perhaps && (from != 5 || why == "") || !perhaps &&
				(from != 0 || why != "") {
				t.Fatalf("perhaps %v from %d: %q", perhaps, from, why)
			}
			if !test.perhaps {
				return
			}
			// New markers overwrite the damaged slots. The doubt stays.
			for range 3 {
				b.apply(t, s, 1)
				if err := s.Sync(); err != nil {
					t.Fatal(err)
				}
			}
			s.RecordDurable(4)
			closeStore(t, s)
			s = open(t, dir, small())
			if perhaps, from, _ := s.Perhaps(); !perhaps || from != 5 {
				t.Fatalf("after markers that are whole: perhaps %v from %d", perhaps, from)
			}
			// The lost group may have had more blocks than the one that is known to be durable.
			s.RecordDurable(5)
			closeStore(t, s)
			s = open(t, dir, small())
			if perhaps, from, _ := s.Perhaps(); !perhaps || from != 5 || s.KnownDurable() != 5 {
				t.Fatalf("after one block is known durable: perhaps %v from %d, known %d",
					perhaps, from, s.KnownDurable())
			}
			s.SettleDoubt()
			if perhaps, _, _ := s.Perhaps(); perhaps {
				t.Fatal("the doubt is settled")
			}
			closeStore(t, s)
			if perhaps, _, _ := open(t, dir, small()).Perhaps(); perhaps {
				t.Fatal("the doubt came back")
			}
		})
	}
}

// A process that was killed while it wrote the marker leaves one copy. Open announces that height,
// so it completes the pair first. Later damage to one slot must not lose an announced group.
func TestOpenCompletesTheMarker(t *testing.T) {
	t.Parallel()
	for _, copies := range []string{"first", "second"} {
		dir, _, last := grown(t, 4, 2)
		one, two := slotsOf(last.generation)
		survivor, missing := one, two
		if copies == "second" {
			survivor, missing = two, one
		}
		before := last
		before.generation -= 2
		writeSlots(t, dir, before.encode(), missing)
		s := open(t, dir, small())
		if s.DurableHeight() != 4 {
			t.Fatalf("durable to %d", s.DurableHeight())
		}
		closeStore(t, s)
		writeSlots(t, dir, nil, survivor)
		s = open(t, dir, small())
		if s.marker.last.generation != last.generation || s.KnownDurable() != 2 {
			t.Fatalf("%s copy: the marker is %+v, was %+v", copies, s.marker.last, last)
		}
	}
}

// lastGroup returns a store's folder that was killed after a Sync, and where the journal's last
// group begins: the file, and the offset. It has one block, the sixth.
func lastGroup(t *testing.T) (killed folder, name string, offset int) {
	t.Helper()
	dir := t.TempDir()
	options := small()
	options.SegmentBytes = 1 << 20
	s := open(t, dir, options)
	b := newBook(5)
	for range 6 {
		name = filepath.Join(journalFolder, "0000000000000001.log")
		offset = len(readFolder(t, dir)[name].data)
		b.apply(t, s, 3)
		if err := s.Sync(); err != nil {
			t.Fatal(err)
		}
		if b.round == 4 { // the database has these
			if err := s.awaitWritten(4); err != nil {
				t.Fatal(err)
			}
		}
	}
	return readFolder(t, dir), name, (offset + slotSize - 1) / slotSize * slotSize
}

// killed returns the folder of a store that was opened from f and then killed before it wrote
// anything to the database.
func (f folder) killed(t *testing.T, s *Store) folder {
	t.Helper()
	mixed := maps.Clone(f)
	maps.DeleteFunc(mixed, func(name string, _ file) bool {
		return filepath.Dir(name) != databaseFolder
	})
	for name, content := range readFolder(t, s.dir) {
		if filepath.Dir(name) != databaseFolder {
			mixed[name] = content
		}
	}
	return mixed
}

// The last group of the journal is whole, or torn and was never announced, or harmed: then it may
// have been announced.
func TestLastGroup(t *testing.T) {
	t.Parallel()
	killed, name, offset := lastGroup(t)
	for what, test := range map[string]struct {
		harm    func(data []byte)
		height  ledger.Height
		perhaps bool
	}{
		"whole":               {func([]byte) {}, 6, false},
		"never written":       {func(data []byte) { clear(data[offset:]) }, 5, false},
		"its first sector":    {func(data []byte) { clear(data[offset:][:512]) }, 5, false},
		"a harmed sector":     {func(data []byte) { data[offset+100] ^= 1 }, 5, true},
		"a harmed one after":  {func(data []byte) { data[len(data)-1] ^= 1 }, 5, true},
		"the group before it": {func(data []byte) { data[offset-slotSize+100] ^= 1 }, 0, false},
		"a released group":    {func(data []byte) { data[100] ^= 1 }, 6, false},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			content := killed[name]
			content.data = bytes.Clone(content.data)
			test.harm(content.data)
			changed := maps.Clone(killed)
			changed[name] = content
			changed.write(t, dir)
			s, err := Open(dir, testGenesis(), small())
			if test.height == 0 {
				var damage *DamageError
				if !errors.As(err, &damage) || damage.Height != 5 {
					t.Fatal(err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			for range 2 {
				perhaps, from, why := s.Perhaps()
				if perhaps != test.perhaps || perhaps && (from != 6 || why == "") ||
					s.AppendedHeight() != test.height || s.DurableHeight() != test.height {
					t.Errorf("perhaps %v from %d (%q), height %d, durable %d", perhaps, from, why,
						s.AppendedHeight(), s.DurableHeight())
				}
				// The doubt stays though its reason was erased, also if nothing more is written.
				again := t.TempDir()
				changed.killed(t, s).write(t, again)
				closeStore(t, s)
				s = open(t, again, small())
			}
		})
	}
}

// loseMarkers damages the newest marker of a closed store. The one before it is as it was before
// there was a journal.
func loseMarkers(t *testing.T, dir string) {
	t.Helper()
	m, _, err := openMarker(dir)
	if err != nil {
		t.Fatal(err)
	}
	first := tip{generation: m.last.generation - 1, genesis: m.last.genesis, hash: m.last.genesis}
	one, two := slotsOf(m.last.generation)
	three, four := slotsOf(first.generation)
	if err := m.file.Close(); err != nil {
		t.Fatal(err)
	}
	writeSlots(t, dir, nil, one, two)
	writeSlots(t, dir, first.encode(), three, four)
}

// The markers of a store may be lost down to the first ones, which know of no journal. Its blocks
// are there all the same, with a doubt.
func TestMarkersBeforeTheJournal(t *testing.T) {
	t.Parallel()
	killed, _, _ := lastGroup(t)
	dir := t.TempDir()
	killed.write(t, dir)
	loseMarkers(t, dir)
	for range 3 { // killed each time, with blocks that only the journal has
		s := open(t, dir, small())
		if perhaps, from, _ := s.Perhaps(); !perhaps || from != 7 || s.AppendedHeight() != 6 ||
			s.written != 4 {
			t.Fatalf("perhaps %v from %d, height %d, written %d", perhaps, from,
				s.AppendedHeight(), s.written)
		}
		dir = t.TempDir()
		killed.killed(t, s).write(t, dir)
	}
}

// A journal that is gone, or that lacks a file, is damage.
func TestMissingJournal(t *testing.T) {
	t.Parallel()
	killed, name, _ := lastGroup(t)
	dir := t.TempDir()
	killed = maps.Clone(killed)
	delete(killed, name)
	killed.write(t, dir)
	var damage *DamageError
	if _, err := Open(dir, testGenesis(), small()); !errors.As(err, &damage) ||
		damage.Height != 5 {
		t.Error(err)
	}
}

// A process may be killed after the database has a head, and before the marker says so.
func TestHeadAboveTheMarkerIsNoDoubt(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	options := small()
	var killed folder
	var marked tip
	options.checkpointBlocks = 3
	var s *Store
	options.onWrite = func(step string) {
		if step == "sync database" && s.unwritten.at(6) != nil && killed == nil {
			killed, marked = readFolder(t, dir), s.marker.last
		}
	}
	s = open(t, dir, options)
	b := newBook(5)
	for height := range ledger.Height(6) {
		b.apply(t, s, 3)
		if err := s.Sync(); err != nil {
			t.Fatal(err)
		}
		if height%3 == 2 {
			if err := s.awaitWritten(height + 1); err != nil {
				t.Fatal(err)
			}
		}
	}
	again := t.TempDir()
	killed.write(t, again)
	s = open(t, again, small())
	if perhaps, _, _ := s.Perhaps(); perhaps || s.AppendedHeight() != 6 || s.written != 6 ||
		s.DurableHeight() != 6 {
		t.Fatalf("perhaps %v at %d, durable %d", perhaps, s.AppendedHeight(), s.DurableHeight())
	}
	// The marker follows, and does not forget what was released.
	if last := s.marker.last; marked.height != 3 || marked.group != 2 || last.height != 6 ||
		last.group != 2 {
		t.Errorf("the marker was %+v, is %+v", marked, last)
	}
	// A doubt that the marker has stays.
	doubtful := t.TempDir()
	killed.write(t, doubtful)
	m, _, err := openMarker(doubtful)
	if err != nil {
		t.Fatal(err)
	}
	marked.perhaps = 5
	if err := errors.Join(m.write(marked), m.file.Close()); err != nil {
		t.Fatal(err)
	}
	s = open(t, doubtful, small())
	if perhaps, from, _ := s.Perhaps(); !perhaps || from != 5 || s.marker.last.height != 6 ||
		s.marker.last.perhaps != 5 {
		t.Errorf("perhaps %v from %d, the marker is %+v", perhaps, from, s.marker.last)
	}
}

// A store that replaces another one has that store's knowledge.
func TestTakeOver(t *testing.T) {
	t.Parallel()
	dir, _, last := grown(t, 6, 4)
	one, two := slotsOf(last.generation + 1)
	writeSlots(t, dir, nil, one, two)
	old := open(t, dir, small())
	folder := t.TempDir()
	fresh := open(t, folder, small())
	for height := ledger.Height(1); height <= 5; height++ {
		block, err := old.Block(height)
		if err != nil {
			t.Fatal(err)
		}
		if err := fresh.Append(block); err != nil {
			t.Fatal(err)
		}
	}
	fresh.AdoptKnowledge(old)
	closeStore(t, fresh)
	fresh = open(t, folder, small())
	if perhaps, from, _ := fresh.Perhaps(); fresh.KnownDurable() != 4 || !perhaps || from != 7 {
		t.Fatalf("known %d, perhaps %v from %d", fresh.KnownDurable(), perhaps, from)
	}
}

// A folder may have the file that identifies the disk before it has a store.
func TestIdentityFileIsNoForeignFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, IdentityFile), []byte("identity"),
		0o644); err != nil {
		t.Fatal(err)
	}
	closeStore(t, open(t, dir, small()))
	closeStore(t, open(t, dir, small()))
}

// TestHeadDoesNotWait: neither the head nor what is recorded of it waits for a block that is being
// executed, during which the mutex is held.
func TestHeadDoesNotWait(t *testing.T) {
	t.Parallel()
	s, b := open(t, t.TempDir(), small()), newBook(5)
	b.apply(t, s, 3)
	defer closeStore(t, s)
	s.mutex.Lock()
	defer s.mutex.Unlock()
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		s.RecordDurable(s.Head().Height + 1)
	}()
	select {
	case <-answered:
	case <-time.After(time.Minute):
		t.Fatal("it waits for the mutex")
	}
	if s.Head().Hash != s.head.Hash || s.KnownDurable() != s.Head().Height {
		t.Errorf("head %v, known as durable %d", s.Head(), s.KnownDurable())
	}
}
