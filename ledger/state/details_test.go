package state_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/ledger/state"
)

// withKey gives an entry an idempotency key.
func withKey(t ledger.Transaction, key string) ledger.Transaction {
	t.Details = &ledger.Details{Key: key}
	return t
}

// refundableUntil lets an entry be refunded.
func refundableUntil(t ledger.Transaction, until ledger.Milliseconds) ledger.Transaction {
	t.Details = &ledger.Details{Refundable: until}
	return t
}

// refundOf makes an entry a refund.
func refundOf(t ledger.Transaction, entry ledger.Hash,
	of ledger.OrganisationName) ledger.Transaction {
	t.Details = &ledger.Details{Refund: &ledger.Refund{Entry: entry, Organisation: of}}
	return t
}

// TestRulesOfDetails goes through every reason, each of which changes nothing.
func TestRulesOfDetails(t *testing.T) {
	t.Parallel()
	chain, acme, shop := holdsChain(t, ledger.DetailsVersion)
	expect := func(code ledger.Code, by *ledgertest.Client,
		transaction ledger.Transaction) ledger.Hash {
		t.Helper()
		bundle := by.Bundle(transaction)
		if got := chain.result(bundle); got.Code != code {
			t.Errorf("%s, want %s", got, code)
		}
		restoredFrom(t, ledgertestGenesis(ledger.DetailsVersion), chain.state)
		return bundle.ID(0)
	}
	pay := func(amount int64) ledger.Transaction {
		return acme.Transfer("acme:a", "shop:a", amount)
	}
	back := func(amount int64) ledger.Transaction {
		return shop.Transfer("shop:a", "acme:a", amount)
	}
	expect(ledger.InsufficientFunds, acme, withKey(pay(1000), "one"))
	first := expect(ledger.Applied, acme, withKey(pay(1), "one"))
	expect(ledger.KeyTaken, acme, withKey(pay(1), "one"))
	expect(ledger.Applied, shop, withKey(back(1), "one")) // another signer's
	if has, _ := chain.state.Key("acme", "one"); has.Entry != first || has.Waits {
		t.Errorf("%+v", has)
	}
	until := chain.parent.Header.Time + 100_000
	expect(ledger.RefundTime, acme, refundableUntil(pay(1), 1))
	expect(ledger.RefundTime, acme, refundableUntil(pay(1), until+ledger.MaxRefundTime))
	sale := expect(ledger.Applied, acme, refundableUntil(pay(10), until))
	expect(ledger.UnknownRefundable, shop, refundOf(back(1), first, "acme"))
	expect(ledger.UnknownRefundable, shop, refundOf(back(1), sale, "shop"))
	expect(ledger.RefundExceeded, shop, refundOf(back(11), sale, "acme"))
	expect(ledger.RefundExceeded, acme, refundOf(pay(1), sale, "acme"))
	expect(ledger.RefundExceeded, shop,
		refundOf(shop.Transfer("shop:a", "acme:b", 1), sale, "acme"))
	other := back(1)
	other.Postings[0].Asset, other.Postings[1].Asset = "gold", "gold"
	expect(ledger.RefundExceeded, shop, refundOf(other, sale, "acme"))
	// The payer cannot take it back by itself.
	expect(ledger.Unauthorised, acme, refundOf(acme.Transfer("shop:a", "acme:a", 1), sale, "acme"))
	expect(ledger.Applied, shop, refundOf(back(4), sale, "acme"))
	expect(ledger.RefundExceeded, shop, refundOf(back(7), sale, "acme"))
	refund := expect(ledger.Applied, shop, refundOf(back(6), sale, "acme"))
	expect(ledger.UnknownRefundable, shop, refundOf(back(1), sale, "acme"))
	expect(ledger.UnknownRefundable, acme, refundOf(pay(1), refund, "shop"))
	if keys, refundable := chain.state.DetailCounts(); keys != 2 || refundable != 0 {
		t.Errorf("%d keys, %d refundable", keys, refundable)
	}
}

// TestFormOfDetails: what no chain takes is refused before.
func TestFormOfDetails(t *testing.T) {
	t.Parallel()
	acme := ledgertest.NewClient(ledgertest.Genesis(), "acme")
	for name, change := range map[string]func(*ledger.Transaction){
		"none":       func(t *ledger.Transaction) { t.Details = &ledger.Details{} },
		"long key":   func(t *ledger.Transaction) { t.Details.Key = strings.Repeat("k", 65) },
		"key":        func(t *ledger.Transaction) { t.Details.Key = "a\x00b" },
		"date":       func(t *ledger.Transaction) { t.Details.Effective = ledger.MaxEffective + 1 },
		"past":       func(t *ledger.Transaction) { t.Details.Effective = -1 },
		"refundable": func(t *ledger.Transaction) { t.Details.Refundable = -1 },
		"both": func(t *ledger.Transaction) {
			t.Details.Refundable, t.Details.Refund = 5, &ledger.Refund{Organisation: "acme"}
		},
		"nobody": func(t *ledger.Transaction) { t.Details.Refund = &ledger.Refund{} },
		"a hold": func(t *ledger.Transaction) {
			*t = acme.EndHold(ledger.Hash{1}, "acme:a", "shop:a", 1)
			t.Details = &ledger.Details{Key: "k"}
		},
		"a registration": func(t *ledger.Transaction) {
			*t = acme.Register()
			t.Details = &ledger.Details{Key: "k"}
		},
		"no postings": func(t *ledger.Transaction) {
			t.Details.Refundable, t.Postings = 5, nil
			t.Records = []ledger.Record{{Key: "acme:r"}}
		},
		"zero": func(t *ledger.Transaction) {
			t.Details.Refundable = 5
			t.Postings[0].Amount, t.Postings[1].Amount = ledger.Amount{}, ledger.Amount{}
		},
		"twice": func(t *ledger.Transaction) {
			t.Details.Refundable = 5
			t.Postings[1].Account = t.Postings[0].Account
		},
		"many": func(t *ledger.Transaction) {
			t.Details.Refundable = 5
			for i := range ledger.MaxRefundPostings {
				t.Postings = append(t.Postings, ledger.Posting{Asset: "unit",
					Account: acme.Account(fmt.Sprint(i)), Amount: ledger.NewAmount(1)})
			}
		},
	} {
		transaction := withKey(acme.Transfer("acme:a", "acme:b", 1), "key")
		if _, err := transaction.EncodeBody(); err != nil {
			t.Fatal(err)
		}
		if change(&transaction); transaction.Validate() == nil {
			t.Errorf("%s is taken", name)
		}
	}
}

// TestDetailsNeedTheirVersion: a chain of the version before leaves them out.
func TestDetailsNeedTheirVersion(t *testing.T) {
	t.Parallel()
	chain, acme, _ := holdsChain(t, ledger.AccountTermsVersion)
	block := chain.block(acme.Bundle(withKey(acme.Transfer("acme:a", "acme:b", 1), "k")),
		acme.Bundle(acme.Transfer("acme:a", "acme:b", 1)))
	if keys, _ := chain.state.DetailCounts(); block.Len() != 1 || keys != 0 {
		t.Errorf("a block of %d, and %d keys", block.Len(), keys)
	}
}

// TestLeastAmountIsRefunded: what was given back of a posting of -2^127 never makes its rest change
// its sign, and the greatest amounts do not overflow.
func TestLeastAmountIsRefunded(t *testing.T) {
	t.Parallel()
	chain, acme, shop := holdsChain(t, ledger.DetailsVersion)
	most, _ := ledger.ParseAmount("170141183460469231731687303715884105727")
	post := func(c *ledgertest.Client, from, to ledger.AccountPath,
		amount ledger.Amount) ledger.Transaction {
		transaction := c.Transfer(from, to, 1)
		transaction.Postings[0].Amount, transaction.Postings[1].Amount =
			ledger.Amount{}.Minus(amount), amount
		for i := range transaction.Postings {
			transaction.Postings[i].Asset = "gold"
		}
		return transaction
	}
	until := chain.parent.Header.Time + 100_000
	expect := func(code ledger.Code, bundle *ledger.Bundle) {
		t.Helper()
		if got := chain.result(bundle); got.Code != code {
			t.Errorf("%s, want %s", got, code)
		}
	}
	sale := acme.Bundle(refundableUntil(post(acme, "acme:issuer", "shop:a", most), until))
	expect(ledger.Applied, sale)
	expect(ledger.Applied, shop.Bundle(refundOf(post(shop, "shop:a", "acme:issuer",
		ledger.NewAmount(1)), sale.ID(0), "acme")))
	expect(ledger.RefundExceeded, shop.Bundle(refundOf(post(shop, "shop:a", "acme:issuer", most),
		sale.ID(0), "acme")))
	rest, _ := most.Sub(ledger.NewAmount(1))
	expect(ledger.Applied, shop.Bundle(refundOf(post(shop, "shop:a", "acme:issuer", rest),
		sale.ID(0), "acme")))
	if _, there := chain.state.Refundable(sale.ID(0)); there {
		t.Error("nothing is left, and it is remembered")
	}
}

// detailed are airlines in a book that takes details.
func detailed(t *testing.T) *airlines {
	genesis := ledgertest.ShardedGenesis(1, 0, 0, 0)
	genesis.Version = ledger.DetailsVersion
	return newAirlinesOf(t, genesis)
}

// sell has an organisation pay another one, which can be refunded, with a key.
func (a *airlines) sell(from, to, amount int, key string) ledger.Hash {
	t := refundableUntil(a.transfer(from, to, amount), a.time+1000)
	t.Deadline, t.Details.Key = a.time+50, key
	return a.enter(t)
}

// refund has an organisation refund what another one paid it.
func (a *airlines) refund(sale ledger.Hash, from, to, amount int) ledger.Hash {
	t := refundOf(a.transfer(to, from, amount), sale, a.clients[from].Organisation)
	t.Deadline = a.time + 50
	return a.enter(t)
}

// TestDetailsAcrossShards: the home of the payer decides on a refund. One refund waits at a time,
// and one that is refused gives back what it took. A key of a transaction that is refused is free.
func TestDetailsAcrossShards(t *testing.T) {
	t.Parallel()
	a := detailed(t)
	sale := a.sell(1, 2, 60, "order")
	early := a.refund(sale, 1, 2, 1)
	a.flush()
	a.expect(sale, relayed, setAside, setAside)
	a.expect(early, relayed, int(ledger.RefundWaits), setAside)
	first, second := a.refund(sale, 1, 2, 40), a.refund(sale, 1, 2, 20)
	a.flush()
	a.expect(first, relayed, setAside, setAside)
	a.expect(second, relayed, int(ledger.RefundWaits), setAside)
	left, _ := a.shards[1].state.Refundable(sale)
	if left.Left[0].Amount.Sign()*left.Left[1].Amount.Sign() >= 0 ||
		left.Left[0].Amount != ledger.NewAmount(-20) {
		t.Errorf("%+v", left)
	}
	more := a.refund(sale, 1, 2, 21)
	a.flush()
	a.expect(more, relayed, int(ledger.RefundExceeded), setAside)
	again := a.sell(1, 2, 1, "order")
	a.flush()
	a.expect(again, relayed, int(ledger.KeyTaken), setAside)
	// Shard 2 refuses for want of money.
	poor := a.sell(2, 1, 10_000, "poor")
	refused := refundableUntil(a.transfer(1, 2, 1), a.time+1000)
	refused.Details.Key, refused.Deadline = "free", a.time+50
	refused.Postings[1].Account = "org2:none"
	id := a.enter(refused)
	a.flush()
	a.expect(poor, relayed, setAside, int(ledger.InsufficientFunds))
	a.expect(id, relayed, setAside, int(ledger.UnknownAccount))
	if _, taken := a.shards[1].state.Key("org1", "free"); taken {
		t.Error("the key of a transaction that was refused is not free")
	}
	if _, there := a.shards[1].state.Refundable(id); there {
		t.Error("what never happened can be refunded")
	}
	good := a.sell(1, 2, 1, "free")
	a.flush()
	a.expect(good, relayed, setAside, setAside)
	a.checkEnd()
}

// TestRefusedRefundGivesBack: another shard refuses a refund while it waits. Meanwhile what is left
// does not lapse, and the state can be restored.
func TestRefusedRefundGivesBack(t *testing.T) {
	t.Parallel()
	a := detailed(t)
	sale := a.sell(1, 2, 60, "")
	a.flush()
	spend := a.transfer(2, 0, 150)
	spend.Deadline = a.time + 50
	a.enter(spend)
	a.flush()
	refund := a.refund(sale, 1, 2, 60) // org2:a has 10
	a.round(0, &ledger.Batch{Bundles: [][]byte{a.inbox[0][0].Encode()}})
	a.inbox[0] = nil
	a.round(1, &ledger.Batch{Carried: a.stream(1)})
	s := a.shards[1].state
	left, _ := s.Refundable(sale)
	if left.Waits != refund || left.Left[0].Amount.Sign() != 0 {
		t.Errorf("%+v", left)
	}
	restoredFrom(t, a.shards[1].genesis, s)
	a.time += 2000
	a.enter(a.clients[1].Transfer("org1:a", "org1:b", 1))
	a.round(1, &ledger.Batch{Bundles: [][]byte{a.inbox[1][0].Encode()}})
	a.inbox[1] = nil
	if _, there := s.Refundable(sale); !there {
		t.Fatal("what waits has lapsed")
	}
	foreseen := func() ledger.Code {
		again := refundOf(a.transfer(2, 1, 1), sale, a.clients[1].Organisation)
		return s.Foreseen(&again, a.shards[1].parent.Header.Time, true)
	}
	if code := foreseen(); code != ledger.Applied {
		t.Errorf("%s is foreseen while another refund waits", code)
	}
	a.round(2, &ledger.Batch{Carried: a.stream(2)})
	a.round(1, &ledger.Batch{Verdicts: a.waiting(1)})
	left, _ = s.Refundable(sale)
	if left.Waits != (ledger.Hash{}) || left.Left[0].Amount != ledger.NewAmount(-60) {
		t.Errorf("%+v", left)
	}
	if code := foreseen(); code != ledger.RefundOver {
		t.Errorf("%s is foreseen of an entry that is over and has not lapsed", code)
	}
	a.enter(a.clients[1].Transfer("org1:a", "org1:b", 1))
	a.flush()
	if _, there := s.Refundable(sale); there {
		t.Error("it has not lapsed")
	}
	a.checkEnd()
}

// TestDetailsMove: an organisation takes its keys and refundable entries along.
func TestDetailsMove(t *testing.T) {
	t.Parallel()
	a := detailed(t)
	sale := a.sell(1, 2, 60, "order")
	a.flush()
	a.refund(sale, 1, 2, 20)
	a.flush()
	a.submit(0, ledgertest.Signed(ledger.Operator, []string{"operator"}, ledger.Transaction{
		Ledger: a.shards[0].genesis.Book(), Book: &ledger.BookChange{Number: 1,
			Move: &ledger.OrganisationMove{Organisation: "org1", To: 0}}}))
	a.flush()
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
	restoredFrom(t, a.shards[0].genesis, s)
	restoredFrom(t, a.shards[1].genesis, old)
	again, more := a.sell(1, 2, 1, "order"), a.refund(sale, 1, 2, 41)
	a.flush()
	rest := a.refund(sale, 1, 2, 40)
	a.flush()
	for id, want := range map[ledger.Hash]int{again: int(ledger.KeyTaken),
		more: int(ledger.RefundExceeded), rest: setAside} {
		if got := a.result(0, id); got != want {
			t.Errorf("at the new home: %d, want %d", got, want)
		}
	}
	if _, left := s.DetailCounts(); left != 0 {
		t.Errorf("%d refundable entries are left", left)
	}
}

// TestRefundsNeverExceed goes through random refunds that race each other, and adds up what took
// effect.
func TestRefundsNeverExceed(t *testing.T) {
	t.Parallel()
	refunded := 0
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 11))
		a := detailed(t)
		type sold struct {
			id           ledger.Hash
			from, to, of int
			refunds      map[ledger.Hash]int
		}
		var sales []sold
		for range 30 {
			from, to := random.IntN(3), random.IntN(3)
			switch {
			case from == to:
			case random.IntN(3) == 0 || len(sales) == 0:
				of := 1 + random.IntN(40)
				sales = append(sales, sold{a.sell(from, to, of,
					fmt.Sprint("key", random.IntN(6))), from, to, of, make(map[ledger.Hash]int)})
			default:
				s := &sales[random.IntN(len(sales))]
				amount := 1 + random.IntN(s.of)
				s.refunds[a.refund(s.id, s.from, s.to, amount)] = amount
			}
			if random.IntN(3) == 0 {
				a.flush()
			}
		}
		a.flush()
		tookEffect := func(s *sold, id ledger.Hash) bool {
			return a.result(s.from, id) == setAside && a.result(s.to, id) == setAside
		}
		for i := range sales {
			s := &sales[i]
			rest := 0
			if tookEffect(s, s.id) {
				rest = s.of
			}
			for id, amount := range s.refunds {
				if tookEffect(s, id) {
					rest -= amount
					refunded++
				}
			}
			left, there := a.shards[s.from].state.Refundable(s.id)
			if there != (rest > 0) || rest < 0 || there &&
				left.Left[0].Amount != ledger.NewAmount(-int64(rest)) {
				t.Errorf("seed %d: %+v is left, want %d", seed, left, rest)
			}
		}
		a.checkEnd()
	}
	if refunded < 50 {
		t.Errorf("only %d refunds took effect", refunded)
	}
}
