package node_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/dare"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
	"github.com/ledgerd/ledgerd/node/engine"
	"github.com/ledgerd/ledgerd/node/mempool"
)

// silentNeighbour is a member that learns nothing of other shards while it is silent.
type silentNeighbour struct {
	mempool.Beside
	silent *atomic.Bool
}

// Propose implements mempool.Beside.
func (s silentNeighbour) Propose(room int, use func(mempool.Input)) {
	if !s.silent.Load() {
		s.Beside.Propose(room, use)
	}
}

// Too few members of a shard hear its parent. They repeat what they believe, but rounds do not
// follow each other without a pause because of that. Once the others hear, the payment arrives.
func TestFewBelieversStartFewRounds(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		members, silent int
		engine          string
	}{
		"one of three":      {3, 2, engine.Default},
		"two of four":       {4, 2, engine.Default},
		"one of three, led": {3, 2, dare.EngineName},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBook(t, c.members, 0, 0)
			for _, home := range b.homes {
				home.Config.Ordering.Engine = c.engine
			}
			var silent atomic.Bool
			b.beside = map[int]func(mempool.Beside) mempool.Beside{}
			for _, k := range b.of(1)[c.members-c.silent:] {
				b.beside[k] = func(beside mempool.Beside) mempool.Beside {
					return silentNeighbour{beside, &silent}
				}
			}
			b.open()
			silent.Store(true)
			crossing := b.signed(b.pay(0, 1, 30))
			if _, err := b.via(0).SubmitInOrder(t.Context(), []*ledger.Bundle{crossing},
				ledger.Hash{}); err != nil {
				t.Fatal(err)
			}
			believer := b.nodes[c.members]
			before, begin := believer.NodeState().Engine.Round, time.Now()
			b.eventually("some seconds pass", func() bool {
				return time.Since(begin) > 3*time.Second
			})
			rounds := believer.NodeState().Engine.Round - before
			t.Logf("%d rounds in %s", rounds, time.Since(begin))
			if rounds == 0 || rounds > 600 {
				t.Errorf("%d rounds, want some and at most 600", rounds)
			}
			silent.Store(false)
			b.executed([]*ledgerdv1.TransactionStatus{b.settled(0, crossing.ID(0))})
			b.holds(1, 1000+30)
		})
	}
}
