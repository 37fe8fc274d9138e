package catchup

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/ledger/state"
	"github.com/ledgerd/ledgerd/ledger/store"
	"github.com/ledgerd/ledgerd/node/wire"
	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/rdmanet/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds the wait for an expected event.
const patience = time.Minute

// chain is a list of blocks, the genesis first. Hooks are called before a read and may fail it.
type chain struct {
	blocks   []*ledger.Block
	onHeader func(ledger.Height) error
	onBlock  func(ledger.Height) error
	absent   ledger.Height
	// certificates are those of some blocks, ascending.
	certificates []*ledger.Certificate
}

func (c *chain) Certificates(above ledger.Height, bytesMax int) ([]*ledger.Certificate, error) {
	var all []*ledger.Certificate
	for _, certificate := range c.certificates {
		if size := len(certificate.Encode()); certificate.Height > above &&
			(len(all) == 0 || size <= bytesMax) {
			all, bytesMax = append(all, certificate), bytesMax-size
		}
	}
	return all, nil
}

func (c *chain) Absent() ledger.Height { return c.absent }

func (c *chain) AppendedHeight() ledger.Height { return ledger.Height(len(c.blocks) - 1) }

func (c *chain) Header(height ledger.Height) (ledger.Header, ledger.Hash, error) {
	if c.onHeader != nil {
		if err := c.onHeader(height); err != nil {
			return ledger.Header{}, ledger.Hash{}, err
		}
	}
	block, err := c.at(height)
	if err != nil {
		return ledger.Header{}, ledger.Hash{}, err
	}
	return block.Header, block.Hash, nil
}

func (c *chain) Block(height ledger.Height) (*ledger.Block, error) {
	if c.onBlock != nil {
		if err := c.onBlock(height); err != nil {
			return nil, err
		}
	}
	return c.at(height)
}

func (c *chain) at(height ledger.Height) (*ledger.Block, error) {
	if height > c.AppendedHeight() {
		return nil, fmt.Errorf("%w: block %d", store.ErrNotFound, height)
	}
	return c.blocks[height], nil
}

func (c *chain) point(height ledger.Height) Point {
	return Point{Height: height, Hash: c.blocks[height].Hash}
}

// batches returns the round messages of a chain: block i has 1 + i%5 transactions, and blocks after
// `same` depend on the variant.
func batches(genesis *ledger.Genesis, heights, same int, variant int64) [][]byte {
	client := ledgertest.NewClient(genesis, "alpha")
	var list [][]byte
	for i := 1; i <= heights; i++ {
		amount := int64(1)
		if i > same {
			amount += variant
		}
		transactions := []ledger.Transaction{client.Register("bank", "cash")}
		if i > 1 {
			client.Sequence--
			transactions = nil
			for range 1 + i%5 {
				transactions = append(transactions, client.Transfer("alpha:bank", "alpha:cash",
					amount))
			}
		}
		list = append(list, ledgertest.Batch(genesis.Time+ledger.Milliseconds(i),
			client.Bundle(transactions...)))
	}
	return list
}

// newChain executes the round messages of batches.
func newChain(t testing.TB, heights, same int, variant int64) *chain {
	t.Helper()
	genesis := ledgertest.Genesis()
	executed, made := state.New(genesis), &chain{blocks: []*ledger.Block{genesis.Block()}}
	for i, batch := range batches(genesis, heights, same, variant) {
		last := made.blocks[i]
		parent := state.Parent{Header: last.Header, Hash: last.Hash}
		draft := state.Seal(parent, 1, ledger.Round(i+1),
			ledger.VerifyBatches([][]byte{batch}), func(ledger.Hash, *ledger.Transaction) bool {
				return false
			})
		if draft == nil {
			t.Fatalf("round %d has nothing new", i+1)
		}
		block, _ := executed.Execute(draft)
		made.blocks = append(made.blocks, block)
	}
	return made
}

// fabric is a network of members a, b and c, whose hosts are closed at the test's end.
type fabric struct {
	t       testing.TB
	network *memory.Network
}

func newFabric(t testing.TB, options ...memory.Options) *fabric {
	return &fabric{t: t, network: memory.NewNetwork(options...)}
}

func (f *fabric) host(id rdmanet.PeerID) *memory.Host {
	f.t.Helper()
	host, err := f.network.Host(id)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() {
		// Do not wait for frames in the windows of dead peers.
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		defer cancel()
		if err := host.Close(ctx); err != nil {
			f.t.Log(err)
		}
	})
	return host
}

var members = []rdmanet.PeerID{"a", "b", "c"}

// exchange starts an exchange on its own host; change may be nil.
func (f *fabric) exchange(id rdmanet.PeerID, serves Chain, change func(*Config)) *Exchange {
	f.t.Helper()
	config := Config{Host: f.host(id), Peers: members, Chain: func() Chain {
		return serves
	}, Logger: slog.New(slog.DiscardHandler), Timeout: patience}
	if change != nil {
		change(&config)
	}
	x, err := New(config)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(x.Close)
	return x
}

// raw is a member without an exchange: serve answers requests, and may be nil if there are none.
func (f *fabric) raw(id rdmanet.PeerID, serve func(context.Context, *wire.Served) error,
) *wire.Requests {
	f.t.Helper()
	if serve == nil {
		serve = func(context.Context, *wire.Served) error { return nil }
	}
	x, err := wire.New(wire.Config{Host: f.host(id), Lane: LaneName, Serve: serve,
		Admit:  func(rdmanet.PeerID) bool { return true },
		Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(x.Close)
	return x
}

// post sends a request to b and returns the end of it: its chunks, and its error.
func (f *fabric) post(ctx context.Context, x *wire.Requests, kind byte, head []byte) ([][]byte,
	error) {
	wake := make(chan struct{}, 1)
	asked := x.Ask("b", wire.Request{Kind: kind, Head: head, Wake: wake, AnswerMax: 1 << 30,
		Deadline: time.Now().Add(patience)})
	defer asked.Close()
	for {
		switch now := asked.Progress(); {
		case now.Err != nil:
			return nil, now.Err
		case now.Whole:
			var chunks [][]byte
			for chunk, ok := asked.Next(); ok; chunk, ok = asked.Next() {
				chunks = append(chunks, chunk)
			}
			return chunks, nil
		}
		select {
		case <-wake:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// collector checks that blocks arrive in order.
type collector struct {
	mu     sync.Mutex
	blocks []*ledger.Block
}

func (c *collector) add(block *ledger.Block) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.blocks = append(c.blocks, block)
	return nil
}

// check expects the blocks of a chain after one height up to another.
func (c *collector) check(t testing.TB, want *chain, after, to ledger.Height) {
	t.Helper()
	if len(c.blocks) != int(to-after) {
		t.Fatalf("%d blocks, want %d", len(c.blocks), to-after)
	}
	for i, block := range c.blocks {
		if expected := want.blocks[int(after)+1+i]; block.Hash != expected.Hash {
			t.Fatalf("block %d is %s, want %s", block.Header.Height, block.Hash, expected.Hash)
		}
	}
}
