package state

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/ledgerd/ledgerd/ledger"
)

// TestCountGroups: whatever members vouch for in groups, and whatever by itself, a verdict is taken
// exactly if enough members say it in either way.
func TestCountGroups(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		const ids = 6
		good := ledger.Result{Code: ledger.SetAside, Item: ledger.NoItem}
		members := rapid.IntRange(1, 5).Draw(t, "members")
		batches := make([]*ledger.VerifiedBatch, rapid.IntRange(0, 6).Draw(t, "batches"))
		speakers := make([]int, len(batches))
		said := make(map[ledger.Verdict]map[int]bool)
		say := func(verdict ledger.Verdict, by int) {
			if said[verdict] == nil {
				said[verdict] = make(map[int]bool)
			}
			if by >= 0 {
				said[verdict][by] = true
			}
		}
		for i := range batches {
			speakers[i] = rapid.IntRange(-1, members-1).Draw(t, "speaker")
			batch := &ledger.Batch{Voucher: new(ledger.Voucher)}
			for range rapid.IntRange(0, 3).Draw(t, "verdicts") {
				verdict := ledger.Verdict{ID: ledger.Hash{rapid.Byte().Draw(t, "id") % ids},
					Shard: ledger.ShardID(rapid.IntRange(1, 2).Draw(t, "shard")), Result: good}
				if rapid.IntRange(0, 4).Draw(t, "bad") == 0 {
					verdict.Result.Code = ledger.InsufficientFunds
				}
				batch.Verdicts = append(batch.Verdicts, verdict)
				say(verdict, speakers[i])
			}
			verified := &ledger.VerifiedBatch{Batch: batch}
			for range rapid.IntRange(0, 2).Draw(t, "groups") {
				// Few ways to cut the ids, so that groups repeat.
				from := rapid.IntRange(0, 2).Draw(t, "from")
				group := ledger.VerdictGroup{
					Shard: ledger.ShardID(rapid.IntRange(1, 2).Draw(t, "shard"))}
				for id := from; id < from+4 && id < ids; id++ {
					group.IDs = append(group.IDs, ledger.Hash{byte(id)})
					say(group.Verdict(len(group.IDs)-1), speakers[i])
				}
				batch.Groups = append(batch.Groups, group)
				verified.GroupIDs = append(verified.GroupIDs, group.ID())
			}
			batches[i] = verified
		}
		tallies := &tallies{majority: members/2 + 1, verdicts: make(map[ledger.Verdict]*tally),
			stream: make(map[ledger.Vouched]*tally)}
		tallies.count(batches, speakers, members, false)
		taken := make(map[ledger.Verdict]bool)
		for place, batch := range batches {
			for i := range batch.Verdicts {
				if tallies.verdict(place, batch, i) != tooFew {
					taken[batch.Verdicts[i]] = true
				}
			}
			for i := range batch.Groups {
				group := &batch.Groups[i]
				for j := range group.IDs {
					one := tallies.verdicts[group.Verdict(j)]
					if tallies.group(batch.GroupIDs[i]) || tallies.divided[group.Shard] &&
						one != nil && one.count >= tallies.majority {
						taken[group.Verdict(j)] = true
					}
				}
			}
		}
		for verdict, by := range said {
			if want := len(by) >= tallies.majority; taken[verdict] != want {
				t.Fatalf("verdict %+v of %v is taken: %v", verdict, by, taken[verdict])
			}
		}
	})
}

// TestGroupsApart: the bug that counts groups and single verdicts apart takes nothing where members
// say the same in two ways.
func TestGroupsApart(t *testing.T) {
	t.Parallel()
	group := ledger.VerdictGroup{Shard: 1, IDs: []ledger.Hash{{1}, {2}}}
	batches := []*ledger.VerifiedBatch{
		{Batch: &ledger.Batch{Voucher: new(ledger.Voucher), Groups: []ledger.VerdictGroup{group}},
			GroupIDs: []ledger.Hash{group.ID()}},
		{Batch: &ledger.Batch{Voucher: new(ledger.Voucher),
			Verdicts: []ledger.Verdict{group.Verdict(1)}}},
	}
	for _, apart := range []bool{false, true} {
		tallies := &tallies{majority: 2, verdicts: make(map[ledger.Verdict]*tally),
			stream: make(map[ledger.Vouched]*tally)}
		tallies.count(slices.Clone(batches), []int{0, 1}, 3, apart)
		if taken := tallies.verdict(1, batches[1], 0) == enough; taken == apart {
			t.Errorf("counted apart: %v, and taken: %v", apart, taken)
		}
	}
}
