package store

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/dgraph-io/badger/v4"
	"pgregory.net/rapid"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
)

// amounts returns balances by asset, without those of 0.
func amounts(balances []ledger.Balance) map[ledger.AssetName]ledger.Amount {
	found := make(map[ledger.AssetName]ledger.Amount)
	for i := range balances {
		if amount := balances[i].Settled(); amount.Sign() != 0 {
			found[balances[i].Asset] = amount
		}
	}
	return found
}

func sameAmounts(a, b map[ledger.AssetName]ledger.Amount) bool {
	if len(a) != len(b) {
		return false
	}
	for asset, amount := range a {
		if b[asset] != amount {
			return false
		}
	}
	return true
}

// statementModel computes an account's history from the blocks alone.
type statementModel struct {
	items []HistoryItem
	after []map[ledger.AssetName]ledger.Amount // of each item
}

func modelStatement(t testing.TB, s *Store, path ledger.AccountPath) *statementModel {
	t.Helper()
	model := &statementModel{}
	sums := make(map[ledger.AssetName]ledger.Amount)
	for height := ledger.Height(1); height <= s.AppendedHeight(); height++ {
		block, err := s.Block(height)
		if err != nil {
			t.Fatal(err)
		}
		for i, entry := range block.All() {
			kept := *entry
			transaction := entry.Transaction()
			if !entry.Result.OK() || !touches(entry, path) {
				continue
			}
			for _, posting := range transaction.Postings {
				if posting.Account != path {
					continue
				}
				sum, err := sums[posting.Asset].Add(posting.Amount)
				if err != nil {
					t.Fatal(err)
				}
				sums[posting.Asset] = sum
			}
			after := make(map[ledger.AssetName]ledger.Amount)
			for asset, amount := range sums {
				if amount.Sign() != 0 {
					after[asset] = amount
				}
			}
			model.items = append(model.items, HistoryItem{Ordinal: uint64(len(model.items)),
				Height: height, Index: i, Time: block.Header.Time, Entry: &kept})
			model.after = append(model.after, after)
		}
	}
	return model
}

// before returns the balances before an item.
func (m *statementModel) before(item int) map[ledger.AssetName]ledger.Amount {
	if item == 0 {
		return nil
	}
	return m.after[item-1]
}

// wanderingStore returns a store with random transfers between many accounts, some of which it has
// only in its database, others only in memory.
func wanderingStore(t testing.TB, r *rapid.T, options Options) *Store {
	random := rand.New(rand.NewPCG(rapid.Uint64().Draw(r, "seed"), 7))
	s := openBook(t, t.TempDir(), testGenesis(), options)
	traffic := &wanderer{client: ledgertest.NewClient(testGenesis(), "acme"),
		begin: testGenesis().Time}
	for range rapid.IntRange(1, 40).Draw(r, "rounds") {
		if _, err := s.Apply(1, traffic.round+1, [][]byte{traffic.next(random)}); err != nil {
			r.Fatal(err)
		}
		if random.IntN(8) == 0 {
			if err := s.Sync(); err != nil {
				r.Fatal(err)
			}
		}
	}
	return s
}

// Opening, entries and closing fit together for random books, whatever the period, the size of the
// pages and their direction, and equal what the blocks say.
func TestStatementsOfRandomBooks(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		options := small()
		options.balanceSteps = rapid.Uint64Range(1, 9).Draw(r, "steps between balances")
		options.checkpointBlocks = rapid.IntRange(1, 9).Draw(r, "blocks")
		s := wanderingStore(t, r, options)
		defer s.Close()
		for _, name := range []string{"issuer", fmt.Sprintf("%02d", rapid.IntRange(0,
			59).Draw(r, "account"))} {
			path := ledgertest.NewClient(testGenesis(), "acme").Account(name)
			if _, err := s.Account(path); errors.Is(err, ErrNotFound) {
				continue
			}
			model := modelStatement(t, s, path)
			period, first, last := drawPeriod(r, s, model)
			query := StatementQuery{Period: period, Limit: rapid.IntRange(1, 9).Draw(r, "limit"),
				NewestFirst: rapid.Bool().Draw(r, "newest first")}
			checkStatement(t, r, s, path, query, model, first, last)
		}
	})
}

// drawPeriod draws a period, and returns it with the model's items in it.
func drawPeriod(r *rapid.T, s *Store, model *statementModel) (period Period, first, last int) {
	head := uint64(s.AppendedHeight())
	if rapid.Bool().Draw(r, "from a block") {
		period.First = ledger.Height(rapid.Uint64Range(0, head+2).Draw(r, "first"))
	}
	if rapid.Bool().Draw(r, "to a block") {
		period.Last = ledger.Height(rapid.Uint64Range(0, head+2).Draw(r, "last"))
	}
	if rapid.Bool().Draw(r, "from a moment") {
		period.From = testGenesis().Time + ledger.Milliseconds(rapid.Uint64Range(0,
			head+2).Draw(r, "from"))
	}
	if rapid.Bool().Draw(r, "before a moment") {
		period.Before = testGenesis().Time + ledger.Milliseconds(rapid.Uint64Range(0,
			head+2).Draw(r, "before"))
	}
	for first < len(model.items) && (model.items[first].Height < period.First ||
		model.items[first].Time < period.From) {
		first++
	}
	last = first
	for last < len(model.items) &&
		(period.Last == 0 || model.items[last].Height <= period.Last) &&
		(period.Before == 0 || model.items[last].Time < period.Before) {
		last++
	}
	return period, first, last
}

// checkStatement reads all pages of a query and compares them with the model's items from first to
// before last.
func checkStatement(t testing.TB, r *rapid.T, s *Store, path ledger.AccountPath,
	query StatementQuery, model *statementModel, first, last int) {
	var items []HistoryItem
	edge := model.before(first)
	if query.NewestFirst {
		edge = model.before(last)
	}
	for more := true; more; {
		page, err := s.Statement(t.Context(), path, query, &Effort{Most: 40 + 1<<20, Near: 1 << 20})
		if err != nil {
			r.Fatal(err)
		}
		begin, end := page.Opening, page.Closing
		if query.NewestFirst {
			begin, end = end, begin
		}
		if !sameAmounts(amounts(begin), edge) {
			r.Fatalf("%s: a page of %+v begins with %v, want %v", path, query, begin, edge)
		}
		edge = amounts(end)
		items = append(items, page.Items...)
		query.Cursor, more = page.Next, page.More
	}
	if query.NewestFirst {
		slices.Reverse(items)
	}
	want := model.before(last)
	if query.NewestFirst {
		want = model.before(first)
	}
	if !sameAmounts(edge, want) || len(items) != last-first {
		r.Fatalf("%s: %d entries of %d, and %v at the end, want %v (%+v)", path, len(items),
			last-first, edge, want, query)
	}
	for i := range items {
		item, model := &items[i], &model.items[first+i]
		if item.Ordinal != model.Ordinal || item.Height != model.Height ||
			item.Index != model.Index || item.Entry.ID != model.Entry.ID {
			r.Fatalf("%s: entry %d is %+v, want %+v", path, i, item, model)
		}
	}
	for i := range items {
		for j := range items[i].Balances {
			balance := &items[i].Balances[j]
			if balance.Amount != model.after[first+i][balance.Asset] {
				r.Fatalf("%s: %v after entry %d, want %v", path, balance, i, model.after[first+i])
			}
		}
	}
}

// Entries that come while a reader turns pages move nothing.
func TestPagesOfStatementsAreStable(t *testing.T) {
	t.Parallel()
	s, _ := busyStore(t, 20)
	traffic := newBook(3)
	for _, newestFirst := range []bool{false, true} {
		var ordinals []uint64
		query := StatementQuery{Limit: 3, NewestFirst: newestFirst,
			Period: Period{Last: s.AppendedHeight()},
			Match:  func(item *HistoryItem) bool { return item.Ordinal%2 == 0 }}
		account, err := s.Account("acme:issuer")
		if err != nil {
			t.Fatal(err)
		}
		for more := true; more; {
			page, err := s.Statement(t.Context(), "acme:issuer", query, nil)
			if err != nil {
				t.Fatal(err)
			}
			for i := range page.Items {
				ordinals = append(ordinals, page.Items[i].Ordinal)
			}
			query.Cursor, more = page.Next, page.More
			if _, err := s.Apply(1, s.Head().Round+1, [][]byte{ledgertest.Batch(1,
				traffic.client.Bundle(traffic.client.Transfer("acme:issuer", traffic.account(1),
					1)))}); err != nil {
				t.Fatal(err)
			}
		}
		if newestFirst {
			slices.Reverse(ordinals)
		}
		for i, ordinal := range ordinals {
			if ordinal != uint64(2*i) {
				t.Fatalf("entries %v", ordinals)
			}
		}
		if len(ordinals) != int(account.History+1)/2 {
			t.Errorf("%d entries of %d", len(ordinals), account.History)
		}
	}
}

// layeredStore returns a store whose issuer changes in each block, and which has small layers.
func layeredStore(t *testing.T, dir string, blocks, each int) *Store {
	t.Helper()
	s := open(t, dir, small())
	traffic := newBook(3)
	traffic.apply(t, s, 0)
	for i := range blocks {
		var transfers []ledger.Transaction
		for k := range each {
			transfers = append(transfers, traffic.client.Transfer("acme:issuer",
				traffic.account(k%3), 1))
		}
		if _, err := s.Apply(1, s.Head().Round+1, [][]byte{ledgertest.Batch(1,
			traffic.client.Bundle(transfers...))}); err != nil {
			t.Fatal(err)
		}
		if i%4 == 3 {
			if err := s.awaitWritten(s.AppendedHeight()); err != nil {
				t.Fatal(err)
			}
		}
	}
	return s
}

// A page does a bounded work. If it finds nothing by then, the next one goes on.
func TestEffortOfStatements(t *testing.T) {
	t.Parallel()
	s := layeredStore(t, t.TempDir(), 60, 1)
	defer s.Close()
	query := StatementQuery{Limit: 5, Match: func(*HistoryItem) bool { return false }}
	pages := 0
	for more := true; more; pages++ {
		effort := &Effort{Most: 400, Near: 400}
		page, err := s.Statement(t.Context(), "acme:issuer", query, effort)
		if err != nil {
			t.Fatalf("page %d: %v", pages, err)
		}
		if len(page.Items) > 0 || effort.done > effort.Most+blockEffort+20 {
			t.Fatalf("%d items, %d done", len(page.Items), effort.done)
		}
		query.Cursor, more = page.Next, page.More
	}
	if pages < 3 {
		t.Errorf("%d pages", pages)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Statement(ctx, "acme:issuer", StatementQuery{Limit: 5}, nil); !errors.Is(err,
		context.Canceled) {
		t.Error(err)
	}
	if _, err := s.Statement(t.Context(), "acme:issuer", StatementQuery{Limit: 5, Cursor: 30},
		&Effort{}); !errors.Is(err, ErrFarBack) {
		t.Error(err)
	}
}

// Every entry can be reached from either end, also where finding the balances takes too much: the
// page has none then. It has them where the way is short enough.
func TestPagesTooFarForBalances(t *testing.T) {
	t.Parallel()
	s := layeredStore(t, t.TempDir(), 120, 1)
	defer s.Close()
	model := modelStatement(t, s, "acme:issuer")
	for _, newest := range []bool{true, false} {
		query := StatementQuery{Limit: 7, NewestFirst: newest}
		seen, far, near := 0, 0, 0
		for more := true; more; {
			page, err := s.Statement(t.Context(), "acme:issuer", query, &Effort{Most: 90, Near: 90})
			if err != nil {
				t.Fatalf("newest first %t, after %d: %v", newest, seen, err)
			}
			for i := range page.Items {
				item := &page.Items[i]
				at := seen
				if newest {
					at = len(model.items) - 1 - seen
				}
				if item.Ordinal != uint64(at) {
					t.Fatalf("newest first %t: item %d, want %d", newest, item.Ordinal, at)
				}
				seen++
				if page.TooFar {
					if len(item.Balances)+len(page.Opening)+len(page.Closing) > 0 {
						t.Fatal("a page that is too far has balances")
					}
					continue
				}
				for _, balance := range item.Balances {
					if balance.Amount != model.after[at][balance.Asset] {
						t.Fatalf("item %d: %v, want %v", at, balance, model.after[at])
					}
				}
			}
			if page.TooFar {
				far++
			} else {
				near++
			}
			query.Cursor, more = page.Next, page.More
		}
		if seen != len(model.items) || far == 0 || near == 0 {
			t.Errorf("newest first %t: %d of %d entries, %d pages too far, %d not", newest, seen,
				len(model.items), far, near)
		}
	}
}

// Rows with balances shorten the way, also after a restart. A row of a block that the chain does
// not have is passed over.
func TestRowsOfBalances(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := layeredStore(t, dir, 30, 12)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, dir, small())
	defer s.Close()
	account, err := s.Account("acme:issuer")
	if err != nil {
		t.Fatal(err)
	}
	at, err := s.tallyFrom(&account, 1)
	if err != nil || at.steps > 100 || at.steps >= account.History {
		t.Fatalf("the next balances are after %d steps of %d: %v", at.steps, account.History, err)
	}
	model := modelStatement(t, s, "acme:issuer")
	if !sameAmounts(amounts(at.balances), model.after[at.steps-1]) {
		t.Errorf("%v after %d steps, want %v", at.balances, at.steps, model.after[at.steps-1])
	}
	row, found, err := s.balanceRowFrom(&account, 1)
	if err != nil || !found {
		t.Fatal(err)
	}
	key := balanceKey(account.Number, row.steps)
	forged := append(append([]byte{0, 0, 0, 0, 0, 0, 0, byte(row.height)},
		make([]byte, ledger.HashSize)...), row.entry...)
	if err := s.db.Update(func(transaction *badger.Txn) error {
		return transaction.Set(key, seal(key, forged))
	}); err != nil {
		t.Fatal(err)
	}
	next, err := s.tallyFrom(&account, 1)
	if err != nil || next.steps <= at.steps ||
		!sameAmounts(amounts(next.balances), model.before(int(next.steps))) {
		t.Errorf("%v after %d steps: %v", next.balances, next.steps, err)
	}
}
