package node_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/client"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/state"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
	"github.com/ledgerd/ledgerd/node/report"
)

// offer submits a bundle to a node, for admission only, as a client that queues or not.
func (b *book) offer(k int, bundle *ledger.Bundle, queue bool) error {
	b.t.Helper()
	c, err := client.New([]string{b.nodes[k].URL()}, client.Options{Queue: queue})
	if err != nil {
		b.t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(b.t.Context(), 60*time.Second)
	defer cancel()
	_, err = c.Submit(ctx, bundle, ledgerdv1.Level_LEVEL_ADMITTED)
	return err
}

// While all shards are up, nothing is refused. Once a shard has been down for refuse_after, the
// nodes of the others refuse what crosses to it, and let the rest go on. With queue it waits. When
// the shard is back, everything that waited is decided, and nothing is refused any more.
func TestNodesRefuseWhatCrossesToAShardThatIsDown(t *testing.T) {
	t.Parallel()
	b := newBook(t, 1, 0, 0, 0)
	for _, h := range b.homes {
		// A busy machine may starve a shard that is up for seconds.
		h.Config.Shards.RefuseAfter = 10 * time.Second
	}
	b.open()
	sent := int64(0)
	payment := func() *ledger.Bundle { return b.signed(b.pay(1, 2, 1)) }
	isDown := func(err error) bool {
		failure := (*client.Failure)(nil)
		return errors.As(err, &failure) && failure.Reason == report.ReasonShardDown &&
			failure.Code == connect.CodeUnavailable
	}
	for _, k := range b.all() {
		b.executed(b.submitAt(k, b.pay(1, 2, 1)))
		sent++
	}
	b.stop(2)
	early := payment()
	if err := b.offer(1, early, true); err != nil {
		t.Fatal(err)
	}
	sent++
	for _, k := range []int{0, 1} {
		b.eventually("a crossing is refused", func() bool {
			// More than there is: what is taken until then fails and leaves the balances alone.
			err := b.offer(k, b.signed(b.pay(1, 2, 1e6)), false)
			if err != nil && !isDown(err) {
				t.Fatalf("node %d: %v", k, err)
			}
			return err != nil
		})
	}
	for _, k := range []int{0, 1} {
		if err := b.offer(k, early, false); err != nil {
			t.Errorf("node %d refuses what is in the chains: %v", k, err)
		}
		queued := payment()
		if err := b.offer(k, queued, true); err != nil {
			t.Errorf("node %d, with queue: %v", k, err)
		}
		sent++
		b.eventually("it waits for shard 2", func() bool {
			return slices.Equal(b.status(k, queued.ID(0)).GetStatus().GetWaitsFor(), []uint32{2})
		})
		b.executed(b.submitAt(k, b.pay(1, 0, 1)))
		b.executed(b.submitAt(k, b.pay(0, 1, 1)))
	}
	b.start(2)
	// Its node believes what it hears: the others are up.
	b.executed([]*ledgerdv1.TransactionStatus{b.settled(2, early.ID(0))})
	for _, k := range b.all() {
		b.eventually("a crossing is taken again", func() bool {
			err := b.offer(k, payment(), false)
			if err == nil {
				sent++
			} else if !isDown(err) && client.CodeOf(err) != connect.CodeUnavailable {
				t.Fatalf("node %d: %v", k, err)
			}
			return err == nil
		})
	}
	b.holds(2, 1000+sent)
	b.holds(1, 1000-sent)
}

// While a shard is down, most of the transactions that may wait in another shard wait for it. Then
// the node where more enter refuses them, in a third shard: none is ordered only to fail.
func TestNodesRefuseWhatCrossesToAShardThatIsFull(t *testing.T) {
	if testing.Short() {
		t.Skip("tens of thousands of crossings")
	}
	t.Parallel()
	b := newBook(t, 1, 0, 0, 0)
	for _, h := range b.homes {
		h.Config.Shards.RefuseAfter = time.Hour // the shard does not count as down
	}
	b.open()
	issuer := b.clients[1].Account("issuer")
	payments := func() *ledger.Bundle {
		transactions := make([]ledger.Transaction, 2048)
		for i := range transactions {
			transactions[i] = b.clients[1].Transfer(issuer, b.clients[2].Account("a"), 1)
			transactions[i].Deadline = soon(time.Hour)
		}
		return b.signed(transactions...)
	}
	b.stop(2)
	sent := 0
	for {
		bundle := payments()
		err := b.offer(0, bundle, false)
		// A busy node may not answer in time. The bundle has the same bytes, so it counts once.
		for range 5 {
			if !errors.Is(err, client.ErrOutcomeUnknown) {
				break
			}
			err = b.offer(0, bundle, false)
		}
		failure := (*client.Failure)(nil)
		if errors.As(err, &failure) && failure.Reason == report.ReasonShardFull {
			if failure.Code != connect.CodeResourceExhausted ||
				!strings.Contains(failure.Message, "shard 1 is full since") {
				t.Errorf("%v", err)
			}
			break
		}
		if err != nil || sent > state.MaxWaiting {
			t.Fatalf("after %d: %v", sent, err)
		}
		sent += bundle.Len()
		b.eventually("they wait for shard 2", func() bool {
			return b.nodes[1].Store().PendingCount() >= sent
		})
	}
	if sent < state.MaxWaiting/2 || b.nodes[1].Store().WaitingFor(2) != sent {
		t.Errorf("%d were taken, %d wait", sent, b.nodes[1].Store().WaitingFor(2))
	}
	b.executed(b.submitAt(0, b.pay(1, 0, 1))) // which does not concern shard 2
}
