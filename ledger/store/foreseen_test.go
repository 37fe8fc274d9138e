package store

import (
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
)

// A store foresees the failure of a bundle if all of it must fail for one reason and no block has
// any of it.
func TestForeseenOfBundles(t *testing.T) {
	t.Parallel()
	genesis := ledgertest.Genesis()
	genesis.Version = ledger.DetailsVersion
	s, err := Open(t.TempDir(), genesis, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	round := ledger.Round(0)
	apply := func(bundles ...*ledger.Bundle) {
		t.Helper()
		round++
		if block, err := s.Apply(1, round, [][]byte{ledgertest.Batch(5, bundles...)}); err != nil ||
			block == nil {
			t.Fatal(block, err)
		}
	}
	acme := ledgertest.NewClient(genesis, "acme")
	opening := acme.Next()
	opening.Openings = []ledger.Opening{{Account: "acme:issuer", Issuer: true},
		{Account: "acme:a"}, {Account: "acme:b"}}
	apply(acme.Bundle(acme.Register()))
	apply(acme.Bundle(opening))
	transfer := func() ledger.Transaction { return acme.Transfer("acme:issuer", "acme:a", 7) }
	numbered := func(sequence uint64, amount int64) ledger.Transaction {
		again := acme.Transfer("acme:issuer", "acme:a", amount)
		again.Nonce.Sequence = sequence
		return again
	}
	first, second := transfer(), transfer()
	both := acme.Bundle(first, second)
	apply(both)
	placed := acme.Bundle(acme.PlaceHold("acme:a", "acme:b", 3, s.Head().Time+1000))
	end := func(hold ledger.Hash, amount int64) ledger.Transaction {
		return acme.EndHold(hold, "acme:a", "acme:b", amount)
	}
	early := acme.Bundle(end(placed.ID(0), 1))
	expect := func(what string, want ledger.Code, bundle *ledger.Bundle) {
		t.Helper()
		foreseen, err := s.Foreseen(bundle)
		if err != nil || foreseen.Code != want {
			t.Errorf("%s: %s, %v, want %s", what, foreseen.Code, err, want)
		}
		if want != ledger.Applied && (foreseen.Height != s.Head().Height ||
			foreseen.Hash != s.Head().Hash) {
			t.Errorf("%s: as of %+v", what, foreseen)
		}
	}
	stale := func() ledger.Transaction { return numbered(first.Nonce.Sequence, 8) }
	late := func() ledger.Transaction {
		transaction := transfer()
		transaction.Deadline = s.Head().Time
		return transaction
	}
	expect("what a block has", ledger.Applied, both)
	expect("a taken number", ledger.StaleNonce, acme.Bundle(stale()))
	expect("taken numbers", ledger.StaleNonce, acme.Bundle(stale(),
		numbered(second.Nonce.Sequence, 8)))
	expect("one that is good", ledger.Applied, acme.Bundle(stale(), transfer()))
	expect("one that a block has", ledger.Applied, acme.Bundle(first, stale()))
	expect("two reasons", ledger.Applied, acme.Bundle(stale(), late()))
	expect("a deadline", ledger.DeadlinePassed, acme.Bundle(late()))
	refund := func(entry ledger.Hash) *ledger.Bundle {
		back := acme.Transfer("acme:a", "acme:issuer", 1)
		back.Details = &ledger.Details{Refund: &ledger.Refund{Entry: entry, Organisation: "acme"}}
		return acme.Bundle(back)
	}
	expect("a refund of an entry on its way", ledger.Applied, refund(ledger.Hash{7}))
	expect("a refund of an entry that cannot be", ledger.UnknownRefundable, refund(both.ID(0)))
	expect("a hold on its way", ledger.Applied, early)
	apply(placed)
	expect("a hold that is open", ledger.Applied, early)
	expect("more than is held", ledger.HoldDiffers, acme.Bundle(end(placed.ID(0), 4)))
	apply(acme.Bundle(end(placed.ID(0), 2)))
	expect("a hold that ended", ledger.UnknownHold, early)
	// Its organisation may move, and place the hold with the same transaction at the new home.
	failed := acme.Bundle(acme.PlaceHold("acme:a", "acme:b", 999, s.Head().Time+1000))
	apply(failed)
	expect("a hold that failed", ledger.Applied, acme.Bundle(end(failed.ID(0), 2)))
	packed := func(first uint64) *ledger.Bundle {
		var transfers []ledger.Transaction
		for i := range uint64(3) {
			transfers = append(transfers, numbered(first+i, 9))
		}
		return acme.Packed(transfers...)
	}
	expect("packed, all taken", ledger.StaleNonce, packed(first.Nonce.Sequence-1))
	expect("packed, in part", ledger.Applied, packed(second.Nonce.Sequence+6))
}

// BenchmarkForeseen asks about a good bundle of one transaction, of many, and of many packed ones.
func BenchmarkForeseen(b *testing.B) {
	genesis := ledgertest.Genesis()
	genesis.Version = ledger.HoldsVersion
	s, err := Open(b.TempDir(), genesis, Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	acme := ledgertest.NewClient(genesis, "acme")
	if _, err := s.Apply(1, 1, [][]byte{ledgertest.Batch(5,
		acme.Bundle(acme.Register()))}); err != nil {
		b.Fatal(err)
	}
	var many []ledger.Transaction
	for range 400 {
		many = append(many, acme.Transfer("acme:a", "acme:b", 1))
	}
	for name, bundle := range map[string]*ledger.Bundle{"one": acme.Bundle(many[0]),
		"many": acme.Bundle(many...), "packed": acme.Packed(many...)} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if foreseen, err := s.Foreseen(bundle); err != nil ||
					foreseen.Code != ledger.Applied {
					b.Fatal(foreseen, err)
				}
			}
		})
	}
}
