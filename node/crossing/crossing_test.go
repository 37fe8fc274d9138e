package crossing

import (
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/mempool"
	"github.com/ledgerd/ledgerd/node/pipeline"
	"github.com/ledgerd/ledgerd/rdmanet"
)

// In a book of one shard, the crossing leaves the node's batches, peers and clients alone.
func TestAlone(t *testing.T) {
	t.Parallel()
	c, err := New(Config{Genesis: &ledger.Genesis{Chain: "one"}})
	if err != nil {
		t.Fatal(err)
	}
	var pool mempool.Config
	var executing pipeline.Config
	c.Hook(&pool, &executing)
	if pool.Beside != nil || pool.Misplaced != nil || pool.Expires != nil ||
		executing.Applied != nil || executing.DurableTo != nil || executing.Exchanged != nil {
		t.Errorf("hooks %+v %+v", pool, executing)
	}
	if all := c.Addresses(map[rdmanet.PeerID]string{"peer": "address"}); len(all) != 1 ||
		all["peer"] != "address" {
		t.Errorf("addresses %v", all)
	}
	if err := c.Start(nil, nil); err != nil {
		t.Error(err)
	}
	if err := c.Serve(nil); err != nil {
		t.Error(err)
	}
	c.SetOwn(ledger.Membership{Number: 1})
	c.Changed()
	if c.MembersChanged() || c.Misrouted(nil) != nil || !c.Expires(nil) {
		t.Error("there is another shard")
	}
	c.Close()
}
