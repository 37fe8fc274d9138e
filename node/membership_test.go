package node_test

import (
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/node"
	"github.com/ledgerd/ledgerd/node/home"
	"github.com/ledgerd/ledgerd/node/report"
	"github.com/ledgerd/ledgerd/rdmanet/p2p"
)

// order waits until an operator's bundle is executed at a node. Changes must be a few rounds apart.
func (s *shard) order(at int, make func() *ledger.Bundle) {
	s.t.Helper()
	s.eventually("a change of the membership is applied", func() bool {
		bundle := make()
		ctx, cancel := context.WithTimeout(s.t.Context(), 30*time.Second)
		defer cancel()
		if refusal := s.nodes[at].Admit(ctx, []*ledger.Bundle{bundle}, false)[0]; refusal != nil {
			if !refusal.Retry() {
				s.t.Fatalf("refused: %v", refusal)
			}
			return false
		}
		statuses, err := s.nodes[at].Wait(ctx, bundle.IDs(), report.LevelStored)
		if err != nil {
			s.t.Fatalf("waiting for a change: %v", err)
		}
		if statuses[0].Outcome != report.OutcomeExecuted &&
			statuses[0].Result.Code != ledger.MembershipChanging {
			s.t.Fatalf("%+v", statuses[0])
		}
		return statuses[0].Outcome == report.OutcomeExecuted
	})
}

// candidate makes the home of a node that wants to join, with the settings of a member, and the
// member that it is to become.
func (s *shard) candidate(number, like int) (dir string, member ledger.Member) {
	s.t.Helper()
	seed := sha256.Sum256(fmt.Appendf(nil, "%s %d", s.t.Name(), number))
	key := ed25519.NewKeyFromSeed(seed[:])
	config := s.homes[like].Config
	config.API.Listen = "127.0.0.1:0"
	dir = filepath.Join(s.t.TempDir(), fmt.Sprintf("node-%d", number))
	if _, err := home.CreateJoining(dir, config, s.homes[like].Genesis, key); err != nil {
		s.t.Fatal(err)
	}
	return dir, ledger.Member{Name: fmt.Sprintf("node-%d", number),
		Key: key.Public().(ed25519.PublicKey), Address: fmt.Sprintf("127.0.0.1:%d", 1+number)}
}

// admit gives a joined node its place in the lists.
func (s *shard) admit(dir string, membership ledger.Membership) int {
	s.t.Helper()
	admitted, err := home.LoadJoining(dir)
	if err != nil {
		s.t.Fatal(err)
	}
	if err := admitted.Admit(membership); err != nil {
		s.t.Fatal(err)
	}
	i := len(s.nodes)
	peer, err := p2p.PeerID(admitted.Key.Public().(ed25519.PublicKey))
	if err != nil {
		s.t.Fatal(err)
	}
	s.homes, s.peers, s.nodes = append(s.homes, admitted), append(s.peers, peer),
		append(s.nodes, nil)
	return i
}

// join adds a node to the shard through a member, and returns its place in the lists. It does not
// start the node.
func (s *shard) join(operator *ledgertest.Operator, via int) int {
	s.t.Helper()
	dir, member := s.candidate(len(s.nodes), via)
	s.order(via, func() *ledger.Bundle { return operator.Join(member) })
	return s.admit(dir, s.nodes[via].Store().Membership())
}

// load submits transfers to some nodes until stop is called. It returns once a transfer is durable
// at each of them. stop waits until another one is durable at each.
func (s *shard) load(at ...int) (stop func()) {
	s.t.Helper()
	ctx, cancel := context.WithCancel(s.t.Context())
	var working sync.WaitGroup
	durable := make([]atomic.Int64, len(at))
	s.loads++
	for k, i := range at {
		n, client := s.nodes[i], ledgertest.NewClient(s.homes[0].Genesis,
			ledger.OrganisationName(fmt.Sprintf("load-%d-%d", s.loads, k)))
		working.Go(func() {
			next := client.Register("a", "b")
			for ctx.Err() == nil {
				bundle := client.Bundle(next)
				for n.Admit(ctx, []*ledger.Bundle{bundle}, false)[0] != nil && ctx.Err() == nil {
					<-time.After(2 * time.Millisecond)
				}
				statuses, err := n.Wait(ctx, bundle.IDs(), report.LevelDurable)
				if err == nil && statuses[0].Outcome == report.OutcomeExecuted {
					durable[k].Add(1)
				}
				next = client.Transfer(client.Account("a"), client.Account("b"), 1)
			}
		})
	}
	another := func() {
		s.t.Helper()
		for k, i := range at {
			before := durable[k].Load()
			s.eventually(fmt.Sprintf("something is durable for a client of node %d",
				i), func() bool {
				return durable[k].Load() > before
			})
		}
	}
	another()
	return func() {
		s.t.Helper()
		another()
		cancel()
		working.Wait()
	}
}

// Nodes join a working shard, one after the other, starting from one member, and become members
// like all others.
func TestJoin(t *testing.T) {
	t.Parallel()
	s := newShard(t, 1, nil)
	operator := ledgertest.NewOperator(s.homes[0].Genesis)
	s.start(0)
	s.ordering(0)
	s.submit(0, report.LevelDurable, s.client.Register("a", "b"))
	for nodes := 2; nodes <= 5; nodes++ {
		joiner := s.join(operator, nodes-2)
		s.start(joiner)
		s.ordering(s.all()...)
		s.submit(joiner, report.LevelDurable, s.transfer())
	}
	s.same()
	// The first members of the genesis are gone. A majority of the present members orders.
	s.kill(0)
	s.submit(4, report.LevelDurable, s.transfer())
	s.kill(1)
	s.submit(3, report.LevelDurable, s.transfer())
	s.start(0, 1)
	s.ordering(s.all()...)
	for i := range s.nodes {
		s.stop(i)
	}
	s.start(s.all()...)
	s.ordering(s.all()...)
	s.submit(2, report.LevelDurable, s.transfer())
	s.same()
}

// ended waits until a node has ended because it was removed.
func (s *shard) ended(i int) {
	s.t.Helper()
	select {
	case <-s.nodes[i].Done():
	case <-time.After(30 * time.Second):
		s.t.Fatalf("node %d goes on after it was removed: %+v", i, s.nodes[i].State())
	}
	if err := s.nodes[i].Err(); !errors.Is(err, node.ErrRemoved) {
		s.t.Fatalf("node %d, removed, ended with %v", i, err)
	}
	s.stop(i)
}

// A member leaves under load. The others continue at once, with majorities of the remaining
// members.
func TestLeave(t *testing.T) {
	t.Parallel()
	withEngines(t, membersLeave)
}

func membersLeave(t *testing.T, change func(int, *home.Config)) {
	s := newShard(t, 5, change)
	operator := ledgertest.NewOperator(s.homes[0].Genesis)
	s.start(s.all()...)
	s.ordering(s.all()...)
	s.submit(0, report.LevelDurable, s.client.Register("a", "b"))
	for _, leaver := range []int{1, 0, 4} {
		stop := s.load(2, 3)
		s.order(3, func() *ledger.Bundle { return operator.Leave(ledger.MemberIndex(leaver)) })
		s.ended(leaver)
		s.gone[leaver] = true
		stop()
	}
	s.ordering(2, 3)
	s.submit(2, report.LevelDurable, s.transfer())
	if membership := s.nodes[2].Store().Membership(); len(membership.Members) != 2 ||
		membership.Number != 3 {
		t.Fatalf("%+v", membership)
	}
	s.same()
	// A removed member that is started again knows by itself that it was removed for good. It does
	// not wait to learn that from the others, which do not run.
	s.stop(2)
	s.stop(3)
	s.start(0)
	s.ended(0)
}

// A dead member is replaced under load: it leaves, and another joins.
func TestReplace(t *testing.T) {
	t.Parallel()
	withEngines(t, memberIsReplaced)
}

func memberIsReplaced(t *testing.T, change func(int, *home.Config)) {
	s := newShard(t, 3, change)
	operator := ledgertest.NewOperator(s.homes[0].Genesis)
	s.start(s.all()...)
	s.ordering(s.all()...)
	s.submit(0, report.LevelDurable, s.client.Register("a", "b"))
	s.kill(1)
	s.submit(0, report.LevelDurable, s.transfer())
	stop := s.load(0, 2)
	s.order(2, func() *ledger.Bundle { return operator.Leave(1) })
	s.eventually("the other node executed the change, too", func() bool {
		return len(s.nodes[0].Store().Membership().Members) == 2
	})
	joiner := s.join(operator, 0)
	s.start(joiner)
	s.eventually("the new member orders", func() bool {
		state := s.nodes[joiner].State()
		return state.Mode == report.ModeOrdering && len(state.Engine.Members) == 3
	})
	stop()
	s.ordering(0, 2, joiner)
	s.submit(joiner, report.LevelDurable, s.transfer())
	s.same()
	// The departed member no longer counts: one failure is tolerated, of any member.
	s.kill(0)
	s.submit(2, report.LevelDurable, s.transfer())
}

// The joiner is killed while it joins, at several moments. The group continues each time.
func TestKilledWhileJoining(t *testing.T) {
	t.Parallel()
	s := newShard(t, 3, func(_ int, config *home.Config) {
		config.Ordering.Heartbeat, config.Ordering.SuspectAfter = 50*time.Millisecond,
			500*time.Millisecond
	})
	operator := ledgertest.NewOperator(s.homes[0].Genesis)
	s.start(s.all()...)
	s.ordering(s.all()...)
	s.submit(0, report.LevelDurable, s.client.Register("a", "b"))
	stop := s.load(0, 1, 2)
	joiner := s.join(operator, 0)
	for _, after := range []time.Duration{0, 20 * time.Millisecond, 150 * time.Millisecond,
		400 * time.Millisecond, 900 * time.Millisecond} {
		s.start(joiner)
		<-time.After(after)
		s.kill(joiner)
		s.submit(1, report.LevelDurable, s.transfer())
	}
	s.start(joiner)
	s.eventually("the joiner orders", func() bool {
		return s.nodes[joiner].State().Mode == report.ModeOrdering
	})
	stop()
	s.ordering(s.all()...)
	s.submit(joiner, report.LevelDurable, s.transfer())
	s.same()
}

// A change that would leave the group without a majority of the members is refused with a remedy.
func TestChangeWithoutMajorityIsRefused(t *testing.T) {
	t.Parallel()
	s := newShard(t, 3, nil)
	operator := ledgertest.NewOperator(s.homes[0].Genesis)
	s.start(s.all()...)
	s.ordering(s.all()...)
	s.submit(0, report.LevelDurable, s.client.Register("a", "b"))
	s.kill(2)
	s.submit(0, report.LevelDurable, s.transfer())
	s.ordering(0, 1)
	for name, bundle := range map[string]*ledger.Bundle{"join": operator.Join(ledgertest.Member(9)),
		"leave of who works": operator.Leave(1)} {
		refusal := s.nodes[0].Admit(t.Context(), []*ledger.Bundle{bundle}, false)[0]
		if refusal == nil || refusal.Retry() || !strings.Contains(refusal.Reason, "a majority is") {
			t.Fatalf("%s: %v", name, refusal)
		}
	}
	s.order(0, func() *ledger.Bundle { return operator.Leave(2) })
	s.ordering(0, 1)
}

// With a perfect detector, nodes crash, come back and continue after all were down, but their
// members cannot change. The remedy in the refusal works.
func TestMembersStayUnderAPerfectDetector(t *testing.T) {
	t.Parallel()
	s := newShard(t, 3, func(_ int, config *home.Config) {
		config.Ordering.Detector, config.Ordering.Heartbeat, config.Ordering.SuspectAfter =
			"perfect", 100*time.Millisecond, time.Second
	})
	operator := ledgertest.NewOperator(s.homes[0].Genesis)
	s.start(s.all()...)
	s.ordering(s.all()...)
	s.submit(0, report.LevelDurable, s.client.Register("a", "b"))
	s.kill(2)
	s.submit(0, report.LevelDurable, s.transfer())
	s.start(2)
	s.ordering(s.all()...)
	s.submit(2, report.LevelDurable, s.transfer())
	s.same()
	for name, bundle := range map[string]*ledger.Bundle{"join": operator.Join(ledgertest.Member(9)),
		"leave": operator.Leave(1)} {
		refusal := s.nodes[0].Admit(t.Context(), []*ledger.Bundle{bundle}, false)[0]
		if refusal == nil || refusal.Retry() || !strings.Contains(refusal.Reason,
			`detector = "eventual"`) {
			t.Fatalf("%s: %v", name, refusal)
		}
	}
	for i := range s.nodes {
		s.kill(i)
	}
	s.start(s.all()...)
	s.ordering(s.all()...)
	s.submit(1, report.LevelDurable, s.transfer())

	for i := range s.nodes {
		s.kill(i)
		s.homes[i].Config.Ordering.Detector = "eventual"
	}
	s.start(s.all()...)
	s.ordering(s.all()...)
	joiner := s.join(operator, 0)
	s.start(joiner)
	s.ordering(s.all()...)
	s.submit(joiner, report.LevelDurable, s.transfer())
	s.same()
}

// A member proposes another member's disk with its node key while transactions continue. Several
// members may propose it, and it changes the membership once. The chain is the same after all were
// restarted.
func TestAdmitDisk(t *testing.T) {
	t.Parallel()
	for _, detector := range []string{"eventual", "perfect"} {
		t.Run(detector, func(t *testing.T) {
			t.Parallel()
			s := newShard(t, 3, func(_ int, config *home.Config) {
				config.Ordering.Detector, config.Ordering.SuspectAfter = detector, 5*time.Second
			})
			s.start(s.all()...)
			s.ordering(s.all()...)
			s.submit(0, report.LevelDurable, s.client.Register("a", "b"))
			propose := func(signer, index, disk int) *ledger.Bundle {
				opened := s.nodes[signer].Store()
				now, head := opened.Membership(), opened.Head().Height
				bundle, err := ledger.NewAdmit(s.homes[signer].Key, opened.GenesisHash(), &now,
					ledger.MemberIndex(index), ledgertest.Disk(disk), head)
				if err != nil {
					t.Fatal(err)
				}
				return bundle
			}
			refusal := s.nodes[1].Admit(t.Context(), []*ledger.Bundle{propose(1, 1, 1)}, false)[0]
			if refusal == nil || refusal.Code != report.RefusedSignature {
				t.Fatalf("a member's proposal for itself: %v", refusal)
			}
			stop := s.load(0, 1, 2)
			var both []*ledger.Bundle
			for _, signer := range []int{0, 2} {
				bundle := propose(signer, 1, 1)
				if refusal := s.nodes[signer].Admit(t.Context(), []*ledger.Bundle{bundle},
					false)[0]; refusal != nil {
					t.Fatal(refusal)
				}
				both = append(both, bundle)
			}
			for i, signer := range []int{0, 2} {
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
				statuses, err := s.nodes[signer].Wait(ctx, both[i].IDs(), report.LevelDurable)
				cancel()
				if err != nil || !statuses[0].Result.OK() {
					t.Fatalf("the proposal of node %d: %+v, %v", signer, statuses, err)
				}
			}
			stop()
			// Member 1 has another disk than the one that counts now. It leaves its group, and its
			// own disk is admitted.
			s.eventually("member 1 counts with its own disk", func() bool {
				now := s.nodes[0].Store().Membership()
				return now.Number == 2 && now.Members[1].Disk == ledger.DiskID(
					s.nodes[1].State().DiskID)
			})
			s.ordering(s.all()...)
			for i := range s.nodes {
				s.stop(i)
			}
			s.start(s.all()...)
			s.ordering(s.all()...)
			s.submit(1, report.LevelDurable, s.transfer())
			s.same()
			for i, each := range s.nodes {
				now := each.Store().Membership()
				if now.Number != 2 || !now.Members[0].Disk.IsZero() ||
					!now.Members[2].Disk.IsZero() {
					t.Errorf("node %d: %+v", i, now)
				}
			}
		})
	}
}
