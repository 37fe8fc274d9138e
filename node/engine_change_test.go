package node_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/node/home"
	"github.com/ledgerd/ledgerd/node/report"
)

// newest raises the chain to the newest version.
func (s *shard) newest(operator *ledgertest.Operator) {
	s.t.Helper()
	charter := ledgertest.Charter(1, "operator")
	charter.Version = ledger.NewestVersion
	s.order(s.all()[0], func() *ledger.Bundle {
		return operator.Bundle("operator", operator.ChangeCharter(charter))
	})
}

// changeEngine has the operator change the engine, and waits until these nodes order by it.
func (s *shard) changeEngine(operator *ledgertest.Operator, name string, which ...int) {
	s.t.Helper()
	s.order(which[0], func() *ledger.Bundle { return operator.ChangeEngine(name) })
	s.orderBy(name, which...)
}

// orderBy waits until nodes order by an engine.
func (s *shard) orderBy(name string, which ...int) {
	s.t.Helper()
	s.eventually(fmt.Sprintf("nodes %v order by %s", which, name), func() bool {
		for _, i := range which {
			if state := s.nodes[i].State(); state.Mode != report.ModeOrdering ||
				state.Engine.Engine != name {
				return false
			}
		}
		return true
	})
}

// TestEngineChangesUnderLoad: the operator changes the engine back and forth, with changes that
// follow each other as closely as they may, while clients submit to all nodes. Nothing is lost, and
// after a restart the nodes order by what the chain says.
func TestEngineChangesUnderLoad(t *testing.T) {
	t.Parallel()
	for name, with := range map[string]struct {
		first           string
		prompt, records bool
	}{
		"prompt": {"allconcur+", true, false}, "records": {"allconcur+", false, true},
		"neither": {"allconcur", false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShard(t, 3, func(_ int, config *home.Config) {
				config.Ordering.Engine = with.first
				config.Ordering.Prompt, config.Ordering.LogRounds = with.prompt, with.records
			})
			operator := ledgertest.NewOperator(s.homes[0].Genesis)
			s.start(s.all()...)
			s.ordering(s.all()...)
			s.newest(operator)
			s.submit(0, report.LevelDurable, s.client.Register("a", "b"))
			stop := s.load(s.all()...)
			// Each engine follows each other one.
			for _, name := range []string{"allconcur", "trains", "allconcur", "dare", "trains",
				"dare", "allconcur+", "dare", "allconcur", "allconcur+", "trains", "allconcur+"} {
				s.changeEngine(operator, name, s.all()...)
			}
			for _, name := range []string{"dare", "trains", "allconcur"} {
				s.order(1, func() *ledger.Bundle { return operator.ChangeEngine(name) })
			}
			s.orderBy("allconcur", s.all()...)
			stop()
			s.same()
			for i := range s.nodes {
				s.stop(i)
			}
			s.start(s.all()...)
			s.orderBy("allconcur", s.all()...)
			s.submit(2, report.LevelDurable, s.transfer())
			s.same()
			for _, n := range s.nodes {
				choice, shown := n.Store().Membership().Engine, n.ClusterState().Ordering
				if choice.Name != "allconcur" || choice.Height == 0 ||
					shown.Engine != choice.Name || shown.EngineHeight != choice.Height {
					t.Errorf("%+v, shown as %+v", choice, shown)
				}
			}
		})
	}
}

// TestEngineComesFromTheChain: a member that was away during one or two changes of the engine, one
// that lost its disk, and one that joins later order by the engine that the chain names, whatever
// their settings say.
func TestEngineComesFromTheChain(t *testing.T) {
	t.Parallel()
	s := newShard(t, 4, nil)
	operator := ledgertest.NewOperator(s.homes[0].Genesis)
	s.start(s.all()...)
	s.ordering(s.all()...)
	s.newest(operator)
	s.submit(0, report.LevelDurable, s.client.Register("a", "b"))

	s.kill(3)
	s.changeEngine(operator, "allconcur", 0, 1, 2)
	s.submit(1, report.LevelDurable, s.transfer())
	s.start(3)
	s.orderBy("allconcur", s.all()...)
	s.submit(3, report.LevelDurable, s.transfer())

	s.kill(3)
	s.changeEngine(operator, "allconcur+", 0, 1, 2)
	s.changeEngine(operator, "allconcur", 0, 1, 2)
	s.kill(2)
	s.start(3)
	s.orderBy("allconcur", 0, 1, 3)
	s.lose(func(h *home.Home) string { return h.Data() }, 2)
	s.start(2)
	s.orderBy("allconcur", s.all()...)
	s.ordering(s.all()...)

	joiner := s.join(operator, 0)
	s.start(joiner)
	s.orderBy("allconcur", s.all()...)
	s.ordering(s.all()...)
	s.submit(joiner, report.LevelDurable, s.transfer())
	s.same()
}

// TestEngineChangesRefused: a node refuses a change that it knows to be wrong, and says what to do.
func TestEngineChangesRefused(t *testing.T) {
	t.Parallel()
	s := newShard(t, 3, func(i int, config *home.Config) {
		config.Ordering.Engine, config.Ordering.Prompt = "allconcur", i > 0
	})
	operator := ledgertest.NewOperator(s.homes[0].Genesis)
	refused := func(name, want string) {
		t.Helper()
		refusal := s.nodes[0].Admit(t.Context(),
			[]*ledger.Bundle{operator.ChangeEngine(name)}, false)[0]
		if refusal == nil || refusal.Retry() || !strings.Contains(refusal.Reason, want) {
			t.Errorf("%s: %v", name, refusal)
		}
	}
	s.start(s.all()...)
	s.ordering(s.all()...)
	refused("allconcur", "cluster upgrade")
	s.newest(operator)
	refused("raft", "it runs allconcur+")
	s.eventually("the node hears others' settings", func() bool {
		refusal := s.nodes[0].Admit(t.Context(),
			[]*ledger.Bundle{operator.ChangeEngine("allconcur+")}, false)[0]
		return refusal != nil && strings.Contains(refusal.Reason, "other settings")
	})
}

// TestEngineNeedsAnEventualDetector: with a perfect detector a run cannot end in order.
func TestEngineNeedsAnEventualDetector(t *testing.T) {
	t.Parallel()
	s := newShard(t, 1, func(_ int, config *home.Config) {
		config.Ordering.Detector, config.Ordering.Prompt = "perfect", false
		config.Ordering.SuspectAfter = 5e9
	})
	operator := ledgertest.NewOperator(s.homes[0].Genesis)
	s.start(0)
	s.ordering(0)
	s.newest(operator)
	refusal := s.nodes[0].Admit(t.Context(), []*ledger.Bundle{operator.ChangeEngine("allconcur")},
		false)[0]
	if refusal == nil || !strings.Contains(refusal.Reason, `detector = "eventual"`) {
		t.Error(refusal)
	}
}

// TestUnknownEngine: a node whose program does not run the engine that the chain names ends, says
// what to do, and keeps what it has. A newer member may have admitted the change.
func TestUnknownEngine(t *testing.T) {
	t.Parallel()
	s := newShard(t, 3, nil)
	operator := ledgertest.NewOperator(s.homes[0].Genesis)
	s.start(s.all()...)
	s.ordering(s.all()...)
	s.newest(operator)
	if err := s.nodes[1].Slip(operator.ChangeEngine("train-of-2030")); err != nil {
		t.Fatal(err)
	}
	for _, n := range s.nodes {
		s.eventually("a node ends", func() bool { return n.Err() != nil })
		if err := n.Err(); !strings.Contains(err.Error(), "install the ledgerd") {
			t.Error(err)
		}
		if got := n.Store().Engine().Name; got != "train-of-2030" {
			t.Errorf("the chain names %q", got)
		}
	}
}
