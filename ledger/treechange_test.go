package ledger_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
)

// A shard that is behind needs the entries of all parents that it had since, one after the other.
func TestParentsFrom(t *testing.T) {
	t.Parallel()
	tree := ledgertest.ShardedGenesis(1, 0, 0, 0, 0, 0).ShardTree()
	for i, parent := range []ledger.ShardID{1, 2, 3} {
		tree = tree.Rehang(uint64(i+4), &ledger.ShardRehang{Shard: 4, Parent: parent})
	}
	for number, want := range map[uint64][]ledger.ShardID{
		0:                            {0, 1, 2, 3},
		7:                            {0, 1, 2, 3},
		ledger.StreamBase(4):         {1, 2, 3},
		ledger.StreamBase(5) + 1_000: {2, 3},
		ledger.StreamBase(6) + 1:     {3},
	} {
		if got := tree.ParentsFrom(4, number); !slices.Equal(got, want) {
			t.Errorf("after entry %d: %v, want %v", number, got, want)
		}
		if at, below := tree.ParentOf(4, number); !below || at != want[0] {
			t.Errorf("entry %d comes from %d, want %d", number, at, want[0])
		}
	}
	if parents := tree.ParentsFrom(0, 0); parents != nil {
		t.Errorf("the root takes entries from %v", parents)
	}
}

// Changes made at once give the tree that they give one by one, and are refused as they are.
func TestRehangAll(t *testing.T) {
	t.Parallel()
	first := ledgertest.ShardedGenesis(1, 0, 0, 0, 1, 2).ShardTree()
	tree := first
	for i, change := range []ledger.ShardRehang{{Shard: 3, Parent: 2}, {Shard: 1, Parent: 3},
		{Shard: 4, Parent: 1}, {Shard: 3, Parent: 0}, {Shard: 2, Parent: 4}} {
		tree = tree.Rehang(uint64(i+1), &change)
	}
	all, err := first.RehangAll(tree.Rehung())
	if err != nil || !slices.Equal(all.Parents(), tree.Parents()) ||
		!slices.Equal(all.Rehung(), tree.Rehung()) {
		t.Errorf("%v: %v, want %v", err, all, tree)
	}
	for name, change := range map[string]ledger.TreeChange{
		"the root":          {Number: 9, Shard: 0, From: 0, To: 1},
		"itself":            {Number: 9, Shard: 2, From: 4, To: 2},
		"below itself":      {Number: 9, Shard: 3, From: 0, To: 2},
		"where it is":       {Number: 9, Shard: 2, From: 4, To: 4},
		"from elsewhere":    {Number: 9, Shard: 2, From: 0, To: 3},
		"no such shard":     {Number: 9, Shard: 5, From: 0, To: 3},
		"below no shard":    {Number: 9, Shard: 2, From: 4, To: 5},
		"a number too much": {Number: 9, Shard: 1 << 20, From: 4, To: 5},
	} {
		if _, err := tree.RehangAll([]ledger.TreeChange{change}); !errors.Is(err,
			ledger.ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
