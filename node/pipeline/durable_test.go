package pipeline

import (
	"fmt"
	"log/slog"
	"testing"

	"github.com/ledgerd/ledgerd/allconcur/generation"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/ledger/store"
	"github.com/ledgerd/ledgerd/node/mempool"
	"github.com/ledgerd/ledgerd/node/report"
	"github.com/ledgerd/ledgerd/node/verification"
	"github.com/ledgerd/ledgerd/order"
)

// operated is the pipeline of member 0 of a chain with an operator, in run 1 of all members.
func operated(t testing.TB, members int, config Config) (*Pipeline, *ledger.Genesis) {
	t.Helper()
	genesis := ledgertest.OperatedGenesis(members)
	opened, err := store.Open(t.TempDir(), genesis,
		store.Options{MemTableBytes: 4 << 20, ReserveBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	var p *Pipeline
	config.Pool = mempool.New(mempool.Config{BytesMax: 1 << 20, Tip: func() mempool.Tip {
		return p.Tip()
	}})
	config.Logger = slog.New(slog.DiscardHandler)
	config.Verification = verification.New()
	p = New(config, opened)
	t.Cleanup(func() {
		p.Close()
		config.Verification.Close()
		if err := opened.Close(); err != nil {
			t.Error(err)
		}
	})
	run := Run{Number: 1, First: 1}
	for server := range order.ServerID(members) {
		run.Members = append(run.Members, server)
	}
	run.Shard = generation.Membership{
		Members: run.Members, Disks: make([]generation.DiskID, members),
	}
	p.Begin(run)
	return p, genesis
}

// A block can be read before it is recorded which disks count for it. Peers' reports of that moment
// make it durable only once that is known. Here the block names another disk for member 1, whose
// report was about the old one.
func TestNothingIsDurableBeforeItsDisksAreKnown(t *testing.T) {
	t.Parallel()
	var p *Pipeline
	var early ledger.Height
	p, genesis := operated(t, 3, Config{Applied: func(block *ledger.Block) {
		p.heardStored(1, 1, block.Header.Height)
		p.heardStored(1, 2, block.Header.Height)
		heights, _ := p.Heights()
		early = heights.Durable
	}})
	admit := ledgertest.Admit("operator", genesis, genesis.Membership(), 1, ledgertest.Disk(7), 0)
	batch := ledger.EncodeBatch(ledger.BatchHeader{Time: 1, Tip: p.Store().GenesisHash()},
		[][]byte{admit.Encode()})
	delivery := order.Delivery{Round: 1, Messages: []order.Message{{Origin: 1,
		Payload: append(batch, 0)}}}
	if err := p.Deliver(t.Context(), []order.Delivery{delivery}); err != nil {
		t.Fatal(err)
	}
	if err := p.Barrier(t.Context()); err != nil {
		t.Fatal(err)
	}
	if early != 0 {
		t.Errorf("block %d was durable before it was known which disks count for it", early)
	}
	if now := p.Store().Membership(); now.Members[1].Disk != ledgertest.Disk(7) {
		t.Fatalf("the block names disk %v", now.Members[1].Disk)
	}
	if err := p.Sync(); err != nil {
		t.Fatal(err)
	}
	if heights, _ := p.Heights(); heights.Durable != 1 {
		t.Errorf("with the own disk and that of member 2: %+v", heights)
	}
}

// BenchmarkSettle measures the cost of settling that a block is durable: it was appended, and all
// others report that they hold it.
func BenchmarkSettle(b *testing.B) {
	for _, members := range []int{3, 5, 7} {
		b.Run(fmt.Sprint(members), func(b *testing.B) {
			p, _ := operated(b, members, Config{Applied: func(*ledger.Block) {}})
			block := &ledger.Block{}
			b.ReportAllocs()
			for b.Loop() {
				block.Header.Height++
				p.telling.head = block.Header.Height
				p.progress.update(func(h *report.Heights) { h.Ordered = block.Header.Height })
				p.settleBlock(block, nil)
				for server := order.ServerID(1); int(server) < members; server++ {
					p.PeerStored(1, server, block.Header.Height)
				}
			}
			if heights, _ := p.Heights(); heights.Durable != block.Header.Height {
				b.Fatalf("%+v, not %d", heights, block.Header.Height)
			}
		})
	}
}

// A claim about the chain before an Exchange that made it shorter says nothing about blocks that
// are yet to come.
func TestNothingBeyondTheHeadIsDurable(t *testing.T) {
	t.Parallel()
	p, _ := operated(t, 3, Config{})
	p.PeerDurable(5)
	if heights, _ := p.Heights(); heights.Durable != 0 {
		t.Errorf("the heights are %+v", heights)
	}
}
