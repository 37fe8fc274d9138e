package node

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/ledger/store"
	"github.com/ledgerd/ledgerd/node/catchup"
	"github.com/ledgerd/ledgerd/node/mempool"
	"github.com/ledgerd/ledgerd/node/pipeline"
	"github.com/ledgerd/ledgerd/node/verification"
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/rdmanet/memory"
	"github.com/ledgerd/ledgerd/shard"
)

// branches has chains of one book that are equal up to a block, and a life that fetches them.
type branches struct {
	t       *testing.T
	genesis *ledger.Genesis
	network *memory.Network
	table   peerTable
	life    *life
	log     bytes.Buffer
	chains  map[order.ServerID]*store.Store
}

// newBranches makes a node whose chain ends with the last common block.
func newBranches(t *testing.T, common int) *branches {
	t.Helper()
	b := &branches{
		t: t, genesis: ledgertest.Genesis(), network: memory.NewNetwork(),
		chains: map[order.ServerID]*store.Store{},
		table:  peerTable{servers: map[rdmanet.PeerID]order.ServerID{}},
	}
	for server, id := range []rdmanet.PeerID{"0", "1", "2"} {
		b.table.put(order.ServerID(server), id)
	}
	own := b.chain(common, common, "")
	n := &Node{logger: slog.New(slog.NewTextHandler(&b.log, nil))}
	n.peers.table.Store(&b.table)
	n.verification = verification.New()
	t.Cleanup(n.verification.Close)
	n.pipeline = pipeline.New(pipeline.Config{
		Pool: mempool.New(mempool.Config{
			BytesMax: 1 << 20, Tip: func() mempool.Tip { return n.pipeline.Tip() },
		}),
		Logger: n.logger, Verification: n.verification,
	}, own)
	t.Cleanup(n.pipeline.Close)
	n.exchange = b.exchange("0", own)
	b.life = &life{
		node: n, context: t.Context(), wake: make(chan struct{}, 1),
		strays: map[order.ServerID]catchup.Point{},
	}
	return b
}

// chain makes a store with blocks. Those after the common ones belong to a branch.
func (b *branches) chain(common, height int, branch string) *store.Store {
	b.t.Helper()
	opened, err := store.Open(b.t.TempDir(), b.genesis,
		store.Options{MemTableBytes: 4 << 20, ReserveBytes: 1 << 20})
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() {
		if err := opened.Close(); err != nil {
			b.t.Error(err)
		}
	})
	client := ledgertest.NewClient(b.genesis, "acme")
	for i := 1; i <= height; i++ {
		name := "common"
		if i > common {
			name = branch
		}
		batch := ledgertest.Batch(ledger.Milliseconds(i), client.Bundle(client.Register(name)))
		if _, err := opened.Apply(1, ledger.Round(i), [][]byte{batch}); err != nil {
			b.t.Fatal(err)
		}
	}
	return opened
}

func (b *branches) exchange(id rdmanet.PeerID, serves catchup.Chain) *catchup.Exchange {
	b.t.Helper()
	host, err := b.network.Host(id)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		defer cancel()
		if err := host.Close(ctx); err != nil {
			b.t.Log(err)
		}
	})
	x, err := catchup.New(catchup.Config{
		Host: host, Peers: b.table.ids, Logger: slog.New(slog.DiscardHandler),
		Timeout: 10 * time.Second,
		Chain:   func() catchup.Chain { return b.served(id, serves) },
	})
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(x.Close)
	return x
}

// served returns the chain of a peer. A test may exchange it between two fetches.
func (b *branches) served(id rdmanet.PeerID, first catchup.Chain) catchup.Chain {
	if now := b.chains[b.table.servers[id]]; now != nil {
		return now
	}
	return first
}

func (b *branches) hash(of *store.Store, height ledger.Height) ledger.Hash {
	b.t.Helper()
	_, hash, err := of.Header(height)
	if err != nil {
		b.t.Fatal(err)
	}
	return hash
}

// fetch fetches up to a base from peers that announced their real heights. It returns the answer,
// the height reached, and how many warnings were logged.
func (b *branches) fetch(base catchup.Point, from ...order.ServerID) (shard.Fetched, ledger.Height,
	int) {
	b.t.Helper()
	e := shard.Fetch{Limit: uint64(base.Height), Base: base.Hash}
	for _, server := range from {
		head := b.chains[server].Head()
		e.From = append(e.From, shard.Source{Server: server, Height: uint64(head.Height),
			Hash: head.Hash})
	}
	b.log.Reset()
	b.life.inputs = nil
	b.life.fetch(e)
	if len(b.life.inputs) != 1 {
		b.t.Fatalf("the machine is told %+v", b.life.inputs)
	}
	warnings := strings.Count(b.log.String(), "level=WARN")
	return b.life.inputs[0].(shard.Fetched), b.life.node.pipeline.Tip().Height, warnings
}

// Nothing is appended from a peer that has another block at the base of a decision, even if its
// blocks would follow this chain's last one. The warning is logged once per peer and base, until
// the peer has changed. Blocks up to the base are taken from a peer that has the base.
func TestFetchOnlyWhereTheBaseIs(t *testing.T) {
	t.Parallel()
	b := newBranches(t, 2)
	right, wrong := b.chain(2, 6, "right"), b.chain(2, 7, "wrong")
	b.chains[1], b.chains[2] = wrong, right
	b.exchange("1", wrong)
	b.exchange("2", right)
	base := func(height ledger.Height) catchup.Point {
		return catchup.Point{Height: height, Hash: b.hash(right, height)}
	}
	expect := func(when string, base catchup.Point, height ledger.Height, warnings int,
		from ...order.ServerID) {
		t.Helper()
		fetched, reached, warned := b.fetch(base, from...)
		if fetched != (shard.Fetched{Reached: -1}) || reached != height || warned != warnings {
			t.Fatalf("%s: %+v, block %d instead of %d, %d warnings instead of %d:\n%s",
				when, fetched, reached, height, warned, warnings, b.log.String())
		}
	}
	expect("a peer of another branch", base(4), 2, 1, 1)
	expect("it is asked again", base(4), 2, 0, 1)
	expect("for another base", base(3), 2, 1, 1)
	expect("for the base before", base(4), 2, 1, 1)
	expect("one that has the base comes second", base(4), 4, 0, 1, 2)
	if tip := b.life.node.pipeline.Tip(); tip.Hash != base(4).Hash {
		t.Fatalf("the chain ends with %s", tip.Hash)
	}
	expect("the next base", base(5), 4, 1, 1)
	short := b.chain(2, 3, "right")
	b.chains[1] = short
	expect("its chain is too short", base(5), 4, 0, 1)
	b.chains[1] = right
	expect("it changed its branch", base(5), 5, 0, 1)
	b.chains[1] = wrong
	expect("and changed it back", base(6), 5, 1, 1)
	if tip := b.life.node.pipeline.Tip(); tip.Hash != base(5).Hash {
		t.Fatalf("the chain ends with %s", tip.Hash)
	}
}

// A peer whose chain ends with the base has it. A peer that announces the base itself is not asked.
func TestFetchFromAPeerThatEndsWithTheBase(t *testing.T) {
	t.Parallel()
	b := newBranches(t, 2)
	right := b.chain(2, 4, "right")
	b.chains[2] = right
	b.exchange("2", right)
	base := catchup.Point{Height: 4, Hash: b.hash(right, 4)}
	if err := b.life.holdsBase(&shard.Source{Server: 2, Height: 3}, base); err != nil {
		t.Fatal(err)
	}
	if fetched, height, warned := b.fetch(base, 2); fetched.Reached != 0 || height != 4 ||
		warned != 0 {
		t.Fatalf("%+v, block %d, %d warnings", fetched, height, warned)
	}
}
