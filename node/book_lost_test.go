package node_test

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/rdmanet/memory"
)

// blockless is a host that gets no blocks from others for a while.
type blockless struct {
	*memory.Host
	over *atomic.Bool
}

func (b blockless) Lane(to rdmanet.PeerID, name string) (rdmanet.Lane, error) {
	if name == "blocks" && !b.over.Load() {
		return nil, fmt.Errorf("lane %q: %w", name, rdmanet.ErrNotMember)
	}
	return b.Host.Lane(to, name)
}

// A shard is away. The member of the shard above that had all blocks is lost, and leaves, before
// the others, which began with snapshots, could fetch what is owed. The nodes of all shards say so
// once the shard is back and it is overdue, and how much it is.
func TestLostEntriesAreNamed(t *testing.T) {
	t.Parallel()
	b := newBook(t, 1, 0, 0, 0)
	var ahead atomic.Int64
	var over atomic.Bool
	for range 5 {
		b.clocks = append(b.clocks, func() time.Time {
			return time.Now().Add(time.Duration(ahead.Load()))
		})
	}
	b.hosts = func(k int, host rdmanet.Host) rdmanet.Host {
		if k >= 3 {
			return blockless{host.(*memory.Host), &over}
		}
		return host
	}
	b.open()
	b.holds(1, 1000)
	b.stop(1)
	number := b.nodes[0].Store().Streamed(1)
	for range 2 {
		if err := b.offer(0, b.signed(b.pay(0, 1, 5)), true); err != nil {
			t.Fatal(err)
		}
	}
	b.eventually("the payments are on their way", func() bool {
		return b.nodes[0].Store().Streamed(1) == number+2
	})
	b.executed(b.submitAt(0, b.clients[0].Transfer(b.clients[0].Account("a"),
		b.clients[0].Account("b"), 1)))
	operator := ledgertest.NewOperator(b.homes[0].Genesis)
	joiner := b.joinWithSnapshot(operator, 0)
	b.start(joiner)
	b.ordering(0, joiner)
	another := b.joinWithSnapshot(operator, 0)
	b.start(another)
	b.ordering(0, joiner, another)
	b.stop(0)
	b.ordering(joiner, another)
	b.order(joiner, func() *ledger.Bundle { return operator.Leave(0) })
	b.gone[0] = true
	over.Store(true)
	b.start(1)
	lost := func(k int) *ledgerdv1.ShardWait {
		tree, err := b.via(k).Tree(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		above := tree.GetShards()[0].GetUntakenBy()
		at := slices.IndexFunc(above, func(wait *ledgerdv1.ShardWait) bool {
			return wait.GetShard() == 1 && wait.GetLost() > 0
		})
		if lacks := tree.GetShards()[1].GetLacks(); at < 0 || lacks.GetShard() != 0 ||
			lacks.GetLost() != above[at].GetLost() {
			return nil
		}
		return above[at]
	}
	for _, k := range []int{1, 2, joiner} {
		if wait := lost(k); wait != nil {
			t.Errorf("node %d says at once that something is lost: %v", k, wait)
		}
	}
	ahead.Store(int64(2 * time.Minute))
	for _, k := range []int{1, 2, joiner} {
		b.eventually(fmt.Sprintf("node %d says what is lost", k), func() bool {
			wait := lost(k)
			return wait != nil && wait.GetLost() == 2 &&
				wait.GetLostHeight() == uint64(b.nodes[joiner].Store().Absent())
		})
	}
	if lacks := b.nodes[1].State().Waiting.Lacks; lacks.Lost != 2 || lacks.Shard != 0 {
		t.Errorf("%+v", lacks)
	}
}
