package node_test

import (
	"context"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// outcome submits a transaction to a node, and returns its outcome once that is durable, or once a
// node foresaw it.
func (b *book) outcome(k int, bundle *ledger.Bundle) *ledgerdv1.TransactionStatus {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), 60*time.Second)
	defer cancel()
	statuses, err := b.via(k).Submit(ctx, bundle, ledgerdv1.Level_LEVEL_DURABLE)
	if err != nil {
		b.t.Fatalf("submitting to node %d: %v", k, err)
	}
	return statuses[0]
}

// In a book of several shards, each node hands a bundle to the shard where it enters. If that is
// the home of an organisation that makes it fail, it is in no block of any shard. Elsewhere, and
// once the organisation has moved, a block decides. What took effect before is never refused.
func TestWhatMustFailCostsNoBlockOfAnyShard(t *testing.T) {
	t.Parallel()
	b := newBook(t, 1, 0, 0, 0)
	b.open()
	spent := make([]ledger.Nonce, 3)
	var first []*ledger.Bundle
	for shard, c := range b.clients {
		payment := c.Transfer(c.Account("a"), c.Account("b"), 1)
		spent[shard] = payment.Nonce
		first = append(first, b.signed(payment))
		b.executed([]*ledgerdv1.TransactionStatus{b.outcome(shard, first[shard])})
	}
	held := b.signed(b.clients[0].PlaceHold("org0:a", "org1:a", 10, soon(time.Hour)))
	b.executed([]*ledgerdv1.TransactionStatus{b.outcome(0, held)})
	end := func(amount int64) ledger.Transaction {
		ends := b.clients[1].EndHold(held.ID(0), "org0:a", "org1:a", amount)
		ends.Deadline = soon(time.Hour)
		return ends
	}
	b.executed(b.submitAt(1, end(10)))
	within := func(shard int) func(int64) ledger.Transaction {
		return func(amount int64) ledger.Transaction {
			c := b.clients[shard]
			payment := c.Transfer(c.Account("a"), c.Account("b"), amount)
			payment.Nonce = spent[shard]
			return payment
		}
	}
	across := func(from, to int) func(int64) ledger.Transaction {
		return func(amount int64) ledger.Transaction {
			payment := b.pay(from, to, amount)
			payment.Nonce = spent[from]
			return payment
		}
	}
	late := func(amount int64) ledger.Transaction {
		payment := b.pay(0, 2, amount)
		payment.Deadline = b.nodes[0].Store().Head().Time
		return payment
	}
	var refused []ledger.Hash
	amount := int64(1)
	for _, each := range []struct {
		what     string
		make     func(amount int64) ledger.Transaction
		code     ledger.Code
		foreseen bool
	}{
		{"stale in the shard where all enters", within(0), ledger.StaleNonce, true},
		{"stale in another shard", within(1), ledger.StaleNonce, true},
		{"stale at home, where it enters, and crosses", across(0, 2), ledger.StaleNonce, true},
		{"stale at a home where it does not enter", across(1, 2), ledger.StaleNonce, false},
		{"late where it enters", late, ledger.DeadlinePassed, true},
		{"the end of a hold that was posted", end, ledger.UnknownHold, true},
	} {
		for _, k := range b.all() {
			what := each.what
			b.eventually(what+" fails", func() bool {
				amount++
				bundle := b.signed(each.make(amount))
				status := b.outcome(k, bundle)
				if status.GetReasonCode() != api.ReasonCode(each.code) ||
					status.GetState() != ledgerdv1.TransactionState_TRANSACTION_STATE_FAILED {
					t.Fatalf("%s, at node %d: %v", what, k, status)
				}
				if status.GetHeight() == 0 {
					if !each.foreseen {
						t.Fatalf("%s, at node %d: foreseen: %v", what, k, status)
					}
					refused = append(refused, bundle.ID(0))
				}
				// A block may take longer than a refusal waits for it to be durable.
				return !each.foreseen || status.GetHeight() == 0
			})
		}
	}
	b.executed(b.submitAt(0, b.pay(0, 1, 1)))
	b.executed(b.submitAt(0, b.pay(1, 2, 1)))
	for _, k := range b.all() {
		for _, id := range refused {
			if known, err := b.nodes[k].Store().Known(id); known || err != nil {
				t.Errorf("node %d has a refused transaction in a block (%v)", k, err)
			}
		}
		for shard := range first {
			if status := b.outcome(k, first[shard]); status.GetState() !=
				ledgerdv1.TransactionState_TRANSACTION_STATE_DURABLE {
				t.Errorf("node %d, what took effect in shard %d: %v", k, shard, status)
			}
		}
	}
	b.executed([]*ledgerdv1.TransactionStatus{b.outcome(0, b.move(1, 2, 1))})
	b.eventually("the organisation has arrived", func() bool {
		_, err := b.nodes[1].Store().Account(b.clients[2].Account("a"))
		return err == nil
	})
	for _, k := range b.all() {
		amount++
		stale := b.signed(within(2)(amount))
		if status := b.outcome(k, stale); status.GetHeight() == 0 ||
			status.GetReasonCode() != api.ReasonCode(ledger.StaleNonce) {
			t.Errorf("node %d, after the move: %v", k, status)
		}
		if status := b.outcome(k, first[2]); status.GetState() !=
			ledgerdv1.TransactionState_TRANSACTION_STATE_DURABLE {
			t.Errorf("node %d, what took effect before the move: %v", k, status)
		}
	}
}
