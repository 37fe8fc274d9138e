package state

import (
	"slices"

	"github.com/ledgerd/ledgerd/ledger"
)

// Members vouch for groups of good verdicts, and a group with a majority is taken whole: one
// look-up counts up to a thousand verdicts. But a member that was away has some verdicts of a group
// by themselves, because it asked for them, and then neither the group nor the verdicts might ever
// get a majority. So the verdicts of a group that has none are counted together with those that
// members vouch for by themselves. A member counts once for a verdict, in whatever way it says it.

// takesGroups is takesVerdicts for groups of verdicts. Without vouched crossings there are none.
func (s *State) takesGroups(groups []ledger.VerdictGroup) bool {
	return len(groups) == 0 || s.genesis.VouchedCrossings && ledger.TakesAgreements(s.Version())
}

// countGroups counts the groups of a round, and finds the shards that are divided.
func (t *tallies) countGroups(batches []*ledger.VerifiedBatch, speakers []int, members int) {
	if !slices.ContainsFunc(batches, func(b *ledger.VerifiedBatch) bool {
		return len(b.Groups) > 0
	}) {
		return
	}
	t.groups = make(map[ledger.Hash]*tally)
	for i := range members {
		for at, batch := range batches {
			for j := 0; j < len(batch.GroupIDs) && speakers[at] == i; j++ {
				count(t.groups, batch.GroupIDs[j], i)
			}
		}
	}
	// The members that say something of a shard that has no majority as a group.
	say := make(map[ledger.ShardID]*tally)
	for at, batch := range batches {
		for j := range batch.Groups {
			if speakers[at] >= 0 && !t.group(batch.GroupIDs[j]) {
				say[batch.Groups[j].Shard] = new(tally)
			}
		}
	}
	for i := 0; i < members && len(say) > 0; i++ {
		for at, batch := range batches {
			if speakers[at] != i {
				continue
			}
			for j := range batch.Groups {
				if said := say[batch.Groups[j].Shard]; said != nil && !t.group(batch.GroupIDs[j]) {
					said.add(i)
				}
			}
			for j := range batch.Verdicts {
				if said := say[batch.Verdicts[j].Shard]; said != nil && batch.Verdicts[j].Good() {
					said.add(i)
				}
			}
		}
	}
	// While fewer members than a majority do, none of these verdicts can have one.
	for shard, said := range say {
		if said.count >= t.majority {
			if t.divided == nil {
				t.divided = make(map[ledger.ShardID]bool)
			}
			t.divided[shard] = true
		}
	}
}

// countParts counts the verdicts of a member's groups of divided shards one by one.
func (t *tallies) countParts(batch *ledger.VerifiedBatch, member int) {
	for j := range batch.Groups {
		group := &batch.Groups[j]
		if !t.divided[group.Shard] || t.group(batch.GroupIDs[j]) {
			continue
		}
		for k := range group.IDs {
			count(t.verdicts, group.Verdict(k), member)
		}
	}
}

// group reports whether enough members vouch for a group as such.
func (t *tallies) group(id ledger.Hash) bool {
	said := t.groups[id]
	return said != nil && said.count >= t.majority
}

// takeGroups takes the verdicts of the groups for which enough members vouch.
func (s *sealing) takeGroups(batches []*ledger.VerifiedBatch) {
	if s.tallies == nil || s.tallies.groups == nil {
		return
	}
	had := make(map[ledger.Hash]bool)
	for _, batch := range batches {
		for i := range batch.Groups {
			group, id := &batch.Groups[i], batch.GroupIDs[i]
			switch {
			case !s.tallies.group(id):
			case had[id]:
				s.Repeated += len(group.IDs)
			default:
				had[id] = true
				for j := range group.IDs {
					verdict := group.Verdict(j)
					s.takeVerdict(&verdict)
				}
			}
		}
	}
}

// takeParts takes those verdicts of a batch's other groups for which enough members vouch.
func (s *sealing) takeParts(batch *ledger.VerifiedBatch) {
	for i := range batch.Groups {
		group := &batch.Groups[i]
		if s.tallies.group(batch.GroupIDs[i]) {
			continue
		}
		if !s.tallies.divided[group.Shard] {
			s.Unvouched += len(group.IDs)
			continue
		}
		for j := range group.IDs {
			verdict := group.Verdict(j)
			said := s.tallies.verdicts[verdict]
			if said != nil && said.count >= s.tallies.majority {
				s.takeVerdict(&verdict)
			} else {
				s.Unvouched++
			}
		}
	}
}
