package client

import (
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// TreeOf returns the tree of a book's shards: those that the genesis of any of its chains names,
// and those that were added since, as a node shows them (Client.Tree). It is nil in a book of one
// shard. What cannot be a part of the tree is ignored, so a node that lies can only hide shards, or
// show added ones that there are not.
func TreeOf(genesis *ledger.Genesis, shown *ledgerdv1.Tree) *ledger.ShardTree {
	tree := genesis.ShardTree()
	if tree == nil {
		return nil
	}
	for _, shard := range shown.GetShards() {
		number, parent := shard.GetShard(), shard.GetParent()
		if int64(number) == int64(tree.Shards()) && parent < number && number < ledger.MaxShards {
			tree = tree.Grow(ledger.ShardID(parent))
		}
	}
	return tree
}
