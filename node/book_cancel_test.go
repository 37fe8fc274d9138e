package node_test

import (
	"context"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/client"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// A signer cancels payments at the shards that these concern, through any node: before the shard
// has the payment, after it has agreed while another one is down, and after the payment took
// effect. A shard that was restarted remembers.
func TestPaymentsAreCancelled(t *testing.T) {
	t.Parallel()
	b := newBook(t, 1, 0, 0, 0)
	b.open()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cancelAt := func(k int, payment *ledger.Bundle, by, shard int, want client.Withdrawn) {
		t.Helper()
		name := b.clients[by].Organisation
		got, err := b.via(k).Cancel(ctx, []client.Key{client.NewKey(name,
			ledgertest.Key(string(name)))}, payment.ID(0), payment.Transaction(0).Deadline,
			ledger.ShardID(shard))
		if err != nil || got.Withdrawn() != want || int(got.Shard) != shard {
			t.Fatalf("cancelling at shard %d: %+v, %v; want %d", shard, got, err, want)
		}
	}
	submit := func(k int, payment *ledger.Bundle) *ledgerdv1.TransactionStatus {
		t.Helper()
		statuses, err := b.via(k).Submit(ctx, payment, ledgerdv1.Level_LEVEL_DURABLE)
		if err != nil {
			t.Fatal(err)
		}
		return statuses[0]
	}
	ahead, strangers := b.signed(b.pay(1, 2, 10)), b.signed(b.pay(1, 2, 20))
	cancelAt(0, ahead, 1, 2, client.WithdrawnInTime)
	cancelAt(1, strangers, 0, 2, client.WithdrawnInTime) // as far as the shard can tell
	b.stop(2)
	b.start(2)
	if status := submit(1, ahead); status.GetReasonCode() != api.ReasonCode(ledger.Cancelled) {
		t.Errorf("%v", status)
	}
	b.executed([]*ledgerdv1.TransactionStatus{submit(2, strangers)})
	for shard := 1; shard <= 2; shard++ {
		cancelAt(shard, strangers, 1, shard, client.WithdrawnTooLate)
	}
	b.stop(2)
	waiting := b.signed(b.pay(1, 2, 30))
	if _, err := b.via(1).SubmitInOrder(ctx, []*ledger.Bundle{waiting},
		ledger.Hash{}); err != nil {
		t.Fatal(err)
	}
	b.eventually("it waits for shard 2", func() bool {
		return len(b.status(1, waiting.ID(0)).GetStatus().GetWaitsFor()) > 0
	})
	cancelAt(0, waiting, 1, 1, client.WithdrawnUndecided)
	b.start(2)
	b.executed([]*ledgerdv1.TransactionStatus{b.settled(1, waiting.ID(0))})
	b.holds(1, 1000-20-30)
	b.holds(2, 1000+20+30)
}
