package store

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
)

func indexes(membership ledger.Membership) (all []ledger.MemberIndex) {
	for _, member := range membership.Members {
		all = append(all, member.Index)
	}
	return all
}

// The members are those of the blocks that are there: after opening again, in the past, and where a block is appended that another node made.
func TestMembershipIsKept(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	operator := ledgertest.NewOperator(testGenesis())
	s := open(t, filepath.Join(dir, "one"), small())
	other := open(t, filepath.Join(dir, "two"), small())
	for i, bundle := range []*ledger.Bundle{operator.Join(ledgertest.Member(1)), operator.Join(ledgertest.Member(2)), operator.Leave(0)} {
		block, err := s.Apply(1, ledger.Round(1+3*i), [][]byte{ledgertest.Batch(1, bundle)})
		if err != nil || !block.Entries[0].Result.OK() {
			t.Fatalf("change %d: %v, %v", i, err, block.Entries[0].Result)
		}
		if now := s.Membership(); now.Number != uint64(i+1) || now.Height != block.Header.Height || now.Round != block.Header.Round {
			t.Fatalf("after change %d: %+v", i, now)
		}
		if err := other.Append(block); err != nil {
			t.Fatal(err)
		}
	}
	want := []ledger.MemberIndex{1, 2}
	if got := indexes(other.Membership()); !slices.Equal(got, want) {
		t.Errorf("appended: members %v, want %v", got, want)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, filepath.Join(dir, "one"), small())
	if got := indexes(s.Membership()); !slices.Equal(got, want) {
		t.Errorf("opened again: members %v, want %v", got, want)
	}
	for height, want := range [][]ledger.MemberIndex{{0}, {0, 1}, {0, 1, 2}, {1, 2}} {
		if got := indexes(s.MembershipAt(ledger.Height(height))); !slices.Equal(got, want) {
			t.Errorf("at block %d: members %v, want %v", height, got, want)
		}
	}
	if former := s.FormerMembers(); len(former) != 1 || former[0].Index != 0 || former[0].Left != 3 {
		t.Errorf("former members: %+v", former)
	}
	if err := s.verify(t.Context(), nil); err != nil {
		t.Error(err)
	}
}
