package node_test

import (
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/ledger/store"
	"github.com/ledgerd/ledgerd/node/home"
	"github.com/ledgerd/ledgerd/node/report"
)

// joinWithSnapshot adds a node that begins with a snapshot of a member. It does not start the node.
func (s *shard) joinWithSnapshot(operator *ledgertest.Operator, via int) int {
	s.t.Helper()
	joiner := s.join(operator, via)
	reading, writing := io.Pipe()
	go func() {
		_, err := s.nodes[via].Store().WriteSnapshot(s.t.Context(), writing)
		writing.CloseWithError(err)
	}()
	at := s.homes[joiner]
	_, err := store.Restore(s.t.Context(), at.Data(), at.Genesis, s.store,
		reading, func(ledger.Height, ledger.Hash, bool) error {
			return nil
		})
	if err != nil {
		s.t.Fatalf("a snapshot of node %d: %v", via, err)
	}
	return joiner
}

// refused submits a change that the node must refuse, and returns the reason.
func (s *shard) refused(at int, bundle *ledger.Bundle) string {
	s.t.Helper()
	refusal := s.nodes[at].Admit(s.t.Context(), []*ledger.Bundle{bundle}, false)[0]
	if refusal == nil || refusal.Retry() {
		s.t.Fatalf("node %d: %v", at, refusal)
	}
	return refusal.Reason
}

// A node that began with a snapshot fetches the older blocks beside its work. It continues after a
// restart. Once it has them, it is a member like all others.
func TestOlderBlocksAreFetched(t *testing.T) {
	t.Parallel()
	s := newShard(t, 3, nil)
	operator := ledgertest.NewOperator(s.homes[0].Genesis)
	s.start(0, 1, 2)
	s.ordering(0, 1, 2)
	s.submit(0, report.LevelDurable, s.client.Register("a", "b"))
	for range 60 {
		s.submit(0, report.LevelOrdered, s.client.Transfer(s.client.Account("a"),
			s.client.Account("b"), 1))
	}
	// At this low rate the node is stopped in the middle. On a busy machine it may take so long to
	// enter that it has all blocks by then.
	joiner := s.joinWithSnapshot(operator, 0)
	s.homes[joiner].Config.Store.BackfillBytes = 1 << 10
	s.start(joiner)
	s.ordering(s.all()...)
	stop := s.load(0, joiner)
	s.eventually("some blocks were fetched", func() bool {
		b := s.nodes[joiner].State().Backfill
		return b == nil || b.Absent < b.Snapshot-3
	})
	stop()
	s.stop(joiner)
	s.homes[joiner].Config.Store.BackfillBytes = 0
	s.start(joiner)
	s.ordering(s.all()...)
	s.eventually("nothing is missing", func() bool {
		return s.nodes[joiner].State().Backfill == nil
	})
	height := s.same()
	for _, member := range s.nodes[0].ClusterState().Members {
		if member.AbsentHeight > 0 {
			s.eventually("the others hear of it", func() bool {
				return s.nodes[0].ClusterState().Members[joiner].AbsentHeight == 0
			})
		}
	}
	// The other members may leave now, as long as a majority runs at each step.
	for leaver := range 3 {
		s.order(joiner, func() *ledger.Bundle { return operator.Leave(ledger.MemberIndex(leaver)) })
		s.gone[leaver] = true
		if leaver < 2 {
			s.eventually("the rest orders", func() bool {
				return len(s.nodes[joiner].State().Engine.Members) == len(s.all())
			})
		}
	}
	s.stop(joiner)
	head, err := store.Verify(t.Context(), s.homes[joiner].Data(), s.homes[joiner].Genesis, s.store,
		nil)
	if err != nil || head.Height <= height {
		t.Errorf("verified up to %d: %v", head.Height, err)
	}
}

// If all members began with a snapshot, another node can join from any of them. The last member
// that has all blocks cannot leave while it runs.
func TestAllBeganWithASnapshot(t *testing.T) {
	t.Parallel()
	s := newShard(t, 2, func(_ int, config *home.Config) { config.Store.BackfillBytes = 1 })
	operator := ledgertest.NewOperator(s.homes[0].Genesis)
	s.start(0, 1)
	s.ordering(0, 1)
	s.submit(0, report.LevelDurable, s.client.Register("a", "b"))
	for range 20 {
		s.submit(0, report.LevelOrdered, s.client.Transfer(s.client.Account("a"),
			s.client.Account("b"), 1))
	}
	for i := range 3 {
		joiner := s.joinWithSnapshot(operator, []int{0, 2, 3}[i]) // at that member's rate
		s.start(joiner)
		s.ordering(s.all()...)
	}
	leave := func(index int) func() *ledger.Bundle {
		return func() *ledger.Bundle { return operator.Leave(ledger.MemberIndex(index)) }
	}
	s.order(4, leave(0))
	s.gone[0] = true
	for _, at := range []int{1, 4} {
		s.eventually("the rest knows that it left", func() bool {
			return len(s.nodes[at].Store().Membership().Members) == 4
		})
	}
	for _, at := range []int{1, 4} {
		if why := s.refused(at, leave(1)()); !strings.Contains(why,
			"node-1 is the last running member that has the blocks from 1 to") {
			t.Errorf("refused, since %s", why)
		}
	}
	if _, err := s.nodes[4].Store().Block(1); err == nil || s.nodes[4].State().Backfill == nil {
		t.Fatal("the older blocks came, against the rate")
	}
	// A read has the block that it needs fetched, out of turn.
	if err := s.nodes[4].FetchAbsent(t.Context(), 1); err != nil {
		t.Error(err)
	}
	first, err := s.nodes[1].Store().Block(1)
	if err != nil {
		t.Fatal(err)
	}
	if borrowed, err := s.nodes[4].Store().Block(1); err != nil || borrowed.Hash != first.Hash {
		t.Errorf("the block that was fetched: %v", err)
	}
	// The last member with all blocks is lost anyway.
	s.stop(0)
	s.kill(1)
	s.ordering(2, 3, 4)
	s.eventually("the lost member may leave", func() bool {
		refusal := s.nodes[3].Admit(t.Context(), []*ledger.Bundle{leave(1)()}, false)[0]
		return refusal == nil
	})
	s.gone[1] = true
	s.eventually("it left", func() bool {
		return len(s.nodes[4].Store().Membership().Members) == 3
	})
	if err := s.nodes[4].FetchAbsent(t.Context(), 2); err == nil || !strings.Contains(err.Error(),
		"block 2: no member that runs has it") {
		t.Errorf("a block that nobody has: %v", err)
	}
	joiner := s.joinWithSnapshot(operator, 4)
	// It soon has all blocks that the others have. At their rate it would not get there.
	s.homes[joiner].Config.Store.BackfillBytes = 0
	s.start(joiner)
	s.ordering(2, 3, 4, joiner)
	s.eventually("it says what it waits for", func() bool {
		b := s.nodes[joiner].State().Backfill
		return b != nil && strings.Contains(b.Reason, "no member that runs has it")
	})
	s.submit(joiner, report.LevelDurable, s.client.Transfer(s.client.Account("a"),
		s.client.Account("b"), 1))
	// A node that begins without a snapshot says what to do.
	without := s.join(operator, joiner)
	s.start(without)
	s.eventually("it says what to do", func() bool {
		return strings.Contains(s.nodes[without].State().Reason,
			"cluster join --home "+s.homes[without].Dir+" --snapshot")
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := s.nodes[without].Store().WriteSnapshot(ctx, io.Discard); err == nil {
		t.Error("a snapshot of nothing")
	}
}
