package node_test

import (
	"errors"
	"slices"
	"testing"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/client"
	"github.com/ledgerd/ledgerd/ledger"
	ledgerbook "github.com/ledgerd/ledgerd/ledger/book"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/ledger/store"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
	"github.com/ledgerd/ledgerd/node/report"
)

// among returns a payment of an organisation to two others.
func (b *book) among(from, to, other int, amount int64) ledger.Transaction {
	payment := b.pay(from, to, amount)
	payment.Postings = append(payment.Postings, b.pay(from, other, amount).Postings...)
	return payment
}

// settleWith settles with a lost shard, through a node.
func (b *book) settleWith(k int, number uint64, shard ledger.ShardID) {
	b.t.Helper()
	operator := &ledgertest.Operator{Ledger: b.homes[k].Genesis.Book()}
	bundle := operator.Bundle("operator", operator.ChangeBook(ledger.BookChange{Number: number,
		Loss: &ledger.ShardLoss{Shard: shard}}))
	statuses, err := b.via(k).Submit(b.t.Context(), bundle, ledgerdv1.Level_LEVEL_DURABLE)
	if err != nil {
		b.t.Fatal(err)
	}
	b.executed(statuses)
}

// offered submits a bundle to a node, for admission only.
func (b *book) offered(k int, transaction ledger.Transaction) ledger.Hash {
	b.t.Helper()
	bundle := b.signed(transaction)
	if err := b.offer(k, bundle, true); err != nil {
		b.t.Fatal(err)
	}
	return bundle.ID(0)
}

// waitsFor waits until a shard's node says that a transaction waits for these shards.
func (b *book) waitsFor(k int, id ledger.Hash, shards ...uint32) {
	b.t.Helper()
	b.eventually("it waits", func() bool {
		for _, each := range b.nodes[k].Store().Pending() {
			var waits []uint32
			for _, shard := range each.WaitsFor(ledger.ShardID(k / b.members)) {
				waits = append(waits, uint32(shard))
			}
			if each.ID == id && slices.Equal(waits, shards) {
				return true
			}
		}
		return false
	})
}

// Shard 3 stops for ever. One payment has its verdict in one shard, and takes effect in all others.
// The rest is released. Then nothing that concerns the shard is taken, the others go on, and their
// balances add up to what they gave to shard 3.
func TestSettlementWithALostShard(t *testing.T) {
	t.Parallel()
	for _, vouched := range []bool{true, false} {
		name := "vouched"
		if !vouched {
			name = "trusting"
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBookOf(t, vouched, 1, 0, 0, 0, 0)
			b.open()
			if !vouched {
				b.raise()
			}
			b.lose()
		})
	}
}

// addUp checks the books of the shards that are left: by themselves, and as a reader sees them.
func (b *book) addUp() {
	b.t.Helper()
	stores := make([]*store.Store, len(b.tree)) // none of shard 3
	for k := range 3 {
		stores[k] = b.nodes[k].Store()
	}
	found, err := ledgerbook.Check(b.t.Context(), stores, nil)
	if err != nil || !slices.Equal(found.Lost, []ledger.ShardID{3}) ||
		found.LostAmounts[ledger.DefaultAsset] != "130" {
		b.t.Errorf("%+v: %v", found, err)
	}
	stores[2] = nil
	if _, err := ledgerbook.Check(b.t.Context(), stores, nil); !errors.Is(err,
		ledgerbook.ErrStores) {
		b.t.Errorf("without shard 2: %v", err)
	}
	for k := range 3 {
		sum, some := ledger.Amount{}, false
		cut, err := b.via(k).Cut(b.t.Context(), nil)
		if err != nil {
			b.t.Fatal(err)
		}
		for account, err := range b.via(k).AccountsAt(b.t.Context(), "", cut.GetPlaces()) {
			if err != nil {
				b.t.Fatal(err)
			}
			some = true
			for _, balance := range account.GetBalances() {
				amount, err := ledger.ParseAmount(balance.GetAmount())
				if err == nil {
					sum, err = sum.Add(amount)
				}
				if err != nil {
					b.t.Fatal(err)
				}
			}
		}
		if !some || sum != ledger.NewAmount(-130) {
			b.t.Errorf("the balances at a cut add up to %s at node %d", sum, k)
		}
	}
}

// raise raises the version of an old book.
func (b *book) raise() {
	b.t.Helper()
	genesis := b.homes[0].Genesis
	charter := genesis.Charter()
	charter.Number, charter.Version = 1, ledger.NewestVersion
	operator := &ledgertest.Operator{Ledger: genesis.Book()}
	statuses, err := b.via(0).Submit(b.t.Context(), operator.Bundle("operator",
		operator.ChangeCharter(charter)), ledgerdv1.Level_LEVEL_DURABLE)
	if err != nil {
		b.t.Fatal(err)
	}
	b.executed(statuses)
	b.version = ledger.NewestVersion
}

func (b *book) lose() {
	t := b.t
	b.executed(b.submitAt(1, b.pay(1, 3, 100)))
	b.holds(3, 1100)
	// Shard 3 agrees while shard 2 is away, and shard 1 hears so.
	b.stop(2)
	heard := b.offered(1, b.among(1, 2, 3, 30))
	b.waitsFor(1, heard, 2)
	b.stop(3)
	b.start(2)
	b.waitsFor(2, heard, 3)
	unheard, alone := b.offered(1, b.among(1, 2, 3, 5)), b.offered(0, b.pay(0, 3, 7))
	b.waitsFor(1, unheard, 3)
	b.waitsFor(2, unheard, 3)
	b.waitsFor(0, alone, 3)
	b.settleWith(0, 1, 3)
	b.holds(0, 1000)
	b.holds(1, 1000-100-60)
	b.holds(2, 1000+30)
	b.executed([]*ledgerdv1.TransactionStatus{b.settled(2, heard)})
	for _, id := range []ledger.Hash{unheard, alone} {
		if status := b.settled(1, id); status.GetState() !=
			ledgerdv1.TransactionState_TRANSACTION_STATE_FAILED {
			t.Errorf("%v", status)
		}
	}
	for k := range 3 {
		for _, queue := range []bool{false, true} {
			b.eventually("what concerns shard 3 is refused", func() bool {
				err := b.offer(k, b.signed(b.pay(1, 3, 1)), queue)
				failure := (*client.Failure)(nil)
				return errors.As(err, &failure) && failure.Reason == report.ReasonShardLost &&
					failure.Code == connect.CodeFailedPrecondition
			})
		}
		b.eventually("it shows that shard 3 is lost", func() bool {
			tree, err := b.via(k).Tree(t.Context())
			return err == nil && tree.GetShards()[3].GetMode() == report.ShardLost.String()
		})
	}
	b.executed(b.submitAt(2, b.pay(2, 1, 3)))
	b.holds(1, 1000-100-60+3)
	b.addUp()
	// Shard 3 comes back and is not heard.
	b.start(3)
	b.executed(b.submitAt(0, b.pay(0, 2, 2)))
	b.holds(2, 1000+30-3+2)
	if streamed := b.nodes[0].Store().Streamed(3); b.nodes[3].Store().Carried() >= streamed {
		t.Errorf("shard 3 has taken all %d entries", streamed)
	}
}
