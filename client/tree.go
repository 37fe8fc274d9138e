package client

import (
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// TreeOf returns the tree of a book's shards: those that the genesis of any of its chains names,
// and those that were added since, where they are now, as a node shows them (Client.Tree). It is
// nil in a book of one shard. What cannot be a part of the tree is ignored. So a node that lies can
// only hide shards, show added ones that there are not, or show them in other places.
func TreeOf(genesis *ledger.Genesis, shown *ledgerdv1.Tree) *ledger.ShardTree {
	tree := genesis.ShardTree()
	if tree == nil {
		return nil
	}
	for _, shard := range shown.GetShards() {
		number, parent := shard.GetShard(), shard.GetParent()
		if int64(number) == int64(tree.Shards()) && number < ledger.MaxShards {
			if parent >= number { // it was hung below a later one
				parent = uint32(tree.Root())
			}
			tree = tree.Grow(ledger.ShardID(parent))
		}
	}
	// From the root down, so that the place of each shard is right before those below it come
	// there.
	came := make(map[ledger.ShardID]bool)
	for next := []ledger.ShardID{tree.Root()}; len(next) > 0; next = next[1:] {
		for _, shard := range shown.GetShards() {
			change := &ledger.ShardRehang{Shard: ledger.ShardID(shard.GetShard()),
				Parent: next[0]}
			if shard.GetRoot() || ledger.ShardID(shard.GetParent()) != next[0] ||
				came[change.Shard] || int(change.Shard) >= tree.Shards() {
				continue
			}
			if tree.MayRehang(change) == ledger.Applied {
				tree = tree.Rehang(uint64(len(tree.Rehung()))+1, change)
			}
			if parent, below := tree.Parent(change.Shard); below && parent == next[0] {
				came[change.Shard], next = true, append(next, change.Shard)
			}
		}
	}
	return tree
}
