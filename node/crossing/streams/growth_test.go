package streams

import (
	"fmt"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/rdmanet"
)

// A running shard gets a child, whose members start later. They get its stream from the first entry
// on, also from a member of the parent that was down when the child was added.
func TestAddedChild(t *testing.T) {
	bothWays(t, func(t *testing.T, vouched bool) {
		w := newWorld(t, 3, 3)
		w.vouched = vouched
		w.setTree((&ledger.Genesis{Tree: []ledger.ShardID{0},
			Shards: make([][]ledger.Member, 1)}).ShardTree())
		for _, id := range []rdmanet.PeerID{"0/0", "0/1"} {
			w.start(id, 1)
		}
		if status := w.nodes["0/0"].streams.Status(); len(status.Outgoing) != 0 {
			t.Errorf("a stream to nobody: %+v", status)
		}
		w.setTree(w.tree.Grow(parentShard))
		w.extend(200, 300)
		w.start("0/2", 1)
		for i := range 3 {
			w.start(rdmanet.PeerID(fmt.Sprintf("1/%d", i)), 1)
		}
		w.mustArrive()
		w.extend(200, 300)
		w.mustArrive()
		w.attached(3)
	})
}
