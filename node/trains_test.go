package node_test

import (
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/node/home"
	"github.com/ledgerd/ledgerd/node/report"
	"github.com/ledgerd/ledgerd/trains"
)

// ringed makes all nodes order in a ring.
func ringed(_ int, config *home.Config) { config.Ordering.Engine = trains.EngineName }

// TestTrainsShard: in a ring, nodes take writes, go on when one is killed, and keep what was
// acknowledged as durable when all are. The ring stands still without the killed node, which the
// others notice long before they would take it for a stall.
func TestTrainsShard(t *testing.T) {
	t.Parallel()
	s := newShard(t, 4, ringed)
	s.start(s.all()...)
	s.ordering(s.all()...)
	s.submit(0, report.LevelDurable, s.client.Register("a", "b"))
	for life := range 2 {
		for k := range 20 {
			s.submit(k%4, report.LevelDurable, s.transfer())
		}
		s.kill(life)
		began := time.Now()
		for k := range 10 {
			s.submit(2+k%2, report.LevelDurable, s.transfer())
			if k == 0 {
				t.Logf("it took %v to go on without a killed node", time.Since(began))
			}
		}
		s.start(life)
		s.ordering(s.all()...)
		s.same()
		s.killAllAndStart(func() {})
	}
	s.submit(0, report.LevelDurable, s.transfer())
	s.same()
}

// TestTrainsJoin: nodes join a ring under load, others leave, and all that was acknowledged is on
// those that stay, also after a restart of all.
func TestTrainsJoin(t *testing.T) {
	t.Parallel()
	s := newShard(t, 2, ringed)
	operator := ledgertest.NewOperator(s.homes[0].Genesis)
	s.start(0, 1)
	s.ordering(0, 1)
	s.submit(0, report.LevelDurable, s.client.Register("a", "b"))
	for range 2 {
		stop := s.load(0, 1)
		joiner := s.join(operator, 1)
		s.start(joiner)
		s.ordering(s.all()...)
		s.submit(joiner, report.LevelDurable, s.transfer())
		stop()
	}
	s.same()
	s.kill(2)
	s.submit(3, report.LevelDurable, s.transfer())
	s.start(2)
	s.ordering(s.all()...)
	stop := s.load(1, 3)
	s.order(3, func() *ledger.Bundle { return operator.Leave(0) })
	s.ended(0)
	s.gone[0] = true
	stop()
	s.submit(2, report.LevelDurable, s.transfer())
	s.same()
	for _, i := range []int{1, 2, 3} {
		s.stop(i)
	}
	s.start(1, 2, 3)
	s.ordering(1, 2, 3)
	s.submit(1, report.LevelDurable, s.transfer())
	s.same()
}

// TestTrainsTwoChanges proposes two changes of the membership at the same time at different nodes
// of a ring. Those that take effect have a run each, and the nodes stay equal.
func TestTrainsTwoChanges(t *testing.T) {
	t.Parallel()
	s := newShard(t, 3, ringed)
	operator := ledgertest.NewOperator(s.homes[0].Genesis)
	s.start(s.all()...)
	s.ordering(s.all()...)
	s.submit(0, report.LevelDurable, s.client.Register("a", "b"))
	for life := range 3 {
		stop := s.load(0, 1, 2)
		var ids []ledger.Hash
		var dirs []string
		for k := range 2 {
			dir, member := s.candidate(len(s.nodes)+k, k)
			bundle := operator.Join(member)
			ids, dirs = append(ids, bundle.IDs()...), append(dirs, dir)
			if refusal := s.nodes[k].Admit(t.Context(), []*ledger.Bundle{bundle},
				false)[0]; refusal != nil {
				t.Fatal(refusal)
			}
		}
		var heights []ledger.Height
		for k, id := range ids {
			statuses, err := s.nodes[k].Wait(t.Context(), []ledger.Hash{id}, report.LevelDurable)
			if err != nil {
				t.Fatal(err)
			}
			heights = append(heights, statuses[0].Height)
			if code := statuses[0].Result.Code; code != ledger.Applied &&
				code != ledger.MembershipChanging {
				t.Fatalf("%+v", statuses[0])
			}
		}
		stop()
		joined := s.nodes[0].Store().Membership()
		t.Logf("%d: blocks %v, %d members", life, heights, len(joined.Members))
		for _, dir := range dirs {
			if admitted, err := home.LoadJoining(dir); err == nil && admitted.Admit(joined) == nil {
				s.start(s.admit(dir, joined))
			}
		}
		s.ordering(s.all()...)
	}
	s.same()
	rounds := s.changeRounds()
	for i := 1; i < len(rounds); i++ {
		if rounds[i] < rounds[i-1]+ledger.Round(trains.ChangeRounds(0)) {
			t.Errorf("changes in rounds %v, which may be of one run", rounds)
		}
	}
	t.Logf("changes in rounds %v", rounds)
}

// changeRounds returns the rounds of the blocks that changed the membership.
func (s *shard) changeRounds() (rounds []ledger.Round) {
	s.t.Helper()
	opened := s.nodes[0].Store()
	for height := ledger.Height(1); height <= opened.Head().Height; height++ {
		block, err := opened.Block(height)
		if err != nil {
			s.t.Fatal(err)
		}
		if block.MembershipChange() != nil {
			rounds = append(rounds, block.Header.Round)
		}
	}
	return rounds
}
