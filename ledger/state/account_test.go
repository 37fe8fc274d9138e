package state

import (
	"bytes"
	"fmt"
	"slices"
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

// TestRestoredAccount: a restored account is what was written, and keeps nothing of what it was
// read from, which a reader of a store uses for the next one.
func TestRestoredAccount(t *testing.T) {
	t.Parallel()
	amount := ledger.NewAmount
	var names assetNames
	for _, alias := range []string{"", "an alias"} {
		written := account{path: "acme:cash", number: 3, opened: 4, history: 5}
		for place, asset := range []ledger.AssetName{"coal", "iron"} {
			written.insert(place, asset)
			written.balances[place].amount = amount(int64(place + 9))
		}
		for _, holds := range [][]hold{nil, {{"coal", amount(1), amount(2)}},
			{{"coal", amount(3), amount(4)}, {"iron", amount(5), amount(6)}},
			{{"iron", amount(7), amount(8)}}, {}} {
			written.setRare(alias, holds)
			if written.alias() != alias || !slices.Equal(written.holds(), holds) {
				t.Fatalf("it has %q and %v, want %q and %v", written.alias(), written.holds(),
					alias, holds)
			}
			entry, keyLength := written.appendEntry(nil)
			value := bytes.Clone(entry[keyLength:])
			restored := account{path: written.path}
			restored.restore(read(value), &names)
			clear(value)
			if again, _ := restored.appendEntry(nil); !bytes.Equal(again, entry) {
				t.Errorf("%x was restored as %x", entry, again)
			}
		}
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
			made.Openings = append(made.Openings, ledger.Opening{Account: account,
				Alias: "alias of " + string(account)})
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
			if got := block.Entry(i).Result.Code; got != want {
				t.Fatalf("transaction %d: %s, want %s", i, got, want)
			}
		}
		// The issuer, the accounts, their aliases and the window.
		if want := 1 + 2*100 + 1; changes.Entries.Len() != want {
			t.Errorf("%d changes, want %d", changes.Entries.Len(), want)
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

// TestTouchedAtHighBlocks: an account notes the block that touched it last beyond 32 bits.
func TestTouchedAtHighBlocks(t *testing.T) {
	t.Parallel()
	for _, height := range []ledger.Height{0, 1, 1<<32 - 1, 1 << 32, 1<<40 - 1, 7<<32 | 9} {
		var touched account
		touched.touchedAt(height)
		if got := touched.changed(); got != height || !touched.recent {
			t.Errorf("touched at block %d, it says %d", height, got)
		}
	}
}
