package ledger_test

import (
	"bytes"
	"errors"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/ledgerd/ledgerd/ledger"
)

// The entries of many verdicts are those of each one, and none can write into the memory of the
// next.
func TestVerdictEntries(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		book := ledger.Hash{1}
		verdicts := make([]ledger.Verdict, rapid.IntRange(0, 20).Draw(r, "verdicts"))
		for i := range verdicts {
			verdicts[i] = ledger.Verdict{ID: ledger.Hash{byte(i + 1)},
				Shard: rapid.SampledFrom([]ledger.ShardID{0, 7, ledger.MaxShards - 1}).Draw(r,
					"shard"),
				Result: ledger.Result{Code: rapid.SampledFrom([]ledger.Code{ledger.SetAside,
					ledger.InsufficientFunds}).Draw(r, "code"),
					Item: rapid.Uint32Range(0, math.MaxUint32).Draw(r, "item")}}
		}
		want, first := slices.Clone(verdicts), rapid.IntRange(0, 5).Draw(r, "first")
		shared := rapid.Bool().Draw(r, "shared")
		entries, seals := ledger.VerdictEntries(book, verdicts, first, shared)
		if len(entries) != len(want) {
			r.Fatalf("%d entries of %d verdicts", len(entries), len(want))
		}
		for i := range entries {
			_ = append(entries[i].Body, 0xff)
		}
		for i := range seals {
			_ = append(seals[i].IDs, ledger.Hash{0xff})
			_ = append(seals[i].Kept, false)
		}
		bundles, place := 0, 0
		for i, entry := range entries {
			decoded, err := ledger.DecodeBody(entry.Body)
			if err != nil || *decoded.Verdict != want[i] || *entry.Decoded.Verdict != want[i] ||
				decoded.Ledger != book {
				r.Fatalf("verdict %d: %+v %v", i, decoded, err)
			}
			share := shared && i > 0 && want[i].Good() && want[i-1].Good() &&
				want[i].Shard == want[i-1].Shard
			if place++; !share {
				bundles, place = bundles+1, 0
			}
			alone := want[i].Entry(book)
			if !bytes.Equal(alone.Body, entry.Body) || alone.ID != entry.ID ||
				ledger.TransactionID(entry.Body) != entry.ID ||
				entry.Bundle != first+bundles-1 || entry.Place != place {
				r.Fatalf("verdict %d differs from the one alone", i)
			}
			seal := &seals[bundles-1]
			if seal.IDs[place] != entry.ID || !seal.Kept[place] {
				r.Fatalf("verdict %d has seal %+v", i, seal)
			}
		}
		if bundles != len(seals) {
			r.Fatalf("%d seals of %d bundles", len(seals), bundles)
		}
		ids := 0
		for i := range seals {
			seal := &seals[i]
			if ids += len(seal.IDs); len(seal.Kept) != len(seal.IDs) ||
				seal.Root != ledger.IDRoot(seal.IDs) || len(seal.Signatures) != 0 ||
				seal.Number != 0 {
				r.Fatalf("bundle %d has seal %+v", i, seal)
			}
		}
		if ids != len(want) {
			r.Fatalf("%d ids of %d verdicts", ids, len(want))
		}
	})
}

// TestVerdictsShareBundles: of the bundles with several verdicts, a block has those with the good
// verdicts of one shard only.
func TestVerdictsShareBundles(t *testing.T) {
	t.Parallel()
	good := ledger.Result{Code: ledger.SetAside, Item: ledger.NoItem}
	bad := ledger.Result{Code: ledger.InsufficientFunds, Item: ledger.NoItem}
	of := func(id byte, shard ledger.ShardID, result ledger.Result) ledger.Verdict {
		return ledger.Verdict{ID: ledger.Hash{id}, Shard: shard, Result: result}
	}
	for _, test := range []struct {
		name     string
		verdicts []ledger.Verdict
		takes    bool
	}{
		{"one", []ledger.Verdict{of(1, 1, bad)}, true},
		{"good ones", []ledger.Verdict{of(1, 1, good), of(2, 1, good)}, true},
		{"two shards", []ledger.Verdict{of(1, 1, good), of(2, 2, good)}, false},
		{"a bad one", []ledger.Verdict{of(1, 1, good), of(2, 1, bad)}, false},
		{"bad ones", []ledger.Verdict{of(1, 1, bad), of(2, 1, bad)}, false},
		{"good ones, one of them not in the block", []ledger.Verdict{of(1, 1, good),
			of(2, 1, good), of(3, 1, good)}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			block := ledger.Block{Header: ledger.Header{Height: 1, ByBundle: true}}
			seal := ledger.BundleSeal{}
			for place := range test.verdicts {
				entry := test.verdicts[place].Entry(ledger.Hash{9})
				entry.Place, entry.Result = place, ledger.Result{Item: ledger.NoItem}
				seal.IDs = append(seal.IDs, entry.ID)
				seal.Kept = append(seal.Kept, place < 2)
				if place < 2 {
					block.Unpacked = append(block.Unpacked, entry)
				}
			}
			seal.Root = ledger.IDRoot(seal.IDs)
			block.Bundles = []ledger.BundleSeal{seal}
			block.Header.Transactions = uint32(len(block.Unpacked))
			block.Header.Total = uint64(len(block.Unpacked))
			block.Complete(ledger.Hash{})
			_, err := ledger.DecodeBlock(block.Encode())
			if takes := err == nil; takes != test.takes || !takes &&
				!errors.Is(err, ledger.ErrMalformed) {
				t.Errorf("%v", err)
			}
		})
	}
}
