package book

import (
	"errors"
	"fmt"
	"slices"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/state"
	"github.com/ledgerd/ledgerd/ledger/verdicts"
	"github.com/ledgerd/ledgerd/order"
)

// handOver hands transactions over to a shard that was asked for its verdicts on them, and that may
// never get them.
func (m *member) handOver(question *verdicts.Question) {
	plant := m.group.world.options.Plant
	if question.Subject != 0 || plant == plantNotHandedOver {
		return
	}
	now := m.now()
	if plant == state.FaultLateBeforeDeadline.String() {
		now = 0
	}
	for _, id := range question.IDs {
		waiting, waits := m.state.Pending(id)
		if !waits || m.isAbsent(int(waiting.Height)) {
			continue // it is a departure, or a fellow has it
		}
		block := m.records[waiting.Height-1].block
		entry := block.Entry(int(waiting.Index))
		if m.state.HandsOver(id, entry.Transaction(), question.Shard, now) {
			m.send(m.someone(question.Shard),
				letter{late: block.CarriedCopy(int(waiting.Index))})
		}
	}
}

// takesLate reports whether the chain takes a copy in a block of now, as a store does.
func (m *member) takesLate(id ledger.Hash, t *ledger.Transaction) (bool, error) {
	return m.state.TakesLate(t, m.now()) && !m.ids[id], nil
}

// receiveLate keeps a copy that another shard handed over, until the chain has it.
func (m *member) receiveLate(from address, encoded []byte) {
	w := m.group.world
	late, err := m.late.Read(from.shard, encoded, m.now(), m.takesLate)
	switch {
	case err == nil:
		m.late.Add(late, m.now())
		if bound := w.plan.late.OfShard; m.late.OfShard(from.shard) > bound {
			w.fail(Bounds, fmt.Sprintf("%v keeps %d copies of shard %d, and may keep %d", m,
				m.late.OfShard(from.shard), from.shard, bound))
		}
	case errors.Is(err, verdicts.ErrNotTaken):
	case !w.plan.mayLie(w.groups[from.shard].slotOf(ledger.MemberIndex(from.member))):
		w.fail(Contract, fmt.Sprintf("%v: a copy of member %d of shard %d: %v", m, from.member,
			from.shard, err))
	}
}

// carryLate puts copies that other shards handed over into a batch.
func (m *member) carryLate(batch *ledger.Batch) {
	const room = ledger.MaxBatchBytes / 2
	batch.Carried = append(batch.Carried, verdicts.Within(verdicts.Taken(m.late.Waiting(m.now()),
		m.takesLate), room)...)
}

// falseCopy returns a copy that a liar makes of a transaction of any chain, most often of one whose
// deadline is over: as it is, which may be too early, or known, or of no concern to who gets it; or
// forged, cut short, too large, or with others. It is nil if it happens upon nothing.
func (w *world) falseCopy(now ledger.Milliseconds) []byte {
	const tries = 6
	for range tries {
		g := w.groups[w.random.IntN(len(w.groups))]
		if g.head() == 0 {
			continue
		}
		block := g.records[w.random.IntN(g.head())].block
		if block.Len() == 0 {
			continue // it has only entries of a stream of which nothing is kept
		}
		index := w.random.IntN(block.Len())
		t := block.Unpacked[index].Transaction()
		if t.Verdict != nil || t.Arrival != nil || t.Change != nil ||
			(t.Deadline == 0 || t.Deadline > now) && w.random.IntN(8) > 0 {
			continue
		}
		encoded := block.CarriedCopy(index)
		switch w.random.IntN(12) {
		case 0:
			encoded[len(encoded)-1] ^= 1 // of the last signature
		case 1:
			encoded = encoded[:w.random.IntN(len(encoded))]
		case 2:
			encoded = block.CarriedBundle(block.Unpacked[index].Bundle)
		case 3:
			encoded = tooLarge
		}
		return encoded
	}
	return nil
}

// tooLarge is more than a bundle may have.
var tooLarge = make([]byte, ledger.MaxBundleBytes+1)

// sendFalseCopies hands false copies over to a member of another shard.
func (m *member) sendFalseCopies() {
	w := m.group.world
	to := ledger.ShardID(w.random.IntN(len(w.groups)))
	if to == m.group.shard {
		return
	}
	at := m.someone(to)
	for range w.random.IntN(8) {
		if copied := w.falseCopy(m.now()); copied != nil {
			m.send(at, letter{late: copied})
		}
	}
}

// proposeFalseCopies puts false copies into a batch, some of them several times.
func (m *member) proposeFalseCopies(batch *ledger.Batch) {
	w := m.group.world
	for range w.random.IntN(8) {
		copied := w.falseCopy(m.now())
		if copied == nil || len(copied) > ledger.MaxBundleBytes {
			continue // nobody can decode a batch with one that is too large
		}
		for range 1 + w.random.IntN(2) {
			batch.Carried = append(batch.Carried, ledger.Carried{Bundle: copied})
		}
	}
}

// isLate reports whether a client's transaction has no place in a block but as one that is too
// late, and judges that it is refused as such.
func (g *group) isLate(r *record, bundle int, entry *ledger.Entry,
	destinations []ledger.ShardID) bool {
	if r.block.Bundles[bundle].Number != 0 || r.tree.Covers(g.shard, destinations) {
		return false
	}
	if entry.Result.Code != ledger.DeadlinePassed {
		g.world.fail(order.Integrity, fmt.Sprintf("shard %d, block %d: transaction %s does not "+
			"enter here, and is not refused as late", g.shard, r.block.Header.Height,
			short(entry.ID)))
	}
	g.judgeLate(r, entry)
	g.world.result.HandedOver++
	return true
}

// judgeLate judges that a copy beside the order is one that may never come by it, and that concerns
// the shard: one of its organisations moved before, and one is at home here or was.
func (g *group) judgeLate(r *record, entry *ledger.Entry) {
	moved, concerned := false, false
	for name := range entry.Transaction().Organisations() {
		moved = moved || r.moved[name] > 0
		concerned = concerned || g.home(r, name) == g.shard ||
			slices.ContainsFunc(g.records, func(each *record) bool {
				return g.home(each, name) == g.shard
			})
	}
	if !moved || !concerned {
		g.world.fail(order.Integrity, fmt.Sprintf("shard %d, block %d: transaction %s is refused "+
			"beside the order; one of its organisations moved: %v, one is or was here: %v", g.shard,
			r.block.Header.Height, short(entry.ID), moved, concerned))
	}
	if r.late++; r.late > g.world.plan.lateMax {
		g.world.fail(Bounds, fmt.Sprintf("shard %d, block %d: more than %d transactions are "+
			"refused beside the order", g.shard, r.block.Header.Height, g.world.plan.lateMax))
	}
}
