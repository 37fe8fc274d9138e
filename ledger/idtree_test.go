package ledger_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
)

// TestBlockTakesNodesOfItsBundles: the transactions root of a block is that over its ids, whatever
// nodes the trees of its bundles have in common with its own. The bundles have all sizes, and the
// block drops any of their transactions. It is the same again when the block is decoded, and when
// it is completed without those trees.
func TestBlockTakesNodesOfItsBundles(t *testing.T) {
	t.Parallel()
	client := ledgertest.NewClient(ledgertest.Genesis(), "acme")
	var known []*ledger.Bundle
	for size := range 70 {
		transactions := make([]ledger.Transaction, size+1)
		for i := range transactions {
			transactions[i] = client.Transfer("acme:issuer", "acme:a", 1)
		}
		known = append(known, client.Bundle(transactions...))
	}
	rapid.Check(t, func(t *rapid.T) {
		var block ledger.Block
		var ids []ledger.Hash
		for i, bundle := range rapid.SliceOfN(rapid.SampledFrom(known), 0, 6).Draw(t, "bundles") {
			if bundle.Root() != ledger.IDRoot(bundle.IDs()) {
				t.Fatalf("the root of a bundle of %d is not that over its ids", bundle.Len())
			}
			seal := bundle.Seal(make([]bool, bundle.Len()))
			drops := rapid.SliceOfN(rapid.IntRange(0, bundle.Len()-1), 0, 2).Draw(t, "drops")
			for place, id := range bundle.IDs() {
				if seal.Kept[place] = !slices.Contains(drops, place); !seal.Kept[place] {
					continue
				}
				ids = append(ids, id)
				block.Unpacked = append(block.Unpacked, bundle.Entry(place, i))
			}
			block.Bundles = append(block.Bundles, seal)
		}
		block.Header.Transactions = uint32(len(ids))
		for range 2 { // with the trees, and without
			block.Complete(ledger.Hash{})
			if want := ledger.IDRoot(ids); block.Header.TransactionsRoot != want {
				t.Fatalf("root %s, want %s", block.Header.TransactionsRoot, want)
			}
		}
		if _, err := ledger.DecodeBlock(block.Encode()); err != nil {
			t.Fatal(err)
		}
	})
}
