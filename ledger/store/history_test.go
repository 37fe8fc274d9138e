package store

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"testing"

	"github.com/dgraph-io/badger/v4"
	"pgregory.net/rapid"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/state"
)

// historiesOf returns the histories of all accounts, as the blocks tell them.
func historiesOf(t testing.TB, s *Store) map[ledger.AccountPath][]HistoryItem {
	t.Helper()
	histories := make(map[ledger.AccountPath][]HistoryItem)
	for height := ledger.Height(1); height <= s.AppendedHeight(); height++ {
		block, err := s.Block(height)
		if err != nil {
			t.Fatal(err)
		}
		for i := range block.Len() {
			entry := block.Entry(i)
			var touched []ledger.AccountPath
			for _, posting := range entry.Transaction().Postings {
				if entry.Result.OK() && !slices.Contains(touched, posting.Account) {
					touched = append(touched, posting.Account)
				}
			}
			for _, path := range touched {
				histories[path] = append(histories[path], HistoryItem{
					Ordinal: uint64(len(histories[path])), Height: height, Index: i})
			}
		}
	}
	return histories
}

// pageOf returns the page of a history that History should return.
func pageOf(history []HistoryItem, cursor uint64, limit int, newestFirst bool) (page HistoryPage) {
	total := uint64(len(history))
	first, last := cursor, total
	if newestFirst {
		if first = 0; cursor != 0 {
			last = min(cursor, total)
		}
	}
	for limit = max(1, min(limit, MaxHistoryPage)); limit > 0 && first < last; limit-- {
		if newestFirst {
			last--
			page.Items = append(page.Items, history[last])
		} else {
			page.Items = append(page.Items, history[first])
			first++
		}
	}
	page.Total = total
	if page.More = first < last; page.More {
		if page.Next = first; newestFirst {
			page.Next = last
		}
	}
	return page
}

// samePage reports whether a page is the one that is expected.
func samePage(got, want HistoryPage) bool {
	return got.Total == want.Total && got.More == want.More &&
		(!got.More || got.Next == want.Next) &&
		slices.EqualFunc(got.Items, want.Items, func(got, want HistoryItem) bool {
			return got.Ordinal == want.Ordinal && got.Height == want.Height &&
				got.Index == want.Index
		})
}

// Each page of a history has what the blocks say, wherever the steps are: in memory, in runs of
// several levels and chunks, and in rows of their own. A page that reaches below the snapshot that
// a store began with is absent until Index has made the rows.
func TestHistoryPages(t *testing.T) {
	t.Parallel()
	options := small()
	options.chunkBytes, options.checkpointBlocks, options.fanOut = 100, 2, 3
	options.DecodedCacheBytes = 4 << 20
	whole := open(t, t.TempDir(), options)
	b := newBook(3)
	for _, count := range []int{0, 9, 1, 1300, 2, 30, 1, 1, 8, 3, 1, 1} {
		b.apply(t, whole, count)
	}
	restored := restoredFrom(t, whole, filepath.Join(t.TempDir(), "restored"))
	if _, err := restored.History(b.account(0), 0, 1, true); !errors.Is(err, ErrAbsent) {
		t.Errorf("a history without any row: %v", err)
	}
	began := historiesOf(t, whole)
	for _, count := range []int{700, 5, 1, 1, 0, 40, 2, 2, 1, 9, 3, 8} {
		if count == 8 { // the last block stays in memory
			if err := errors.Join(whole.awaitWritten(whole.AppendedHeight()),
				restored.awaitWritten(whole.AppendedHeight())); err != nil {
				t.Fatal(err)
			}
		}
		payload := b.next(count)
		for _, s := range []*Store{whole, restored} {
			if _, err := s.Apply(1, b.round, [][]byte{payload}); err != nil {
				t.Fatal(err)
			}
		}
	}
	histories := historiesOf(t, whole)
	accounts := []ledger.AccountPath{b.account(0), b.account(1), b.account(2),
		b.client.Account("issuer")}
	compare := func(s *Store, path ledger.AccountPath, cursor uint64, limit int, newest,
		absent bool) error {
		want := pageOf(histories[path], cursor, limit, newest)
		got, err := s.History(path, cursor, limit, newest)
		reaches := slices.ContainsFunc(want.Items, func(item HistoryItem) bool {
			return item.Ordinal < uint64(len(began[path]))
		})
		if absent && reaches && errors.Is(err, ErrAbsent) ||
			!(absent && reaches) && err == nil && samePage(got, want) {
			return nil
		}
		return fmt.Errorf("%d from %d: got %+v, want %+v: %v", limit, cursor, got, want, err)
	}
	check := func(s *Store, absent bool) {
		t.Helper()
		for k := range 8 * 8 * 2 {
			if err := compare(s, accounts[0], uint64(k/16), 1+k%8, k/8%2 == 0,
				absent); err != nil {
				t.Fatal(err)
			}
		}
		rapid.Check(t, func(t *rapid.T) {
			path := rapid.SampledFrom(accounts).Draw(t, "account")
			total, before := uint64(len(histories[path])), uint64(len(began[path]))
			cursor := rapid.OneOf(rapid.Uint64Range(0, total+2),
				rapid.SampledFrom([]uint64{before - 1, before, before + 1, maxSteps, total - 1,
					math.MaxUint64})).Draw(t, "cursor")
			limit := rapid.OneOf(rapid.IntRange(-1, 12), rapid.IntRange(0, 1100)).Draw(t, "limit")
			newest := rapid.Bool().Draw(t, "newest first")
			if err := compare(s, path, cursor, limit, newest, absent); err != nil {
				t.Fatal(err)
			}
		})
	}
	check(whole, false)
	check(restored, true)
	if err := errors.Join(fillFrom(restored, whole, math.MaxInt), restored.Index(t.Context(),
		nil)); err != nil {
		t.Fatal(err)
	}
	check(restored, false)
	dir := whole.dir
	closeStore(t, whole)
	if _, err := whole.History(b.account(0), 0, 1, true); !errors.Is(err, ErrClosed) {
		t.Errorf("the history of a closed store: %v", err)
	}
	check(open(t, dir, options), false)
}

// Records of histories are bounded, and each has steps of one account from an ordinal on.
func TestHistoryRecords(t *testing.T) {
	t.Parallel()
	// The steps of an account are in two blocks, among those of others.
	blocks := []*pendingBlock{{block: new(ledger.Block), changes: new(state.Changes)},
		{block: new(ledger.Block), changes: new(state.Changes)}}
	blocks[1].block.Header.Height = 1
	for number, counts := range [][2]uint64{{5, 3}, {0, 2*maxSteps + 1}, {7, maxSteps}, {9, 1}} {
		for k := range counts[1] {
			changes := blocks[2*k/(counts[1]+1)].changes
			changes.History = append(changes.History,
				state.NewHistoryChange(uint64(number), counts[0]+k, 0))
			slices.SortStableFunc(changes.History, func(a, b state.HistoryChange) int {
				return cmp.Compare(a.Ordinal, b.Ordinal)
			})
		}
	}
	var got [][3]uint64 // number, ordinal and count
	steps := new(layerSorter).historyOf(blocks)
	if err := steps.records(func(number, ordinal uint64, some []step) error {
		got = append(got, [3]uint64{number, ordinal, uint64(len(some))})
		for i := range some {
			if some[i].number != number || some[i].ordinal != ordinal+uint64(i) {
				t.Errorf("step %d of the record from %d on of account %d is %+v", i, ordinal,
					number, some[i])
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	want := [][3]uint64{{0, 5, 3}, {1, 0, maxSteps}, {1, maxSteps, maxSteps}, {1, 2 * maxSteps, 1},
		{2, 7, maxSteps}, {3, 9, 1}}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// Verify notices a step of a history that is missing or points elsewhere.
func TestVerifyChecksHistories(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]func(value []byte){
		"nothing":         func([]byte) {},
		"another height":  func(value []byte) { value[7] ^= 1 },
		"another index":   func(value []byte) { value[len(value)-1] ^= 1 },
		"another account": nil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t, t.TempDir(), small())
			b := newBook(5)
			for range 3 {
				b.apply(t, s, 20)
			}
			if err := s.awaitWritten(3); err != nil {
				t.Fatal(err)
			}
			r := of(rowSteps, s.runs.list())[0]
			if err := s.db.Update(func(transaction *badger.Txn) error {
				rows := transaction.NewIterator(badger.IteratorOptions{Prefix: r.prefix()})
				rows.Rewind()
				key, err := bytes.Clone(rows.Item().Key()), error(nil)
				rows.Close()
				row, err := get(transaction, key)
				if err != nil {
					return err
				}
				var buffer []byte
				chunk, err := r.kind.unpack(&buffer, row)
				if err != nil {
					return err
				}
				first, value, _, err := runKind(rowSteps).cut(chunk)
				if damage == nil {
					first[0] ^= 1
				} else {
					damage(value)
				}
				return errors.Join(err, transaction.Set(key, seal(key, bytes.Clone(chunk))))
			}); err != nil {
				t.Fatal(err)
			}
			err := s.verify(t.Context(), nil)
			if errors.Is(err, ErrDamaged) != (name != "nothing") {
				t.Error(err)
			}
		})
	}
}
