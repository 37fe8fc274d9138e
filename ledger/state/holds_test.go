package state_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/ledger/state"
)

// holdsChain is a chain of one shard in which acme:a has 100.
func holdsChain(t *testing.T, version int) (*one, *ledgertest.Client, *ledgertest.Client) {
	genesis := ledgertest.Genesis()
	genesis.Version = version
	chain := newChain(t, genesis)
	acme, shop := ledgertest.NewClient(genesis, "acme"), ledgertest.NewClient(genesis, "shop")
	for _, c := range []*ledgertest.Client{acme, shop} {
		opening := c.Next()
		opening.Openings = []ledger.Opening{{Account: c.Account("issuer"), Issuer: true},
			{Account: c.Account("a")}, {Account: c.Account("b")}}
		chain.block(c.Bundle(c.Register()))
		chain.block(c.Bundle(opening))
	}
	chain.block(acme.Bundle(acme.Transfer("acme:issuer", "acme:a", 100)))
	return chain, acme, shop
}

// TestRulesOfHolds goes through every reason, each of which changes nothing, and every end.
func TestRulesOfHolds(t *testing.T) {
	t.Parallel()
	chain, acme, shop := holdsChain(t, ledger.HoldsVersion)
	soon := chain.parent.Header.Time + 1000
	expect := func(code ledger.Code, by *ledgertest.Client,
		transaction ledger.Transaction) ledger.Hash {
		t.Helper()
		bundle := by.Bundle(transaction)
		if got := chain.result(bundle); got.Code != code {
			t.Errorf("%s, want %s", got, code)
		}
		restoredFrom(t, ledgertestGenesis(ledger.HoldsVersion), chain.state)
		return bundle.ID(0)
	}
	has := func(path ledger.AccountPath, spendable, held int64) {
		t.Helper()
		account, _ := chain.state.Account(path)
		if b := account.Balances; len(b) != 1 || b[0].Amount != ledger.NewAmount(spendable) ||
			b[0].SetAside != ledger.NewAmount(held) {
			t.Errorf("%s has %v, want %d and %d held", path, b, spendable, held)
		}
	}
	place := func(amount int64) ledger.Transaction {
		return acme.PlaceHold("acme:a", "shop:a", amount, soon)
	}
	with := func(change func(*ledger.Hold)) ledger.Transaction {
		transaction := place(1)
		change(transaction.Hold)
		return transaction
	}
	expect(ledger.InsufficientFunds, acme, place(101))
	expect(ledger.UnknownAccount, acme, with(func(h *ledger.Hold) { h.From = "acme:none" }))
	expect(ledger.UnknownOrganisation, acme, with(func(h *ledger.Hold) { h.Poster = "nobody" }))
	expect(ledger.HoldTime, acme, with(func(h *ledger.Hold) { h.Expires = 1 }))
	expect(ledger.HoldTime, acme, with(func(h *ledger.Hold) {
		h.Expires += ledger.MaxHoldTime
	}))
	hold := expect(ledger.Applied, acme, place(60))
	has("acme:a", 40, 60)
	expect(ledger.InsufficientFunds, acme, place(41))
	expect(ledger.InsufficientFunds, acme, acme.Transfer("acme:a", "shop:a", 41))
	end := func(amount int64) ledger.Transaction {
		return shop.EndHold(hold, "acme:a", "shop:a", amount)
	}
	expect(ledger.UnknownHold, shop, shop.EndHold(ledger.Hash{1}, "acme:a", "shop:a", 1))
	expect(ledger.UnknownHold, shop, shop.EndHold(hold, "acme:b", "shop:a", 1))
	expect(ledger.HoldDiffers, shop, end(61))
	other := end(1)
	other.Postings[0].Asset, other.Postings[1].Asset = "gold", "gold"
	expect(ledger.HoldDiffers, shop, other)
	expect(ledger.HoldDiffers, shop, shop.EndHold(hold, "acme:a", "shop:b", 1))
	expect(ledger.HoldDiffers, acme, acme.EndHold(hold, "acme:a", "shop:a", 1))
	expect(ledger.HoldDiffers, acme, acme.EndHold(hold, "acme:a", "shop:a", 0))
	has("acme:a", 40, 60)
	expect(ledger.Applied, shop, end(25))
	has("acme:a", 75, 0)
	has("shop:a", 25, 0)
	expect(ledger.UnknownHold, shop, end(1))
	hold = expect(ledger.Applied, acme, place(75))
	expect(ledger.Applied, shop, end(0))
	has("acme:a", 75, 0)
	if chain.state.HoldCount() != 0 {
		t.Errorf("%d holds are left", chain.state.HoldCount())
	}
}

func ledgertestGenesis(version int) *ledger.Genesis {
	genesis := ledgertest.Genesis()
	genesis.Version = version
	return genesis
}

// TestHoldsNeedTheirVersion: a chain of the version before leaves them out.
func TestHoldsNeedTheirVersion(t *testing.T) {
	t.Parallel()
	chain, acme, _ := holdsChain(t, ledger.AssetsVersion)
	block := chain.block(acme.Bundle(acme.PlaceHold("acme:a", "shop:a", 1,
		chain.parent.Header.Time+1000)), acme.Bundle(acme.Transfer("acme:a", "acme:b", 1)))
	if block.Len() != 1 || chain.state.HoldCount() != 0 {
		t.Errorf("a block of %d, and %d holds", block.Len(), chain.state.HoldCount())
	}
}

// TestPolicyCountsHolds: what an organisation may not take with one signature, it may not hold with
// one.
func TestPolicyCountsHolds(t *testing.T) {
	t.Parallel()
	policy := ledger.Policy{Threshold: 1, Limits: []ledger.Limit{{Asset: ledger.DefaultAsset,
		Above: ledger.NewAmount(10), Signatures: 2}}}
	one := ledger.Organisation{Name: "acme", Policy: &policy}
	for i := range 2 {
		key := ledgertest.PublicKey(fmt.Sprint(i))
		one.Keys = append(one.Keys, key)
		policy.Keys = append(policy.Keys, ledger.PolicyKey{Key: key, Role: ledger.RoleAll})
	}
	acme := ledgertest.NewClient(ledgertest.Genesis(), "acme")
	signatures := []ledger.Signature{{Organisation: "acme", Key: one.Keys[0]}}
	for amount, want := range map[int64]ledger.Code{10: ledger.Applied,
		11: ledger.TooFewSignatures} {
		transaction := acme.PlaceHold("acme:a", "shop:a", amount, 1)
		if got := one.Consents(&transaction, signatures); got != want {
			t.Errorf("a hold of %d: %s, want %s", amount, got, want)
		}
	}
}

// holding are airlines in a book that takes holds.
func holding(t *testing.T, parents ...ledger.ShardID) *airlines {
	genesis := ledgertest.ShardedGenesis(1, parents...)
	genesis.Version = ledger.HoldsVersion
	return newAirlinesOf(t, genesis)
}

// hold has an organisation hold an amount for another one.
func (a *airlines) hold(from, to, amount int, expires ledger.Milliseconds) ledger.Hash {
	a.t.Helper()
	return a.enter(a.clients[from].PlaceHold(a.clients[from].Account("a"),
		a.clients[to].Account("a"), int64(amount), expires))
}

// end has an organisation post a hold, or void it.
func (a *airlines) end(hold ledger.Hash, from, to, amount int) ledger.Hash {
	transaction := a.clients[to].EndHold(hold, a.clients[from].Account("a"),
		a.clients[to].Account("a"), int64(amount))
	transaction.Deadline = a.time + 50
	return a.enter(transaction)
}

// TestHoldsAcrossShards: a hold is posted in part, voided and posted too late from another shard.
// If the posting is refused there, the hold goes on.
func TestHoldsAcrossShards(t *testing.T) {
	t.Parallel()
	a := holding(t, 0, 0, 0)
	expires := a.time + 500
	first := a.hold(1, 2, 60, expires)
	a.flush()
	a.has(1, 40, 60, 0)
	id := a.end(first, 1, 2, 45)
	again := a.end(first, 1, 2, 1)
	a.flush()
	a.expect(id, relayed, setAside, setAside)
	a.expect(again, relayed, int(ledger.HoldEnding), setAside)
	a.has(1, 55, 0, 0)
	a.has(2, 145, 0, 0)
	second := a.hold(1, 2, 55, expires)
	a.flush()
	refused := a.clients[2].EndHold(second, "org1:a", "org2:a", 5)
	refused.Deadline = a.time + 50
	refused.Postings[1].Account = "org2:none"
	a.enter(refused)
	a.flush()
	a.has(1, 0, 55, 0)
	void := a.end(second, 1, 2, 0)
	a.flush()
	a.expect(void, relayed, setAside, setAside)
	a.has(1, 55, 0, 0)
	third := a.hold(1, 2, 10, a.time+20)
	a.flush()
	a.has(1, 45, 10, 0)
	a.time += 30
	late := a.end(third, 1, 2, 10)
	a.flush()
	a.expect(late, relayed, int(ledger.UnknownHold), setAside)
	a.has(1, 55, 0, 0)
	if count := a.shards[1].state.HoldCount(); count != 0 {
		t.Errorf("%d holds are left", count)
	}
	a.checkEnd()
}

// TestReleasedEndLetsTheHoldGoOn: shard 2 refuses the posting because its account is not there, at
// a time when shard 1 has set it aside. Meanwhile the hold does not expire.
func TestReleasedEndLetsTheHoldGoOn(t *testing.T) {
	t.Parallel()
	a := holding(t, 0, 0, 0)
	accounts := []ledger.AccountPath{"org2:a", "org2:none"}
	place := a.clients[1].PlaceHold("org1:a", "org2:a", 30, a.time+20)
	place.Hold.To = accounts
	hold := a.enter(place)
	a.flush()
	end := a.clients[2].EndHold(hold, "org1:a", "org2:none", 20)
	end.Deadline = a.time + 50
	id := a.enter(end)
	a.round(0, &ledger.Batch{Bundles: [][]byte{a.inbox[0][0].Encode()}})
	a.inbox[0] = nil
	a.round(1, &ledger.Batch{Carried: a.stream(1)})
	a.has(1, 70, 30, 0)
	held, _ := a.shards[1].state.Hold(hold)
	if held.Ending != id || held.Posted != ledger.NewAmount(20) {
		t.Errorf("%+v", held)
	}
	restoredFrom(t, a.shards[1].genesis, a.shards[1].state)
	a.time += 100
	a.enter(a.clients[1].Transfer("org1:a", "org1:b", 1))
	a.round(1, &ledger.Batch{Bundles: [][]byte{a.inbox[1][0].Encode()}})
	a.inbox[1] = nil
	a.has(1, 69, 30, 0)
	a.round(2, &ledger.Batch{Carried: a.stream(2)})
	a.round(1, &ledger.Batch{Verdicts: a.waiting(1)})
	a.has(1, 69, 30, 0) // it goes on, and its time is over
	a.enter(a.clients[1].Transfer("org1:a", "org1:b", 1))
	a.flush()
	a.has(1, 98, 0, 0)
	a.checkEnd()
}

// TestHoldsMove: an organisation takes its holds along. They do not expire at the old home, and are
// posted at the new one.
func TestHoldsMove(t *testing.T) {
	t.Parallel()
	a := holding(t, 0, 0, 0)
	kept, over := a.hold(1, 2, 30, a.time+5000), a.hold(1, 2, 20, a.time+40)
	a.flush()
	a.submit(0, ledgertest.Signed(ledger.Operator, []string{"operator"}, ledger.Transaction{
		Ledger: a.shards[0].genesis.Book(), Book: &ledger.BookChange{Number: 1,
			Move: &ledger.OrganisationMove{Organisation: "org1", To: 0}}}))
	a.flush()
	a.time += 100
	old := a.shards[1].state
	entries, _ := old.Leaves(1, func() {})
	accounts := old.Accounts()
	for i := range accounts {
		if accounts[i].Path.Organisation() == "org1" {
			entries = append(entries, state.MovedAccountEntry(&accounts[i]))
		}
	}
	arrivals, first, err := state.Arrivals(a.shards[0].genesis.Book(), 1, entries, 200)
	if err != nil {
		t.Fatal(err)
	}
	a.round(0, &ledger.Batch{Verdicts: []ledger.Verdict{ledger.Departure(1, 1, first)}})
	for _, each := range arrivals {
		a.round(0, &ledger.Batch{Bundles: [][]byte{each.Encode()}})
	}
	s := a.shards[0].state
	if old.HoldCount() != 2 || s.HoldCount() != 2 {
		t.Errorf("%d holds at the old home, %d at the new one", old.HoldCount(), s.HoldCount())
	}
	restoredFrom(t, a.shards[0].genesis, s)
	restoredFrom(t, a.shards[1].genesis, old)
	id := a.end(kept, 1, 2, 30)
	a.flush()
	if got := a.result(0, id); got != setAside {
		t.Errorf("posted at the new home: %d", got)
	}
	if _, open := s.Hold(over); open || s.HoldCount() != 0 {
		t.Errorf("%d holds are left", s.HoldCount())
	}
	account, _ := s.Account("org1:a")
	for _, b := range account.Balances {
		if b.Asset == ledger.DefaultAsset &&
			(b.Amount != ledger.NewAmount(70) || b.SetAside.Sign() != 0) {
			t.Errorf("%+v", b)
		}
	}
}

// TestHeldIsNeverSpent goes through random histories of holds, ends and transfers, and checks that
// each account has what a model says: balances add up, what is held counts once, and each hold ends
// once.
func TestHeldIsNeverSpent(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 9))
		a := holding(t, 0, 0, 0)
		var open []struct {
			id       ledger.Hash
			from, to int
		}
		for range 40 {
			from, to := random.IntN(3), random.IntN(3)
			switch random.IntN(4) {
			case 0, 1:
				if from != to {
					id := a.hold(from, to, 1+random.IntN(50), a.time+1+
						ledger.Milliseconds(random.IntN(150)))
					open = append(open, struct {
						id       ledger.Hash
						from, to int
					}{id, from, to})
				}
			case 2:
				if len(open) > 0 {
					h := open[random.IntN(len(open))]
					a.end(h.id, h.from, h.to, random.IntN(40))
				}
			default:
				transfer := a.transfer(from, to, 1+random.IntN(60))
				if from != to {
					transfer.Deadline = a.time + 60
				}
				a.enter(transfer)
			}
			if random.IntN(3) == 0 {
				a.flush()
			}
			checkHeld(t, a)
		}
		a.flush()
		checkHeld(t, a)
		a.checkEnd()
	}
}

// checkHeld checks that what is set aside of each account is what its holds and the waiting
// transactions say, and that nothing is spent of it.
func checkHeld(t *testing.T, a *airlines) {
	t.Helper()
	if wrong := wronglyHeld(a); wrong != "" {
		t.Fatal(wrong)
	}
}

// wronglyHeld returns an account of which something else is set aside, or "".
func wronglyHeld(a *airlines) string {
	for shard, c := range a.shards {
		for _, account := range c.state.Accounts() {
			if account.Issuer {
				continue
			}
			sum, _ := c.state.HeldByPending(account.Path, ledger.DefaultAsset)
			at := slices.IndexFunc(account.Balances, func(b ledger.Balance) bool {
				return b.Asset == ledger.DefaultAsset
			})
			var balance ledger.Balance
			if at >= 0 {
				balance = account.Balances[at]
			}
			if balance.SetAside != sum || balance.Amount.Sign() < 0 {
				return fmt.Sprintf("shard %d: %s has %+v, and %s is held", shard, account.Path,
					balance, sum)
			}
		}
	}
	return ""
}

// TestForgottenHoldIsFound: the check that others of these tests rely on sees what it is for.
func TestForgottenHoldIsFound(t *testing.T) {
	t.Parallel()
	a := holding(t, 0, 0, 0)
	hold := a.hold(1, 2, 60, a.time+500)
	a.flush()
	checkHeld(t, a)
	a.shards[1].state.PlantHoldForgotten(hold)
	if wronglyHeld(a) == "" {
		t.Error("what a hold sets aside is free, and nobody sees it")
	}
}
