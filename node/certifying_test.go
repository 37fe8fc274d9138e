package node_test

import (
	"bytes"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/ledger/store"
	"github.com/ledgerd/ledgerd/node/report"
	"github.com/ledgerd/ledgerd/node/wire"
)

// proves checks that a node proves from the genesis that its last block is final, once the block is
// certified.
func (s *shard) proves(i int) {
	s.t.Helper()
	opened := s.nodes[i].Store()
	var finality *ledger.Finality
	s.eventually(fmt.Sprintf("node %d has all certificates", i), func() (holds bool) {
		var err error
		finality, err = opened.Finality(1)
		return err == nil && opened.CertifiedHeight() == opened.Head().Height
	})
	head := opened.Head()
	_, hash, err := opened.Header(1)
	if err != nil {
		s.t.Fatal(err)
	}
	auditor := ledger.NewAuditor(opened.Genesis())
	if err := auditor.Verify(finality, 1, hash); err != nil {
		s.t.Fatalf("node %d: block 1: %v", i, err)
	}
	if finality, err = opened.Finality(head.Height); err != nil {
		s.t.Fatal(err)
	}
	if err := auditor.Verify(finality, head.Height, head.Hash); err != nil {
		s.t.Fatalf("node %d: block %d: %v", i, head.Height, err)
	}
}

// TestBlocksAreCertified follows a shard whose members change: each node proves each block from the
// genesis, a node that was away fetches what it missed, and a snapshot is believed by its
// certificate.
func TestBlocksAreCertified(t *testing.T) {
	t.Parallel()
	s := newShard(t, 3, nil)
	s.start(0, 1, 2)
	s.ordering(0, 1, 2)
	s.submit(0, report.LevelDurable, s.client.Register("a", "b"))
	for i := range 3 {
		s.proves(i)
	}
	operator := ledgertest.NewOperator(s.homes[0].Genesis)
	joined := s.join(operator, 0)
	s.start(joined)
	s.ordering(0, 1, 2, joined)
	s.stop(2)
	s.submit(0, report.LevelDurable, s.transfer())
	s.start(2)
	for _, i := range []int{0, 1, joined, 2} {
		s.proves(i)
	}
	s.ordering(0, 1, 2, joined)
	s.order(0, func() *ledger.Bundle { return operator.Leave(0) })
	s.ordering(1, 2, joined)
	s.submit(1, report.LevelDurable, s.transfer())
	for _, i := range []int{1, 2, joined} {
		s.proves(i)
	}
	last, err := s.nodes[1].Store().Certificate(s.nodes[1].Store().Head().Height)
	if err != nil || last.Epoch != 2 {
		t.Fatalf("%+v, %v", last, err)
	}
	var snapshot bytes.Buffer
	if _, err := s.nodes[2].Store().WriteSnapshot(t.Context(), &snapshot); err != nil {
		t.Fatal(err)
	}
	certified := false
	if _, err := store.Restore(t.Context(), filepath.Join(t.TempDir(), "data"), s.homes[0].Genesis,
		s.store,
		&snapshot,
		func(_ ledger.Height, _ ledger.Hash, is bool) error {
			certified = is
			return nil
		}); err != nil || !certified {
		t.Fatalf("certified %v, %v", certified, err)
	}
}

// TestMemberTellsTwoStories has a compromised member sign another block than the one that the
// others certified. They keep the evidence and go on.
func TestMemberTellsTwoStories(t *testing.T) {
	t.Parallel()
	s := newShard(t, 3, nil)
	s.start(0, 1, 2)
	s.ordering(0, 1, 2)
	s.submit(0, report.LevelDurable, s.client.Register("a", "b"))
	s.proves(0)
	s.stop(2)
	lie := ledger.SignStatement(s.homes[2].Key, s.homes[2].Genesis.Hash(), 2, 0, 1, ledger.Hash{9})
	frame := append([]byte{byte(wire.KindStatement)}, lie.Encode()...)
	member := &liar{heard: map[string][][]byte{}}
	member.begin(s, 2)
	s.eventually("the liar is heard", func() bool {
		lane, err := member.host.Lane(s.peers[0], wire.DatagramLane)
		if err != nil {
			return false
		}
		if _, err := lane.TrySend(frame); err != nil {
			return false
		}
		return s.nodes[0].Store().EvidenceCount() > 0
	})
	kept, err := s.nodes[0].Store().Evidence()
	if err != nil || len(kept) != 1 || kept[0].Height() != 1 {
		t.Fatalf("%v, %v", kept, err)
	}
	s.submit(0, report.LevelDurable, s.transfer())
}

// TestLastLeaveOfTwo removes one of two members. The certificate of that block takes both.
func TestLastLeaveOfTwo(t *testing.T) {
	t.Parallel()
	s := newShard(t, 2, nil)
	s.start(0, 1)
	s.ordering(0, 1)
	s.submit(0, report.LevelDurable, s.client.Register("a", "b"))
	operator := ledgertest.NewOperator(s.homes[0].Genesis)
	s.order(0, func() *ledger.Bundle { return operator.Leave(1) })
	s.ordering(0)
	s.submit(0, report.LevelDurable, s.transfer())
	s.proves(0)
}
