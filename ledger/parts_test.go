package ledger_test

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
)

// placed is what a block must show of a transaction.
type placed struct {
	id     ledger.Hash
	result ledger.Result
	bundle int
	place  int
}

// TestPartsOfBlock: a block shows the same transactions one by one, all together, in parts and by
// heads, whichever bundles are packed and whichever transfers fail.
func TestPartsOfBlock(t *testing.T) {
	t.Parallel()
	client := ledgertest.NewClient(ledgertest.Genesis(), "acme")
	short := ledger.Result{Code: ledger.InsufficientFunds}
	transfers := func(count int) []ledger.Transaction {
		all := make([]ledger.Transaction, count)
		for i := range all {
			all[i] = client.Transfer("acme:a", "acme:b", 1)
		}
		return all
	}
	bundles := [2][]*ledger.Bundle{} // not packed and packed
	for _, count := range []int{1, 2, 5} {
		bundles[0] = append(bundles[0], client.Bundle(transfers(count)...))
		bundles[1] = append(bundles[1], client.Packed(transfers(count)...))
	}
	rapid.Check(t, func(t *rapid.T) {
		block, want := &ledger.Block{}, []placed{}
		block.Header.ByBundle = true
		for range rapid.IntRange(0, 8).Draw(t, "bundles") {
			packed := rapid.Bool().Draw(t, "packed")
			kind := 0
			if packed {
				kind = 1
			}
			bundle := rapid.SampledFrom(bundles[kind]).Draw(t, "bundle")
			results := make([]ledger.Result, bundle.Len())
			kept := make([]bool, bundle.Len())
			for place := range results {
				results[place] = ledger.Result{Item: ledger.NoItem}
				if rapid.IntRange(0, 3).Draw(t, "fails") == 0 {
					results[place] = short
				}
				kept[place] = true
				want = append(want, placed{bundle.ID(place), results[place], len(block.Bundles),
					place})
				if !packed {
					entry := bundle.Entry(place, len(block.Bundles))
					entry.Result = results[place]
					block.Unpacked = append(block.Unpacked, entry)
				}
			}
			seal := bundle.Seal(kept)
			if packed {
				seal.SetResults(results)
				block.AddPacked(seal)
			} else {
				block.Bundles = append(block.Bundles, seal)
			}
		}
		block.Header.Transactions = uint32(block.Len())
		block.Complete(ledger.Hash{9})
		decoded, err := ledger.DecodeBlock(block.Encode())
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(decoded.Encode(), block.Encode()) ||
			!bytes.Equal(decoded.Outline(), block.Outline()) {
			t.Fatal("the decoded block has another encoding or outline")
		}
		checkParts(t, block, want)
		checkParts(t, decoded, want)
	})
}

func checkParts(t *rapid.T, block *ledger.Block, want []placed) {
	if block.Len() != len(want) {
		t.Fatalf("%d transactions, want %d", block.Len(), len(want))
	}
	check := func(how string, index int, entry *ledger.Entry) {
		got := placed{entry.ID, entry.Result, entry.Bundle, entry.Place}
		if got != want[index] || block.ID(index) != got.id {
			t.Fatalf("%s: transaction %d is %+v, want %+v", how, index, got, want[index])
		}
	}
	next := 0
	for index, entry := range block.All() {
		if index != next {
			t.Fatalf("transaction %d after %d", index, next-1)
		}
		one := block.Entry(index)
		check("alone", index, &one)
		check("with all", index, entry)
		next++
	}
	if next != len(want) {
		t.Fatalf("%d transactions of %d", next, len(want))
	}
	next = 0
	for first, part := range block.Parts() {
		if first != next || part.Len() == 0 || (part.Packed != nil) == (part.Unpacked != nil) {
			t.Fatalf("part %+v of %d transactions at %d, after %d", part, part.Len(), first, next)
		}
		for i := range part.Unpacked {
			check("in a part", first+i, &part.Unpacked[i])
		}
		for i := range part.Len() {
			if part.Packed != nil && (part.Packed.ID(i) != want[first+i].id ||
				part.Packed.Result(i) != want[first+i].result) {
				t.Fatalf("transfer %d of the packed bundle at %d differs", i, first)
			}
		}
		next += part.Len()
	}
	if next != len(want) {
		t.Fatalf("%d transactions of %d in parts", next, len(want))
	}
	next = 0
	for head := range block.Heads() {
		last := next + max(1, head.Transfers) - 1
		if head.Index != next || last >= len(want) || head.ID != want[next].id ||
			head.Result != want[next].result || head.Last() != want[last].id ||
			(head.Transfers > 0) != block.Bundles[want[next].bundle].Packed() {
			t.Fatalf("head %+v at %d", head, next)
		}
		next = last + 1
	}
	if next != len(want) {
		t.Fatalf("%d transactions of %d under heads", next, len(want))
	}
}
