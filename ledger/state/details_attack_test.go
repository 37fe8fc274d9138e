package state_test

import (
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
)

// gold returns an entry of a client that posts amounts of gold.
func gold(c *ledgertest.Client, postings ...ledger.Posting) ledger.Transaction {
	t := c.Next()
	for _, each := range postings {
		each.Asset = "gold"
		t.Postings = append(t.Postings, each)
	}
	return t
}

// sellAll pays 2^127 out of one account to two others, or gives as much back to them.
func sellAll(c *ledgertest.Client, from, to, rest ledger.AccountPath) ledger.Transaction {
	return gold(c, ledger.Posting{Account: from, Amount: ledger.MinAmount},
		ledger.Posting{Account: to, Amount: ledger.MaxAmount},
		ledger.Posting{Account: rest, Amount: ledger.NewAmount(1)})
}

// payGold pays an amount of gold.
func payGold(c *ledgertest.Client, from, to ledger.AccountPath,
	amount ledger.Amount) ledger.Transaction {
	return gold(c, ledger.Posting{Account: from, Amount: ledger.Amount{}.Minus(amount)},
		ledger.Posting{Account: to, Amount: amount})
}

// TestRefundOfTheLeastAmount: a posting of -2^127 has no opposite in 128 bits. As a refund it is
// more than any posting; as a posting of an entry it is refunded in two parts.
func TestRefundOfTheLeastAmount(t *testing.T) {
	t.Parallel()
	chain, acme, shop := holdsChain(t, ledger.DetailsVersion)
	until := chain.parent.Header.Time + 100_000
	expect := func(code ledger.Code, bundle *ledger.Bundle) ledger.Hash {
		t.Helper()
		if got := chain.result(bundle); got.Code != code {
			t.Errorf("%s, want %s", got, code)
		}
		restoredFrom(t, ledgertestGenesis(ledger.DetailsVersion), chain.state)
		return bundle.ID(0)
	}
	small := gold(acme, ledger.Posting{Account: "acme:issuer", Amount: ledger.NewAmount(-5)},
		ledger.Posting{Account: "acme:b", Amount: ledger.NewAmount(1)},
		ledger.Posting{Account: "shop:issuer", Amount: ledger.NewAmount(4)})
	sale := expect(ledger.Applied, acme.Bundle(refundableUntil(small, until)))
	expect(ledger.RefundExceeded, shop.Bundle(refundOf(
		sellAll(shop, "shop:issuer", "acme:issuer", "acme:b"), sale, "acme")))
	expect(ledger.Applied, shop.Bundle(refundOf(payGold(shop, "shop:issuer", "acme:issuer",
		ledger.NewAmount(4)), sale, "acme")))

	sale = expect(ledger.Applied, shop.Bundle(refundableUntil(
		sellAll(shop, "shop:issuer", "acme:a", "shop:b"), until)))
	left, _ := chain.state.Refundable(sale)
	if left.Left[0].Amount != ledger.MinAmount {
		t.Errorf("%+v", left)
	}
	expect(ledger.RefundExceeded, acme.Bundle(refundOf(
		sellAll(acme, "acme:a", "shop:issuer", "shop:b"), sale, "shop")))
	expect(ledger.Applied, acme.Bundle(refundOf(payGold(acme, "acme:a", "shop:issuer",
		ledger.MaxAmount), sale, "shop")))
	expect(ledger.RefundExceeded, shop.Bundle(refundOf(payGold(shop, "shop:b", "shop:issuer",
		ledger.NewAmount(2)), sale, "shop")))
	expect(ledger.Applied, shop.Bundle(refundOf(payGold(shop, "shop:b", "shop:issuer",
		ledger.NewAmount(1)), sale, "shop")))
	if _, there := chain.state.Refundable(sale); there {
		t.Error("nothing is left, and it is remembered")
	}
}

// TestRefundOfTheLeastAmountAcrossShards: the same where the payer's home and that of the receiver
// differ. What a refund takes and gives back when it is refused does not overflow either.
func TestRefundOfTheLeastAmountAcrossShards(t *testing.T) {
	t.Parallel()
	a := detailed(t)
	acme, shop, most := a.clients[1], a.clients[2], ledger.MaxAmount
	enter := func(transaction ledger.Transaction) ledger.Hash {
		for i := range transaction.Postings {
			transaction.Postings[i].Asset = "silver" // of which nobody has any
		}
		transaction.Deadline = a.time + 50
		id := a.enter(transaction)
		a.flush()
		return id
	}
	sale := enter(refundableUntil(payGold(acme, "org1:issuer", "org2:a", most), a.time+10_000))
	a.expect(sale, relayed, setAside, setAside)
	least := enter(refundOf(sellAll(shop, "org2:a", "org1:issuer", "org1:b"), sale, "org1"))
	a.expect(least, relayed, int(ledger.RefundExceeded), int(ledger.Overflow))
	all := enter(refundOf(payGold(shop, "org2:a", "org1:issuer", most), sale, "org1"))
	a.expect(all, relayed, setAside, setAside)
	// No shard sets 2^127 aside, so no entry with it crosses.
	a.expect(enter(refundableUntil(sellAll(acme, "org1:issuer", "org2:a", "org1:b"),
		a.time+10_000)), relayed, int(ledger.Overflow), setAside)

	sale = enter(refundableUntil(payGold(acme, "org1:issuer", "org2:a", most), a.time+10_000))
	a.expect(sale, relayed, setAside, setAside)
	spent := enter(payGold(shop, "org2:a", "org0:a", ledger.NewAmount(1)))
	a.expect(spent, setAside, none, setAside)
	refused := enter(refundOf(payGold(shop, "org2:a", "org1:issuer", most), sale, "org1"))
	a.expect(refused, relayed, setAside, int(ledger.InsufficientFunds))
	left, _ := a.shards[1].state.Refundable(sale)
	if left.Left[1].Amount != most || left.Waits != (ledger.Hash{}) {
		t.Errorf("%+v", left)
	}
	restoredFrom(t, a.shards[1].genesis, a.shards[1].state)
	rest, _ := most.Sub(ledger.NewAmount(1))
	part := enter(refundOf(payGold(shop, "org2:a", "org1:issuer", rest), sale, "org1"))
	a.expect(part, relayed, setAside, setAside)
	left, _ = a.shards[1].state.Refundable(sale)
	if left.Left[0].Amount != ledger.NewAmount(-1) || left.Left[1].Amount != ledger.NewAmount(1) {
		t.Errorf("%+v", left)
	}
	a.checkEnd()
}

// TestKeyLapses: an idempotency key is taken up to KeyTime after its block, and free from then on.
func TestKeyLapses(t *testing.T) {
	t.Parallel()
	chain, acme, _ := holdsChain(t, ledger.DetailsVersion)
	pay := func() *ledger.Bundle {
		return acme.Bundle(withKey(acme.Transfer("acme:a", "acme:b", 1), "order"))
	}
	first := pay()
	if got := chain.result(first); got.Code != ledger.Applied {
		t.Fatal(got)
	}
	lapses := chain.parent.Header.Time + ledger.KeyTime
	if has, _ := chain.state.Key("acme", "order"); has.Expires != lapses {
		t.Errorf("%+v, want until %d", has, lapses)
	}
	if got := chain.at(lapses-1, pay()).Entry(0).Result; got.Code != ledger.KeyTaken {
		t.Errorf("a millisecond before: %s", got)
	}
	restoredFrom(t, ledgertestGenesis(ledger.DetailsVersion), chain.state)
	again := pay()
	if got := chain.at(lapses, again).Entry(0).Result; got.Code != ledger.Applied {
		t.Errorf("at its end: %s", got)
	}
	if has, _ := chain.state.Key("acme", "order"); has.Entry != again.ID(0) ||
		has.Expires != lapses+ledger.KeyTime {
		t.Errorf("%+v", has)
	}
	last := lapses + ledger.KeyTime
	chain.at(last, acme.Bundle(acme.Transfer("acme:a", "acme:b", 1)))
	if keys, _ := chain.state.DetailCounts(); keys != 0 {
		t.Errorf("%d keys are remembered", keys)
	}
	restoredFrom(t, ledgertestGenesis(ledger.DetailsVersion), chain.state)
}
