package state_test

import (
	"slices"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
)

// TestOutsidersHoldNoRefundsUp: a refund without the signature of the organisation that would give
// something back waits at no home, not even until another shard refuses it. So an organisation that
// gives nothing back holds no refund of others up.
func TestOutsidersHoldNoRefundsUp(t *testing.T) {
	t.Parallel()
	a := detailed(t)
	sale := a.sell(1, 2, 60, "")
	a.flush()
	outsider, payer := a.clients[0], a.clients[1]
	for name, attack := range map[string]struct {
		by   *ledgertest.Client
		from ledger.AccountPath
		of   ledger.OrganisationName
		want ledger.Code // of the payer's home
	}{
		"an outsider takes from the receiver": {outsider, "org2:a", "org1", ledger.Unauthorised},
		"an outsider gives":                   {outsider, "org0:a", "org1", ledger.RefundExceeded},
		"the payer takes from the receiver":   {payer, "org2:a", "org1", ledger.Unauthorised},
		// Its own home knows no such entry. The payer's home is not asked about it.
		"an outsider says it is its entry": {outsider, "org0:a", "org0", ledger.SetAside},
	} {
		transaction := refundOf(attack.by.Transfer(attack.from, "org1:a", 1), sale, attack.of)
		transaction.Deadline = a.time + 50
		bundle := attack.by.Bundle(transaction)
		a.submit(0, bundle)
		a.reachAll()
		if got := a.result(1, bundle.ID(0)); got != int(attack.want) {
			t.Errorf("%s: %d, want %s", name, got, attack.want)
		}
		if left, _ := a.shards[1].state.Refundable(sale); left.Waits != (ledger.Hash{}) ||
			left.Left[0].Amount != ledger.NewAmount(-60) {
			t.Errorf("%s: %+v", name, left)
		}
		a.flush()
	}
	all := a.refund(sale, 1, 2, 60)
	a.flush()
	a.expect(all, relayed, setAside, setAside)
	a.checkEnd()
}

// reachAll brings what was submitted to shard 0 to all shards, and no verdicts.
func (a *airlines) reachAll() {
	batch := &ledger.Batch{}
	for _, each := range a.inbox[0] {
		batch.Bundles = append(batch.Bundles, each.Encode())
	}
	a.inbox[0] = nil
	a.round(0, batch)
	for shard := 1; shard < len(a.shards); shard++ {
		a.round(ledger.ShardID(shard), &ledger.Batch{Carried: a.stream(ledger.ShardID(shard))})
	}
}

// TestRefundWaitsUntilItsDeadline: a shard that gets a refund after its deadline refuses it, so one
// that waits does not hold others up for longer than that shard is late.
func TestRefundWaitsUntilItsDeadline(t *testing.T) {
	t.Parallel()
	a := detailed(t)
	sale := a.sell(1, 2, 60, "")
	a.flush()
	late := a.refund(sale, 1, 2, 60)
	a.round(0, &ledger.Batch{Bundles: [][]byte{a.inbox[0][0].Encode()}})
	a.inbox[0] = nil
	a.round(1, &ledger.Batch{Carried: a.stream(1)})
	other := a.refund(sale, 1, 2, 1)
	a.round(0, &ledger.Batch{Bundles: [][]byte{a.inbox[0][0].Encode()}})
	a.inbox[0] = nil
	a.round(1, &ledger.Batch{Carried: a.stream(1)})
	a.time += 100
	a.flush()
	a.expect(late, relayed, setAside, int(ledger.DeadlinePassed))
	a.expect(other, relayed, int(ledger.RefundWaits), int(ledger.DeadlinePassed))
	all := a.refund(sale, 1, 2, 60)
	a.flush()
	a.expect(all, relayed, setAside, setAside)
	a.checkEnd()
}

// TestRefundWaitsForALostShard: the settlement with a lost shard decides on a refund that waits for
// it, and gives back what it took. Nothing else is decided on the entry meanwhile.
func TestRefundWaitsForALostShard(t *testing.T) {
	t.Parallel()
	genesis := ledgertest.ShardedGenesis(1, 0, 0, 0, 0)
	genesis.Version = ledger.DetailsVersion
	a := newAirlinesOf(t, genesis)
	three := refundableUntil(a.transfer(1, 2, 20), a.time+1000)
	three.Postings[0].Amount = ledger.NewAmount(-50)
	three.Postings = append(three.Postings, ledger.Posting{Account: "org3:a",
		Asset: ledger.DefaultAsset, Amount: ledger.NewAmount(30)})
	three.Deadline = a.time + 50
	sale := a.enter(three)
	a.flush()
	lost := a.refund(sale, 1, 3, 30)
	a.reachAll()
	if left, _ := a.shards[1].state.Refundable(sale); left.Waits != lost {
		t.Fatalf("%+v", left)
	}
	a.shards[3].stopped, a.shards[3].verdicts = true, nil
	waits := a.refund(sale, 1, 2, 20)
	a.flush()
	a.expect(waits, relayed, int(ledger.RefundWaits), setAside)
	a.settle(1, 3)
	a.flush()
	left, _ := a.shards[1].state.Refundable(sale)
	if left.Waits != (ledger.Hash{}) || left.Left[0].Amount != ledger.NewAmount(-50) {
		t.Errorf("%+v", left)
	}
	part := a.refund(sale, 1, 2, 20)
	a.flush()
	a.expect(part, relayed, setAside, setAside)
}

// TestRefundWithoutFundsHoldsOthersUpBriefly: a receiver that has nothing to give back can make a
// refund wait, until its own home refuses it. Another receiver's refund is refused meanwhile, and
// takes effect after that.
func TestRefundWithoutFundsHoldsOthersUpBriefly(t *testing.T) {
	t.Parallel()
	genesis := ledgertest.ShardedGenesis(1, 0, 0, 0, 0)
	genesis.Version = ledger.DetailsVersion
	a := newAirlinesOf(t, genesis)
	three := refundableUntil(a.transfer(1, 2, 20), a.time+1000)
	three.Postings[0].Amount = ledger.NewAmount(-50)
	three.Postings = append(three.Postings, ledger.Posting{Account: "org3:a",
		Asset: ledger.DefaultAsset, Amount: ledger.NewAmount(30)})
	three.Deadline = a.time + 500
	sale := a.enter(three)
	a.flush()
	a.enter(a.clients[2].Transfer("org2:a", "org2:b", 120)) // all that it has
	a.flush()
	for range 3 {
		without := a.refund(sale, 1, 2, 20)
		a.reachAll()
		other := a.refund(sale, 1, 3, 10)
		a.reachAll()
		a.flush()
		a.expect(without, relayed, setAside, int(ledger.InsufficientFunds))
		if got := a.result(1, other); got != int(ledger.RefundWaits) {
			t.Errorf("while it waits: %d", got)
		}
		if left, _ := a.shards[1].state.Refundable(sale); left.Waits != (ledger.Hash{}) {
			t.Fatalf("it still waits: %+v", left)
		}
	}
	all := a.refund(sale, 1, 3, 30)
	a.flush()
	if got := a.result(1, all); got != setAside {
		t.Errorf("after it: %d", got)
	}
	left, _ := a.shards[1].state.Refundable(sale)
	if left.Waits != (ledger.Hash{}) || left.Left[0].Amount != ledger.NewAmount(-20) {
		t.Errorf("%+v", left)
	}
	a.checkEnd()
}

// TestDetailsWithinABlock: an entry, its refunds and a second entry with its key are in one block.
// What begins and ends in a block leaves nothing in the state.
func TestDetailsWithinABlock(t *testing.T) {
	t.Parallel()
	chain, acme, shop := holdsChain(t, ledger.DetailsVersion)
	until := chain.parent.Header.Time + 100_000
	pay := acme.Transfer("acme:a", "shop:a", 10)
	pay.Details = &ledger.Details{Refundable: until, Key: "order"}
	sale := acme.Bundle(pay)
	back := func(amount int64) *ledger.Bundle {
		return shop.Bundle(refundOf(shop.Transfer("shop:a", "acme:a", amount), sale.ID(0),
			"acme"))
	}
	bundles := []*ledger.Bundle{sale, acme.Bundle(withKey(acme.Transfer("acme:a", "acme:b", 1),
		"order")), back(4), back(7), back(6), back(1)}
	block := chain.block(bundles...)
	want := []ledger.Code{ledger.Applied, ledger.KeyTaken, ledger.Applied, ledger.RefundExceeded,
		ledger.Applied, ledger.UnknownRefundable}
	for i := range want {
		if got := block.Entry(i).Result.Code; got != want[i] {
			t.Errorf("entry %d: %s, want %s", i, got, want[i])
		}
	}
	if keys, refundable := chain.state.DetailCounts(); keys != 1 || refundable != 0 {
		t.Errorf("%d keys, %d refundable", keys, refundable)
	}
	restoredFrom(t, ledgertestGenesis(ledger.DetailsVersion), chain.state)
	// The same bytes again are in no second block, and another entry does not get the key.
	again := chain.block(append(slices.Clone(bundles),
		acme.Bundle(acme.Transfer("acme:a", "acme:b", 1)))...)
	if again.Len() != 1 {
		t.Errorf("a block of %d", again.Len())
	}
	if has, _ := chain.state.Key("acme", "order"); has.Entry != sale.ID(0) {
		t.Errorf("%+v", has)
	}
}
