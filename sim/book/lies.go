package book

import (
	"bytes"
	"slices"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/verdicts"
)

// lies reports whether a member lies now: sometimes, while the fault lasts.
func (m *member) lies() bool {
	w := m.group.world
	return w.turn < m.liesUntil && !m.heir && w.random.IntN(3) > 0
}

// said returns what a member says of its shard's verdict: a lie is the opposite.
func (m *member) said(verdict ledger.Verdict) ledger.Verdict {
	if m.lies() {
		return opposite(verdict)
	}
	return verdict
}

// invent returns a group that a member tells instead of what its block has for another shard: a
// lie. What the shard refused is in it, or something else is wrong with it. It is nil if there is
// nothing to make one of.
func (m *member) invent(part *verdicts.Part) *ledger.VerdictGroup {
	lie := &ledger.VerdictGroup{Shard: m.group.shard}
	for i := range part.Groups {
		lie.IDs = append(lie.IDs, part.Groups[i].IDs...)
	}
	random := m.group.world.random
	if draw := random.IntN(10); len(part.Groups) == 0 || draw >= 5 {
		for i := range part.Singles {
			lie.IDs = append(lie.IDs, part.Singles[i].ID)
		}
		slices.SortFunc(lie.IDs, func(a, b ledger.Hash) int { return bytes.Compare(a[:], b[:]) })
	} else {
		switch last := len(lie.IDs) - 1; draw {
		case 0: // one that no shard knows
			lie.IDs[last][0], lie.IDs[last][31] = 255, lie.IDs[last][31]^1
		case 1: // of another shard
			lie.Shard++
		case 2: // a half
			lie.IDs = lie.IDs[:max(last/2, 1)+1]
		case 3: // in another order
			slices.Reverse(lie.IDs)
		case 4: // one twice
			lie.IDs[last] = lie.IDs[0]
		}
	}
	if len(lie.IDs) < ledger.MinVerdictGroup {
		return nil
	}
	return lie
}

// opposite returns a verdict that says the opposite. That of a departure says that something else
// arrives.
func opposite(verdict ledger.Verdict) ledger.Verdict {
	if testimony, is := verdict.Testimony(); is {
		return testimony.Verdict(verdict.ID, verdict.Shard,
			verdict.Result.Code != ledger.HeardAgreement)
	}
	if _, departure := verdict.MoveOf(); departure {
		verdict.ID[0]++
		return verdict
	}
	code := ledger.SetAside
	if verdict.Good() {
		code = ledger.TooManyWaiting
	}
	verdict.Result = ledger.Result{Code: code, Item: ledger.NoItem}
	return verdict
}

// sent returns what a member sends as an entry of the stream to a child: a lie is another entry of
// the stream under its number.
func (m *member) sent(child ledger.ShardID, entry *carried) *carried {
	if !m.lies() {
		return entry
	}
	stream := m.streams[child]
	other := stream[m.group.world.random.IntN(len(stream))]
	return &carried{Carried: ledger.Carried{Number: entry.Number, Bundle: other.Bundle},
		hash: other.hash, height: entry.height}
}

// lieToFellows adds verdicts that no shard gave to a batch, on transactions that wait, and puts
// entries of the stream under other numbers. In a book in which organisations move it adds copies
// that are too late.
func (m *member) lieToFellows(batch *ledger.Batch) {
	for _, one := range m.state.AllPending() {
		for _, shard := range one.Waits {
			if m.lies() {
				batch.Verdicts = append(batch.Verdicts, opposite(ledger.Verdict{ID: one.ID,
					Shard: shard, Result: ledger.Result{Code: ledger.SetAside}}))
			}
		}
		for _, inquiry := range one.Inquiries {
			if m.lies() {
				batch.Verdicts = append(batch.Verdicts, inquiry.Verdict(one.ID, inquiry.Of[0],
					m.group.world.random.IntN(2) == 0))
			}
		}
	}
	if m.takesGroups() {
		m.lieInGroups(batch)
	}
	for i := range batch.Carried {
		batch.Carried[i].Bundle = batch.Carried[0].Bundle
	}
	if m.group.world.plan.movers != nil {
		m.proposeFalseCopies(batch)
	}
}

// lieInGroups adds a group of all that waits for a shard to a batch, and halves the groups that are
// in it.
func (m *member) lieInGroups(batch *ledger.Batch) {
	for i := range batch.Groups {
		if ids := batch.Groups[i].IDs; len(ids) > ledger.MinVerdictGroup && m.lies() {
			batch.Groups[i].IDs = ids[:len(ids)-1]
		}
	}
	waits := make(map[ledger.ShardID][]ledger.Hash)
	for _, one := range m.state.AllPending() {
		for _, shard := range one.Waits {
			waits[shard] = append(waits[shard], one.ID)
		}
	}
	for shard := range ledger.ShardID(len(m.group.world.groups)) {
		ids := waits[shard]
		slices.SortFunc(ids, func(a, b ledger.Hash) int { return bytes.Compare(a[:], b[:]) })
		if len(ids) >= ledger.MinVerdictGroup && m.lies() {
			batch.Groups = append(batch.Groups, ledger.VerdictGroup{Shard: shard,
				IDs: ids[:min(len(ids), ledger.MaxVerdictGroup)]})
		}
	}
}
