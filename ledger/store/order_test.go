package store

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/dgraph-io/badger/v4"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/store/journal"
)

// watch judges the order of the steps of writing: at each step, those before it must be over.
type watch struct {
	sync.Mutex
	s     *Store
	err   error
	steps map[string]int
	// flushes is what the store had flushed before the database's sync, and logs what it had
	// flushed of the logs before they are synced; 0 at other steps.
	flushes, logs uint64
}

func (w *watch) step(step string) {
	w.Lock()
	defer w.Unlock()
	w.steps[step]++
	if w.s == nil || w.err != nil {
		return
	}
	if err := w.judge(step); err != nil {
		w.err = fmt.Errorf("%s %d: %w", step, w.steps[step], err)
	}
}

func (w *watch) judge(step string) error {
	s := w.s
	switch step {
	case "body", "flush", "fence", "head", "sync database", "sync logs":
	case "marker":
		if w.logs != 0 && s.logs.flushes.Load() < w.logs {
			return errors.New("the log that is being written is not on the disk")
		}
		w.logs = 0
		return nil
	default:
		return nil
	}
	s.mutex.RLock()
	blocks, durable := s.unwritten.layers[0].blocks, s.durable
	s.mutex.RUnlock()
	height := blocks[len(blocks)-1].block.Header.Height
	if durable < height {
		return fmt.Errorf("block %d is not in the journal", height)
	}
	s.marking.Lock()
	marked := s.marker.last.height
	s.marking.Unlock()
	if marked >= height {
		return fmt.Errorf("the marker has block %d", height)
	}
	var rows, head ledger.Height
	if err := s.db.View(func(transaction *badger.Txn) error {
		if _, _, err := readHeader(transaction, height); err == nil {
			rows = height
		}
		value, err := get(transaction, []byte{rowHead})
		if err == nil {
			head, _, err = decodeHeadRow(value)
		}
		return err
	}); err != nil {
		return err
	}
	switch flushed := s.Flushes(); {
	case (step == "fence" || step == "head") && rows != height:
		return errors.New("the rows are not in the database")
	case (step == "sync database" || step == "sync logs") != (head == height):
		return fmt.Errorf("the head row has block %d of %d", head, height)
	case step == "fence":
		s.logsMu.Lock()
		s.logs.names = nil // until the fence looks
		s.logsMu.Unlock()
	case step == "head":
		return w.fenced()
	case step == "sync database":
		w.flushes = flushed
	case step == "sync logs" && flushed < w.flushes+databaseFlushes:
		return errors.New("the database has not synced")
	case step == "sync logs":
		w.logs = s.logs.flushes.Load() + 1
	}
	return nil
}

// fenced checks that the logs that the fence found are on the disk, except the last, which is being
// written.
func (w *watch) fenced() error {
	w.s.logsMu.Lock()
	defer w.s.logsMu.Unlock()
	if len(w.s.logs.names) == 0 {
		return errors.New("there was no fence")
	}
	for _, log := range w.s.logs.names[:len(w.s.logs.names)-1] {
		if !w.s.logs.done[log] {
			return fmt.Errorf("%s is not on the disk", log)
		}
	}
	return nil
}

// The steps of a checkpoint have an order: the blocks are in the journal, then their rows in the
// database, then the full logs on the disk, then the head row, then everything on the disk, and
// then the marker says so.
func TestOrderOfWrites(t *testing.T) {
	t.Parallel()
	w := &watch{steps: make(map[string]int)}
	options := small()
	options.onWrite, options.fanOut = w.step, 1<<20           // nothing else writes to the database
	options.checkpointBlocks, options.SegmentBytes = 3, 8<<20 // one segment
	s := open(t, t.TempDir(), options)
	w.Lock()
	w.s = s
	w.Unlock()
	b := newBook(20)
	for range 4 {
		for range 3 {
			b.apply(t, s, 400)
		}
		if err := s.awaitWritten(s.AppendedHeight()); err != nil {
			t.Fatal(err)
		}
	}
	closeStore(t, s)
	if w.err != nil {
		t.Error(w.err)
	}
	for _, step := range []string{"journal", "body", "flush", "fence", "head", "sync database",
		"sync logs", "marker"} {
		if w.steps[step] < 3 {
			t.Errorf("%d steps %q", w.steps[step], step)
		}
	}
	if s.marker.last.height != 12 || s.marker.last.hash != s.head.Hash ||
		s.marker.last.total != s.head.Header.Total {
		t.Errorf("the marker has %+v, the head is %+v", s.marker.last, s.head)
	}
}

// A group of the journal may have blocks of several layers. It is released once the database has
// all of them.
func TestGroupOfTwoLayers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	options := small()
	options.checkpointBlocks = 4
	s := open(t, dir, options)
	b := newBook(5)
	s.syncing.Lock()
	for range 4 {
		b.apply(t, s, 3)
	}
	sealed := func() bool {
		s.mutex.RLock()
		defer s.mutex.RUnlock()
		return len(s.unwritten.layers) == 2
	}
	for !sealed() {
		runtime.Gosched()
	}
	for range 2 {
		b.apply(t, s, 3)
	}
	s.syncing.Unlock()
	if err := errors.Join(s.Sync(), s.awaitWritten(4)); err != nil {
		t.Fatal(err)
	}
	if s.journal.Last() != 1 || s.written != 4 {
		t.Fatalf("%d groups, written to %d", s.journal.Last(), s.written)
	}
	killed := t.TempDir()
	readFolder(t, dir).write(t, killed)
	s = open(t, killed, small())
	if s.AppendedHeight() != 6 {
		t.Fatalf("block %d is the last", s.AppendedHeight())
	}
	// The same holds for blocks that Open executed again.
	if err := s.awaitWritten(6); err != nil {
		t.Fatal(err)
	}
	b.apply(t, s, 3)
	if err := s.Sync(); err != nil {
		t.Fatal(err)
	}
	again := t.TempDir()
	readFolder(t, killed).write(t, again)
	if s = open(t, again, small()); s.AppendedHeight() != 7 {
		t.Errorf("block %d is the last", s.AppendedHeight())
	}
}

// Each block is in one group of the journal, and a group says what was known when it was written.
func TestEachBlockIsInOneGroup(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	options := small()
	options.checkpointBlocks, options.SegmentBytes = 100, 1<<20
	s := open(t, dir, options)
	b := newBook(5)
	blocks := ledger.Height(0)
	for part := range 4 {
		for range part + 1 {
			b.apply(t, s, 3)
			blocks++
		}
		s.RecordDurable(blocks - 1)
		before := s.Flushes()
		if err := errors.Join(s.Sync(), s.Sync()); err != nil || s.Flushes() != before+1 {
			t.Fatalf("%d flushes: %v", s.Flushes()-before, err)
		}
	}
	killed := t.TempDir()
	readFolder(t, dir).write(t, killed)
	j, err := journal.Open(filepath.Join(killed, journalFolder), journal.Known{Segment: 1},
		journal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	next := ledger.Height(1)
	if err := j.Groups(func(group uint64, payload []byte) error {
		known, _, err := eachInGroup(payload, func(height ledger.Height, encoded []byte) error {
			if height != next || !bytes.Equal(encoded, s.unwritten.at(height).encoded) {
				t.Errorf("group %d has block %d, want %d", group, height, next)
			}
			next++
			return nil
		})
		if known != next-2 {
			t.Errorf("group %d knows %d, want %d", group, known, next-2)
		}
		return err
	}); err != nil || next != blocks+1 {
		t.Errorf("%d of %d blocks: %v", next-1, blocks, err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
}

// A journal whose groups are whole, but do not continue the chain, is damage.
func TestForgedJournal(t *testing.T) {
	t.Parallel()
	source, b := open(t, t.TempDir(), small()), newBook(5)
	var blocks []*pendingBlock
	for range 3 {
		blocks = append(blocks, &pendingBlock{encoded: b.apply(t, source, 3).Encode(),
			block: source.unwritten.blocks[len(blocks)].block})
	}
	changed := func(at int, change func(block *ledger.Block)) *pendingBlock {
		block := *blocks[at].block
		change(&block)
		return &pendingBlock{block: &block, encoded: block.Encode()}
	}
	malformed := &pendingBlock{block: blocks[0].block,
		encoded: blocks[0].encoded[:len(blocks[0].encoded)-1]}
	renumbered := &pendingBlock{block: blocks[0].block, encoded: blocks[1].encoded}
	for what, test := range map[string]struct {
		blocks  []*pendingBlock
		damaged ledger.Height
	}{
		"as they were":    {blocks, 0},
		"one twice":       {append(blocks[:2:2], blocks[1:]...), 0},
		"a gap":           {append(blocks[:1:1], blocks[2]), 2},
		"a malformed one": {[]*pendingBlock{malformed}, 1},
		"another height":  {[]*pendingBlock{renumbered}, 1},
		"another one first": {[]*pendingBlock{changed(0, func(block *ledger.Block) {
			block.Header.Previous[3] ^= 1
		})}, 1},
		"an earlier time": {append(blocks[:1:1], changed(1, func(block *ledger.Block) {
			block.Header.Time = blocks[0].block.Header.Time - 1
		})), 2},
		"another state": {append(blocks[:1:1], changed(1, func(block *ledger.Block) {
			block.Header.StateDigest[5] ^= 1
		})), 2},
	} {
		dir := t.TempDir()
		closeStore(t, open(t, dir, small()))
		j, err := journal.Open(filepath.Join(dir, journalFolder), journal.Known{Segment: 1},
			journal.Options{})
		if err == nil {
			err = j.Start()
		}
		for _, block := range test.blocks {
			if err == nil {
				_, err = j.Append(groupParts(block.block.Header.Height, []*pendingBlock{block}, nil,
					0)...)
			}
		}
		if err = errors.Join(err, j.Close()); err != nil {
			t.Fatal(err)
		}
		s, err := Open(dir, testGenesis(), small())
		var damage *DamageError
		switch {
		case test.damaged == 0 && err == nil:
			if text := mustReadAll(t, s); text != mustReadAll(t, source) {
				t.Errorf("%s: it reads differently", what)
			}
			closeStore(t, s)
		case test.damaged == 0 || !errors.As(err, &damage) || damage.Height != test.damaged:
			t.Errorf("%s: %v", what, err)
		}
		if err == nil && test.damaged != 0 {
			closeStore(t, s)
		}
	}
}

// The journal of a store that checkpoints does not grow.
func TestJournalIsBounded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	options := small()
	options.checkpointBlocks, options.SegmentBytes = 2, 4096
	s := open(t, dir, options)
	b := newBook(5)
	for height := range ledger.Height(40) {
		b.apply(t, s, 3)
		if err := errors.Join(s.Sync(), s.awaitWritten(height+1)); err != nil {
			t.Fatal(err)
		}
		if s.unwritten.at(height+1) != nil {
			t.Fatalf("block %d is still in memory", height+1)
		}
	}
	if s.unwritten.bytes != 0 || len(s.unwritten.layers) != 1 {
		t.Errorf("%d bytes in memory, %d layers", s.unwritten.bytes, len(s.unwritten.layers))
	}
	closeStore(t, s)
	segments, err := os.ReadDir(filepath.Join(dir, journalFolder))
	if err != nil || len(segments) > 8 || s.marker.last.segment < 20 {
		t.Errorf("%d segments of %d: %v", len(segments), s.marker.last.segment, err)
	}
}

// A store whose journal or marker cannot be written takes no more blocks, and announces none.
func TestFailedWriteStopsTheStore(t *testing.T) {
	t.Parallel()
	for what, test := range map[string]func(s *Store) error{
		"journal": func(s *Store) error { return s.journal.Close() },
		"marker": func(s *Store) (err error) { // it takes writes, but no flush
			err = s.marker.file.Close()
			if err != nil {
				return err
			}
			s.marker.file, err = os.OpenFile(os.DevNull, os.O_RDWR, 0)
			return err
		},
	} {
		s := open(t, t.TempDir(), small())
		b := newBook(5)
		b.apply(t, s, 3)
		if err := errors.Join(s.Sync(), test(s)); err != nil {
			t.Fatal(err)
		}
		if what == "journal" {
			b.apply(t, s, 3)
		}
		s.RecordDurable(1)
		if err := s.Sync(); !errors.Is(err, ErrFailed) || s.DurableHeight() != 1 {
			t.Errorf("%s: durable to %d: %v", what, s.DurableHeight(), err)
		}
		if _, err := s.Apply(1, 9, [][]byte{b.next(3)}); !errors.Is(err, ErrFailed) {
			t.Errorf("%s: %v", what, err)
		}
		if err := s.Sync(); !errors.Is(err, ErrFailed) {
			t.Errorf("%s: %v", what, err)
		}
		if err := s.awaitWritten(2); !errors.Is(err, ErrFailed) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// A marker counts only once it was flushed.
func TestMarkerIsFlushed(t *testing.T) {
	t.Parallel()
	file, err := os.OpenFile(os.DevNull, os.O_RDWR, 0) // takes writes, but no flush
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	m := &marker{file: file, last: tip{generation: 4, height: 7}}
	if err := m.write(tip{height: 8}); err == nil || m.last.height != 7 {
		t.Errorf("%+v: %v", m.last, err)
	}
	if m.complete([markerSlots]tip{m.last, m.last}) == nil {
		t.Error("the copies that were found count without a flush")
	}
}

// A marker may know of more blocks as durable than this disk has. They do not count.
func TestKnownDurableAboveTheHead(t *testing.T) {
	t.Parallel()
	dir, _, last := grown(t, 4, 2)
	one, two := slotsOf(last.generation)
	last.known = 9
	writeSlots(t, dir, last.encode(), one, two)
	if s := open(t, dir, small()); s.KnownDurable() != 4 {
		t.Errorf("known durable %d", s.KnownDurable())
	}
}

// The next Sync writes the doubt of another store that this one replaces, or that the doubt is
// settled, also if it has blocks to write.
func TestSyncWritesTheDoubt(t *testing.T) {
	t.Parallel()
	dir, _, last := grown(t, 1, 1)
	one, two := slotsOf(last.generation + 1)
	writeSlots(t, dir, nil, one, two)
	old := open(t, dir, small())
	folder := t.TempDir()
	fresh, b := open(t, folder, small()), newBook(5)
	b.apply(t, fresh, 3)
	fresh.AdoptKnowledge(old)
	for _, want := range []bool{true, false} {
		b.apply(t, fresh, 3)
		if err := fresh.Sync(); err != nil {
			t.Fatal(err)
		}
		killed := t.TempDir()
		readFolder(t, folder).write(t, killed)
		if perhaps, _, _ := open(t, killed, small()).Perhaps(); perhaps != want {
			t.Errorf("perhaps %v, want %v", perhaps, want)
		}
		fresh.SettleDoubt()
	}
}

// The hash of a block below a checkpoint of the chain is that of its header, also if some or all
// blocks around it are not in the database yet.
func TestHashesOfPendingBlocks(t *testing.T) {
	t.Parallel()
	options := small()
	options.checkpointBlocks = 300
	s := open(t, t.TempDir(), options)
	b := newBook(5)
	var hashes []ledger.Hash
	grow := func(count int) {
		for range count {
			hashes = append(hashes, b.apply(t, s, 1).Hash)
		}
	}
	check := func() {
		s.mutex.Lock()
		clear(s.chain.segments)
		s.mutex.Unlock()
		for i, want := range hashes {
			if hash, err := s.hash(ledger.Height(i + 1)); hash != want || err != nil {
				t.Fatalf("block %d is %s, was %s: %v", i+1, hash, want, err)
			}
		}
	}
	grow(100)
	check()
	if err := s.awaitWritten(100); err != nil {
		t.Fatal(err)
	}
	grow(100)
	check()
}

// A process may be killed after the rows of a layer are in the database, and before the head row
// is. Open undoes them, also if the journal has lost the blocks since and others follow.
func TestRowsAboveTheHeadAreUndone(t *testing.T) {
	t.Parallel()
	for _, layer := range []int{1, 3} {
		dir := t.TempDir()
		options := small()
		options.checkpointBlocks, options.SegmentBytes = layer, 1<<20
		var killed folder
		var armed atomic.Bool
		options.onWrite = func(step string) {
			if step == "fence" && armed.CompareAndSwap(true, false) {
				killed = readFolder(t, dir)
			}
		}
		s := open(t, dir, options)
		b := newBook(20)
		grow := func(height int) {
			for int(s.AppendedHeight()) < height {
				b.apply(t, s, 30)
			}
			if err := s.awaitWritten(ledger.Height(height)); err != nil {
				t.Fatal(err)
			}
		}
		grow(layer)
		name := filepath.Join(journalFolder, "0000000000000001.log")
		end := (len(readFolder(t, dir)[name].data) + slotSize - 1) / slotSize * slotSize
		armed.Store(true)
		grow(2 * layer)

		again := t.TempDir()
		killed.write(t, again)
		whole := open(t, again, small())
		if mustReadAll(t, whole) != mustReadAll(t, s) || whole.written != ledger.Height(layer) {
			t.Fatalf("layers of %d: it reads differently, or was written to %d", layer,
				whole.written)
		}
		torn := killed[name]
		torn.data = torn.data[:end]
		killed[name] = torn
		again = t.TempDir()
		killed.write(t, again)
		s = open(t, again, small())
		if s.AppendedHeight() != ledger.Height(layer) {
			t.Fatalf("layers of %d: block %d is the last", layer, s.AppendedHeight())
		}
		b = newBook(20)
		b.next(0)
		b.round, b.client.Stream, b.operator.Stream = 50, 9, 9
		for range 2*layer + 1 {
			b.apply(t, s, 1)
		}
		closeStore(t, s)
		if err := open(t, again, small()).verify(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
	}
}

// A crash leaves history rows of a layer whose blocks are lost with the end of the journal. What
// takes their place is found all the same.
func TestHistoryOfLostBlocks(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	options := small()
	options.checkpointBlocks, options.SegmentBytes = 100, 4<<20
	var killed folder
	armed := false
	options.onWrite = func(step string) {
		if step == "head" && armed && killed == nil {
			killed = readFolder(t, dir)
		}
	}
	s := open(t, dir, options)
	b := newBook(3)
	b.apply(t, s, 50)
	if err := s.awaitWritten(1); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(journalFolder, "0000000000000001.log")
	kept := len(readFolder(t, dir)[name].data)
	armed = true
	b.apply(t, s, 1200) // more steps than a row has, of one account
	if err := s.awaitWritten(2); err != nil {
		t.Fatal(err)
	}
	content := killed[name]
	content.data = content.data[:kept]
	killed[name] = content
	lost := t.TempDir()
	killed.write(t, lost)
	s = open(t, lost, options)
	if s.AppendedHeight() != 1 {
		t.Fatalf("height %d", s.AppendedHeight())
	}
	b.client.Stream++
	b.client.Sequence = 0
	for _, count := range []int{3, 700, 5, 900} {
		b.apply(t, s, count)
		if err := s.awaitWritten(s.AppendedHeight()); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.verify(t.Context(), nil); err != nil {
		t.Error(err)
	}
}
