package book

import (
	"errors"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/ledger/store"
)

// A transaction waits across the snapshot that a store begins with. The store does not have its
// block. A read at a place between the transaction and the end of its wait says so, and is right
// once the block is there.
func TestWhatWaitedAtASnapshot(t *testing.T) {
	b := newShards(t, 9)
	for range 10 {
		b.trade()
	}
	b.settle()
	b.round(0, b.clients[0].Transfer("org0:issuer", "org1:a", 5))
	first := b.stores[0]
	if first.PendingCount() != 1 {
		t.Fatal(first.PendingCount())
	}
	restored, taken := b.restored()
	place := store.Place{Height: taken}
	b.round(0, b.clients[0].Transfer("org0:issuer", "org0:a", 1))
	b.round(1)
	b.round(0)
	if first.PendingCount() != 0 {
		t.Fatal("still waits")
	}
	for height := taken + 1; height <= first.AppendedHeight(); height++ {
		block, err := first.Block(height)
		if err != nil {
			t.Fatal(err)
		}
		decoded, err := ledger.DecodeBlock(block.Encode())
		if err != nil {
			t.Fatal(err)
		}
		if err := restored.Append(decoded); err != nil {
			t.Fatal(err)
		}
	}
	asked := 0
	for _, path := range []ledger.AccountPath{"org0:issuer", "org0:a"} {
		want, err := first.AccountAt(t.Context(), path, place, nil)
		if err != nil {
			t.Fatal(err)
		}
		got, err := restored.AccountAt(t.Context(), path, place, nil)
		if absent := (*store.AbsentError)(nil); errors.As(err, &absent) {
			asked++
			block, failure := first.Block(absent.Height)
			if failure != nil {
				t.Fatal(failure)
			}
			if failure := restored.Borrow(block); failure != nil {
				t.Fatal(failure)
			}
			got, err = restored.AccountAt(t.Context(), path, place, nil)
		}
		if err != nil || got.Balances[0] != want.Balances[0] {
			t.Errorf("%s has %v at %+v, want %v: %v", path, got.Balances, place, want.Balances, err)
		}
	}
	if asked == 0 {
		t.Error("no block was missing")
	}
}

// Postings of one transaction may be out of range if they are taken back one after the other. Reads
// before the transaction work all the same.
func TestTakingBackInAnyOrder(t *testing.T) {
	genesis := ledgertest.Genesis()
	genesis.Version = ledger.NewestVersion
	alone, err := store.Open(t.TempDir(), genesis, store.Options{ReserveBytes: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer alone.Close()
	client := ledgertest.NewClient(genesis, "acme")
	apply := func(transaction ledger.Transaction) {
		t.Helper()
		block, err := alone.Apply(1, ledger.Round(alone.AppendedHeight()+1),
			[][]byte{ledgertest.Batch(genesis.Time, client.Bundle(transaction))})
		if err != nil {
			t.Fatal(err)
		}
		for _, entry := range block.All() {
			if !entry.Result.OK() {
				t.Fatal(entry.Result)
			}
		}
	}
	apply(client.Register())
	opening := client.Next()
	opening.Openings = []ledger.Opening{{Account: "acme:mint", Issuer: true}, {Account: "acme:a"}}
	apply(opening)
	big, _ := ledger.ParseAmount("170141183460469231731687303715884105700") // MaxAmount - 27
	negative, _ := big.Neg()
	issue := client.Next()
	issue.Postings = []ledger.Posting{{Account: "acme:mint", Asset: "x", Amount: negative},
		{Account: "acme:a", Asset: "x", Amount: big}}
	apply(issue)
	place := store.Place{Height: alone.AppendedHeight()}
	twice := client.Next()
	twice.Postings = []ledger.Posting{
		{Account: "acme:mint", Asset: "x", Amount: ledger.NewAmount(100)},
		{Account: "acme:a", Asset: "x", Amount: ledger.NewAmount(-50)},
		{Account: "acme:mint", Asset: "x", Amount: ledger.NewAmount(-50)}}
	apply(twice)
	page, _, _, err := alone.AccountsAt(t.Context(), place, "", 10, nil)
	if err != nil || len(page) != 2 || page[1].Balances[0].Amount != negative {
		t.Errorf("%+v, %v", page, err)
	}
}

// A transaction that crosses, and moves an asset to and fro within an account, does not bring the
// account the asset. So a read at a place after it lists the same assets for ever.
func TestAnAssetThatNetsToNothing(t *testing.T) {
	b := newShards(t, 9)
	mixed := b.clients[0].Transfer("org0:issuer", "org1:a", 1)
	mixed.Postings = append(mixed.Postings,
		ledger.Posting{Account: "org0:a", Asset: "z", Amount: ledger.NewAmount(5)},
		ledger.Posting{Account: "org0:a", Asset: "z", Amount: ledger.NewAmount(-5)})
	b.round(0, mixed)
	b.round(1)
	b.round(0)
	place := store.Place{Height: b.stores[0].AppendedHeight()}
	before, err := b.stores[0].AccountAt(t.Context(), "org0:a", place, nil)
	if err != nil {
		t.Fatal(err)
	}
	later := b.clients[0].Transfer("org0:issuer", "org0:a", 1)
	for i := range later.Postings {
		later.Postings[i].Asset = "z"
	}
	b.round(0, later)
	after, err := b.stores[0].AccountAt(t.Context(), "org0:a", place, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(before.Balances) != len(after.Balances) {
		t.Error("the same place lists other assets later")
	}
}
