package node_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
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
				b := newBookOf(t, vouched, 1, 0, 0)
				var moved atomic.Int64
				right := func() time.Time { return time.Now() }
				b.clocks = []func() time.Time{right, right, right, right}
				b.clocks[away] = func() time.Time {
					return time.Now().Add(time.Duration(moved.Load()))
				}
				b.open()
				b.stop(away)
				moved.Store(int64(20 * time.Minute * time.Duration(2*away-1)))
				present := b.replaceAll(1-away, 2)
				b.start(away)
				b.finds(away, 1-away, present)
				b.finds(present, away, away)
				paying, other := b.pay(1-away, away, 3), b.pay(away, 1-away, 5)
				b.executed(b.submitAt(present, paying))
				b.executed(b.submitAt(away, other))
				for shard, k := range map[int]int{away: away, 1 - away: present} {
					amount := ledger.NewAmount(998)
					if shard == 1-away {
						amount = ledger.NewAmount(1002)
					}
					b.eventually(fmt.Sprintf("shard %d has %s", shard, amount), func() bool {
						account, _ := b.nodes[k].Store().Account(b.clients[shard].Account("a"))
						return account.Balance(ledger.DefaultAsset) == amount
					})
				}
				b.stop(away)
				b.stop(present)
				b.start(away)
				if names := b.seen(away, 1-away); len(names) != 1 ||
					names[0] != b.homes[present].Name()+" silent" {
					t.Errorf("after a restart: %v", names)
				}
			})
		}
	}
}

// replaceAll replaces the one member of a shard several times, and returns the last one.
func (b *book) replaceAll(shard, times int) (present int) {
	b.t.Helper()
	present = shard
	operator := ledgertest.NewOperator(b.homes[shard].Genesis)
	for range times {
		joined := b.join(operator, present)
		b.start(joined)
		b.ordering(present, joined)
		b.order(joined, func() *ledger.Bundle {
			return operator.Leave(ledger.MemberIndex(b.homes[present].Self))
		})
		b.ended(present)
		b.gone[present] = true
		present = joined
	}
	return present
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

// finds waits until a node sees that the one member of a shard orders.
func (b *book) finds(at, shard, member int) {
	b.t.Helper()
	want := []string{b.homes[member].Name() + " ordering"}
	b.eventually(fmt.Sprintf("node %d finds node %d", at, member), func() bool {
		return slices.Equal(b.seen(at, shard), want)
	})
}
