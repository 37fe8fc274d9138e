package route

import (
	"slices"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
)

// A shard that is behind several changes of the tree needs entries of each of its former parents.
// The operators must not settle with any of them before.
func TestFormerParentsAreShown(t *testing.T) {
	t.Parallel()
	tree := ledgertest.ShardedGenesis(1, 0, 0, 0).ShardTree()
	tree = tree.Rehang(3, &ledger.ShardRehang{Shard: 2, Parent: 1})
	tree = tree.Rehang(4, &ledger.ShardRehang{Shard: 2, Parent: 0})
	base := ledger.StreamBase(4)
	for carried, want := range map[uint64]struct {
		former  []uint32
		carried uint64
	}{
		0:                        {[]uint32{0, 1}, 0},
		12:                       {[]uint32{0, 1}, 0},
		ledger.StreamBase(3) + 1: {[]uint32{1}, 0},
		base:                     {nil, 0},
		base + 5:                 {nil, 5},
	} {
		got := streamTo(tree, 2, base+9, carried)
		if !slices.Equal(got.GetFormer(), want.former) || got.GetCarried() != want.carried ||
			got.GetStreamed() != 9 {
			t.Errorf("with %d: %v, want %v", carried, got, want)
		}
	}
}
