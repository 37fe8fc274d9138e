package node_test

import (
	"context"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// hang hangs a shard below another one, through a node, as a change of this number.
func (g *growing) hang(number uint64, shard, parent ledger.ShardID, via int) {
	g.t.Helper()
	operator := &ledgertest.Operator{Ledger: g.nodes[via].Store().Book(), Sequence: number - 1}
	bundle := operator.Bundle("operator", operator.ChangeBook(ledger.BookChange{Number: number,
		Rehang: &ledger.ShardRehang{Shard: shard, Parent: parent}}))
	ctx, cancel := context.WithTimeout(g.t.Context(), 60*time.Second)
	defer cancel()
	statuses, err := g.via(via).Submit(ctx, bundle, ledgerdv1.Level_LEVEL_DURABLE)
	if err != nil {
		g.t.Fatal(err)
	}
	g.executed(statuses)
}

// takes waits until a shard takes the stream that a change began, and has all of it.
func (g *growing) takes(k int, change uint64) {
	g.t.Helper()
	g.eventually("the shard takes its entries from its new parent", func() bool {
		return ledger.StreamOf(g.nodes[k].Store().Carried()) == change
	})
}

// A shard is hung below another one while organisations pay each other, and while its node is down:
// its old parent keeps what it needs. Then the tree changes several times before it is back. All
// shards go on paying each other, nodes restart, and balances at cuts of before, between and after
// add up.
func TestTreeChangesUnderLoad(t *testing.T) {
	t.Parallel()
	g := newGrowing(t, 1, 0, 0, 0, 1) // 3 below 1
	pairs := [][2]int{{1, 2}, {2, 1}, {3, 0}, {1, 3}, {3, 2}}
	for _, pair := range pairs {
		g.flow(pair[0], pair[1], 0)
	}
	g.paysOn(pairs...)
	before := g.balances(0, nil, 4)
	g.hang(1, 3, 2, 1)
	for k := range 4 {
		g.knows(k, "0(1,2(3))", 1, 1, 1, 1)
	}
	g.takes(3, 1)
	g.paysOn(pairs...)
	between := g.balances(3, nil, 4)
	g.stop(3)
	g.hang(2, 3, 1, 0)
	g.hang(3, 2, 1, 0)
	g.hang(4, 3, 0, 2)
	g.stop(2) // a former parent that has what shard 3 needs
	g.start(2)
	g.ordering(2)
	g.start(3)
	g.ordering(3)
	g.takes(3, 4)
	g.tell()
	g.paysOn(pairs...)
	for k := range 4 {
		g.knows(k, "0(1(2),3)", 1, 1, 1, 1)
	}
	for k := range 4 {
		g.stop(k)
	}
	g.start(g.all()...)
	g.tell()
	for k := range 4 {
		g.ordering(k)
		g.knows(k, "0(1(2),3)", 1, 1, 1, 1)
	}
	g.paysOn(pairs...)
	after := g.balances(2, nil, 4)
	for _, cut := range [][]*ledgerdv1.Place{before, between, after} {
		for k := range 4 {
			g.balancesAt(k, cut)
		}
	}
}
