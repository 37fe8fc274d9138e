package verdicts

import (
	"bytes"
	"sort"

	"github.com/ledgerd/ledgerd/ledger"
)

// Mostly a block takes all verdicts of a group at once. Then the group need not be judged again,
// which would ask the chain for each of them: the block itself shows that they are over.

// wakeAll wakes the groups that watch a verdict of any shard on a transaction.
func (x *Exchange) wakeAll(id ledger.Hash, ended bool) {
	for at := x.facts.first[id]; at != 0; {
		next := x.facts.facts[at].next
		if x.facts.facts[at].watch != 0 {
			x.wake(at, ended)
		}
		at = next
	}
}

// endGroups forgets those of the ended groups whose remaining verdicts a block has, and judges the
// others again.
func (x *Exchange) endGroups(block *ledger.Block) {
	s := &x.groups
	if len(s.ended) == 0 {
		return
	}
	has := blockVerdicts(block, s.ended)
	for _, g := range s.ended {
		if g.from = advance(g.IDs, g.from, has[g.Shard]); g.from == len(g.IDs) {
			x.forget(g)
			continue
		}
		s.move(g, queued)
		s.toJudge = append(s.toJudge, g)
	}
	clear(s.ended)
	s.ended = s.ended[:0]
}

// blockVerdicts returns the transactions on which a block has verdicts of the shards of groups, as
// runs of ascending ids: the verdicts of a group are together.
func blockVerdicts(block *ledger.Block, groups []*group) map[ledger.ShardID][][]ledger.Hash {
	runs := make(map[ledger.ShardID][][]ledger.Hash)
	for _, g := range groups {
		runs[g.Shard] = nil
	}
	for _, entry := range block.All() {
		if entry.Transaction().Verdict == nil {
			continue
		}
		eachVerdict(entry, func(verdict *ledger.Verdict, code ledger.Code) {
			of, wanted := runs[verdict.Shard]
			if this, _ := taken(code); !wanted || !this || verdict.Subject() != 0 {
				return
			}
			last := len(of) - 1
			if last < 0 || bytes.Compare(of[last][len(of[last])-1][:], verdict.ID[:]) >= 0 {
				of, last = append(of, nil), last+1
			}
			of[last] = append(of[last], verdict.ID)
			runs[verdict.Shard] = of
		})
	}
	return runs
}

// advance returns the first place from which on ids have one that is in none of the runs.
func advance(ids []ledger.Hash, from int, runs [][]ledger.Hash) int {
	for found := true; found && from < len(ids); {
		found = false
		for _, run := range runs {
			before := from
			for at := 0; from < len(ids); from, at = from+1, at+1 {
				if at = seek(run, at, &ids[from]); at == len(run) || run[at] != ids[from] {
					break
				}
			}
			if found = from > before; found {
				break
			}
		}
	}
	return from
}

// seek returns the first place from at on whose id is not before the given one. It looks at ever
// more distant places first: mostly it is near.
func seek(run []ledger.Hash, at int, id *ledger.Hash) int {
	step := 1
	for at+step < len(run) && bytes.Compare(run[at+step][:], id[:]) <= 0 {
		at += step
		step *= 2
	}
	return at + sort.Search(min(step, len(run)-at), func(i int) bool {
		return bytes.Compare(run[at+i][:], id[:]) >= 0
	})
}
