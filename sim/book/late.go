package book

import (
	"fmt"
	"maps"
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
		if !waits {
			continue // it is a departure
		}
		block := m.records[waiting.Height-1].block
		entry := block.Entry(int(waiting.Index))
		if m.state.HandsOver(id, entry.Transaction(), question.Shard, now) {
			m.send(m.someone(question.Shard),
				letter{late: block.CarriedCopy(int(waiting.Index))})
		}
	}
}

// lateCopy is a copy of a transaction that another shard handed over.
type lateCopy struct {
	transaction ledger.Transaction
	encoded     []byte
}

// receiveLate keeps a copy that another shard handed over until the chain has it.
func (m *member) receiveLate(encoded []byte) {
	bundle, kept, err := ledger.DecodeCarried(encoded)
	if err != nil {
		m.group.world.fail(Contract, fmt.Sprintf("a copy: %v", err))
	}
	at := slices.Index(kept, true)
	if id := bundle.ID(at); !m.ids[id] {
		m.late[id] = lateCopy{*bundle.Transaction(at), encoded}
	}
}

// carryLate puts copies that other shards handed over into a batch.
func (m *member) carryLate(batch *ledger.Batch) {
	maps.DeleteFunc(m.late, func(id ledger.Hash, _ lateCopy) bool { return m.ids[id] })
	ids := slices.SortedFunc(maps.Keys(m.late), func(a, b ledger.Hash) int {
		return slices.Compare(a[:], b[:])
	})
	for _, id := range ids {
		if late := m.late[id]; m.state.TakesLate(&late.transaction, m.now()) {
			batch.Carried = append(batch.Carried, ledger.Carried{Bundle: late.encoded})
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
	g.world.result.HandedOver++
	return true
}
