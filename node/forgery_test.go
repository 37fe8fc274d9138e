package node_test

import (
	"bytes"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/report"
)

// TestMemberForges: one member proposes a transfer that its client did not sign. No node executes
// it. The others name the forger, suspect it and continue, and the chain can be verified.
func TestMemberForges(t *testing.T) {
	t.Parallel()
	s := newShard(t, 3, nil)
	s.start(s.all()...)
	s.ordering(s.all()...)
	s.submit(0, report.LevelDurable, s.client.Register("a", "b"))
	transfer := func() ledger.Transaction {
		return s.client.Transfer(s.client.Account("a"), s.client.Account("b"), 1)
	}
	encoded := bytes.Clone(s.client.Bundle(transfer()).Encode())
	clear(encoded[len(encoded)-64:]) // the signature
	forged, err := ledger.DecodeBundle(encoded)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.nodes[1].Slip(forged); err != nil {
		t.Fatal(err)
	}
	s.eventually("the others name the forger", func() bool {
		for _, i := range []int{0, 2} {
			members := s.nodes[i].ClusterState().Members
			if members[1].Forged == 0 || members[0].Forged+members[2].Forged > 0 {
				return false
			}
		}
		return true
	})
	var ids []ledger.Hash
	for _, i := range []int{0, 2} {
		ids = append(ids, s.submit(i, report.LevelDurable, transfer())[0].ID)
	}
	for _, i := range []int{0, 2} {
		s.caughtUp(i)
		for _, id := range ids {
			if _, err := s.nodes[i].Store().Transaction(id); err != nil {
				t.Errorf("node %d: a good transfer: %v", i, err)
			}
		}
		if _, err := s.nodes[i].Store().Transaction(forged.ID(0)); err == nil {
			t.Errorf("node %d executed the forged transfer", i)
		}
	}
	s.ordering(s.all()...) // the forger comes back: its process may be repaired by now
	s.submit(1, report.LevelDurable, transfer())
	s.same()
}
