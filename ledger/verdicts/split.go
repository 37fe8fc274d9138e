package verdicts

import (
	"bytes"
	"maps"
	"slices"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/state"
)

// Part is what a shard tells another one of the verdicts in a block, in a vouched book.
type Part struct {
	To ledger.ShardID
	// Groups are the good verdicts, and Singles the others. A good verdict that would be alone in a
	// group is a single one.
	Groups  []ledger.VerdictGroup
	Singles []ledger.Verdict
}

// Split divides the verdicts that a block of a shard gave into what the shard tells each other one,
// by ascending shard. It depends on the block alone, so all members of the shard tell the same
// groups.
func Split(own []state.OwnVerdict) []Part {
	parts, ids := map[ledger.ShardID]*Part{}, map[ledger.ShardID][]ledger.Hash{}
	for i := range own {
		verdict := &own[i].Verdict
		grouped := ledger.VerdictGroup{Shard: verdict.Shard, IDs: []ledger.Hash{verdict.ID}}
		for _, to := range own[i].To {
			if parts[to] == nil {
				parts[to] = &Part{To: to}
			}
			if *verdict == grouped.Verdict(0) {
				ids[to] = append(ids[to], verdict.ID)
			} else {
				parts[to].Singles = append(parts[to].Singles, *verdict)
			}
		}
	}
	split := make([]Part, 0, len(parts))
	for _, to := range slices.Sorted(maps.Keys(parts)) {
		part := parts[to]
		all := ids[to]
		slices.SortFunc(all, func(a, b ledger.Hash) int { return bytes.Compare(a[:], b[:]) })
		for some := range slices.Chunk(all, ledger.MaxVerdictGroup) {
			group := ledger.VerdictGroup{Shard: own[0].Shard, IDs: slices.Clip(some)}
			if len(some) >= ledger.MinVerdictGroup {
				part.Groups = append(part.Groups, group)
			} else {
				part.Singles = append(part.Singles, group.Verdict(0))
			}
		}
		split = append(split, *part)
	}
	return split
}
