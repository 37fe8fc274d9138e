package store

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dgraph-io/badger/v4"
	"pgregory.net/rapid"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/state"
)

// keys generates keys that often begin alike, are prefixes of each other, or end with zeros.
func keys() *rapid.Generator[[]byte] {
	return rapid.Custom(func(t *rapid.T) []byte {
		key := bytes.Repeat([]byte{7}, rapid.IntRange(0, 20).Draw(t, "same"))
		key = append(key, rapid.SliceOfN(rapid.SampledFrom([]byte{0, 1, 255}), 0, 12).Draw(t,
			"own")...)
		return append(key, make([]byte, rapid.IntRange(0, 9).Draw(t, "zeros"))...)
	})
}

// A layer's entries are in the order of their keys, each with its last value.
func TestEntriesOfALayer(t *testing.T) {
	t.Parallel()
	var sorter layerSorter // one for all layers, which uses its memory again
	rapid.Check(t, func(t *rapid.T) {
		some := rapid.SliceOfN(keys(), 1, 30).Draw(t, "keys")
		want, numbers := map[string]string{}, map[string]uint64{}
		for i, key := range some { // some are the entries of accounts
			if numbers[string(key)] == 0 && rapid.Bool().Draw(t, "account") {
				numbers[string(key)] = uint64(i) + 1
			}
		}
		var blocks []*pendingBlock
		for i := range rapid.IntRange(1, 8).Draw(t, "blocks") {
			changes := &state.Changes{}
			for _, key := range rapid.SliceOfDistinct(rapid.SampledFrom(some),
				func(key []byte) string { return string(key) }).Draw(t, "changed") {
				value := fmt.Sprint(i)
				want[string(key)] = value
				changes.Entries.Add(state.Change{Key: key, After: []byte(value)},
					numbers[string(key)])
			}
			blocks = append(blocks, &pendingBlock{changes: changes})
		}
		got, order := sorter.entriesOf(blocks)
		for i := range order {
			entry := got[order[i].at]
			if i > 0 && bytes.Compare(got[order[i-1].at].Key, entry.Key) >= 0 {
				t.Fatalf("%x comes before %x", got[order[i-1].at].Key, entry.Key)
			}
			if want[string(entry.Key)] != string(entry.After) {
				t.Fatalf("%x is %s, not %s", entry.Key, entry.After, want[string(entry.Key)])
			}
		}
		if len(order) != len(want) {
			t.Fatalf("%d entries instead of %d", len(order), len(want))
		}
	})
}

func TestSortKeys(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		some := rapid.SliceOfNDistinct(keys(), 0, 100, func(key []byte) string {
			return string(key)
		}).Draw(t, "keys")
		order := make([]keyOrder, len(some))
		for i := range order {
			order[i].at = uint32(i)
		}
		new(keySorter).sortKeys(order, 0, func(at uint32) []byte { return some[at] })
		if !slices.IsSortedFunc(order, func(a, b keyOrder) int {
			return bytes.Compare(some[a.at], some[b.at])
		}) {
			t.Fatalf("%v is not in the order of %x", order, some)
		}
	})
}

// A key that ends within eight bytes is sorted before those that go on with zeros, wherever it is.
func TestSortShortKeys(t *testing.T) {
	t.Parallel()
	for place := range 2 * few {
		var some [][]byte
		var order []keyOrder
		for i := range 2 * few {
			key := append([]byte("abc\x00\x00\x00\x00\x00"), byte(i*7))
			if i == place {
				key = []byte("abc")
			}
			some, order = append(some, key), append(order, keyOrder{at: uint32(i)})
		}
		new(keySorter).sortKeys(order, 0, func(at uint32) []byte { return some[at] })
		if !slices.IsSortedFunc(order, func(a, b keyOrder) int {
			return bytes.Compare(some[a.at], some[b.at])
		}) {
			t.Fatalf("with the short key at %d: %v", place, order)
		}
	}
}

// writeRun writes a run of entries, a value for each key, to the database.
func writeRun(s *Store, kind runKind, records [][2]string) (*run, error) {
	batch := s.db.NewWriteBatch()
	writer := s.newRunWriter(kind, 0, uint64(len(records)),
		func(_ string, key, value []byte) error { return batch.Set(key, seal(key, value)) })
	for _, record := range records {
		if err := writer.add([]byte(record[0]), []byte(record[1])); err != nil {
			return nil, err
		}
	}
	return writer.run, errors.Join(writer.flush(), batch.Flush())
}

// readMerged returns the records of runs, merged, the oldest run first.
func readMerged(s *Store, runs []*run) (records [][2]string, err error) {
	err = s.db.View(func(transaction *badger.Txn) error {
		sources := newMerged(transaction, runs)
		defer sources.close()
		for {
			key, value, more, err := sources.next()
			if err != nil || !more {
				return err
			}
			records = append(records, [2]string{string(key), string(value)})
		}
	})
	return records, err
}

// Of the records with one key, the newest run's counts, whatever is merged with what first.
func TestNewestRecordCounts(t *testing.T) {
	t.Parallel()
	options := small()
	options.chunkBytes = 40
	s := open(t, t.TempDir(), options)
	rapid.Check(t, func(t *rapid.T) {
		want := map[string]string{}
		var runs []*run
		for i := range rapid.IntRange(1, 6).Draw(t, "runs") {
			chosen := rapid.SliceOfDistinct(keys().Filter(func(key []byte) bool {
				return len(key) > 0
			}), func(key []byte) string { return string(key) }).Draw(t, "keys")
			slices.SortFunc(chosen, bytes.Compare)
			var records [][2]string
			for _, key := range chosen {
				value := rapid.SampledFrom([]string{"", fmt.Sprintf("in run %d", i)}).Draw(t,
					"value")
				records = append(records, [2]string{string(key), value})
				want[string(key)] = value
			}
			if len(records) > 0 {
				r, err := writeRun(s, rowEntries, records)
				if err != nil {
					t.Fatal(err)
				}
				runs = append(runs, r)
			}
		}
		got, err := readMerged(s, runs)
		if err != nil {
			t.Fatal(err)
		}
		for _, record := range got {
			if value, is := want[record[0]]; !is || value != record[1] {
				t.Fatalf("%x is %q, not %q", record[0], record[1], value)
			}
			delete(want, record[0])
		}
		if len(want) > 0 || !slices.IsSortedFunc(got, func(a, b [2]string) int {
			return cmp.Compare(a[0], b[0])
		}) {
			t.Fatalf("missing are %d records", len(want))
		}
	})
}

// A merge leaves out entries that do not exist any more, but only if no older run may have them.
func TestMergeForgetsTheGone(t *testing.T) {
	t.Parallel()
	options := small()
	options.fanOut = 100 // the store itself merges nothing: the test would wait for its merge
	s := open(t, t.TempDir(), options)
	var runs []*run
	for _, records := range [][][2]string{{{"a", "1"}, {"b", "1"}, {"c", "1"}},
		{{"a", "2"}, {"b", ""}}, {{"b", "3"}, {"c", ""}}, {{"a", ""}, {"d", ""}}} {
		r, err := writeRun(s, rowEntries, records)
		if err != nil {
			t.Fatal(err)
		}
		runs = append(runs, r)
	}
	s.runs.runs.Store(&runs)
	for _, test := range []struct {
		from   []*run
		legacy bool
		want   [][2]string
	}{
		{runs, false, [][2]string{{"b", "3"}}},
		{runs, true, [][2]string{{"a", ""}, {"b", "3"}, {"c", ""}, {"d", ""}}},
		{runs[1:3], false, [][2]string{{"a", "2"}, {"b", "3"}, {"c", ""}}},
	} {
		s.legacyState = test.legacy
		s.mutex.Lock()
		s.merging = merging{}
		s.mutex.Unlock()
		if err := s.mergeRuns(test.from, 1); err != nil {
			t.Fatal(err)
		}
		got, err := readMerged(s, []*run{s.merging.made})
		if err != nil || !slices.Equal(got, test.want) {
			t.Errorf("%v: %v; want %v", got, err, test.want)
		}
		added := &run{kind: rowEntries, number: 1 << 40}
		next, replaced := s.nextRuns([]*run{added})
		at := slices.Index(runs, test.from[0])
		want := slices.Concat(runs[:at], []*run{s.merging.made}, runs[at+len(test.from):],
			[]*run{added})
		if !slices.Equal(next, want) || !slices.Equal(replaced, test.from) {
			t.Errorf("the next runs are %v instead of %v", next, want)
		}
	}
	// What replaced its runs replaces no others.
	next, replaced := s.nextRuns(nil)
	s.adopt(next, replaced)
	if again, replaced := s.nextRuns(nil); !slices.Equal(again, next) || replaced != nil {
		t.Errorf("then they are %v, without %v", again, replaced)
	}
	s.runs.runs.Store(&[]*run{})
}

// Reading a run notices rows that are missing, out of order or too many.
func TestDamagedRuns(t *testing.T) {
	t.Parallel()
	options := small()
	options.chunkBytes = 20
	s := open(t, t.TempDir(), options)
	for name, damage := range map[string]func(r *run, keys [][]byte, t *badger.Txn) error{
		"a row is missing": func(_ *run, keys [][]byte, t *badger.Txn) error {
			return t.Delete(keys[1])
		},
		"the last row is missing": func(_ *run, keys [][]byte, t *badger.Txn) error {
			return t.Delete(keys[len(keys)-1])
		},
		"a row is there twice": func(r *run, keys [][]byte, t *badger.Txn) error {
			value, err := get(t, keys[0])
			again := append(slices.Clone(keys[1]), 0)
			return errors.Join(err, t.Set(again, seal(again, value)))
		},
		"a row is empty": func(_ *run, keys [][]byte, t *badger.Txn) error {
			return t.Set(keys[1], seal(keys[1], nil))
		},
		"a row is cut": func(_ *run, keys [][]byte, t *badger.Txn) error {
			value, err := get(t, keys[1])
			return errors.Join(err, t.Set(keys[1], seal(keys[1], value[:len(value)-1])))
		},
		"a record is there twice": func(r *run, keys [][]byte, t *badger.Txn) error {
			r.records++
			value, err := get(t, keys[1])
			return errors.Join(err, t.Set(keys[1], seal(keys[1], slices.Concat(value, value))))
		},
		"a record has no key": func(r *run, keys [][]byte, t *badger.Txn) error {
			r.records++
			value, err := get(t, keys[0])
			first := append([]byte{0, 0}, value...)
			return errors.Join(err, t.Set(keys[0], seal(keys[0], first)))
		},
		"a record is too many": func(r *run, _ [][]byte, _ *badger.Txn) error {
			r.records--
			return nil
		},
		"a row is longer": func(_ *run, keys [][]byte, t *badger.Txn) error {
			value, err := get(t, keys[1])
			return errors.Join(err, t.Set(keys[1], seal(keys[1], append(value, 0))))
		},
	} {
		t.Run(name, func(t *testing.T) {
			var records [][2]string
			for i := range 9 {
				records = append(records, [2]string{fmt.Sprintf("key %d", i), "a value"})
			}
			r, err := writeRun(s, rowEntries, records)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := readMerged(s, []*run{r}); err != nil || !slices.Equal(got, records) {
				t.Fatalf("%v: %v", got, err)
			}
			var keys [][]byte
			size := uint64(0)
			if err := s.eachRow(rowEntries, func(key, value []byte) error {
				if bytes.HasPrefix(key, r.prefix()) {
					keys, size = append(keys, bytes.Clone(key)), size+uint64(len(value))
				}
				return nil
			}); err != nil || len(keys) < 3 || size != r.bytes {
				t.Fatalf("%d rows with %d of %d bytes: %v", len(keys), size, r.bytes, err)
			}
			if err := s.db.Update(func(transaction *badger.Txn) error {
				return damage(r, keys, transaction)
			}); err != nil {
				t.Fatal(err)
			}
			if _, err := readMerged(s, []*run{r}); err == nil {
				t.Error("it is not noticed")
			}
		})
	}
}

// Only a row of runs that names runs of known kinds, with numbers that were given out, is read.
func TestDecodeRunsRow(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		row  []byte
		want int // runs; -1 for an error
	}{
		"none": {runsRow(0, nil), 0},
		"each kind": {runsRow(3, []*run{{kind: rowRun}, {kind: rowSteps},
			{kind: rowEntries, number: 2}}), 3},
		"the next number":  {runsRow(3, []*run{{kind: rowRun, number: 3}}), -1},
		"a foreign kind":   {runsRow(3, []*run{{kind: rowState, number: 2}}), -1},
		"a part of a run":  {runsRow(3, []*run{{kind: rowRun}})[:20], -1},
		"a part of number": {[]byte{0, 0, 0}, -1},
	} {
		_, runs, err := decodeRunsRow(test.row)
		if test.want < 0 && !errors.Is(err, errRow) || test.want >= 0 && (err != nil ||
			len(runs) != test.want) {
			t.Errorf("%s: %d runs: %v", name, len(runs), err)
		}
	}
}

// The oldest runs of a kind and of the lowest level that has enough are merged. Ones that are small
// beside them are merged among themselves, and stay in the level.
func TestMergeable(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		runs string // kind, level and bytes of each, the oldest first; by default all have as many
		from int    // the first of the three that are merged; -1: none
		kind runKind
	}{
		{"S0=90 S0=90 S0=9", -1, 0},
		{"S0=90 S0=90 S0=90", 0, rowEntries},
		{"S0=90 S0=90 S0=30", 0, rowEntries},
		{"S0=90 S0=90 S0=9 S0=9", -1, 0},
		{"S0=90 S0=90 S0=9 S0=9 S0=90", 0, rowEntries},
		{"S0=90 S0=90 S0=60 S0=9 S0=9", 2, rowEntries},
		{"S0=90 S0=90 S0=70 S0=20 S0=9", 0, rowEntries},
		{"S0=90 S0=90 S0=9 S0=9 S0=9", 2, rowEntries},
		{"S1=90 S1=90 S1=90 S0=90 S0=90 S0=9 S0=9 S0=9", 5, rowEntries},
		{"S1=90 S1=90 S1=90 S0=90 S0=90 S0=9 S0=9", 0, rowEntries},
		{"", -1, 0},
		{"r0 r0 Y0 Y0 S0 S0", -1, 0},
		{"r2 r1 r0 r0", -1, 0},
		{"r0 r0 r0", 0, rowRun},
		{"Y0 r0 Y0 r0 Y0 Y0", 0, rowSteps},
		{"r1 r1 r1 S0 r0 S0 S0", 0, rowEntries},
		{"r1 r1 r1 r0 r0 r0 r0", 3, rowRun},
		{"r2 r1 r1 r1 r1 r0", 1, rowRun},
	} {
		var runs []*run
		for _, one := range strings.Fields(test.runs) {
			made, bytes := &run{kind: runKind(one[0]), level: one[1] - '0'}, 0
			if len(one) > 3 {
				bytes, _ = strconv.Atoi(one[3:])
			}
			made.bytes = uint64(bytes)
			runs = append(runs, made)
		}
		var want []*run
		if test.from >= 0 {
			want = of(test.kind, runs)[test.from:][:3]
		}
		got, into := mergeable(runs, 3, nil)
		if !slices.Equal(got, want) {
			t.Errorf("of %q: %v instead of %v", test.runs, got, want)
		}
		last := runs[max(0, len(runs)-1):]
		stays := len(got) > 0 && got[2] == last[0] && got[0].bytes < runs[0].bytes
		if len(got) > 0 && (into == got[0].level) != stays {
			t.Errorf("of %q, the merged run has level %d", test.runs, into)
		}
	}
}

// While merges are under way, others of no higher level go on, and of other ranks.
func TestMergeableAmidMerges(t *testing.T) {
	t.Parallel()
	var runs []*run
	for _, each := range []rank{{2, rowRun}, {1, rowSteps}, {1, rowEntries}, {0, rowEntries}} {
		for range 3 {
			runs = append(runs, &run{kind: each.kind, level: each.level})
		}
	}
	for _, test := range []struct {
		under []rank
		want  []*run
	}{
		{nil, runs[9:12]},
		{[]rank{{2, rowRun}}, runs[9:12]},
		{[]rank{{1, rowSteps}}, runs[9:12]},
		{[]rank{{1, rowSteps}, {0, rowEntries}}, nil},
		{[]rank{{0, rowEntries}}, nil},
		{[]rank{{0, rowEntries}, {2, rowRun}}, runs[3:6]},
		{[]rank{{0, rowEntries}, {1, rowSteps}}, runs[6:9]},
	} {
		if got, _ := mergeable(runs, 3, test.under); !slices.Equal(got, test.want) {
			t.Errorf("amid %v: %v", test.under, got)
		}
	}
}

// awaitMerge waits until a merged run waits for the next layer, or there is nothing to merge. So
// layers do not come faster than merges.
func awaitMerge(t *testing.T, s *Store) {
	t.Helper()
	merged := func() bool {
		s.mutex.RLock()
		defer s.mutex.RUnlock()
		from, _ := mergeable(s.runs.list(), s.options.fanOut, nil)
		return s.merging.made != nil || from == nil
	}
	for deadline := time.Now().Add(time.Minute); !merged(); runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatal("the merger does nothing")
		}
	}
}

// Merges go on as long as layers come: the runs of each kind reach the upper levels, and never
// become many.
func TestMergesGoOn(t *testing.T) {
	t.Parallel()
	options := small()
	options.checkpointBlocks, options.fanOut = 1, 6
	s := open(t, t.TempDir(), options)
	b := newBook(3)
	high := func(kind runKind) bool { return of(kind, s.runs.list())[0].level >= 2 }
	most := 0
	for done := false; !done; {
		if b.apply(t, s, 3); b.round == 500 {
			t.Fatalf("after %d blocks there are %d runs", b.round, len(s.runs.list()))
		}
		if err := s.awaitWritten(s.AppendedHeight()); err != nil {
			t.Fatal(err)
		}
		awaitMerge(t, s)
		most = max(most, len(s.runs.list()))
		done = high(rowRun) && high(rowSteps) && high(rowEntries)
	}
	// Merges keep up: each of three levels has fewer than fanOut runs of each of three kinds.
	if most > 3*3*(options.fanOut-1) {
		t.Errorf("there were %d runs", most)
	}
	if err := s.verify(t.Context(), nil); err != nil {
		t.Error(err)
	}
	for _, r := range of(rowEntries, s.runs.list()) {
		if bits := 64 * len(r.filter); bits < int(filterBits*r.records) {
			t.Errorf("run %d of level %d has a filter of %d bits for %d entries", r.number, r.level,
				bits, r.records)
		}
	}
}

// Close ends a merge. The next process begins it anew.
func TestCloseEndsAMerge(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	options := small()
	options.checkpointBlocks = 1
	reached, goOn, once := make(chan struct{}), make(chan struct{}), sync.Once{}
	options.onWrite = func(step string) {
		if step == "run" && strings.Contains(string(debug.Stack()), ".mergeRuns(") {
			once.Do(func() {
				close(reached)
				<-goOn
			})
		}
	}
	s := open(t, dir, options)
	b := newBook(10)
	for merges := false; !merges; {
		if b.apply(t, s, 80); b.round == 100 {
			t.Fatal("no run is merged")
		}
		if err := s.awaitWritten(s.AppendedHeight()); err != nil {
			t.Fatal(err)
		}
		select {
		case <-reached:
			merges = true
		default:
		}
	}
	closed := make(chan error)
	go func() { closed <- s.Close() }()
	s.mutex.Lock()
	for !s.closed {
		s.changed.Wait()
	}
	s.mutex.Unlock()
	close(goOn)
	if err := <-closed; err != nil || s.merging.made != nil {
		t.Errorf("a run is made: %v: %v", s.merging.made != nil, err)
	}
	again := open(t, dir, small())
	if err := again.verify(t.Context(), nil); err != nil {
		t.Error(err)
	}
}

// A merge waits for space on the disk.
func TestMergeAwaitsSpace(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	options := small()
	options.FreeSpace = func(string) (uint64, error) {
		if asked.Load() > 0 && asked.Add(-1) > 0 {
			return 100, nil
		}
		return 1 << 40, nil
	}
	s := open(t, t.TempDir(), options)
	value := make([]byte, 500) // that cannot be packed
	random := rand.NewChaCha8([32]byte{})
	_, _ = random.Read(value)
	r, err := writeRun(s, rowEntries, [][2]string{{"a", string(value)}})
	if err != nil {
		t.Fatal(err)
	}
	s.runs.runs.Store(&[]*run{r})
	asked.Store(2)
	if err := s.mergeRuns([]*run{r}, 1); err != nil || asked.Load() != 0 {
		t.Errorf("it waits %d times less: %v", asked.Load(), err)
	}
	s.runs.runs.Store(&[]*run{})
}

// A row that is missing is looked for again, at least once and as long as the runs change.
func TestLookAgain(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir(), small())
	other := errors.New("another error")
	for _, test := range []struct {
		name    string
		results []error // of each look; the last one is returned
		changes int     // how many of the first looks see the runs change
	}{
		{"found", []error{nil}, 0},
		{"found while the runs change", []error{nil}, 1},
		{"another error", []error{other}, 1},
		{"found at the second look", []error{errMissing, nil}, 0},
		{"missing", []error{errMissing, errMissing}, 0},
		{"missing after a change", []error{errMissing, errMissing}, 1},
		{"missing after two changes", []error{errMissing, errMissing, errMissing}, 2},
		{"found after four changes", []error{errMissing, errMissing, errMissing, errMissing, nil},
			4},
	} {
		looks := 0
		err := s.look(func(*badger.Txn) error {
			if looks++; looks > len(test.results) {
				return nil
			}
			if looks <= test.changes {
				s.runs.runs.Store(&[]*run{})
			}
			return test.results[looks-1]
		})
		if want := test.results[len(test.results)-1]; looks != len(test.results) || err != want {
			t.Errorf("%s: %d looks: %v", test.name, looks, err)
		}
	}
}

// FuzzChunk checks that no chunk is read beyond its end, and that each has one encoding.
func FuzzChunk(f *testing.F) {
	f.Add(runKind(rowEntries).appendRecord(nil, []byte("key"), []byte("value")))
	f.Add([]byte{1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 0})
	f.Add([]byte{0, 0})
	f.Fuzz(func(t *testing.T, chunk []byte) {
		for _, kind := range runKinds {
			key, value, rest, err := kind.cut(chunk)
			if err == nil && (len(key) == 0 || !bytes.HasSuffix(chunk, slices.Concat(key, value,
				rest))) {
				t.Fatalf("%x is cut into %x, %x and %x", chunk, key, value, rest)
			}
		}
		var places [4]position
		_, _ = findSteps(chunk, 1, 2, 6, places[:])
	})
}

// Places are sorted by the parts of their keys, however many bytes these differ in, and those with
// equal parts as asked.
func TestSortParts(t *testing.T) {
	t.Parallel()
	var sorter keySorter // one for all, which uses its memory again
	rapid.Check(t, func(t *rapid.T) {
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		mask := rapid.OneOf(rapid.Uint64(), rapid.SampledFrom([]uint64{0, 1, 0xff, 0xff00ff,
			0xff000000ff0000ff, 1 << 63, 0xffffffff00, 0x0101010101010101})).Draw(t, "mask")
		order := make([]keyOrder, rapid.IntRange(0, 4*radixFrom).Draw(t, "places"))
		for i := range order {
			order[i] = keyOrder{part: random.Uint64() & mask, at: uint32(i)}
		}
		backwards := func(a, b keyOrder) int { return -cmp.Compare(a.at, b.at) }
		stable, tied := slices.Clone(order), slices.Clone(order)
		sorter.sortParts(stable, nil)
		sorter.sortParts(tied, func(a, b keyOrder) int {
			return cmp.Or(compareParts(a, b), backwards(a, b))
		})
		slices.SortStableFunc(order, compareParts)
		if !slices.Equal(stable, order) {
			t.Fatalf("sorted %v, want %v", stable, order)
		}
		slices.SortFunc(order, func(a, b keyOrder) int {
			return cmp.Or(compareParts(a, b), backwards(a, b))
		})
		if !slices.Equal(tied, order) {
			t.Fatalf("sorted %v, want %v", tied, order)
		}
	})
}

// BenchmarkLayer sorts what the runs of a layer have, over few and many accounts.
func BenchmarkLayer(b *testing.B) {
	const blocks, transactions = 60, 500
	for _, accounts := range []int{10_000, 1_000_000} {
		var sorter layerSorter
		layer := randomLayer(blocks, transactions, accounts)
		for name, sort := range map[string]func() int{
			"ids": func() int {
				records, _ := sorter.recordsOf(layer)
				return len(records)
			},
			"steps": func() (count int) {
				_ = sorter.historyOf(layer).records(func(_, _ uint64, steps []step) error {
					count += len(steps)
					return nil
				})
				return count
			},
			"entries": func() int {
				_, order := sorter.entriesOf(layer)
				return len(order)
			},
		} {
			b.Run(fmt.Sprintf("accounts=%d/%s", accounts, name), func(b *testing.B) {
				for b.Loop() {
					sort()
				}
				b.ReportMetric(float64(b.Elapsed())/float64(b.N*blocks*transactions),
					"ns/transaction")
			})
		}
	}
}

// randomLayer returns blocks of transfers between random accounts.
func randomLayer(blocks, transactions, accounts int) (layer []*pendingBlock) {
	random := rand.New(rand.NewPCG(1, 1))
	ordinals := make([]uint64, accounts)
	for height := range blocks {
		block, changes := &ledger.Block{Unpacked: make([]ledger.Entry, transactions),
			Bundles: make([]ledger.BundleSeal, 1)},
			&state.Changes{}
		block.Header.Height = ledger.Height(height)
		for i := range block.Len() {
			binary.BigEndian.PutUint64(block.Unpacked[i].ID[:], random.Uint64())
			for range 2 {
				number := random.IntN(accounts)
				changes.History = append(changes.History, state.NewHistoryChange(
					uint64(number), ordinals[number], uint32(i)))
				ordinals[number]++
				changes.Entries.Add(state.Change{
					Key:   fmt.Appendf(nil, "aclient-%d:account-%d\x00", number%16, number/16),
					After: make([]byte, 40)}, uint64(number)+1)
			}
		}
		layer = append(layer, &pendingBlock{block: block, changes: changes})
	}
	return layer
}

// BenchmarkOpen opens a store with many accounts and transactions.
func BenchmarkOpen(b *testing.B) {
	const accounts, blocks, transactions = 20_000, 100, 1000
	dir := b.TempDir()
	s := open(b, dir, Options{})
	traffic := newBook(accounts)
	for range blocks {
		traffic.apply(b, s, transactions)
	}
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		s, err := Open(dir, testGenesis(), Options{})
		if err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
	b.ReportMetric(float64(b.Elapsed())/float64(b.N*accounts), "ns/account")
}
