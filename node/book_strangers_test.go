package node_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/client"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
	"github.com/ledgerd/ledgerd/node/report"
)

// All members of one of two shards are replaced while the other shard is away, which comes back
// with a clock that was moved. There is no third shard to tell it who they are. They introduce
// themselves.
func TestReplacedShardIntroducesItself(t *testing.T) {
	t.Parallel()
	for _, vouched := range []bool{true, false} {
		for away, name := range []string{"the one above is away", "the one below is away"} {
			t.Run(fmt.Sprintf("%s, vouched: %t", name, vouched), func(t *testing.T) {
				t.Parallel()
				// With two members, those that stay can certify what the last member did.
				b := newBookOf(t, vouched, 2, 0, 0)
				var moved atomic.Int64
				for k := range 2 * len(b.nodes) {
					b.clocks = append(b.clocks, func() time.Time {
						if k/2 == away {
							return time.Now().Add(time.Duration(moved.Load()))
						}
						return time.Now()
					})
				}
				b.open()
				for _, k := range b.of(away) {
					b.stop(k)
				}
				moved.Store(int64(20 * time.Minute * time.Duration(2*away-1)))
				present := b.replaceAll(1 - away)
				b.start(b.of(away)...)
				b.ordering(b.of(away)...)
				b.find(b.of(away), 1-away, present)
				b.find(present, away, b.of(away))
				b.executed(b.submitOnceBack(present[0], b.pay(1-away, away, 3)))
				b.executed(b.submitOnceBack(2*away, b.pay(away, 1-away, 5)))
				for _, k := range append(b.of(away), present...) {
					b.stop(k)
				}
				b.start(2 * away) // from its file
				if names, want := b.seen(2*away, 1-away), b.names(present, "silent"); !slices.Equal(
					names, want) {
					t.Errorf("after a restart: %v, want %v", names, want)
				}
			})
		}
	}
}

// submitOnceBack is submitAt for a transaction that crosses to a shard which was down: a node may
// hear from its members again before it takes such transactions.
func (b *book) submitOnceBack(k int, transaction ledger.Transaction) (
	statuses []*ledgerdv1.TransactionStatus) {
	b.t.Helper()
	signed := b.signed(transaction)
	b.eventually(fmt.Sprintf("node %d takes what crosses to a shard that was down", k),
		func() bool {
			ctx, cancel := context.WithTimeout(b.t.Context(), 60*time.Second)
			defer cancel()
			var err error
			statuses, err = b.via(k).Submit(ctx, signed, ledgerdv1.Level_LEVEL_DURABLE)
			var failure *client.Failure
			if err != nil && (!errors.As(err, &failure) ||
				failure.Reason != report.ReasonShardDown) {
				b.t.Fatalf("submitting to node %d: %v", k, err)
			}
			return err == nil
		})
	return statuses
}

// replaceAll replaces the members of a shard, one after the other, and returns the new ones.
func (b *book) replaceAll(shard int) (present []int) {
	b.t.Helper()
	present = b.of(shard)
	operator := ledgertest.NewOperator(b.homes[present[0]].Genesis)
	for _, old := range b.of(shard) {
		joined := b.join(operator, old)
		b.start(joined)
		present = append(present, joined)
		b.ordering(present...)
		b.order(joined, func() *ledger.Bundle {
			return operator.Leave(ledger.MemberIndex(b.homes[old].Self))
		})
		b.ended(old)
		b.gone[old] = true
		present = present[1:]
		b.ordering(present...)
	}
	return present
}

// names returns the names of nodes, with a mode.
func (b *book) names(which []int, mode string) (names []string) {
	for _, k := range which {
		names = append(names, b.homes[k].Name()+" "+mode)
	}
	return names
}

// seen returns the names and modes of a shard's members at a node.
func (b *book) seen(at, shard int) (names []string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), 10*time.Second)
	defer cancel()
	tree, err := b.via(at).Tree(ctx)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, member := range tree.GetShards()[shard].GetMembers() {
		names = append(names, member.GetName()+" "+member.GetMode())
	}
	return names
}

// find waits until nodes see that these members of a shard order, and no others.
func (b *book) find(which []int, shard int, members []int) {
	b.t.Helper()
	want := b.names(members, "ordering")
	for _, at := range which {
		b.eventually(fmt.Sprintf("node %d finds nodes %v", at, members), func() bool {
			return slices.Equal(b.seen(at, shard), want)
		})
	}
}
