package shards

import (
	"time"

	"github.com/ledgerd/ledgerd/ledger"
)

// Lose records for good that the operators settled with a shard. Its members are nobody's any more:
// the fabric drops them, streams to them end, and nothing that they say is believed. The own shard
// keeps its members; the others have dropped them. Lose reports whether this is news.
func (d *Directory) Lose(shard ledger.ShardID, at time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, again := d.lost[shard]; again || int(shard) >= len(d.shards) {
		return false
	}
	if d.lost == nil {
		d.lost = make(map[ledger.ShardID]time.Time)
	}
	d.lost[shard] = at
	if shard != d.own {
		d.replace(shard, members{number: d.shards[shard].number, said: d.shards[shard].said})
	}
	return true
}

// IsLost reports whether a shard is lost, and since when this node knows.
func (d *Directory) IsLost(shard ledger.ShardID) (since time.Time, lost bool) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	since, lost = d.lost[shard]
	return since, lost
}
