package state_test

import (
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
)

// TestHoldsKeepTerms: a hold is judged as a debit when it is placed, and its targets when it is
// posted.
func TestHoldsKeepTerms(t *testing.T) {
	t.Parallel()
	chain, acme, shop := holdsChain(t, ledger.AccountTermsVersion)
	soon := chain.parent.Header.Time + 10_000
	expect := func(code ledger.Code, by *ledgertest.Client,
		transaction ledger.Transaction) ledger.Hash {
		t.Helper()
		bundle := by.Bundle(transaction)
		if got := chain.result(bundle); got.Code != code {
			t.Errorf("%s, want %s", got, code)
		}
		restoredFrom(t, ledgertestGenesis(ledger.AccountTermsVersion), chain.state)
		return bundle.ID(0)
	}
	numbers := make(map[ledger.AccountPath]uint64)
	set := func(code ledger.Code, by *ledgertest.Client, path ledger.AccountPath,
		terms ledger.AccountTerms) {
		t.Helper()
		expect(code, by, by.ChangeAccount(path, numbers[path]+1, "", terms))
		if code == ledger.Applied {
			numbers[path]++
		}
	}
	place := func(amount int64) ledger.Transaction {
		return acme.PlaceHold("acme:a", "shop:a", amount, soon)
	}
	end := func(hold ledger.Hash, amount int64) ledger.Transaction {
		return shop.EndHold(hold, "acme:a", "shop:a", amount)
	}
	take := func(amount int64) ledger.Transaction {
		return acme.Transfer("acme:a", "acme:b", amount)
	}

	// What is held counts as gone for the floor, for another hold as for a debit.
	set(ledger.Applied, acme, "acme:a", ledgertest.Limited(30, -1, -1, 0))
	expect(ledger.BelowFloor, acme, place(71))
	hold := expect(ledger.Applied, acme, place(40))
	expect(ledger.BelowFloor, acme, place(31))
	expect(ledger.BelowFloor, acme, take(31))
	expect(ledger.Applied, acme, take(10))
	// The organisation cannot take the hold back by its terms, and not close the account.
	set(ledger.AccountNotEmpty, acme, "acme:a", ledger.AccountTerms{Closed: true})
	for _, terms := range []ledger.AccountTerms{{NoDebits: true}, {Freeze: ledger.FreezeOwner},
		ledgertest.Limited(99, -1, 0, 60)} {
		set(ledger.Applied, acme, "acme:a", terms)
		want := ledger.BelowFloor
		switch {
		case terms.NoDebits:
			want = ledger.NoDebits
		case terms.Freeze == ledger.FreezeOwner:
			want = ledger.AccountFrozen
		}
		expect(want, acme, place(1))
		expect(ledger.Applied, shop, end(hold, 5))
		set(ledger.Applied, acme, "acme:a", ledger.AccountTerms{})
		hold = expect(ledger.Applied, acme, place(20))
	}

	// The accounts that it gives to are judged when it is posted, and the hold goes on.
	set(ledger.Applied, shop, "shop:a", ledger.AccountTerms{Freeze: ledger.FreezeOwner})
	expect(ledger.AccountFrozen, shop, end(hold, 1))
	set(ledger.Applied, shop, "shop:a", ledger.AccountTerms{NoCredits: true})
	expect(ledger.NoCredits, shop, end(hold, 1))
	set(ledger.Applied, shop, "shop:a", ledgertest.Limited(-1, 16, -1, 0))
	expect(ledger.AboveCeiling, shop, end(hold, 2))
	expect(ledger.Applied, shop, end(hold, 1))

	// It counts for a velocity once, when it is placed, also if it comes back.
	set(ledger.Applied, acme, "acme:a", ledgertest.Limited(-1, -1, 10, 3600))
	hold = expect(ledger.Applied, acme, place(6))
	expect(ledger.VelocityExceeded, acme, place(5))
	set(ledger.Applied, shop, "shop:a", ledger.AccountTerms{})
	expect(ledger.Applied, shop, end(hold, 6))
	hold = expect(ledger.Applied, acme, place(3))
	expect(ledger.Applied, shop, end(hold, 0))
	expect(ledger.VelocityExceeded, acme, take(2))
	expect(ledger.Applied, acme, take(1))

	// An account whose hold has ended closes once it has nothing left, and takes no holds.
	set(ledger.Applied, shop, "shop:b", ledger.AccountTerms{Closed: true})
	expect(ledger.AccountClosed, shop, shop.PlaceHold("shop:b", "acme:a", 1, soon))
	forClosed := acme.PlaceHold("acme:b", "shop:b", 1, soon)
	hold = expect(ledger.Applied, acme, forClosed)
	expect(ledger.AccountClosed, shop, shop.EndHold(hold, "acme:b", "shop:b", 1))
	expect(ledger.Applied, shop, shop.EndHold(hold, "acme:b", "shop:b", 0))
}

// TestHoldsKeepTermsAcrossShards: the shard of an account judges. A refused posting leaves the hold
// as it was, and it does not count twice for a velocity.
func TestHoldsKeepTermsAcrossShards(t *testing.T) {
	t.Parallel()
	genesis := ledgertest.ShardedGenesis(1, 0, 0, 0)
	genesis.Version = ledger.AccountTermsVersion
	a := newAirlinesOf(t, genesis)
	numbers := make([]uint64, 3)
	set := func(organisation int, terms ledger.AccountTerms) {
		t.Helper()
		client := a.clients[organisation]
		numbers[organisation]++
		id := a.enter(client.ChangeAccount(client.Account("a"), numbers[organisation], "", terms))
		a.flush()
		if got := a.result(organisation, id); got != int(ledger.Applied) {
			t.Errorf("terms of organisation %d: %d", organisation, got)
		}
	}
	set(1, ledgertest.Limited(30, -1, 50, 3600))
	expires := a.time + 100_000
	refused := a.hold(1, 2, 71, expires)
	a.flush()
	if got := a.result(1, refused); got != int(ledger.BelowFloor) {
		t.Errorf("a hold below the floor: %d", got)
	}
	hold := a.hold(1, 2, 40, expires)
	a.flush()
	a.has(1, 60, 40, 0)
	// The account of the hold is frozen, and so is the one that the hold gives to.
	frozen := ledgertest.Limited(30, -1, 50, 3600)
	frozen.Freeze = ledger.FreezeOwner
	set(1, frozen)
	set(2, ledger.AccountTerms{Freeze: ledger.FreezeOwner})
	end := a.end(hold, 1, 2, 30)
	a.flush()
	if got := a.result(2, end); got != int(ledger.AccountFrozen) {
		t.Errorf("a posting to a frozen account: %d", got)
	}
	a.has(1, 60, 40, 0)
	set(2, ledger.AccountTerms{})
	end = a.end(hold, 1, 2, 30)
	a.flush()
	a.expect(end, relayed, setAside, setAside)
	a.has(1, 70, 0, 0)
	a.has(2, 130, 0, 0)
	set(1, ledgertest.Limited(30, -1, 50, 3600))
	for _, next := range []struct {
		amount int64
		want   ledger.Code
	}{{11, ledger.VelocityExceeded}, {10, ledger.Applied}} {
		id := a.enter(a.clients[1].Transfer("org1:a", "org1:b", next.amount))
		a.flush()
		if got := a.result(1, id); got != int(next.want) {
			t.Errorf("%d more than was held: %d, want %s", next.amount, got, next.want)
		}
	}
	a.checkEnd()
}
