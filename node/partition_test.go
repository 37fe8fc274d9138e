package node_test

import (
	"strings"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/home"
	"github.com/ledgerd/ledgerd/node/report"
	"github.com/ledgerd/ledgerd/rdmanet/memory"
)

// quickShard is a running shard that suspects after half a second. Its lanes break after mend.
func quickShard(t *testing.T, nodes int, mend time.Duration) *shard {
	t.Helper()
	s := newShard(t, nodes, func(_ int, config *home.Config) {
		config.Ordering.Heartbeat, config.Ordering.SuspectAfter = 50*time.Millisecond,
			500*time.Millisecond
	})
	s.network = memory.NewNetwork(memory.Options{MendTimeout: mend})
	s.start(s.all()...)
	s.ordering(s.all()...)
	s.submit(0, report.LevelDurable, s.client.Register("a", "b"))
	return s
}

func (s *shard) transfer() ledger.Transaction {
	return s.client.Transfer(s.client.Account("a"), s.client.Account("b"), 1)
}

// part cuts or mends all links between two sets of nodes.
func (s *shard) part(cut bool, some, others []int) {
	for _, i := range some {
		for _, j := range others {
			switch {
			case i == j:
			case cut:
				s.network.Cut(s.peers[i], s.peers[j])
			default:
				s.network.Mend(s.peers[i], s.peers[j])
			}
		}
	}
}

// outside waits until nodes take no writes, and report that they are outside of the majority, or
// that they wait for a majority if they were cut off between two groups.
func (s *shard) outside(which ...int) {
	s.t.Helper()
	s.eventually("outside of the majority", func() bool {
		for _, i := range which {
			state := s.nodes[i].State()
			halted := state.Mode == report.ModeHalted &&
				strings.Contains(state.Reason, "outside of the majority")
			waits := state.Mode == report.ModeStarting &&
				strings.Contains(state.Reason, "waiting for a majority")
			if !halted && !waits || !state.ReadsOnly {
				return false
			}
		}
		return true
	})
}

// A minority stops and says so. The majority continues, and the minority comes back by itself.
func TestPartition(t *testing.T) {
	t.Parallel()
	for name, mend := range map[string]time.Duration{"lanes break": 300 * time.Millisecond,
		"lanes are mended": time.Minute} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := quickShard(t, 5, mend)
			majority, minority := []int{0, 2, 4}, []int{1, 3}
			s.part(true, majority, minority)
			for i := range 12 {
				s.submit(majority[i%3], report.LevelDurable, s.transfer())
			}
			s.ordering(majority...)
			// In order: a transaction that the minority gets after it was cut off cannot be
			// delivered earlier.
			pending := s.client.Bundle(s.transfer())
			s.nodes[1].Admit(t.Context(), []*ledger.Bundle{pending}, false)
			s.outside(minority...)
			s.part(false, majority, minority)
			s.ordering(s.all()...)
			s.submit(1, report.LevelDurable, s.transfer())
			s.submit(3, report.LevelDurable, s.transfer())
			s.same()
		})
	}
}

// All links are cut for longer than all timeouts, while transactions are under way. Then they are
// mended, and the shard continues without an operator's help.
func TestEveryLinkCutAndMended(t *testing.T) {
	t.Parallel()
	for _, nodes := range []int{2, 3, 4, 6} {
		t.Run(string(rune('0'+nodes)), func(t *testing.T) {
			t.Parallel()
			s := quickShard(t, nodes, 300*time.Millisecond)
			for range 2 {
				bundle := s.client.Bundle(s.transfer())
				for _, n := range s.nodes {
					n.Admit(t.Context(), []*ledger.Bundle{bundle}, false)
				}
				s.part(true, s.all(), s.all())
				s.outside(s.all()...)
				s.part(false, s.all(), s.all())
				s.ordering(s.all()...)
				s.submit(nodes-1, report.LevelDurable, s.transfer())
				status := s.submitted(bundle, nodes-1)
				if status.Outcome != report.OutcomeExecuted {
					t.Fatalf("what was admitted before the cut: %+v", status)
				}
			}
			s.same()
		})
	}
}

// submitted waits until a bundle's first transaction is durable.
func (s *shard) submitted(bundle *ledger.Bundle, at int) report.Status {
	s.t.Helper()
	var status report.Status
	s.eventually("a bundle is durable", func() bool {
		var err error
		if status, err = s.nodes[at].Status(bundle.ID(0)); err != nil {
			s.t.Fatal(err)
		}
		return status.Final(report.LevelDurable)
	})
	return status
}

// A link that is down for a while causes false suspicions. They are taken back: no member leaves
// for good, and rounds become unreliable again.
func TestFalseSuspicionIsTakenBack(t *testing.T) {
	t.Parallel()
	s := quickShard(t, 3, time.Minute)
	for range 3 {
		s.part(true, []int{0}, []int{1})
		s.eventually("somebody is suspected", func() bool {
			for _, n := range s.nodes {
				if len(n.State().Engine.Suspected) > 0 {
					return true
				}
			}
			return false
		})
		s.part(false, []int{0}, []int{1})
		s.ordering(s.all()...)
		s.eventually("unreliable rounds without suspicions", func() bool {
			s.submit(2, report.LevelOrdered, s.transfer())
			for _, n := range s.nodes {
				if engine := n.State().Engine; engine.Reliable || len(engine.Suspected) > 0 {
					return false
				}
			}
			return true
		})
	}
	s.same()
}

// Every node restarts while another pair of links is down. There is always one chain.
func TestAllRestartedOneAfterTheOther(t *testing.T) {
	t.Parallel()
	s := quickShard(t, 4, 300*time.Millisecond)
	for i := range s.nodes {
		s.kill(i)
		s.submit((i+1)%4, report.LevelDurable, s.transfer())
		s.start(i)
		s.ordering(s.all()...)
		s.submit(i, report.LevelDurable, s.transfer())
	}
	for i := range s.nodes {
		s.kill(i)
	}
	s.start(s.all()...)
	s.ordering(s.all()...)
	s.submit(0, report.LevelDurable, s.transfer())
	s.same()
}
