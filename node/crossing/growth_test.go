package crossing

import (
	"log/slog"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/rdmanet/p2p"
)

// additions are the shards that were added in a chain, the first one in block 1, and so on.
type additions []ledger.AddedShard

// Additions implements grownChain.
func (a additions) Additions() []ledger.AddedShard { return a }

// AddedAt implements grownChain.
func (a additions) AddedAt(shard ledger.ShardID) (ledger.Height, bool) {
	return ledger.Height(max(0, int(shard)-2)), int(shard) < 3+len(a)
}

// ShardTree implements grownChain.
func (a additions) ShardTree() *ledger.ShardTree {
	tree := ledgertest.ShardedGenesis(1, 0, 0, 0).ShardTree()
	for i := range a {
		tree = tree.Grow(a[i].Parent)
	}
	return tree
}

// TreeUpTo implements grownChain.
func (a additions) TreeUpTo(height ledger.Height) *ledger.ShardTree {
	return a[:min(int(height), len(a))].ShardTree()
}

// A shard that was added counts once the addition is durable here. Then the fabric admits its
// members, also those that the node knew before it ended.
func TestBookGrowsOnceItIsDurable(t *testing.T) {
	t.Parallel()
	peer := func(i int) rdmanet.PeerID {
		peer, err := p2p.PeerID(ledgertest.Member(i).Key)
		if err != nil {
			t.Fatal(err)
		}
		return peer
	}
	chain := additions{{Parent: 0, Members: []ledger.Member{ledgertest.Member(30)}},
		{Parent: 1, Members: []ledger.Member{ledgertest.Member(31)}}}
	dir := t.TempDir()
	begin := func() *book {
		b, err := newBook(Config{Dir: dir, Genesis: ledgertest.ShardedGenesis(1, 0, 0, 0),
			Self: "self", Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(b.cancel)
		return b
	}
	b := begin()
	b.grow(chain, 0)
	if _, _, known := b.directory.Find(peer(30)); known || b.MembersChanged() {
		t.Error("an addition counts before it is durable")
	}
	b.grow(chain, 1)
	addresses := b.Addresses(nil)
	if addresses[peer(30)] != ledgertest.Member(30).Address || addresses[peer(31)] != "" ||
		!b.MembersChanged() || b.Tree().Shards() != 4 {
		t.Errorf("%d shards, at %v", b.Tree().Shards(), addresses)
	}
	if !b.directory.Learn(3, ledger.Membership{Number: 3, Height: 9, Members: []ledger.GroupMember{{
		Member: ledgertest.Member(40), Index: 2, Joined: 8}}}) {
		t.Fatal("a change was not learnt")
	}
	if err := b.write(b.withRecalled(b.directory.Changes())); err != nil {
		t.Fatal(err)
	}
	// After a restart the file is read before the chain is. It is written again meanwhile.
	b = begin()
	if err := b.write(b.withRecalled(b.directory.Changes())); err != nil {
		t.Fatal(err)
	}
	b = begin()
	b.grow(chain, 2)
	addresses = b.Addresses(nil)
	if addresses[peer(30)] != "" || addresses[peer(31)] == "" || addresses[peer(40)] == "" {
		t.Errorf("at %v", addresses)
	}
	if changes := b.withRecalled(b.directory.Changes()); len(changes) != 1 {
		t.Errorf("changes %+v", changes)
	}
	b.grow(chain[:1], 2) // an earlier store
	if b.Tree().Shards() != 5 {
		t.Errorf("%d shards", b.Tree().Shards())
	}
}
