package store_test

import (
	"bytes"
	"slices"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/ledger/store"
)

// TestOpenHolds: pages of any size show each hold that is open once and in order, whether its block
// is in the database yet or not, and none that ended.
func TestOpenHolds(t *testing.T) {
	t.Parallel()
	genesis := ledgertest.OperatedGenesis(1)
	genesis.Version = ledger.NewestVersion
	folder, options := t.TempDir(), store.Options{MemTableBytes: 1 << 20, ReserveBytes: 1}
	s, err := store.Open(folder, genesis, options)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	acme, shop := ledgertest.NewClient(genesis, "acme"), ledgertest.NewClient(genesis, "shop")
	round := ledger.Round(0)
	add := func(bundles ...*ledger.Bundle) {
		t.Helper()
		round++
		if _, err := s.Apply(1, round, [][]byte{ledgertest.Batch(genesis.Time+
			ledger.Milliseconds(round), bundles...)}); err != nil {
			t.Fatal(err)
		}
	}
	add(acme.Bundle(acme.Register("mint", "a")), shop.Bundle(shop.Register("mint", "a")))
	add(acme.Bundle(acme.Transfer("acme:mint", "acme:a", 1_000)))
	open := map[ledger.Hash]bool{}
	check := func() {
		t.Helper()
		var want []ledger.Hash
		for id := range open {
			want = append(want, id)
		}
		slices.SortFunc(want, func(a, b ledger.Hash) int { return bytes.Compare(a[:], b[:]) })
		for _, size := range []int{1, 7, 1000} {
			var got []ledger.Hash
			var after *ledger.Hash
			for turns := 0; ; turns++ {
				page, next, more, err := s.OpenHolds(after, size,
					func(*store.OpenHold) bool { return true })
				if err != nil || len(page) > size || turns > 200 {
					t.Fatalf("a page of %d after %v, more: %v: %v", len(page), after, more, err)
				}
				for i := range page {
					got = append(got, page[i].ID)
				}
				if !more {
					break
				}
				after = &next
			}
			if !slices.Equal(got, want) {
				t.Fatalf("pages of %d have %d holds, want %d", size, len(got), len(want))
			}
		}
	}
	check()
	for i := range 60 {
		bundle := acme.Bundle(acme.PlaceHold("acme:a", "shop:a", 1, genesis.Time+1_000_000))
		add(bundle)
		open[bundle.ID(0)] = true
		if i%3 == 2 {
			add(shop.Bundle(shop.EndHold(bundle.ID(0), "acme:a", "shop:a", int64(i%2))))
			delete(open, bundle.ID(0))
		}
		if i%20 == 19 {
			check()
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			if s, err = store.Open(folder, genesis, options); err != nil {
				t.Fatal(err)
			}
			check()
		}
	}
}
