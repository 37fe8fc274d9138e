package node_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
	"github.com/ledgerd/ledgerd/node/mempool"
)

// falseNeighbour is a member that changes what its batches say of other shards. It signs the lie as
// a member does in a book with vouched crossings.
type falseNeighbour struct {
	mempool.Beside
	// node is the member once it runs.
	node atomic.Pointer[node.Node]
	// lie returns what the member says instead.
	lie func(*node.Node, mempool.Input) mempool.Input
}

// Propose implements mempool.Beside.
func (l *falseNeighbour) Propose(room int, use func(mempool.Input)) {
	var input mempool.Input
	l.Beside.Propose(room, func(given mempool.Input) {
		input = given
		input.Carried = slices.Clone(given.Carried)
		for i := range input.Carried {
			input.Carried[i].Bundle = slices.Clone(input.Carried[i].Bundle)
		}
		input.Vouched, input.Verdicts = slices.Clone(given.Vouched), slices.Clone(given.Verdicts)
	})
	if own := l.node.Load(); own != nil {
		input = l.lie(own, input)
	}
	use(input)
}

// lies makes a node of the book, which must not run yet, a liar. Once it runs, its node has to be
// stored.
func (b *book) lies(k int, lie func(*node.Node, mempool.Input) mempool.Input) *falseNeighbour {
	l := &falseNeighbour{lie: lie}
	if b.beside == nil {
		b.beside = make(map[int]func(mempool.Beside) mempool.Beside)
	}
	b.beside[k] = func(beside mempool.Beside) mempool.Beside {
		l.Beside = beside
		return l
	}
	return l
}

// A member says that another shard, which stands still, refused a payment. In a book with vouched
// crossings nothing happens, and the payment takes effect once that shard is back. In a trusting
// book the payment is given up, so the lie is a good one.
func TestMemberLiesAboutAVerdict(t *testing.T) {
	t.Parallel()
	for name, vouched := range map[string]bool{"vouched": true, "trusting": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBookOf(t, vouched, 3, 0, 0, 0)
			var told atomic.Int64
			liar := b.lies(3, func(own *node.Node, input mempool.Input) mempool.Input {
				for _, waiting := range own.Store().Pending() {
					if slices.Contains(waiting.Waits, 2) {
						told.Add(1)
						input.Verdicts = []ledger.Verdict{{ID: waiting.ID, Shard: 2,
							Result: ledger.Result{Code: ledger.InsufficientFunds}}}
					}
				}
				return input
			})
			b.open()
			liar.node.Store(b.nodes[3])
			for _, k := range b.of(2) {
				b.stop(k)
			}
			crossing := b.signed(b.pay(1, 2, 30))
			ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
			defer cancel()
			if _, err := b.via(4).SubmitInOrder(ctx, []*ledger.Bundle{crossing},
				ledger.Hash{}); err != nil {
				t.Fatal(err)
			}
			if !vouched {
				b.eventually("the lie is taken", func() bool {
					return b.status(4, crossing.ID(0)).GetStatus().GetState() ==
						ledgerdv1.TransactionState_TRANSACTION_STATE_FAILED
				})
				return
			}
			b.eventually("it waits", func() bool {
				return b.nodes[4].Store().PendingCount() == 1
			})
			b.eventually("the lie was told often", func() bool {
				b.executed(b.submitAt(4, b.clients[1].Transfer(b.clients[1].Account("a"),
					b.clients[1].Account("b"), 1), b.clients[1].Transfer(
					b.clients[1].Account("b"), b.clients[1].Account("a"), 1)))
				return told.Load() > 10
			})
			if count := b.nodes[4].Store().PendingCount(); count != 1 {
				t.Fatalf("%d transactions wait, want 1", count)
			}
			b.start(b.of(2)...)
			b.executed([]*ledgerdv1.TransactionStatus{b.settled(4, crossing.ID(0))})
			b.holds(1, 1000-30)
			b.holds(2, 1000+30)
		})
	}
}

// A member says that an entry of the parent's stream is another one: it has all signatures twice.
// In a book with vouched crossings no block takes that. In a trusting book some block does.
func TestMemberLiesAboutTheStream(t *testing.T) {
	t.Parallel()
	for name, vouched := range map[string]bool{"vouched": true, "trusting": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBookOf(t, vouched, 3, 0, 0)
			var told atomic.Int64
			liar := b.lies(3, func(_ *node.Node, input mempool.Input) mempool.Input {
				for i, carried := range input.Carried {
					told.Add(1)
					input.Carried[i].Bundle = signedTwice(t, carried.Bundle)
					for j := range input.Vouched {
						if input.Vouched[j].Number == carried.Number {
							input.Vouched[j].Hash = ledger.CarriedHash(input.Carried[i].Bundle)
						}
					}
				}
				return input
			})
			fellows := make(map[int]*falseNeighbour)
			for _, k := range []int{4, 5} {
				if !vouched { // the first copy counts, and on a busy machine the liar's comes late
					fellows[k] = b.lies(k, func(_ *node.Node, input mempool.Input) mempool.Input {
						input.Carried = nil
						return input
					})
				}
			}
			b.open()
			liar.node.Store(b.nodes[3])
			for k, fellow := range fellows {
				fellow.node.Store(b.nodes[k])
			}
			taken := func() bool {
				head := b.nodes[4].Store().Head().Height
				for height := ledger.Height(1); height <= head; height++ {
					block, err := b.nodes[4].Store().Block(height)
					if err != nil {
						t.Fatal(err)
					}
					for _, seal := range block.Bundles {
						if len(seal.Signatures) == 2 {
							return true
						}
					}
				}
				return false
			}
			payments := int64(0)
			b.eventually("the lie was told often", func() bool {
				b.executed(b.submitAt(0, b.pay(0, 1, 1)))
				payments++
				return !vouched && taken() || vouched && told.Load() > 10
			})
			if vouched && taken() {
				t.Error("a lie is in the chain")
			}
			if seen := b.nodes[4].Lies() + b.nodes[5].Lies(); (seen > 0) != vouched {
				t.Errorf("the other nodes saw %d lies", seen)
			}
			b.holds(1, 1000+payments)
		})
	}
}

// signedTwice returns another bundle of a stream with the same transactions, which every node
// accepts.
func signedTwice(t *testing.T, bundle []byte) []byte {
	decoded, kept, err := ledger.DecodeCarried(bundle)
	if err != nil {
		t.Error(err)
		return bundle
	}
	block := &ledger.Block{Bundles: []ledger.BundleSeal{{IDs: decoded.IDs(), Kept: kept,
		Signatures: slices.Repeat(decoded.Signatures(), 2)}}}
	for place := range decoded.IDs() {
		if kept[place] {
			block.Unpacked = append(block.Unpacked, ledger.Entry{Body: decoded.Body(place)})
		}
	}
	return block.CarriedBundle(0)
}
