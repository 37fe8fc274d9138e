package state_test

import (
	"cmp"
	"fmt"
	"slices"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/ledger/state"
)

// rehang returns an operator's transaction that hangs a shard below another one, as change number
// of the book.
func rehang(genesis *ledger.Genesis, number uint64, shard, parent ledger.ShardID) *ledger.Bundle {
	operator := &ledgertest.Operator{Ledger: genesis.Book(), Sequence: number}
	return operator.Bundle("operator", operator.ChangeBook(ledger.BookChange{Number: number,
		Rehang: &ledger.ShardRehang{Shard: shard, Parent: parent}}))
}

// lastFor returns the position that a shard has once it has taken all entries for it.
func (n *network) lastFor(shard ledger.ShardID) (last uint64) {
	if stream := n.stream(shard); len(stream) > 0 {
		last = stream[len(stream)-1].Number
	}
	for _, change := range n.shards[n.tree.Root()].state.Rehangs() {
		if change.Shard == shard {
			last = max(last, ledger.StreamBase(change.Number))
		}
	}
	return last
}

// hang submits a change of the tree.
func (a *airlines) hang(number uint64, shard, parent ledger.ShardID) ledger.Hash {
	return a.change(ledger.BookChange{Number: number,
		Rehang: &ledger.ShardRehang{Shard: shard, Parent: parent}})
}

// parentsOf checks the parents of all shards in all chains.
func (a *airlines) parentsOf(t *testing.T, want ...ledger.ShardID) {
	t.Helper()
	for shard, c := range a.shards {
		if got := c.state.ShardTree().Parents(); !slices.Equal(got, want) {
			t.Errorf("shard %d: the parents %v, want %v", shard, got, want)
		}
	}
}

// judgeLegs compares the parts of the streams to and from a shard with what the trees say that the
// book had, one after another.
func judgeLegs(own ledger.ShardID, s *state.State) error {
	tree := s.ShardTree()
	if tree == nil {
		return nil
	}
	all := make(map[ledger.ShardID][]state.Leg) // by child
	first := tree.Before(tree.Shards(), 0)
	for child := range ledger.ShardID(tree.Shards()) {
		parent, below := first.Parent(child)
		if height, _ := s.AddedAt(child); below {
			all[child] = []state.Leg{{Child: child, Parent: parent, Height: height}}
		}
	}
	for i, each := range s.Rehangs() {
		open := &all[each.Shard][len(all[each.Shard])-1]
		open.Last, open.Ended = each.Last, each.Height
		parent, _ := tree.Before(tree.Shards(), i+1).Parent(each.Shard)
		all[each.Shard] = append(all[each.Shard], state.Leg{Child: each.Shard, Parent: parent,
			Change: each.Number, Height: each.Height})
	}
	var to, from []state.Leg
	for child := range ledger.ShardID(tree.Shards()) {
		for i, leg := range all[child] {
			if i == len(all[child])-1 && leg.Parent == own {
				leg.Last = s.Streamed(child)
			} else if i == len(all[child])-1 && child == own {
				leg.Last = s.Carried()
			}
			if leg.Parent == own {
				to = append(to, leg)
			}
			if child == own {
				from = append(from, leg)
			}
		}
	}
	slices.SortFunc(to, func(a, b state.Leg) int {
		return cmp.Or(cmp.Compare(a.Height, b.Height), cmp.Compare(a.Change, b.Change),
			cmp.Compare(a.Child, b.Child))
	})
	if got := s.Legs(); !slices.Equal(got, to) {
		return fmt.Errorf("the streams to children are %+v, want %+v", got, to)
	}
	if got := s.LegsAbove(); !slices.Equal(got, from) {
		return fmt.Errorf("the streams from parents are %+v, want %+v", got, from)
	}
	return nil
}

// The parts of a shard's streams cost what they are, not what the whole tree is.
func TestLegsAreCheap(t *testing.T) {
	parents := make([]ledger.ShardID, 1000)
	for i := range parents {
		parents[i] = ledger.ShardID(max(0, i-1)) / 2
	}
	genesis := growing(parents...)
	s := state.New(genesis)
	batch := &ledger.Batch{Bundles: [][]byte{rehang(genesis, 1, 999, 1).Encode()}}
	draft := s.Seal(state.Parent{Header: genesis.Block().Header, Hash: genesis.Hash()}, 1, 1,
		ledger.VerifyBatches([][]byte{batch.Encode()}),
		func(ledger.Hash, *ledger.Transaction) bool { return false })
	s.Execute(draft)
	if err := judgeLegs(0, s); err != nil || len(s.Rehangs()) != 1 {
		t.Fatal(len(s.Rehangs()), err)
	}
	if got := testing.AllocsPerRun(100, func() { s.Legs() }); got > 5 {
		t.Errorf("%v allocations for the two children of the root of 1,000 shards", got)
	}
}

// A shard that is down while it is hung below another one, and further on, finds its way: what is
// before each change comes from the parent of then.
func TestRehang(t *testing.T) {
	t.Parallel()
	a := newSettling(t, 0, 0, 0, 1) // 3 below 1
	before := a.enter(a.until(1, 3, 5))
	a.flush()
	a.shards[3].stopped = true
	waits := a.enter(a.until(3, 1, 1))
	a.flush()
	first := a.hang(1, 3, 2)
	a.flush()
	by := a.enter(a.until(2, 3, 2)) // enters at shard 2 now
	a.flush()
	a.hang(2, 2, 1) // the new parent moves, too
	a.hang(3, 3, 0)
	back := a.hang(4, 3, 1)
	a.flush()
	last := a.enter(a.until(1, 3, 3))
	a.flush()
	if got := a.shards[3].state.Carried(); got >= ledger.StreamBase(1) {
		t.Fatalf("shard 3 is stopped and has entry %d", got)
	}
	a.shards[3].stopped = false
	a.flush()
	a.expect(before, none, setAside, none, setAside)
	a.expect(waits, none, setAside, none, setAside)
	a.expect(by, none, none, setAside, setAside)
	a.expect(last, none, setAside, none, setAside)
	for _, id := range []ledger.Hash{first, back} {
		a.expect(id, 0, 0, 0, 0)
	}
	a.parentsOf(t, 0, 0, 1, 1)
	one, three := a.shards[1].state, a.shards[3].state
	if three.Carried() != ledger.StreamBase(4)+1 || one.Streamed(3) != ledger.StreamBase(4)+1 {
		t.Errorf("shard 3 has entry %d of %d", three.Carried(), one.Streamed(3))
	}
	if got, want := a.shards[2].state.Streamed(3), ledger.StreamBase(1)+3; got != want {
		t.Errorf("shard 2 ended its stream with entry %d, want %d", got, want)
	}
	rehangs := one.Rehangs()
	if len(rehangs) != 4 || rehangs[0].Last == 0 || rehangs[2].Last != 0 {
		t.Fatalf("shard 1 knows the changes %+v", rehangs)
	}
	if tree := one.TreeAt(rehangs[0].Height); tree.Parents()[3] != 1 {
		t.Errorf("the block of the change is under %v", tree.Parents())
	}
	if tree := one.TreeAt(rehangs[0].Height + 1); tree.Parents()[3] != 2 {
		t.Errorf("the block after the change is under %v", tree.Parents())
	}
	a.checkEnd()
}

// A refused change of the tree changes nothing, for the same reason in all shards.
func TestRehangRefused(t *testing.T) {
	t.Parallel()
	a := newSettling(t, 0, 0, 0, 1)
	for _, each := range []struct {
		shard, parent ledger.ShardID
		want          ledger.Code
	}{
		{0, 1, ledger.BadParent}, {1, 1, ledger.BadParent}, {1, 3, ledger.BadParent},
		{3, 1, ledger.BadParent}, {3, 9, ledger.UnknownShard}, {9, 0, ledger.UnknownShard},
	} {
		id := a.hang(1, each.shard, each.parent)
		a.flush()
		a.expect(id, int(each.want), int(each.want), int(each.want), int(each.want))
	}
	a.settle(1, 2)
	a.flush()
	for _, each := range [][2]ledger.ShardID{{3, 2}, {2, 1}} {
		id := a.hang(2, each[0], each[1])
		a.flush()
		a.expect(id, int(ledger.ShardLost), int(ledger.ShardLost), none, int(ledger.ShardLost))
	}
	old := a.hang(1, 3, 0)
	a.flush()
	a.expect(old, int(ledger.BookOutdated), int(ledger.BookOutdated), none,
		int(ledger.BookOutdated))
	a.parentsOf(t, 0, 0, 0, 1)
}

// The model finds each bug that is planted in changes of the tree within some seeds. A shard that
// gets the change twice leaves the second one out; sim/book finds that.
func TestRehangModelFindsBugs(t *testing.T) {
	t.Parallel()
	for _, fault := range []state.Fault{state.FaultSeamShort, state.FaultSeamForgotten,
		state.FaultPositionKept} {
		t.Run(fault.String(), func(t *testing.T) {
			t.Parallel()
			mustFind(t, fault, 4, []ledger.ShardID{0, 0, 1, 1})
		})
	}
}
