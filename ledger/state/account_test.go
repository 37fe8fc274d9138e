package state

import (
	"fmt"
	"testing"
	"unsafe"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
)

// TestAccountSize: an account fills two lines of a processor's cache. Another field needs a reason.
func TestAccountSize(t *testing.T) {
	t.Parallel()
	if size := unsafe.Sizeof(account{}); size > 128 {
		t.Errorf("an account has %d bytes", size)
	}
}

// TestFailedOpenings: transactions that fail after they opened accounts and moved new assets take
// no memory. The accounts that are opened after them are as if they had not been there.
func TestFailedOpenings(t *testing.T) {
	t.Parallel()
	genesis := ledgertest.Genesis()
	genesis.Version = ledger.NewestVersion
	client := ledgertest.NewClient(genesis, "acme")
	s, plain := New(genesis), New(genesis)
	execute := func(s *State, transactions ...ledger.Transaction) (*ledger.Block, *Changes) {
		return s.Execute(Seal(Parent{Hash: genesis.Hash()}, 1, 1, ledger.VerifyBatches([][]byte{
			ledgertest.Batch(1, client.Bundle(transactions...))}),
			func(ledger.Hash, *ledger.Transaction) bool { return false }))
	}
	opening := func(count int, fails bool) ledger.Transaction {
		made := client.Next()
		for i := range count {
			account := client.Account(fmt.Sprintf("%d:%d", client.Sequence, i))
			made.Openings = append(made.Openings, ledger.Opening{Account: account, Alias: "alias"})
			asset := ledger.AssetName(fmt.Sprintf("asset-%d", client.Sequence))
			made.Postings = append(made.Postings,
				ledger.Posting{Account: account, Asset: asset, Amount: ledger.NewAmount(1)})
		}
		issuer := "issuer"
		if fails {
			issuer = "poor"
		}
		made.Postings = append(made.Postings, ledger.Posting{Account: client.Account(issuer),
			Asset: made.Postings[0].Asset, Amount: ledger.NewAmount(int64(-count))})
		return made
	}
	register := client.Register("issuer", "poor")
	register.Openings[0].Issuer = true
	execute(s, register)
	execute(plain, register)
	for range 8 {
		good := opening(100, false)
		block, changes := execute(s, opening(ledger.MaxOpenings, true), good, opening(3, true))
		for i, want := range []ledger.Code{ledger.InsufficientFunds, ledger.Applied,
			ledger.InsufficientFunds} {
			if got := block.Entries[i].Result.Code; got != want {
				t.Fatalf("transaction %d: %s, want %s", i, got, want)
			}
		}
		if want := 1 + 100 + 1; len(changes.Entries) != want { // the issuer, the window
			t.Errorf("%d changes, want %d", len(changes.Entries), want)
		}
		execute(plain, good)
	}
	if s.Digest() != plain.Digest() {
		t.Error("failed transactions changed the digest")
	}
	// The accounts of one failed transaction may have reached into the next page.
	if most := len(plain.accounts.pages) + 1; len(s.accounts.pages) > most {
		t.Errorf("%d pages of accounts, want at most %d", len(s.accounts.pages), most)
	}
	if err := s.CheckUses(); err != nil {
		t.Error(err)
	}
}
