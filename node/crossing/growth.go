package crossing

import (
	"sync"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/crossing/shards"
)

// growth is how this node learns of shards that were added to the book: from its own chain, once it
// has the addition durably. Until then the addition may be taken back, and the members that it
// names are strangers. What they say is lost, and they say it again.
type growth struct {
	mutex sync.Mutex
	// recalled is what the home's file has of shards that this node does not know yet.
	recalled []shards.Change
}

// grownChain is a chain that has the additions of shards. A store is one.
type grownChain interface {
	Additions() []ledger.AddedShard
	AddedAt(shard ledger.ShardID) (ledger.Height, bool)
	ShardTree() *ledger.ShardTree
	TreeUpTo(height ledger.Height) *ledger.ShardTree
}

// grow adds the shards to the directory that were added in a chain up to a height that is durable,
// and makes the changes of the tree there. With nothing to do it is cheap.
func (b *book) grow(chain grownChain, durable ledger.Height) {
	if tree, known := chain.ShardTree(), b.directory.Tree(); tree.Shards() <= known.Shards() &&
		len(tree.Rehung()) <= len(known.Rehung()) {
		return
	}
	b.growth.mutex.Lock()
	defer b.growth.mutex.Unlock()
	added, began := chain.Additions(), len(b.config.Genesis.Shards)
	for i := range added {
		if at, _ := chain.AddedAt(ledger.ShardID(began + i)); at > durable {
			added = added[:i]
			break
		}
	}
	before := b.directory.Tree().Shards()
	if err := b.directory.Grow(added); err != nil {
		b.config.Logger.Error("the shards that were added to the book cannot be followed", "error",
			err)
		return
	}
	b.recallKnown()
	for shard := before; shard < b.directory.Tree().Shards(); shard++ {
		parent, _ := b.directory.Tree().Parent(ledger.ShardID(shard))
		b.config.Logger.Info("the book has a further shard", "shard", shard, "below", parent)
	}
	made := b.directory.Rehang(chain.TreeUpTo(durable))
	for i := range made {
		b.config.Logger.Info("a shard hangs below another one", "shard", made[i].Shard, "below",
			made[i].To, "before", made[i].From)
	}
}
