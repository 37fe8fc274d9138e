package pipeline_test

import (
	"fmt"
	"testing"

	"github.com/ledgerd/ledgerd/allconcur/generation"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/node/mempool"
	"github.com/ledgerd/ledgerd/node/pipeline"
	"github.com/ledgerd/ledgerd/order"
)

// TestOneChangeOfARun: a run counts with one change of the membership. Another one in a round that
// may be of the same run is left out by all nodes, with the batch that it is in. The pool of the
// proposer has the batch's bundles still, and proposes them again in the next eon.
func TestOneChangeOfARun(t *testing.T) {
	t.Parallel()
	genesis := ledgertest.OperatedGenesis(3)
	const rounds = 8 // that a run of four trains may have from a change on
	for _, c := range []struct {
		bound   generation.Bound
		round   order.Round // of the second change, with the first in round 3
		replays bool
		takes   bool
	}{
		{generation.BoundOf(2), 5, false, true}, // the ledger refuses it by itself
		{generation.BoundOf(2), 6, false, true},
		{generation.BoundOf(4), 4, false, false},
		{generation.BoundOf(4), 3 + rounds - 1, false, false},
		{generation.BoundOf(4), 3 + rounds, false, true},
		{generation.BoundOf(4), 3 + rounds - 1, true, false},
		{generation.BoundOf(4), 3 + rounds, true, true},
		{generation.BoundOf(2), 3 + rounds - 1, true, true},
	} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			t.Parallel()
			f := fixtureOf(t, genesis, mempool.Config{}, pipeline.Config{})
			operator := ledgertest.NewOperator(genesis)
			begin := func(number uint64, bound generation.Bound) {
				members := []order.ServerID{0, 1, 2}
				f.pipeline.Begin(pipeline.Run{Number: number, First: f.round + 1, Bound: bound,
					Members: members, Shard: generation.Membership{Members: members}})
			}
			// A replayed round is of another run than the one that works, which has another bound.
			begin(2, c.bound)
			f.round = 2
			f.deliver(f.payload(0, f.genesisHeader(), operator.Leave(2)))
			f.barrier()
			if head := f.store.Head(); head.Height != 1 || f.store.MembershipHeight() != 1 {
				t.Fatalf("after the first change: %+v", head)
			}
			if c.replays {
				begin(3, 64-c.bound)
			}
			second, other := operator.Leave(1), f.next()
			for _, bundle := range []*ledger.Bundle{second, other} {
				if err := f.pool.Add(bundle, bundle.Encode(), func(*ledger.Bundle) ([]bool, error) {
					return make([]bool, 1), nil
				}); err != nil {
					t.Fatal(err)
				}
			}
			batch := f.pool.Next(1 << 20)
			delivery := order.Delivery{Epoch: 5, Round: c.round,
				Messages: []order.Message{{Origin: 0, Payload: batch}}}
			var err error
			if c.replays {
				err = f.pipeline.Replay(t.Context(), delivery, c.bound)
			} else {
				err = f.pipeline.Deliver(t.Context(), []order.Delivery{delivery})
			}
			if err != nil {
				t.Fatal(err)
			}
			f.barrier()
			if took := f.store.Head().Height == 2; took != c.takes {
				t.Fatalf("the round makes a block: %v, want %v", took, c.takes)
			}
			if f.pipeline.Round() != c.round {
				t.Errorf("the last round is %d, want %d", f.pipeline.Round(), c.round)
			}
			if again := f.pool.Next(1 << 20); again != nil {
				t.Error("a batch is proposed twice in a run")
			}
			f.pool.Requeue()
			if again := f.pool.Next(1 << 20); (again == nil) != c.takes {
				t.Errorf("the next run proposes it again: %v, want %v", again != nil, !c.takes)
			}
		})
	}
}
