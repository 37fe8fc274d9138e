package state

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/ledgerd/ledgerd/ledger"
)

// TestCountInOrder: one pass over lists in order says the same as counting in maps, and lists in
// another order, or of members that speak twice, are left to the maps.
func TestCountInOrder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		good := ledger.Result{Code: ledger.SetAside, Item: ledger.NoItem}
		result := rapid.SampledFrom([]ledger.Result{good, good, good,
			{Code: ledger.InsufficientFunds}})
		members := rapid.IntRange(1, 5).Draw(t, "members")
		batches := make([]*ledger.VerifiedBatch, rapid.IntRange(0, 5).Draw(t, "batches"))
		speakers, inOrder := make([]int, len(batches)), true
		for i := range batches {
			speakers[i] = i
			if rapid.IntRange(0, 19).Draw(t, "another") == 0 {
				speakers[i] = rapid.IntRange(-1, 4).Draw(t, "speaker")
			}
			batch := &ledger.Batch{}
			for range rapid.IntRange(0, 8).Draw(t, "verdicts") {
				batch.Verdicts = append(batch.Verdicts, ledger.Verdict{
					ID:     ledger.Hash{rapid.Byte().Draw(t, "id") % 4},
					Shard:  ledger.ShardID(rapid.IntRange(1, 2).Draw(t, "shard")),
					Result: result.Draw(t, "result")})
			}
			if rapid.IntRange(0, 9).Draw(t, "order") > 0 {
				slices.SortFunc(batch.Verdicts, func(a, b ledger.Verdict) int {
					return compareVerdicts(&a, &b)
				})
				batch.Verdicts = slices.CompactFunc(batch.Verdicts, func(a, b ledger.Verdict) bool {
					return compareVerdicts(&a, &b) == 0
				})
			}
			batches[i] = &ledger.VerifiedBatch{Batch: batch}
			if len(batch.Verdicts) > 0 && (speakers[i] < 0 || !ascending(batch.Verdicts) ||
				slices.ContainsFunc(batches[:i], func(b *ledger.VerifiedBatch) bool {
					return len(b.Verdicts) > 0 && speakers[slices.Index(batches, b)] == speakers[i]
				})) {
				inOrder = false
			}
		}
		majority := members/2 + 1
		said := countInOrder(batches, speakers, majority)
		if (said != nil) != inOrder {
			t.Fatalf("counted in order: %v, want %v", said != nil, inOrder)
		}
		if said == nil {
			return
		}
		counted, before := make(map[ledger.Verdict]*tally), make(map[ledger.Verdict]bool)
		for i, batch := range batches {
			for j := range batch.Verdicts {
				count(counted, batch.Verdicts[j], speakers[i])
			}
		}
		// With a majority of one of more members, as planted, the first result counts.
		firstOf := make(map[awaited]ledger.Result)
		for i, batch := range batches {
			for j, verdict := range batch.Verdicts {
				want, key := tooFew, awaited{verdict.ID, verdict.Shard, verdict.Subject()}
				if counted[verdict].count >= majority {
					if _, known := firstOf[key]; !known {
						firstOf[key] = verdict.Result
					}
					if want = enough; before[verdict] {
						want = enoughBefore
					}
					before[verdict] = true
				}
				if firstOf[key] != verdict.Result {
					want = tooFew
				}
				if said[i][j] != want {
					t.Fatalf("verdict %d of batch %d: %v, want %v", j, i, said[i][j], want)
				}
			}
		}
	})
}
