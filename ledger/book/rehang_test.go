package book

import (
	"errors"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/ledger/store"
)

// hang hangs a shard below another one. The change is in the root's chain only, at first.
func (b *shards) hang(shard, parent ledger.ShardID) {
	b.t.Helper()
	root := b.stores[0]
	operator := &ledgertest.Operator{Ledger: root.Book(), Sequence: root.BookChanges()}
	bundle := operator.Bundle("operator", operator.ChangeBook(ledger.BookChange{
		Number: root.BookChanges() + 1, Rehang: &ledger.ShardRehang{Shard: shard,
			Parent: parent}}))
	b.forge = func(_ ledger.ShardID, batch *ledger.Batch) {
		batch.Bundles = append(batch.Bundles, bundle.Encode())
	}
	b.round(0)
	b.forge = nil
	if got, _ := root.ShardTree().Parent(shard); got != parent {
		b.t.Fatalf("shard %d is below shard %d", shard, got)
	}
}

// A cut has the tree as it is at its place in the root's chain, before, between and after changes
// of the tree that the shards below have not executed yet. Its balances add up, and cuts of before
// that are read after are the same.
func TestCutsWhileTheTreeChanges(t *testing.T) {
	t.Parallel()
	trees := make(map[int]int)
	late := 0
	for seed := range uint64(2) {
		b := newShardsOf(t, seed+10, ledger.NewestVersion, 0, 0, 0, 1)
		b.copies = seed == 1
		var cuts [][]Position
		changes := map[int][2]ledger.ShardID{60: {3, 2}, 62: {2, 1}, 100: {3, 0}, 101: {3, 1},
			140: {2, 3}}
		for round := range 200 {
			if change, due := changes[round]; due {
				b.hang(change[0], change[1])
			}
			b.trade()
			if round%8 == 0 { // sometimes all come as far as the root
				b.settle()
			}
			var height *ledger.Height
			if b.random.IntN(2) == 0 {
				height = new(ledger.Height)
				*height = ledger.Height(b.random.Uint64N(uint64(b.stores[0].AppendedHeight()) + 1))
			}
			cut, err := b.cut(height)
			if errors.Is(err, store.ErrNotYet) {
				late++
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			trees[rehungIn(b.stores[0].ShardTree(), cut)]++
			cuts = append(cuts, cut)
		}
		b.settle()
		for _, cut := range cuts {
			if err := b.judge(placesOf(cut)); err != nil {
				t.Fatal(err)
			}
			for shard, own := range b.stores {
				place, err := PlaceIn(t.Context(), own, cut, own.AppendedHeight())
				if err != nil || place != cut[shard].Place {
					t.Fatalf("shard %d: %+v, %v", shard, place, err)
				}
			}
		}
		report, err := b.check()
		if err != nil || report.Carried == 0 {
			t.Fatalf("%+v: %v", report, err)
		}
	}
	t.Logf("cuts by changes of the tree: %v; %d too early", trees, late)
	if trees[0] < 50 || trees[2] < 20 || trees[4] < 20 || trees[5] < 20 || late == 0 {
		t.Error("the cuts are too much alike")
	}
}

// A shard that was hung below another one is lost, and then that other one: a cut still says which
// changes of the tree it has.
func TestCutWithoutABranch(t *testing.T) {
	t.Parallel()
	tree := ledgertest.ShardedGenesis(1, 0, 0, 0).ShardTree().Rehang(1,
		&ledger.ShardRehang{Shard: 2, Parent: 1})
	height := ledger.Height(9)
	cut := NewCut(tree, &height)
	for questions := cut.Ask(); len(questions) > 0; questions = cut.Ask() {
		var answers []Position
		for i := range questions {
			answer := Position{Place: store.Place{Height: height}, Streamed: []uint64{5}, Shards: 3,
				Rehung: 1}
			if questions[i].Shard != 0 {
				answer = LostPlace(tree, &questions[i])
			}
			answers = append(answers, answer)
		}
		if err := cut.Answer(answers); err != nil {
			t.Fatal(err)
		}
	}
	if err := CheckCut(tree, cut.Positions()); err != nil {
		t.Errorf("%+v: %v", cut.Positions(), err)
	}
}

// No place has the numbers between the last entry from the old parent and the first one from the
// new one. Asking for them is no damage.
func TestPlacesAtTheSeam(t *testing.T) {
	t.Parallel()
	b := newShardsOf(t, 10, ledger.NewestVersion, 0, 0, 0, 1)
	for round := range 60 {
		if round == 30 {
			b.hang(3, 2)
		}
		b.trade()
	}
	b.settle()
	s := b.stores[3]
	last, base := s.Rehangs()[0].Last, ledger.StreamBase(s.Rehangs()[0].Number)
	for carried, want := range map[uint64]error{last - 1: nil, last: store.ErrNotFound,
		last + 1: store.ErrNotFound, base - 1: store.ErrNotFound, base: nil, base + 1: nil,
		s.Carried() + 1: store.ErrNotYet, ledger.StreamBase(99): store.ErrNotYet} {
		for _, near := range []ledger.Height{1, s.AppendedHeight()} {
			place, err := s.PlaceWith(t.Context(), carried, near, s.AppendedHeight())
			if !errors.Is(err, want) {
				t.Errorf("with %d, near %d: %v, %v, want %v", carried, near, place, err, want)
			}
		}
	}
}
