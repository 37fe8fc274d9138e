package state_test

import (
	"fmt"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/ledger/state"
)

// Dimensions of BenchmarkPath.
const (
	pathBundle   = 400 // transfers of a bundle
	pathBundles  = 16  // bundles of a round
	pathAccounts = 10_000
)

// pathBook is a state with open accounts, and a client that moves amounts between them.
type pathBook struct {
	genesis *ledger.Genesis
	client  *ledgertest.Client
	state   *state.State
	parent  state.Parent
	next    int
	packed  bool // its bundles are
}

func newPathBook(accounts int, packed bool) *pathBook {
	genesis := ledgertest.Genesis()
	genesis.Version = ledger.NewestVersion
	book := &pathBook{genesis: genesis, client: ledgertest.NewClient(genesis, "acme"),
		state: state.New(genesis), parent: state.Parent{Hash: genesis.Hash()}, packed: packed}
	transactions := []ledger.Transaction{book.client.Register()}
	for first := 0; first < accounts; first += ledger.MaxOpenings {
		opening := book.client.Next()
		for i := first; i < min(accounts, first+ledger.MaxOpenings); i++ {
			opening.Openings = append(opening.Openings,
				ledger.Opening{Account: pathAccount(i), Issuer: true})
		}
		transactions = append(transactions, opening)
	}
	book.execute(ledger.VerifyBatches([][]byte{ledgertest.Batch(1,
		book.client.Bundle(transactions...))}))
	return book
}

func pathAccount(i int) ledger.AccountPath {
	return ledger.AccountPath(fmt.Sprintf("acme:account-%07d", i))
}

// bundles returns the next bundles of a client. Their postings are spread over the accounts.
func (b *pathBook) bundles() []*ledger.Bundle {
	made := make([]*ledger.Bundle, pathBundles)
	for i := range made {
		transactions := make([]ledger.Transaction, pathBundle)
		for j := range transactions {
			b.next++
			from, to := b.next*7919%pathAccounts, b.next*104729%pathAccounts
			if from == to {
				to = (to + 1) % pathAccounts
			}
			transactions[j] = b.client.Transfer(pathAccount(from), pathAccount(to), 1)
		}
		if b.packed {
			made[i] = b.client.Packed(transactions...)
		} else {
			made[i] = b.client.Bundle(transactions...)
		}
	}
	return made
}

// seal seals a round's batches. No transaction was seen before.
func (b *pathBook) seal(batches []*ledger.VerifiedBatch) *state.Draft {
	return state.Seal(b.parent, 1, ledger.Round(b.parent.Header.Height+1), batches,
		func(ledger.Hash, *ledger.Transaction) bool { return false })
}

func (b *pathBook) execute(batches []*ledger.VerifiedBatch) *ledger.Block {
	block, _ := b.state.Execute(b.seal(batches))
	b.parent = state.Parent{Header: block.Header, Hash: block.Hash, Packed: true}
	return block
}

// measure runs step for rounds of new bundles, until b.N bundles went through it. Only step counts.
func (b *pathBook) measure(bench *testing.B, step func(round []*ledger.Bundle, batch []byte)) {
	bench.ReportAllocs()
	bench.ResetTimer()
	for done := 0; done < bench.N; done += pathBundles {
		bench.StopTimer()
		round := b.bundles()[:min(pathBundles, bench.N-done)]
		batch := ledgertest.Batch(1, round...)
		bench.StartTimer()
		step(round, batch)
	}
	bench.ReportMetric(float64(bench.Elapsed().Nanoseconds())/float64(bench.N*pathBundle), "ns/tx")
}

// BenchmarkPath measures what a node does with transfers, without disk, network and new signatures:
// those of organisations' bundles are all known. The unit of ns/op, B/op and allocs/op is a bundle
// of 400 transfers.
func BenchmarkPath(b *testing.B) {
	for name, packed := range map[string]bool{"bodies": false, "packed": true} {
		b.Run(name, func(b *testing.B) { benchmarkPath(b, packed) })
	}
}

func benchmarkPath(b *testing.B, packed bool) {
	b.Run("admit", func(b *testing.B) {
		// The node that a client chose reads the bundle and checks it.
		book := newPathBook(pathAccounts, packed)
		hash := book.genesis.Book()
		book.measure(b, func(round []*ledger.Bundle, _ []byte) {
			for _, bundle := range round {
				admitted, err := again(bundle)
				if err != nil {
					b.Fatal(err)
				}
				if err := ledger.CheckBundle(admitted, book.genesis, hash, book.state); err != nil {
					b.Fatal(err)
				}
			}
		})
	})
	b.Run("verify", func(b *testing.B) {
		// Another node's batch arrives.
		book := newPathBook(pathAccounts, packed)
		book.measure(b, func(_ []*ledger.Bundle, batch []byte) {
			if _, err := ledger.VerifyBatch(batch); err != nil {
				b.Fatal(err)
			}
		})
	})
	b.Run("execute", func(b *testing.B) {
		// Another node's batch arrives and becomes a block.
		book := newPathBook(pathAccounts, packed)
		book.measure(b, func(_ []*ledger.Bundle, batch []byte) {
			block := book.execute(ledger.VerifyBatches([][]byte{batch}))
			if last := block.Entry(block.Len() - 1).Result; !last.OK() {
				b.Fatal(last)
			}
		})
	})
}

// again makes a bundle from its parts, as a node does with one that a client sends.
func again(bundle *ledger.Bundle) (*ledger.Bundle, error) {
	if bundle.Packed() {
		return ledger.AssemblePackedBundle(bundle.Content(), bundle.Signatures())
	}
	return ledger.AssembleBundle(bodiesOf(bundle), bundle.Signatures())
}

func bodiesOf(bundle *ledger.Bundle) [][]byte {
	bodies := make([][]byte, bundle.Len())
	for i := range bodies {
		bodies[i] = bundle.Body(i)
	}
	return bodies
}

// BenchmarkSeal seals a round of 16 bundles of 400 transfers.
func BenchmarkSeal(b *testing.B) {
	book := newPathBook(pathAccounts, false)
	batches := ledger.VerifyBatches([][]byte{ledgertest.Batch(1, book.bundles()...)})
	b.ReportAllocs()
	for b.Loop() {
		if draft := book.seal(batches); draft.Len() != pathBundles*pathBundle {
			b.Fatal(draft.Len())
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*pathBundles*pathBundle), "ns/tx")
}
