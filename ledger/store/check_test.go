package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/options"
	"github.com/dgraph-io/ristretto/v2/z"
	"pgregory.net/rapid"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
)

// long is the number of blocks of longChain.
const long = 150

// longChain returns the folders of a store of many blocks, after it was closed and as it
// was before, and what it reads.
func longChain(t *testing.T, options Options) (closed, killed folder, text string) {
	t.Helper()
	dir := t.TempDir()
	s := open(t, dir, options)
	b := newBook(10)
	for range long {
		b.apply(t, s, 1+int(b.round)%5)
		if b.round%7 == 0 {
			awaitMerge(t, s)
		}
	}
	if err := errors.Join(s.awaitWritten(long-9), s.Sync()); err != nil {
		t.Fatal(err)
	}
	killed = readFolder(t, dir)
	text = mustReadAll(t, s)
	closeStore(t, s)
	return readFolder(t, dir), killed, text
}

// inFolder writes a folder and returns its path.
func inFolder(t testing.TB, files folder) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "store")
	files.write(t, dir)
	return dir
}

// edit changes the database of a store that is closed. It passes each row to change.
func edit(t testing.TB, dir string, change func(batch *badger.WriteBatch, key,
	value []byte) error) {
	t.Helper()
	s := &Store{dir: dir, options: small().withDefaults(), marker: &marker{last: tip{height: 1}}}
	if err := s.openDatabase(); err != nil {
		t.Fatal(err)
	}
	batch := s.db.NewWriteBatch()
	err := s.db.View(func(transaction *badger.Txn) error {
		rows := transaction.NewIterator(badger.DefaultIteratorOptions)
		defer rows.Close()
		for rows.Rewind(); rows.Valid(); rows.Next() {
			value, err := rows.Item().ValueCopy(nil)
			if err == nil {
				err = change(batch, rows.Item().KeyCopy(nil), value)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err := errors.Join(err, batch.Flush(), s.db.Close()); err != nil {
		t.Fatal(err)
	}
}

// without removes the rows of some kinds.
func without(kinds ...byte) func(*badger.WriteBatch, []byte, []byte) error {
	return func(batch *badger.WriteBatch, key, _ []byte) error {
		if !slices.Contains(kinds, key[0]) {
			return nil
		}
		return batch.Delete(key)
	}
}

// mustCheck waits until a store has checked what Open left.
func mustCheck(t testing.TB, s *Store) {
	t.Helper()
	if err := s.Checked(t.Context()); err != nil {
		t.Fatalf("what Open left: %v", err)
	}
}

// memoryOf returns what a store has in memory after Open, besides the state.
func memoryOf(s *Store) string {
	text := fmt.Sprintf("%+v %v %v\n", s.head, s.chain.checkpoints, s.chain.recent)
	// fmt sorts maps
	text += fmt.Sprintln(s.failed.always, s.failed.until, s.failed.within, s.failed.now)
	for _, r := range s.runs.list() {
		text += fmt.Sprintln(r.kind, r.number, r.level, r.records, r.bytes, r.fences, r.starts,
			r.blocks, r.failures, r.highest)
		if r.kind == rowRun { // the size of the filter of a run of entries is a guess
			text += fmt.Sprintln(r.filter)
		}
	}
	return text
}

// A store that Open reads in part is the same as one that it reads whole, because the caller wants
// that or because it is of an older version: in memory, in every look-up, and as it goes on.
func TestOpenInPart(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*Options){
		"small": func(*Options) {},
		"small layers": func(o *Options) {
			o.checkpointBlocks, o.fanOut, o.unsettledBytes = 2, 4, 1
		},
		"large layers": func(o *Options) {
			o.checkpointBlocks = 100
		},
	} {
		if testing.Short() && name != "small layers" {
			continue // with most layers, more happens beside each other
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			options := small()
			change(&options)
			closed, killed, text := longChain(t, options)
			for name, files := range map[string]folder{"closed": closed, "killed": killed} {
				whole, older := options, inFolder(t, files)
				whole.CheckAll = true
				edit(t, older, without(rowGuide, rowHashes))
				_ = os.Remove(filepath.Join(older, uncheckedFile))
				var want string
				for way, s := range map[string]*Store{
					"whole": open(t, inFolder(t, files), whole),
					"older": open(t, older, options),
					"part":  open(t, inFolder(t, unnoted(files)), options),
				} {
					if way == "part" && (s.left.header == 0 || len(s.left.ids) == 0) ||
						way != "part" && (s.left.header != 0 || len(s.left.ids) != 0) {
						t.Errorf("%s, %s: left are headers to %d and %d runs", name, way,
							s.left.header, len(s.left.ids))
					}
					got := memoryOf(s)
					if want == "" {
						want = got
					}
					if got != want {
						t.Errorf("%s, %s: the memory differs: %s\n%s", name, way, got, want)
					}
					checkIndex(t, s)
					if got := mustReadAll(t, s); got != text {
						t.Errorf("%s, %s: it reads otherwise", name, way)
					}
					mustCheck(t, s)
					b := newBook(10)
					b.next(0)
					b.round = ledger.Round(s.AppendedHeight())
					b.client.Stream, b.operator.Stream = 7, 7
					for range 70 {
						b.apply(t, s, 3)
					}
					closeStore(t, s)
					s = open(t, s.dir, options)
					if s.left.header == 0 || len(s.left.ids) == 0 || len(s.lacking.guides) > 0 ||
						len(s.lacking.hashes) > 0 {
						t.Errorf("%s, %s: then left are headers to %d and %d runs", name, way,
							s.left.header, len(s.left.ids))
					}
					mustCheck(t, s)
					closeStore(t, s)
					if _, err := Verify(t.Context(), s.dir, testGenesis(), options,
						nil); err != nil {
						t.Errorf("%s, %s: %v", name, way, err)
					}
				}
			}
		})
	}
}

// unnoted returns a folder without the note of unchecked tables.
func unnoted(files folder) folder {
	files = maps.Clone(files)
	delete(files, uncheckedFile)
	return files
}

// Damage in what Open leaves is found behind, as if Open had found it: the store takes no more
// blocks, and is not opened again. A check of everything at once finds it at once.
func TestDamageFoundBehind(t *testing.T) {
	t.Parallel()
	options := small()
	options.unsettledBytes = 1
	closed, _, _ := longChain(t, options)
	set := func(batch *badger.WriteBatch, key, value []byte) error {
		return batch.Set(key, seal(key, value))
	}
	run := idRuns(t, closed)[0]
	oldest := func(key []byte) bool { return bytes.HasPrefix(key, run.prefix()) }
	once := func(done *bool) bool { before := *done; *done = true; return !before }
	for name, damage := range map[string]func(done *bool, batch *badger.WriteBatch, key,
		value []byte) error{
		"a header is missing": func(_ *bool, batch *badger.WriteBatch, key, _ []byte) error {
			if !bytes.Equal(key, heightKey(rowHeader, 5)) {
				return nil
			}
			return batch.Delete(key)
		},
		"a header has another hash": func(_ *bool, batch *badger.WriteBatch, key,
			value []byte) error {
			if !bytes.Equal(key, heightKey(rowHeader, 70)) {
				return nil
			}
			header, length, err := decodeHeaderRow(value[:len(value)-checksumSize])
			header.Time++
			return errors.Join(err, set(batch, key, headerRow(header.Encode(), int(length))))
		},
		"a header is damaged": func(_ *bool, batch *badger.WriteBatch, key, value []byte) error {
			if !bytes.Equal(key, heightKey(rowHeader, 65)) {
				return nil
			}
			value[9] ^= 1
			return batch.Set(key, value)
		},
		"a row of ids is missing": func(done *bool, batch *badger.WriteBatch, key,
			_ []byte) error {
			if !oldest(key) || !once(done) {
				return nil
			}
			return batch.Delete(key)
		},
		"an id is another": func(done *bool, batch *badger.WriteBatch, key, value []byte) error {
			if !oldest(key) || !once(done) {
				return nil
			}
			value[8] ^= 0x40
			return set(batch, key, value[:len(value)-checksumSize])
		},
		"an id is of another kind": func(done *bool, batch *badger.WriteBatch, key,
			value []byte) error {
			if !oldest(key) || !once(done) {
				return nil
			}
			value[recordSize-4] ^= indexFailed << (kindShift - 24)
			return set(batch, key, value[:len(value)-checksumSize])
		},
		"a row of ids is damaged": func(done *bool, batch *badger.WriteBatch, key,
			value []byte) error {
			if !oldest(key) || !once(done) {
				return nil
			}
			value[50] ^= 1
			return batch.Set(key, value)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			done := false
			dir := inFolder(t, closed)
			edit(t, dir, func(batch *badger.WriteBatch, key, value []byte) error {
				return damage(&done, batch, key, value)
			})
			all := options
			all.CheckAll = true
			whole := inFolder(t, readFolder(t, dir))
			if _, err := Open(whole, testGenesis(), all); !errors.Is(err, ErrDamaged) {
				t.Errorf("checking all at once: %v", err)
			}
			foundBehind(t, dir, options)
		})
	}
	t.Run("a table is damaged", func(t *testing.T) {
		t.Parallel()
		dir := inFolder(t, closed)
		damageBody(t, dir)
		foundBehind(t, dir, options)
	})
}

// idRuns returns the runs of ids that a folder's row of runs names.
func idRuns(t testing.TB, files folder) (named []*run) {
	t.Helper()
	edit(t, inFolder(t, files), func(_ *badger.WriteBatch, key, value []byte) (err error) {
		if key[0] == rowRuns {
			_, named, err = decodeRunsRow(value[:len(value)-checksumSize])
		}
		return err
	})
	return of(rowRun, named)
}

// damageBody flips a bit of a body in a table.
func damageBody(t *testing.T, dir string) {
	t.Helper()
	var body []byte
	edit(t, dir, func(_ *badger.WriteBatch, key, value []byte) error {
		if bytes.Equal(key, packedKey(100, 0)) {
			body = value
		}
		return nil
	})
	names, err := filepath.Glob(filepath.Join(dir, databaseFolder, "*.sst"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if at := bytes.Index(content(name), body); at >= 0 {
			flip(t, name, at+len(body)/2, 1)
			return
		}
	}
	t.Fatal("no table has the body")
}

// foundBehind checks that a store is opened, and that damage is found behind.
func foundBehind(t *testing.T, dir string, options Options) {
	t.Helper()
	s, err := Open(dir, testGenesis(), options)
	if err != nil {
		t.Fatalf("Open finds it already: %v", err)
	}
	if err := s.Checked(t.Context()); !errors.Is(err, ErrDamaged) {
		t.Errorf("behind: %v", err)
	}
	_, err = s.Apply(1, 1000, [][]byte{newBook(3).next(0)})
	if !errors.Is(err, ErrDamaged) || !errors.Is(err, ErrFailed) {
		t.Errorf("applying a block: %v", err)
	}
	_ = s.Close()
	for range 2 {
		if _, err := Open(dir, testGenesis(), options); !errors.Is(err, ErrDamaged) {
			t.Errorf("opening it again: %v", err)
		}
	}
}

// What the database may have lost without an error is found by Open itself.
func TestLostRowsFoundByOpen(t *testing.T) {
	t.Parallel()
	options := small()
	options.unsettledBytes = 20_000
	closed, _, _ := longChain(t, options)
	if s := open(t, inFolder(t, closed), options); s.left.header == 0 {
		t.Error("all headers are read")
	}
	runs := idRuns(t, closed)
	last := runs[len(runs)-1]
	newest := last.chunkKey(chunksOf(last.records)-1, nil)
	for _, lost := range [][]byte{heightKey(rowHeader, long), heightKey(rowHeader, long-1),
		heightKey(rowHeader, long-5), newest} {
		dir := inFolder(t, closed)
		edit(t, dir, func(batch *badger.WriteBatch, key, _ []byte) error {
			if !bytes.Equal(key, lost) {
				return nil
			}
			return batch.Delete(key)
		})
		if _, err := Open(dir, testGenesis(), options); !errors.Is(err, ErrDamaged) {
			t.Errorf("without row %x: %v", lost, err)
		}
	}
}

// A lost guide or row of hashes is no damage: Open reads what it is made from, and writes it again.
// One that is malformed is damage.
func TestDamagedGuides(t *testing.T) {
	t.Parallel()
	options := small()
	options.unsettledBytes = 1
	closed, _, text := longChain(t, options)
	dir := inFolder(t, closed)
	s := open(t, dir, options)
	want := memoryOf(s)
	closeStore(t, s)
	for _, kind := range []byte{rowGuide, rowHashes} {
		for _, damage := range []string{"missing", "empty", "of another key"} {
			t.Run(fmt.Sprintf("%c %s", kind, damage), func(t *testing.T) {
				t.Parallel()
				dir := inFolder(t, closed)
				tamper(t, dir, kind, damage)
				s, err := Open(dir, testGenesis(), options)
				if damage != "missing" {
					if !errors.Is(err, ErrDamaged) {
						t.Error(err)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				if got := memoryOf(s); got != want {
					t.Errorf("the memory is\n%s\n%s", got, want)
				}
				if got := mustReadAll(t, s); got != text {
					t.Error("it reads otherwise")
				}
				mustCheck(t, s)
				closeStore(t, s)
				s = open(t, dir, options)
				if len(s.lacking.guides) > 0 || len(s.lacking.hashes) > 0 {
					t.Error("it is still missing")
				}
				mustCheck(t, s)
			})
		}
	}
}

// A store that has only some of the guides and rows of hashes, as after a crash while they were
// written, gets the others when it is opened.
func TestSomeGuides(t *testing.T) {
	t.Parallel()
	options := small()
	options.unsettledBytes, options.checkpointBlocks = 1, 20
	closed, _, _ := longChain(t, options)
	s := open(t, inFolder(t, closed), options)
	want := memoryOf(s)
	closeStore(t, s)
	random := rand.New(rand.NewPCG(3, 3))
	for range 6 {
		dir := inFolder(t, closed)
		for again := range 2 {
			edit(t, dir, func(batch *badger.WriteBatch, key, _ []byte) error {
				if key[0] != rowGuide && key[0] != rowHashes || random.IntN(2+again) == 0 {
					return nil
				}
				return batch.Delete(key)
			})
			s := open(t, dir, options)
			if got := memoryOf(s); got != want {
				t.Fatalf("the memory is\n%s\n%s", got, want)
			}
			mustCheck(t, s)
			closeStore(t, s)
			s = open(t, dir, options)
			if len(s.lacking.guides) > 0 || len(s.lacking.hashes) > 0 {
				t.Errorf("%d guides and %d hashes are still missing", len(s.lacking.guides),
					len(s.lacking.hashes))
			}
			closeStore(t, s)
		}
	}
}

// A guide of several rows is read whole or not at all. If some are missing, there is none.
func TestGuideInParts(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir(), small())
	r := &run{kind: rowRun, number: 5}
	const records = 200_000
	r.expect(records)
	for i := range uint64(records) {
		var id ledger.Hash
		binary.BigEndian.PutUint64(id[:], i<<40)
		binary.BigEndian.PutUint64(id[8:], i*0x9e3779b97f4a7c15)
		value := (&record{where: position{height: ledger.Height(i), kind: byte(i % 3)}}).value()
		r.note(id[:], value[:])
	}
	var keys [][]byte
	want := &run{}
	batch := s.db.NewWriteBatch()
	*want = *r
	err := s.putGuide(r, func(_ string, key, value []byte) error {
		keys = append(keys, key)
		return batch.Set(key, seal(key, value))
	})
	if err := errors.Join(err, batch.Flush()); err != nil || len(keys) < 3 {
		t.Fatalf("%d rows: %v", len(keys), err)
	}
	read := func() (*run, error) {
		got := &run{kind: rowRun, number: 5, records: records}
		return got, s.db.View(func(transaction *badger.Txn) error {
			return readGuide(transaction, got)
		})
	}
	got, err := read()
	if err != nil || !slices.Equal(got.fences, want.fences) ||
		!slices.Equal(got.filter, want.filter) || !slices.Equal(got.failed, want.failed) ||
		got.blocks != want.blocks || got.failures != want.failures ||
		got.highest != records-1 {
		t.Errorf("%+v: %v", got.count, err)
	}
	for at := range keys {
		last := keys[len(keys)-1-at]
		if err := s.db.Update(func(transaction *badger.Txn) error {
			return transaction.Delete(last)
		}); err != nil {
			t.Fatal(err)
		}
		if _, err := read(); !errors.Is(err, errMissing) {
			t.Errorf("without the last %d: %v", at+1, err)
		}
	}
}

// A process that ended before the tables were checked is followed by one that checks all at once.
func TestUncheckedTables(t *testing.T) {
	t.Parallel()
	options := small()
	options.unsettledBytes = 1
	closed, _, text := longChain(t, options)
	if _, noted := closed[uncheckedFile]; noted {
		t.Error("a store that was closed is noted as unchecked")
	}
	dir := inFolder(t, closed)
	note := filepath.Join(dir, uncheckedFile)
	if err := os.WriteFile(note, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, all := range []bool{true, false} {
		s := open(t, dir, options)
		if whole := s.left.header == 0 && s.left.tables == nil; whole != all {
			t.Errorf("everything is checked at once: %v", whole)
		}
		mustCheck(t, s)
		if _, err := os.Stat(note); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("then the note is there: %v", err)
		}
		if got := mustReadAll(t, s); got != text {
			t.Error("it reads otherwise")
		}
		closeStore(t, s)
	}
	damaged := inFolder(t, closed)
	damageBody(t, damaged)
	if err := os.WriteFile(filepath.Join(damaged, uncheckedFile), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(damaged, testGenesis(), options); !errors.Is(err, ErrDamaged) {
		t.Errorf("a damaged table, and the note: %v", err)
	}
}

// Close ends the check.
func TestCloseEndsTheCheck(t *testing.T) {
	t.Parallel()
	options := small()
	options.unsettledBytes = 1
	closed, _, _ := longChain(t, options)
	s := open(t, inFolder(t, closed), options)
	pace := s.newPace()
	if err := pace.step(); err != nil {
		t.Error(err)
	}
	pace.began = pace.began.Add(-(1 << 50)) // it must rest for long
	ended := make(chan error)
	go func() { ended <- pace.step() }()
	closeStore(t, s)
	if err := <-ended; !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	if err := pace.step(); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	<-s.checked
}

// Of the headers, those are left to be checked after which at least unsettledBytes were written.
func TestSettledHeaders(t *testing.T) {
	t.Parallel()
	closed, _, _ := longChain(t, small())
	s := open(t, inFolder(t, closed), small())
	bytesAfter := func(height ledger.Height) (size uint64) {
		for next := height + 1; next <= long; next++ {
			header, _, err := s.Header(next)
			if err != nil {
				t.Fatal(err)
			}
			if size += headerRowBytes + recordSize; !header.ByBundle {
				size += uint64(header.Transactions) * recordSize
			}
		}
		return size
	}
	for _, most := range []ledger.Height{0, 63, 64, 130, long} {
		for _, unsettled := range []uint64{1, 5000, 30_000, 60_000, bytesAfter(128),
			bytesAfter(128) + 1, bytesAfter(64), bytesAfter(0), 1 << 40} {
			want := ledger.Height(0)
			for next := ledger.Height(0); next <= most; next += segmentLength {
				if bytesAfter(next) >= unsettled {
					want = next
				}
			}
			s.options.unsettledBytes = unsettled
			if err := s.db.View(func(transaction *badger.Txn) error {
				got, err := s.mayHaveLost(transaction, most, long)
				if got != want {
					t.Errorf("most %d, %d unsettled: %d instead of %d", most, unsettled, got, want)
				}
				return err
			}); err != nil {
				t.Error(err)
			}
		}
	}
}

// Of a run, those chunks are settled after which at least unsettledBytes were written.
func TestSettledChunks(t *testing.T) {
	t.Parallel()
	s := &Store{options: Options{unsettledBytes: 10 * chunkOf * recordSize}}
	r := &run{kind: rowRun, number: 4, records: 40*chunkOf - 1, count: count{next: 9}}
	of := func(number, bytes uint64) *run { return &run{number: number, bytes: bytes} }
	for _, test := range []struct {
		others []*run
		want   uint64
	}{
		{nil, 40 - 11},
		{[]*run{of(3, 1<<40), of(8, 1<<40)}, 40 - 11},
		{[]*run{of(9, chunkOf*recordSize), of(11, 4*chunkOf*recordSize)}, 40 - 6},
		{[]*run{of(9, 10*chunkOf*recordSize-1)}, 40 - 1},
		{[]*run{of(9, 5*chunkOf*recordSize), of(10, 5*chunkOf*recordSize)}, 40},
	} {
		if got := s.settledChunks(r, append(test.others, r)); got != test.want {
			t.Errorf("%v: %d instead of %d", test.others, got, test.want)
		}
	}
	r.records = 3
	if got := s.settledChunks(r, []*run{r}); got != 0 {
		t.Errorf("of a small run: %d", got)
	}
}

// The filter has each id that was added, and few others.
func TestIDFilter(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		id := func() (id ledger.Hash) {
			for i := range id {
				id[i] = byte(random.Uint32())
			}
			return id
		}
		count := rapid.IntRange(0, 3000).Draw(t, "ids")
		filter := newIDFilter(uint64(count))
		ids := make([]ledger.Hash, count)
		for i := range ids {
			ids[i] = id()
			filter.add(ids[i][:])
		}
		for i := range ids {
			if !filter.mayHave(ids[i][:]) {
				t.Fatalf("%s is not there", ids[i])
			}
		}
		wrong := 0
		for range 2000 {
			if other := id(); filter.mayHave(other[:]) {
				wrong++
			}
		}
		if wrong > 80 {
			t.Errorf("%d of 2000 others may be there", wrong)
		}
	})
	var none idFilter
	if !none.mayHave(make([]byte, ledger.HashSize)) {
		t.Error("without a filter, an id is excluded")
	}
}

// FuzzGuide checks that each guide has one encoding.
func FuzzGuide(f *testing.F) {
	for _, records := range []int{1, chunkOf, chunkOf + 1} {
		r := &run{kind: rowRun}
		r.expect(uint64(records))
		for i := range records {
			id := ledger.Hash{byte(i)}
			value := (&record{where: position{kind: byte(i % 3)}}).value()
			r.note(id[:], value[:])
		}
		f.Add(uint16(records), r.encodeGuide())
	}
	f.Fuzz(func(t *testing.T, records uint16, data []byte) {
		r := &run{kind: rowRun, records: uint64(records)}
		if len(data) > guideHeadSize {
			r.bytes = binary.BigEndian.Uint64(data[9:])
		}
		if r.decodeGuide(data) == nil && !bytes.Equal(r.encodeGuide(), data) {
			t.Fatal("a guide has two encodings")
		}
	})
}

// FuzzHashes checks that no row of hashes is read beyond its end or the head.
func FuzzHashes(f *testing.F) {
	f.Add(uint16(64), uint16(64), make([]byte, ledger.HashSize))
	f.Add(uint16(128), uint16(300), make([]byte, 2*ledger.HashSize))
	f.Fuzz(func(t *testing.T, first, head uint16, row []byte) {
		known := make([]ledger.Hash, 3)
		if first > 3*segmentLength {
			return
		}
		hashes, err := addHashes(known, ledger.Height(first), ledger.Height(head), row)
		if err == nil && len(hashes) > max(3, int(head)/segmentLength+1) {
			t.Fatalf("%d hashes up to block %d", len(hashes), head)
		}
	})
}

// A store that is made from a snapshot is opened in part, too.
func TestOpenRestoredInPart(t *testing.T) {
	t.Parallel()
	options := small()
	closed, _, _ := longChain(t, options)
	whole := open(t, inFolder(t, closed), options)
	s := restoredFrom(t, whole, filepath.Join(t.TempDir(), "restored"))
	if s.legacyIndex || s.legacyState || len(s.lacking.guides) > 0 || len(s.lacking.hashes) > 0 {
		t.Errorf("it has rows of an older version: %v, %v; it lacks %+v", s.legacyIndex,
			s.legacyState, s.lacking)
	}
	if !reflect.DeepEqual(s.failed, whole.failed) || !slices.Equal(s.chain.checkpoints,
		whole.chain.checkpoints) {
		t.Error("the memory differs")
	}
	checkAll := func() {
		for id, want := range idsOf(t, whole) {
			where, found, err := s.locate(id)
			if err != nil || !found || where.height != want.height || where.index != want.index {
				t.Fatalf("%s is at %+v, %v, %v; want %+v", id, where, found, err, want)
			}
			id[9]++
			if _, found, err := s.locate(id); found || err != nil {
				t.Fatalf("%s is found: %v", id, err)
			}
		}
		mustCheck(t, s)
	}
	checkAll()
	closeStore(t, s)
	options.unsettledBytes = 1
	s = open(t, s.dir, options)
	if s.left.header == 0 {
		t.Error("all headers were read")
	}
	checkAll()
}

// BenchmarkOpenLong opens stores of several numbers of blocks, ids and accounts: in part, and
// whole, as older versions did.
func BenchmarkOpenLong(b *testing.B) {
	for _, size := range []struct{ blocks, transactions, accounts int }{{1000, 20, 0},
		{1000, 200, 0}, {1000, 800, 0}, {10_000, 20, 0}, {10, 20, 50_000}, {10, 20, 200_000}} {
		b.Run(fmt.Sprintf("blocks=%d/ids=%d/accounts=%d", size.blocks,
			size.blocks*size.transactions, 100+size.accounts), func(b *testing.B) {
			dir, options := b.TempDir(), Options{unsettledBytes: 8 << 20}
			s := open(b, dir, options)
			traffic := newBook(100)
			for range size.blocks {
				traffic.apply(b, s, size.transactions)
			}
			for first := 0; first < size.accounts; {
				names := make([]string, 100)
				for i := range names {
					names[i], first = fmt.Sprintf("more-%d", first), first+1
				}
				traffic.round++
				if _, err := s.Apply(1, traffic.round, [][]byte{ledgertest.Batch(1,
					traffic.client.Bundle(traffic.client.Register(names...)))}); err != nil {
					b.Fatal(err)
				}
			}
			if err := s.Close(); err != nil {
				b.Fatal(err)
			}
			for _, all := range []bool{false, true} {
				b.Run(fmt.Sprintf("all=%v", all), func(b *testing.B) {
					options.CheckAll = all
					b.ReportAllocs()
					for b.Loop() {
						s, err := Open(dir, testGenesis(), options)
						if err != nil {
							b.Fatal(err)
						}
						b.StopTimer()
						closeStore(b, s)
						b.StartTimer()
					}
				})
			}
		})
	}
}

// TestTablesThatAreRemoved: a table that the database removes while it is checked is no damage. The
// database cuts it to nothing first.
func TestTablesThatAreRemoved(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir, small())
	mustCheck(t, s)
	gone := tableFile{path: filepath.Join(dir, databaseFolder, "009999.sst")}
	if err := os.WriteFile(gone.path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s.left.tables = []tableFile{gone}
	if err := s.checkTablesLeft(); err != nil {
		t.Error(err)
	}
	closeStore(t, s)
	const size = 1 << 20
	if err := os.WriteFile(gone.path, make([]byte, size), 0o600); err != nil {
		t.Fatal(err)
	}
	mapped, err := z.OpenMmapFile(gone.path, os.O_RDONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(gone.path, 0); err != nil {
		t.Fatal(err)
	}
	if err := gone.read(mapped, options.OnTableAndBlockRead); !errors.Is(err, errTable) {
		t.Errorf("a table that was cut: %v", err)
	}
	if err := mapped.Close(-1); err != nil {
		t.Error(err)
	}
}
