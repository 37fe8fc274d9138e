package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/dgraph-io/badger/v4"

	"github.com/ledgerd/ledgerd/ledger"
)

// idsOf returns the ids of all transactions of a store, and the hashes of its blocks.
func idsOf(t testing.TB, s *Store) map[ledger.Hash]position {
	t.Helper()
	ids := make(map[ledger.Hash]position)
	for height := ledger.Height(1); height <= s.AppendedHeight(); height++ {
		block, err := s.Block(height)
		if err != nil {
			t.Fatal(err)
		}
		for i := range block.Len() {
			ids[block.Entry(i).ID] = position{height: height, index: uint32(i)}
		}
		ids[block.Hash] = position{height: height, kind: indexBlock}
	}
	return ids
}

// checkIndex checks that a store finds every id at its place, and no other.
func checkIndex(t testing.TB, s *Store) {
	t.Helper()
	random := rand.New(rand.NewPCG(1, 1))
	ids := idsOf(t, s)
	for id, want := range ids {
		where, found, err := s.locate(id)
		if err != nil || !found || where.height != want.height || where.index != want.index ||
			(where.kind == indexBlock) != (want.kind == indexBlock) {
			t.Fatalf("%s is at %+v, %v, %v; want %+v", id, where, found, err, want)
		}
		// Its neighbours, of which some have the same first bytes.
		for _, i := range []int{0, 7, 8, 31} {
			other := id
			other[i] ^= byte(1 + random.IntN(255))
			if _, there := ids[other]; there { // another transfer of the same packed bundle
				continue
			}
			if _, found, err := s.locate(other); found || err != nil {
				t.Fatalf("%s is found: %v", other, err)
			}
		}
	}
}

// Through any number of checkpoints and merges, while it merges and after it is opened again, a
// store finds every id.
func TestIndexFindsEveryID(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	options := small()
	options.checkpointBlocks = 2
	s := open(t, dir, options)
	b := newBook(20)
	var looking sync.WaitGroup
	for part := range 4 {
		for range 20 {
			b.apply(t, s, 1+int(b.round)%30)
			awaitMerge(t, s)
		}
		if err := s.awaitWritten(s.AppendedHeight() - 1); err != nil {
			t.Fatal(err)
		}
		checkIndex(t, s)
		ids := idsOf(t, s)
		looking.Go(func() { // while others are merged
			for id := range ids {
				if _, found, err := s.locate(id); !found || err != nil {
					t.Errorf("%s is not found: %v", id, err)
				}
			}
		})
		if part == 2 {
			looking.Wait()
			closeStore(t, s)
			s = open(t, dir, options)
			checkIndex(t, s)
		}
	}
	looking.Wait()
	// A layer takes at most one merge, and brings a run of each kind. So how many runs there are
	// depends on how far the merger was whenever a layer came, and says nothing. TestMergesGoOn
	// tests that merges keep up.
	if !slices.ContainsFunc(s.runs.list(), func(r *run) bool { return r.level >= 1 }) {
		t.Errorf("%d runs, and none is merged", len(s.runs.list()))
	}
	if err := s.verify(t.Context(), nil); err != nil {
		t.Error(err)
	}
}

// Ids may have the same first bytes, within a chunk and around its end.
func TestIndexOfSimilarIDs(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir(), small())
	var records []record
	for i := range 3*chunkOf + 1 {
		id := ledger.Hash(bytes.Repeat([]byte{7}, ledger.HashSize))
		binary.BigEndian.PutUint32(id[20:], uint32(2*i))
		if i > 2*chunkOf {
			id[0] = 9
		}
		records = append(records, record{id, position{height: ledger.Height(5 + 1000*i),
			index: uint32(i), kind: indexFailed}})
	}
	writer := s.newRunWriter(rowRun, 0, uint64(len(records)),
		func(_ string, key, value []byte) error {
			return s.db.Update(func(transaction *badger.Txn) error {
				return transaction.Set(key, seal(key, value))
			})
		})
	for i := range records {
		value := records[i].value()
		if err := writer.add(records[i].id[:], value[:]); err != nil {
			t.Fatal(err)
		}
	}
	if err := writer.flush(); err != nil {
		t.Fatal(err)
	}
	s.runs.runs.Store(&[]*run{writer.run})
	for _, want := range records {
		where, found, err := s.find(want.id)
		if err != nil || !found || where != want.where {
			t.Fatalf("%s is at %+v, %v, %v; want %+v", want.id, where, found, err, want.where)
		}
		want.id[23]++
		if _, found, err := s.find(want.id); found || err != nil {
			t.Fatalf("%s is found: %v", want.id, err)
		}
	}
	// An id whose chunk is missing is not unknown.
	key := writer.run.chunkKey(1, nil)
	if err := s.db.Update(func(transaction *badger.Txn) error {
		return transaction.Delete(key)
	}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.find(records[chunkOf+9].id); !errors.Is(err, errMissing) {
		t.Errorf("an id in a missing chunk: %v", err)
	}
	none := []*run{}
	s.runs.runs.Store(&none)
}

// A layer may hold ids with the same first bytes, too.
func TestLayerOfSimilarIDs(t *testing.T) {
	t.Parallel()
	block := &ledger.Block{Unpacked: make([]ledger.Entry, 4), Bundles: make([]ledger.BundleSeal, 1)}
	for i := range block.Len() {
		block.Unpacked[i].ID = ledger.Hash{1, 2, 3}
		block.Unpacked[i].ID[30] = byte(i)
	}
	block.Header.Height = 9
	l := newLayer()
	l.blocks = append(l.blocks, &pendingBlock{block: block})
	for i := range block.Len() {
		l.put(block.Entry(i).ID, place{index: uint32(i)})
	}
	for i := range block.Len() {
		where, found := l.find(block.Entry(i).ID)
		if !found || where != (position{height: 9, index: uint32(i)}) {
			t.Errorf("entry %d is at %+v, %v", i, where, found)
		}
	}
	if _, found := l.find(ledger.Hash{1, 2, 3, 4}); found {
		t.Error("an id is found that is not there")
	}
}

// stateKey returns the key of the row of a single entry of the state.
func stateKey(key []byte) []byte { return append([]byte{rowState}, key...) }

// A store that was written before there were runs has rows for single ids, steps and entries. It
// goes on with runs.
func TestOlderStore(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir, small())
	b := newBook(10)
	for range 10 {
		b.apply(t, s, 9)
	}
	if err := s.awaitWritten(10); err != nil {
		t.Fatal(err)
	}
	batch := s.db.NewWriteBatch()
	undo := true
	for key, value := range rowsOf(t, s) {
		key, value := []byte(key), []byte(value)
		switch key[0] {
		case rowHistory:
			where, err := decodePosition(value)
			if err != nil {
				t.Fatal(err)
			}
			value = appendHistory(nil, []step{{index: where.index, height: where.height}})
		case rowState:
			row := stateRow{height: 10, before: []byte("older"), after: value}
			if undo { // a crash left the row of a block above the head
				row = stateRow{height: 11, before: value, after: []byte("newer")}
			}
			undo, value = false, row.append(nil)
		}
		if err := batch.Set(key, seal(key, value)); err != nil {
			t.Fatal(err)
		}
	}
	extra := stateKey([]byte("an entry that block 11 made"))
	if err := errors.Join(batch.Set(extra, seal(extra, (&stateRow{height: 11,
		after: []byte("newer")}).append(nil))), batch.Delete([]byte{rowRuns}), batch.Flush(),
		s.Close()); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		s = open(t, dir, small())
		checkIndex(t, s)
		checkPages(t, s)
		for range 15 {
			b.apply(t, s, 9)
			checkPages(t, s)
		}
		if err := s.awaitWritten(s.AppendedHeight()); err != nil {
			t.Fatal(err)
		}
		b.apply(t, s, 0)
		b.apply(t, s, 1) // blocks drop the accounts of those before
		if count := s.AccountsInMemory(); count >= s.AccountCount() {
			t.Errorf("all %d accounts are in memory", count)
		}
		checkPages(t, s)
		if err := s.verify(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		checkIndex(t, s)
		if _, err := readAll(s); err != nil {
			t.Fatal(err)
		}
		if !s.legacyIndex || !s.legacyState {
			t.Fatal("the older rows are not noticed")
		}
		restored := restoredFrom(t, s, filepath.Join(t.TempDir(), "new"))
		if got, want := restored.Head(), s.Head(); got != want {
			t.Fatalf("a snapshot has the head %+v instead of %+v", got, want)
		}
		closeStore(t, restored)
		closeStore(t, s)
	}
}

// Runs that the row of runs does not name are what a crash left. Their rows are removed, at once or
// behind.
func TestUnnamedRunsAreRemoved(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir, small())
	b := newBook(10)
	for range 10 {
		b.apply(t, s, 9)
	}
	if err := s.awaitWritten(10); err != nil {
		t.Fatal(err)
	}
	var keys [][]byte
	for _, number := range []uint64{0, 1 << 40} {
		for _, kind := range runRows {
			keys = append(keys, (&run{kind: kind, number: number}).chunkKey(7, []byte("any")))
		}
	}
	for _, named := range s.runs.list() { // right behind one that is named
		keys = append(keys, (&run{kind: named.kind, number: named.number + 1}).chunkKey(7,
			[]byte("any")))
	}
	named := func(key []byte) bool {
		return slices.ContainsFunc(s.runs.list(), func(r *run) bool {
			return bytes.HasPrefix(key, r.prefix()) ||
				r.kind == rowRun && bytes.HasPrefix(key, runPrefix(rowGuide, r.number))
		})
	}
	keys = slices.DeleteFunc(keys, named)
	batch := s.db.NewWriteBatch()
	for _, key := range keys {
		if err := batch.Set(key, seal(key, []byte("anything"))); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(batch.Flush(), s.Close()); err != nil {
		t.Fatal(err)
	}
	s = open(t, dir, small())
	mustCheck(t, s)
	for _, key := range keys {
		if err := s.db.View(func(transaction *badger.Txn) error {
			_, err := get(transaction, key)
			return err
		}); !errors.Is(err, errMissing) && !named(key) {
			t.Errorf("row %x is there: %v", key, err)
		}
	}
	checkIndex(t, s)
	if err := s.verify(t.Context(), nil); err != nil {
		t.Error(err)
	}
}

// The rows of runs that were merged are removed while the store is open.
func TestReplacedRunsAreRemoved(t *testing.T) {
	t.Parallel()
	removed, once := make(chan struct{}), sync.Once{}
	options := small()
	options.checkpointBlocks = 1
	options.onWrite = func(step string) {
		if step == "remove" {
			once.Do(func() { close(removed) })
		}
	}
	s := open(t, t.TempDir(), options)
	b := newBook(10)
	for done := false; !done; {
		if b.apply(t, s, 80); b.round == 100 {
			t.Fatal("no run was removed")
		}
		if err := s.awaitWritten(s.AppendedHeight()); err != nil {
			t.Fatal(err)
		}
		select {
		case <-removed:
			done = true
		default:
		}
	}
	for _, kind := range runKinds {
		gone := of(kind, s.runs.list())[:1]
		rows := func() (count int) {
			if err := s.eachRow(byte(kind), func(key, _ []byte) error {
				if binary.BigEndian.Uint64(key[1:]) == gone[0].number {
					count++
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			if _, err := rowOf(s, gone[0].guideKey(0)); err == nil {
				count++
			}
			return count
		}
		before, err := rows(), s.removeRuns(gone)
		if after := rows(); before < 2 || after > 0 || err != nil {
			t.Errorf("run of kind %c: %d rows before, %d after: %v", kind, before, after, err)
		}
	}
}

// What was in a block is known, whatever its result, at once and after the store was opened again:
// from the journal, from small runs and from merged ones. Otherwise it would be executed twice.
func TestKnownAfterOpen(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	options := small()
	options.checkpointBlocks, options.fanOut = 3, 2
	s := open(t, dir, options)
	b := newBook(10)
	var payloads [][]byte
	failed := 0
	for range 40 {
		payloads = append(payloads, b.next(20))
		block, err := s.Apply(1, b.round, payloads[len(payloads)-1:])
		if err != nil {
			t.Fatal(err)
		}
		for i := range block.Len() {
			if indexKind(block.Entry(i).Result) == indexFailed {
				failed++
			}
		}
	}
	if err := errors.Join(s.awaitWritten(36), s.Sync()); err != nil || failed < 10 {
		t.Fatalf("%d failed: %v", failed, err)
	}
	again := func(s *Store) {
		for i, payload := range payloads {
			if block, err := s.Apply(1, b.round+1, [][]byte{payload}); block != nil || err != nil {
				t.Fatalf("round %d is executed again, as %v: %v", i+1, block, err)
			}
		}
	}
	again(s)
	killed := t.TempDir()
	readFolder(t, dir).write(t, killed)
	closeStore(t, s)
	for _, dir := range []string{killed, dir} {
		again(open(t, dir, options))
	}
}

// Open notices rows of ids that no process wrote, though their checksums are right.
func TestMalformedIDs(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir(), small())
	ids := func(first, count, height int) (chunk []byte) {
		for i := range count {
			r := record{where: position{height: ledger.Height(height)}}
			binary.BigEndian.PutUint32(r.id[:], uint32(first+i))
			value := r.value()
			chunk = append(append(chunk, r.id[:]...), value[:]...)
		}
		return chunk
	}
	for number, test := range []struct {
		name    string
		chunks  map[uint64][]byte
		records uint64
		right   bool
	}{
		{"a run", map[uint64][]byte{0: ids(0, chunkOf, 1), 1: ids(chunkOf, 3, 1)}, chunkOf + 3,
			true},
		{"no rows", nil, 1, false},
		{"a row too few", map[uint64][]byte{0: ids(0, chunkOf, 1)}, chunkOf + 3, false},
		{"a gap", map[uint64][]byte{0: ids(0, chunkOf, 1), 2: ids(chunkOf, 3, 1)}, chunkOf + 3,
			false},
		{"a short row", map[uint64][]byte{0: ids(0, 9, 1), 1: ids(9, 3, 1)}, 12, false},
		{"a long row", map[uint64][]byte{0: ids(0, chunkOf+1, 1)}, chunkOf + 1, false},
		{"an empty row", map[uint64][]byte{0: nil}, 0, false},
		{"a part of a record", map[uint64][]byte{0: ids(0, 2, 1)[1:]}, 1, false},
		{"an id twice", map[uint64][]byte{0: append(ids(0, 1, 1), ids(0, 1, 1)...)}, 2, false},
		{"no order", map[uint64][]byte{0: append(ids(7, 1, 1), ids(6, 1, 1)...)}, 2, false},
		{"above the head", map[uint64][]byte{0: ids(0, 3, 2)}, 3, false},
	} {
		r := &run{kind: rowRun, number: uint64(number), records: test.records}
		s.runs.runs.Store(&[]*run{r})
		if err := s.db.Update(func(transaction *badger.Txn) (err error) {
			for chunk, value := range test.chunks {
				key := r.chunkKey(chunk, nil)
				err = errors.Join(err, transaction.Set(key, seal(key, bytes.Clone(value))))
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
		err := s.loadIDs(&indexCount{store: s, height: 1})
		if test.right && err != nil || !test.right && !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: %v", test.name, err)
		}
	}
	s.runs.runs.Store(&[]*run{})
}

// FuzzRunsRow checks that each row of runs has one encoding.
func FuzzRunsRow(f *testing.F) {
	f.Add(runsRow(7, []*run{{kind: rowSteps, number: 3, level: 1, records: 20}}))
	f.Add(runsRow(0, nil))
	f.Fuzz(func(t *testing.T, data []byte) {
		next, runs, err := decodeRunsRow(data)
		if err == nil && !bytes.Equal(runsRow(next, runs), data) {
			t.Fatal("a row of runs has two encodings")
		}
	})
}

// BenchmarkLookUp looks up what is in a chain of many blocks, and what is not.
func BenchmarkLookUp(b *testing.B) {
	s := open(b, b.TempDir(), Options{})
	traffic := newBook(1000)
	for range 200 {
		traffic.apply(b, s, 1000)
	}
	if err := s.awaitWritten(s.AppendedHeight()); err != nil {
		b.Fatal(err)
	}
	var ids []ledger.Hash
	for id, where := range idsOf(b, s) {
		if where.kind != indexBlock {
			ids = append(ids, id)
		}
	}
	account, _ := s.Account(traffic.account(1))
	for name, look := range map[string]func(k int) error{
		"known": func(k int) error {
			if known, err := s.Known(ids[k%len(ids)]); !known || err != nil {
				return fmt.Errorf("unknown: %w", err)
			}
			return nil
		},
		"unknown": func(k int) error {
			id := ids[k%len(ids)]
			id[9]++
			if known, err := s.Known(id); known || err != nil {
				return fmt.Errorf("known: %w", err)
			}
			return nil
		},
		"page of a history": func(k int) error {
			var places [50]position
			_, err := s.readSteps(account.Number, uint64(k)%(account.History-50), places[:])
			return err
		},
		"history": func(k int) error {
			var place [1]position
			_, err := s.readSteps(account.Number, uint64(k)%account.History, place[:])
			return err
		},
	} {
		b.Run(name, func(b *testing.B) {
			for k := 0; b.Loop(); k++ {
				if err := look(k); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// rowOf reads a row.
func rowOf(s *Store, key []byte) (value []byte, err error) {
	err = s.db.View(func(transaction *badger.Txn) error {
		value, err = get(transaction, key)
		return err
	})
	return value, err
}
