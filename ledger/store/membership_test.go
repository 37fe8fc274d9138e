package store

import (
	"bytes"
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

// The members follow from the blocks in the store: after reopening, at earlier heights, and after
// appending blocks of another node.
func TestMembershipIsKept(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	operator := ledgertest.NewOperator(testGenesis())
	s := open(t, filepath.Join(dir, "one"), small())
	other := open(t, filepath.Join(dir, "two"), small())
	for i, bundle := range []*ledger.Bundle{operator.Join(ledgertest.Member(1)),
		operator.Join(ledgertest.Member(2)), operator.Leave(0)} {
		block, err := s.Apply(1, ledger.Round(1+3*i), [][]byte{ledgertest.Batch(1, bundle)})
		if err != nil || !block.Entry(0).Result.OK() {
			t.Fatalf("change %d: %v, %v", i, err, block.Entry(0).Result)
		}
		if at := s.MembershipHeight(); at != block.Header.Height {
			t.Fatalf("the last change is at %d", at)
		}
		if now := s.Membership(); now.Number != uint64(i+1) || now.Height != block.Header.Height ||
			now.Round != block.Header.Round {
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
	if former := s.FormerMembers(); len(former) != 1 || former[0].Index != 0 ||
		former[0].Left != 3 {
		t.Errorf("former members: %+v", former)
	}
	if err := s.verify(t.Context(), nil); err != nil {
		t.Error(err)
	}
}

// The disk map is kept like the members: in the log, in a block of another node, and in a snapshot.
// It is known for every height whose state the store has.
func TestDiskMapIsKept(t *testing.T) {
	t.Parallel()
	dir, genesis := t.TempDir(), testGenesis()
	s := open(t, filepath.Join(dir, "one"), small())
	other := open(t, filepath.Join(dir, "two"), small())
	join := ledgertest.NewOperator(genesis).Join(ledgertest.Member(1))
	admit := func(signer string, index ledger.MemberIndex, disk int) *ledger.Bundle {
		return ledgertest.Admit(signer, genesis, s.Membership(), index, ledgertest.Disk(disk),
			s.Head().Height)
	}
	steps := []func() *ledger.Bundle{
		func() *ledger.Bundle { return join },
		func() *ledger.Bundle { return admit("node-1", 0, 1) },
		func() *ledger.Bundle { return admit("operator", 1, 2) },
		func() *ledger.Bundle { return admit("node-1", 0, 3) },
	}
	for i, step := range steps {
		block, err := s.Apply(1, ledger.Round(1+3*i), [][]byte{ledgertest.Batch(1, step())})
		if err != nil || !block.Entry(0).Result.OK() {
			t.Fatalf("change %d: %v, %v", i, err, block.Entry(0).Result)
		}
		if err := other.Append(block); err != nil {
			t.Fatal(err)
		}
	}
	want := []ledger.DiskID{ledgertest.Disk(3), ledgertest.Disk(2)}
	history := [][]ledger.DiskID{
		{{}}, {{}, {}}, {ledgertest.Disk(1), {}}, {ledgertest.Disk(1), ledgertest.Disk(2)}, want,
	}
	check := func(name string, s *Store) {
		t.Helper()
		for height, want := range history {
			if got := disksOf(s.MembershipAt(ledger.Height(height))); !slices.Equal(got, want) {
				t.Errorf("%s, at block %d: %v, want %v", name, height, got, want)
			}
		}
		now := s.Membership()
		if now.Number != 4 || now.Round != 10 || !slices.Equal(disksOf(now), want) {
			t.Errorf("%s: %+v", name, now)
		}
	}
	check("applied", s)
	check("appended", other)
	snapshot, _ := snapshotOf(t, s)
	if err := s.verify(t.Context(), nil); err != nil {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	check("opened again", open(t, filepath.Join(dir, "one"), small()))
	copied := filepath.Join(dir, "three")
	from := bytes.NewReader(snapshot)
	if _, err := Restore(t.Context(), copied, genesis, small(), from, believe); err != nil {
		t.Fatal(err)
	}
	check("from a snapshot", open(t, copied, small()))
}

// An admission takes no nonce, but is still in only one block. Identical later proposals of other
// members are left out, whether it was applied, changed nothing, or failed.
func TestAdmissionIsInOneBlock(t *testing.T) {
	t.Parallel()
	for _, sharded := range []bool{false, true} {
		genesis := ledgertest.OperatedGenesis(3)
		if sharded {
			genesis = ledgertest.ShardedGenesis(3, 0, 0)
		}
		dir := t.TempDir()
		s := openBook(t, dir, genesis, small())
		admit := func(index ledger.MemberIndex, disk int) *ledger.Bundle {
			return ledgertest.Admit("node-0", genesis, s.Membership(), index,
				ledgertest.Disk(disk), s.Head().Height)
		}
		applied := admit(1, 1)
		round := ledger.Round(0)
		apply := func(bundle *ledger.Bundle) *ledger.Block {
			t.Helper()
			round++
			block, err := s.Apply(1, round, [][]byte{ledgertest.Batch(1, bundle)})
			if err != nil {
				t.Fatal(err)
			}
			return block
		}
		once := func(bundle *ledger.Bundle, want ledger.Code) {
			t.Helper()
			if block := apply(bundle); block == nil || block.Entry(0).Result.Code != want {
				t.Fatalf("block %+v, want %s", block, want)
			}
		}
		failed := admit(2, 2)
		once(applied, ledger.Applied)
		unchanged := admit(1, 1)
		once(unchanged, ledger.Applied)
		once(failed, ledger.StaleNonce)
		for _, again := range []*ledger.Bundle{applied, unchanged, failed} {
			if block := apply(again); block != nil {
				t.Errorf("sharded %v: again in block %d, %s",
					sharded, block.Header.Height, block.Entry(0).Result)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = openBook(t, dir, genesis, small())
		for _, again := range []*ledger.Bundle{applied, unchanged, failed} {
			if block := apply(again); block != nil {
				t.Errorf("sharded %v, opened again: again in block %d", sharded,
					block.Header.Height)
			}
		}
		if err := s.verify(t.Context(), nil); err != nil {
			t.Error(err)
		}
	}
}

func disksOf(membership ledger.Membership) (all []ledger.DiskID) {
	for _, member := range membership.Members {
		all = append(all, member.Disk)
	}
	return all
}
