package shards

import (
	"slices"
	"sync/atomic"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/verdicts"
	"github.com/ledgerd/ledgerd/rdmanet"
)

// sayGroup passes on a group that a member of shard 1 tells.
func (s *scene) sayGroup(member int, ids ...ledger.Hash) {
	s.t.Helper()
	s.verdicts.receiveVerdicts(rdmanet.Peer{ID: peerOf(s.t, member)},
		encodeGroup(&ledger.VerdictGroup{Shard: 1, IDs: ids}))
}

// takes waits until the node knows that its chain takes groups.
func (s *scene) takes() { s.await("groups", s.verdicts.grouped.Load) }

func always() bool { return true }

// A group that a majority tells is proposed as one when one of its transactions waits, and no more
// when the chain has its verdicts. Counts are those of the verdicts.
func TestGroupIsProposed(t *testing.T) {
	t.Parallel()
	s := vouched(t, VerdictsConfig{Groups: always}, 3, 4, 5)
	s.takes()
	ids := []ledger.Hash{name(1), name(2), name(3)}
	s.sayGroup(3, ids...)
	if status := s.verdicts.Status(); status.Words != 3 || status.Received != 3 {
		t.Fatalf("%+v", status)
	}
	s.sayGroup(4, ids...)
	s.await("the group is early", func() bool { return s.verdicts.Status().Early == 3 })
	if groups, singles := s.verdicts.Propose(1 << 20); len(groups)+len(singles) > 0 {
		t.Fatalf("%v and %v are proposed", groups, singles)
	}
	s.chain.set(name(2), verdicts.Awaited)
	s.verdicts.Applied(s.chain.add(name(2)))
	s.await("a look at the transaction that arrived", func() bool {
		// The first one of the group is watched.
		s.chain.set(name(1), verdicts.Awaited)
		s.verdicts.Applied(s.chain.add(name(1)))
		return s.verdicts.Status().Awaited == 3
	})
	groups, singles := s.verdicts.Propose(1 << 20)
	if len(groups) != 1 || !slices.Equal(groups[0].IDs, ids) || len(singles) > 0 ||
		s.verdicts.Status().Proposed != 3 || !s.verdicts.Pending() {
		t.Errorf("%v and %v are proposed", groups, singles)
	}
	block := &ledger.Block{}
	for _, id := range ids {
		s.chain.set(id, verdicts.Over)
		block.Unpacked = append(block.Unpacked, ledger.Entry{Decoded: &ledger.Transaction{
			Verdict: &ledger.Verdict{ID: id, Shard: 1, Result: good}},
			Result: ledger.Result{Code: ledger.Settled}})
	}
	s.verdicts.Applied(block)
	s.sayGroup(5, ids...)
	if status := s.verdicts.Status(); status.Awaited+status.Early+status.Words > 0 ||
		s.verdicts.Pending() {
		t.Errorf("%+v", status)
	}
	s.sayGroup(5, name(3), name(1)) // out of order
	s.sayGroup(5, name(1))
	if received := s.verdicts.Status().Received; received != 9 {
		t.Errorf("%d verdicts were received", received)
	}
}

// While the chain takes no groups, what is told in groups is proposed as single verdicts.
func TestGroupBeforeItsVersion(t *testing.T) {
	t.Parallel()
	var takes atomic.Bool
	s := vouched(t, VerdictsConfig{Groups: takes.Load}, 3, 4, 5)
	s.wait(name(1), name(2))
	s.sayGroup(3, name(1), name(2))
	s.sayGroup(4, name(1), name(2))
	s.await("both are proposed", func() bool { return len(s.propose(1<<20)) == 2 })
	takes.Store(true)
	s.verdicts.nudge()
	s.takes()
	s.wait(name(3), name(4))
	s.sayGroup(3, name(3), name(4))
	s.sayGroup(4, name(3), name(4))
	s.await("a group is proposed", func() bool {
		groups, singles := s.verdicts.Propose(1 << 20)
		return len(groups) == 1 && len(singles) == 2
	})
	// Another chain does not take them: its verdicts are proposed one by one.
	takes.Store(false)
	s.verdicts.Reset()
	s.await("all are proposed one by one", func() bool {
		groups, singles := s.verdicts.Propose(1 << 20)
		return len(groups) == 0 && len(singles) == 4
	})
}

// A group is told whole to each member of the other shard, and a verdict that is alone by itself.
func TestGroupsAreTold(t *testing.T) {
	t.Parallel()
	for _, groups := range []bool{true, false} {
		s := vouched(t, VerdictsConfig{Groups: func() bool { return groups }}, 3, 4, 5)
		s.looked()
		s.verdicts.Applied(s.chain.add(name(2), name(1), name(3)))
		s.verdicts.Applied(s.chain.add(name(4)))
		s.durable.Store(2)
		s.verdicts.DurableTo(2)
		for _, o := range s.others {
			s.await("all are told", func() bool {
				return o.times(name(1)) == 1 && o.times(name(3)) == 1 && o.times(name(4)) == 1
			})
			o.mu.Lock()
			if want := map[bool][]int{true: {3}}[groups]; !slices.Equal(o.groups, want) {
				t.Errorf("groups of %v were told", o.groups)
			}
			o.mu.Unlock()
		}
		if told := s.verdicts.Status().Told; told != 12 {
			t.Errorf("%d verdicts were told", told)
		}
	}
}
