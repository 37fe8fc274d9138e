package ledger_test

import (
	"bytes"
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
				Shard: ledger.ShardID(rapid.IntRange(0, ledger.MaxShards-1).Draw(r, "shard")),
				Result: ledger.Result{Code: rapid.SampledFrom([]ledger.Code{ledger.SetAside,
					ledger.InsufficientFunds}).Draw(r, "code"),
					Item: rapid.Uint32Range(0, math.MaxUint32).Draw(r, "item")}}
		}
		want, first := slices.Clone(verdicts), rapid.IntRange(0, 5).Draw(r, "first")
		entries, seals := ledger.VerdictEntries(book, verdicts, first)
		if len(entries) != len(want) || len(seals) != len(want) {
			r.Fatalf("%d entries and %d seals of %d verdicts", len(entries), len(seals), len(want))
		}
		for i := range entries {
			_ = append(entries[i].Body, 0xff)
			_ = append(seals[i].IDs, ledger.Hash{0xff})
			_ = append(seals[i].Kept, false)
		}
		for i, entry := range entries {
			decoded, err := ledger.DecodeBody(entry.Body)
			if err != nil || *decoded.Verdict != want[i] || *entry.Decoded.Verdict != want[i] ||
				decoded.Ledger != book {
				r.Fatalf("verdict %d: %+v %v", i, decoded, err)
			}
			alone := want[i].Entry(book)
			if !bytes.Equal(alone.Body, entry.Body) || alone.ID != entry.ID ||
				ledger.TransactionID(entry.Body) != entry.ID || entry.Bundle != first+i {
				r.Fatalf("verdict %d differs from the one alone", i)
			}
			seal := &seals[i]
			if !slices.Equal(seal.IDs, []ledger.Hash{entry.ID}) ||
				!slices.Equal(seal.Kept, []bool{true}) || seal.Root != ledger.IDRoot(seal.IDs) ||
				len(seal.Signatures) != 0 || seal.Number != 0 {
				r.Fatalf("verdict %d has seal %+v", i, seal)
			}
		}
	})
}
