package node_test

import (
	"errors"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/node"
	"github.com/ledgerd/ledgerd/node/home"
	"github.com/ledgerd/ledgerd/node/report"
)

// TestOperatorsDecideTogether: two of three operators replace the first one. From then on a change
// of the members, and a recovery, needs two of the present ones. A member that proposes a change
// with fewer signatures only makes the others begin an eon with the same members.
func TestOperatorsDecideTogether(t *testing.T) {
	t.Parallel()
	s := newShard(t, 3, nil)
	operator := ledgertest.NewOperator(s.homes[0].Genesis)
	s.start(s.all()...)
	s.ordering(s.all()...)
	s.submit(0, report.LevelDurable, s.client.Register("a", "b"))
	s.order(0, func() *ledger.Bundle {
		return ledgertest.Signed(ledger.Operator, []string{"operator"},
			operator.ChangeCharter(ledgertest.Charter(2, "x", "y", "z")))
	})
	leave := func(names ...string) *ledger.Bundle {
		return ledgertest.Signed(ledger.Operator, names, operator.Next(ledger.MembershipChange{
			Kind: ledger.ChangeLeave, Index: 2}))
	}
	for _, names := range [][]string{{"operator"}, {"x"}, {"x", "x"}, {"x", "operator"},
		{"node-1"}} {
		s.refused(0, leave(names...))
		bundle := leave(names...)
		if err := s.nodes[1].Slip(bundle); err != nil {
			t.Fatal(err)
		}
		if got := s.submitted(bundle, 0); got.Result.Code != ledger.Unauthorised {
			t.Errorf("signed by %v: %+v", names, got)
		}
	}
	usurped := ledgertest.Charter(1, "operator")
	usurped.Number = 2
	for _, names := range [][]string{{"operator"}, {"x"}, {"z", "operator"}} {
		bundle := ledgertest.Signed(ledger.Operator, names, operator.ChangeCharter(usurped))
		if err := s.nodes[1].Slip(bundle); err != nil {
			t.Fatal(err)
		}
		if got := s.submitted(bundle, 0); got.Result.Code != ledger.Unauthorised {
			t.Errorf("signed by %v: %+v", names, got)
		}
	}
	s.submit(2, report.LevelDurable, s.transfer())
	s.same()
	for i := range s.nodes {
		if membership := s.nodes[i].Store().Membership(); len(membership.Members) != 3 {
			t.Errorf("node %d: %d members", i, len(membership.Members))
		}
		s.stop(i)
	}

	s.lose(func(h *home.Home) string { return h.Data() }, 0, 2)
	r := s.plan(node.RecoveryOptions{}, s.all()...)
	if r.Refused != nil || len(r.Changes) != 2 {
		t.Fatalf("refused %v, %d changes", r.Refused, len(r.Changes))
	}
	for _, names := range [][]string{nil, {"operator"}, {"x"}, {"x", "x"}, {"x", "operator"}} {
		if _, err := r.Do(operatorsOf(names...)...); !errors.Is(err, node.ErrRecovery) {
			t.Errorf("recovery by %v: %v", names, err)
		}
	}
	if _, err := r.Do(operatorsOf("z", "x", "x")...); err != nil {
		t.Fatal(err)
	}
	s.start(s.all()...)
	s.ordering(s.all()...)
	s.submit(0, report.LevelDurable, s.transfer())
	s.order(0, func() *ledger.Bundle { return leave("y", "z") })
}

func operatorsOf(names ...string) (operators []*node.Operator) {
	for _, name := range names {
		operators = append(operators, node.NewOperator(ledgertest.Key(name)))
	}
	return operators
}
