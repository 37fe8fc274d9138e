package shards

import (
	"slices"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/verdicts"
)

// contradictionEvery is the minimum time between two log lines about contradictions of a member.
const contradictionEvery = 10 * time.Second

// contradict counts contradictions and returns those to log: at most one of each member in
// contradictionEvery. The caller holds the lock.
func (v *Verdicts) contradict(found []verdicts.Contradiction) (
	logged []verdicts.Contradiction) {
	v.status.Contradicted += uint64(len(found))
	for _, each := range found {
		if at, known := v.exposed[each.Member]; known && time.Since(at) < contradictionEvery {
			continue
		}
		v.exposed[each.Member] = time.Now()
		logged = append(logged, each)
	}
	return logged
}

// log logs contradictions. The caller does not hold the lock.
func (v *Verdicts) log(found []verdicts.Contradiction) {
	for _, each := range found {
		v.config.Logger.Error("a member's verdict contradicts others; the member or its disk is "+
			"at fault", "shard", each.Member.Shard, "member", each.Member.Index, "transaction",
			each.Verdict.ID, "said", each.Verdict.Result, "against", each.Against)
	}
}

// hear takes a message of one member, and queues the verdicts that are believed now for the
// goroutine to judge. It reports whether there are any.
func (v *Verdicts) hear(member verdicts.Member, told []ledger.Verdict) (more bool) {
	return v.heard(len(told), func() []verdicts.Contradiction {
		return v.exchange.Hear(member, told)
	})
}

// hearGroup is hear for a group.
func (v *Verdicts) hearGroup(member verdicts.Member, told ledger.VerdictGroup) (more bool) {
	id := told.ID() // without the lock
	return v.heard(len(told.IDs), func() []verdicts.Contradiction {
		return v.exchange.HearGroup(member, told, id)
	})
}

func (v *Verdicts) heard(count int, hear func() []verdicts.Contradiction) (more bool) {
	v.mu.Lock()
	before := v.exchange.Counts().Received
	found := hear()
	v.status.Received += uint64(count)
	more = v.exchange.Counts().Received > before
	found = v.contradict(found)
	v.mu.Unlock()
	v.log(found)
	return more
}

// Contradictions returns how many of the verdicts of a batch, in groups or not, contradict what
// this node believes. Verdicts on which nothing is believed here, or not any more, do not count.
func (v *Verdicts) Contradictions(batch *ledger.VerifiedBatch) (count uint64) {
	if len(batch.Verdicts)+len(batch.Groups) == 0 {
		return 0
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.exchange.Against(batch.Verdicts) +
		v.exchange.AgainstGroups(batch.Groups, batch.GroupIDs)
}

// recount counts all words anew after a change of any shard's members.
func (v *Verdicts) recount() {
	v.mu.Lock()
	found := v.exchange.Recount()
	for member := range v.exposed {
		if !slices.Contains(v.config.Directory.indexes(member.Shard), member.Index) {
			delete(v.exposed, member)
		}
	}
	found = v.contradict(found)
	v.mu.Unlock()
	v.log(found)
}
