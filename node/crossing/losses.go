package crossing

import (
	"github.com/ledgerd/ledgerd/ledger"
)

// noteLosses drops the members of shards with which the operators settled, once that is durable: it
// cannot be taken back.
func (b *book) noteLosses(durable ledger.Height) {
	opened := b.config.Node.Store()
	for _, shard := range opened.LostBefore() { // the chain of an added shard began with it
		b.directory.Lose(shard, b.config.Now())
	}
	for _, loss := range opened.Losses() {
		if loss.Height <= durable && b.directory.Lose(loss.Shard, b.config.Now()) {
			b.config.Logger.Warn("the operators settled with a shard that is lost; its nodes are "+
				"not believed any more", "shard", loss.Shard, "height", loss.Height)
		}
	}
}

// isLost reports whether a shard is lost.
func (b *book) isLost(shard ledger.ShardID) bool {
	_, lost := b.directory.IsLost(shard)
	return lost
}
