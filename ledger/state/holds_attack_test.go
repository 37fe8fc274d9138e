package state_test

import (
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/ledger/state"
)

// leastPosting posts the least amount that there is. What it takes is more than 128 bits hold.
func leastPosting(c *ledgertest.Client, hold ledger.Hash, from,
	to ledger.AccountPath) ledger.Transaction {
	half, _ := ledger.ParseAmount("85070591730234615865843651857942052864")
	transaction := c.EndHold(hold, from, to, 1)
	transaction.Postings = []ledger.Posting{
		{Account: from, Asset: ledger.DefaultAsset, Amount: ledger.MinAmount},
		{Account: to, Asset: ledger.DefaultAsset, Amount: half},
		{Account: to, Asset: ledger.DefaultAsset, Amount: half}}
	return transaction
}

// TestLeastAmountIsNotPosted: a posting of -2^127 is more than any hold, also of an issuer account,
// which has no floor.
func TestLeastAmountIsNotPosted(t *testing.T) {
	t.Parallel()
	chain, acme, shop := holdsChain(t, ledger.HoldsVersion)
	hold := acme.Bundle(acme.PlaceHold("acme:issuer", "shop:a", 1, chain.parent.Header.Time+1000))
	if got := chain.result(hold); got.Code != ledger.Applied {
		t.Fatal(got)
	}
	got := chain.result(shop.Bundle(leastPosting(shop, hold.ID(0), "acme:issuer", "shop:a")))
	if got.Code != ledger.HoldDiffers {
		t.Errorf("%s", got)
	}
	a := holding(t, 0, 0, 0)
	placed := a.hold(1, 2, 60, a.time+500)
	a.flush()
	end := leastPosting(a.clients[2], placed, "org1:a", "org2:a")
	end.Deadline = a.time + 50
	id := a.enter(end)
	a.flush()
	if got := a.result(1, id); got != int(ledger.HoldDiffers) {
		t.Errorf("across shards: %d", got)
	}
	a.has(1, 40, 60, 0)
	a.checkEnd()
}

// TestHoldsBeforeTheRegistration: what a hold sets aside when its asset is registered counts as
// waiting. Otherwise its end would take away the count of what is set aside later.
func TestHoldsBeforeTheRegistration(t *testing.T) {
	t.Parallel()
	chain, acme, shop := holdsChain(t, ledger.HoldsVersion)
	place := func(amount int64) *ledger.Bundle {
		transaction := acme.PlaceHold("acme:issuer", "shop:a", amount,
			chain.parent.Header.Time+1000)
		transaction.Hold.Asset = "EUR"
		return acme.Bundle(transaction)
	}
	waiting := func(want int64) {
		t.Helper()
		asset, known := chain.state.Asset("EUR")
		if !known || asset.Issuances[0].Waiting != ledger.NewAmount(want) {
			t.Errorf("%+v is waiting, want %d", asset.Issuances, want)
		}
	}
	early := place(8)
	chain.block(early)
	register := acme.Next()
	register.Asset = &ledger.AssetChange{Asset: "EUR", Number: 1, AssetTerms: ledger.AssetTerms{
		Supply: ledger.SupplyCapped, Cap: ledger.NewAmount(20),
		Issuers: []ledger.Issuer{{Organisation: "acme", Allowance: ledger.NewAmount(20)}}}}
	if got := chain.result(acme.Bundle(register)); got.Code != ledger.Applied {
		t.Fatal(got)
	}
	waiting(8)
	chain.block(place(10))
	waiting(18)
	chain.block(shop.Bundle(shop.EndHold(early.ID(0), "acme:issuer", "shop:a", 0)))
	waiting(10)
}

// TestHoldIsOver: a hold whose time is over is not posted, even if it is still there because the
// transaction that was about to end it was released in the same block.
func TestHoldIsOver(t *testing.T) {
	t.Parallel()
	a := holding(t, 0, 0, 0)
	place := a.clients[1].PlaceHold("org1:a", "org2:a", 30, a.time+20)
	place.Hold.To = []ledger.AccountPath{"org1:b", "org2:a", "org2:none"}
	place.Hold.Poster = "org1"
	hold := a.enter(place)
	a.flush()
	end := a.clients[1].EndHold(hold, "org1:a", "org2:none", 20)
	end.Deadline = a.time + 50
	a.enter(end)
	a.round(0, &ledger.Batch{Bundles: [][]byte{a.inbox[0][0].Encode()}})
	a.inbox[0] = nil
	a.round(1, &ledger.Batch{Carried: a.stream(1)})
	a.round(2, &ledger.Batch{Carried: a.stream(2)})
	a.time += 100
	within := a.clients[1].Bundle(a.clients[1].EndHold(hold, "org1:a", "org1:b", 20))
	a.round(1, &ledger.Batch{Bundles: [][]byte{within.Encode()}, Verdicts: a.waiting(1)})
	if got := a.result(1, within.ID(0)); got != int(ledger.HoldOver) {
		t.Errorf("posted after its time: %d", got)
	}
	a.has(1, 70, 30, 0)
	a.enter(a.clients[1].Transfer("org1:a", "org1:b", 1))
	a.flush()
	a.has(1, 99, 0, 0)
	a.checkEnd()
}

// TestHoldsAreBounded: one organisation has no more holds than it may, and not all that there are.
// An organisation that moves away leaves its room to others.
func TestHoldsAreBounded(t *testing.T) {
	t.Parallel()
	a := holding(t, 0, 0, 0)
	s := a.shards[1].state
	s.LimitHolds(1, 4, 2)
	place := func(want ledger.Code) ledger.Hash {
		t.Helper()
		id := a.hold(1, 2, 1, a.time+5000)
		a.flush()
		if got := a.result(1, id); got != int(want) {
			t.Errorf("%d, want %s", got, want)
		}
		return id
	}
	first := place(ledger.Applied)
	place(ledger.Applied)
	place(ledger.Applied)
	place(ledger.TooManyHolds)
	s.LimitHolds(1, 3, 9)
	place(ledger.TooManyHolds)
	s.LimitHolds(1, 4, 2)
	a.end(first, 1, 2, 0)
	a.flush()
	place(ledger.Applied)
	counts := func(of *state.State, want, wantShared int) {
		t.Helper()
		if got, shared := of.CountedHolds("org1"); got != want || shared != wantShared {
			t.Errorf("%d holds count, %d of them are shared; want %d and %d", got, shared, want,
				wantShared)
		}
	}
	counts(s, 3, 2)
	counts(restoredFrom(t, a.shards[1].genesis, s), 3, 0) // it has the usual limits
	a.submit(0, ledgertest.Signed(ledger.Operator, []string{"operator"}, ledger.Transaction{
		Ledger: a.shards[0].genesis.Book(), Book: &ledger.BookChange{Number: 1,
			Move: &ledger.OrganisationMove{Organisation: "org1", To: 0}}}))
	a.flush()
	counts(s, 0, 0)
	counts(restoredFrom(t, a.shards[1].genesis, s), 0, 0)
	if s.HoldCount() != 3 {
		t.Errorf("%d holds are left", s.HoldCount())
	}
}
