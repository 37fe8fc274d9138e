package store

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

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
	rapid.Check(t, func(t *rapid.T) {
		some := rapid.SliceOfN(keys(), 1, 30).Draw(t, "keys")
		want := map[string]string{}
		var blocks []*pendingBlock
		for i := range rapid.IntRange(1, 8).Draw(t, "blocks") {
			changes := &state.Changes{}
			for _, key := range rapid.SliceOfDistinct(rapid.SampledFrom(some),
				func(key []byte) string { return string(key) }).Draw(t, "changed") {
				value := fmt.Sprint(i)
				want[string(key)] = value
				changes.Entries = append(changes.Entries,
					state.Change{Key: key, After: []byte(value)})
			}
			blocks = append(blocks, &pendingBlock{changes: changes})
		}
		got := entriesOf(blocks)
		for i, entry := range got {
			if i > 0 && bytes.Compare(got[i-1].Key, entry.Key) >= 0 {
				t.Fatalf("%x comes before %x", got[i-1].Key, entry.Key)
			}
			if want[string(entry.Key)] != string(entry.After) {
				t.Fatalf("%x is %s, not %s", entry.Key, entry.After, want[string(entry.Key)])
			}
		}
		if len(got) != len(want) {
			t.Fatalf("%d entries instead of %d", len(got), len(want))
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
		sortKeys(order, 0, func(at uint32) []byte { return some[at] })
		if !slices.IsSortedFunc(order, func(a, b keyOrder) int {
			return bytes.Compare(some[a.at], some[b.at])
		}) {
			t.Fatalf("%v is not in the order of %x", order, some)
		}
	})
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
	s := open(t, t.TempDir(), small())
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
		if err := s.mergeRuns(test.from); err != nil {
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
	none := []*run{}
	s.runs.runs.Store(&none)
	s.merging.made, s.merging.from = nil, nil
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
			if err := s.eachRow(rowEntries, func(key, _ []byte) error {
				if bytes.HasPrefix(key, r.prefix()) {
					keys = append(keys, bytes.Clone(key))
				}
				return nil
			}); err != nil || len(keys) < 3 {
				t.Fatalf("%d rows: %v", len(keys), err)
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

// FuzzChunk checks that no chunk is read beyond its end, and that each has one encoding.
func FuzzChunk(f *testing.F) {
	f.Add(runKind(rowEntries).appendRecord(nil, []byte("key"), []byte("value")))
	f.Add([]byte{1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 0})
	f.Fuzz(func(t *testing.T, chunk []byte) {
		for _, kind := range runKinds {
			key, value, rest, err := kind.cut(chunk)
			if err == nil && !bytes.HasSuffix(chunk, append(append(bytes.Clone(key), value...),
				rest...)) {
				t.Fatalf("%x is cut into %x, %x and %x", chunk, key, value, rest)
			}
		}
		var places [4]position
		_, _ = findSteps(chunk, 1, 2, 6, places[:])
	})
}

// BenchmarkLayer sorts what the runs of a layer have, over few and many accounts.
func BenchmarkLayer(b *testing.B) {
	const blocks, transactions = 60, 500
	for _, accounts := range []int{10_000, 1_000_000} {
		layer := randomLayer(blocks, transactions, accounts)
		for name, sort := range map[string]func() int{
			"ids":     func() int { return len(recordsOf(layer)) },
			"steps":   func() int { return len(historyOf(layer)) },
			"entries": func() int { return len(entriesOf(layer)) },
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
		block, changes := &ledger.Block{Entries: make([]ledger.Entry, transactions)},
			&state.Changes{}
		block.Header.Height = ledger.Height(height)
		for i := range block.Entries {
			binary.BigEndian.PutUint64(block.Entries[i].ID[:], random.Uint64())
			for range 2 {
				number := random.IntN(accounts)
				changes.History = append(changes.History, state.HistoryChange{
					Number: uint64(number), Ordinal: ordinals[number], Index: uint32(i)})
				ordinals[number]++
				changes.Entries = append(changes.Entries, state.Change{
					Key:   fmt.Appendf(nil, "aclient-%d:account-%d\x00", number%16, number/16),
					After: make([]byte, 40)})
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
