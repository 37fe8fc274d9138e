package book

import (
	"fmt"

	"github.com/ledgerd/ledgerd/ledger"
)

// A node refuses what is certain to fail. Here every member is asked now and then which submissions
// it would refuse for that, also those that clients make only later, or make elsewhere. They are
// submitted all the same, so that the judge sees what becomes of them. To ask changes nothing, so
// the runs are as they were without.

// foreseenEvery is how many turns pass for one in which a member is asked.
const foreseenEvery = 3

// foresight is the word of a member that a transaction fails.
type foresight struct {
	by     string
	height int
	code   ledger.Code
}

// submitted is a transaction that a client makes in this run.
type submitted struct {
	id ledger.Hash
	t  *ledger.Transaction
	// foreseen says that a member foresaw its failure. Nobody is asked again.
	foreseen bool
}

// listSubmitted lists the transactions that members are asked about, each once.
func (w *world) listSubmitted() {
	listed := make(map[ledger.Hash]bool)
	for i := range w.plan.submissions {
		bundle := w.plan.submissions[i].bundle
		for j := range bundle.Len() {
			if id := bundle.ID(j); !listed[id] {
				listed[id] = true
				w.submitted = append(w.submitted, submitted{id: id, t: bundle.Transaction(j)})
			}
		}
	}
}

// foresee asks the member about all submissions that it has in no block. Its blocks are durable, as
// those of a node that refuses. Before its next block, it would say the same again.
func (m *member) foresee() {
	w := m.group.world
	if int(w.turn)%foreseenEvery != m.number%foreseenEvery || len(m.records) == 0 ||
		m.durable < len(m.records) {
		return
	}
	last := m.records[len(m.records)-1]
	if m.asked == last {
		return
	}
	m.asked = last
	at := last.block.Header.Time
	for i := range w.submitted {
		each := &w.submitted[i]
		if each.foreseen || m.ids[each.id] && w.options.Plant != plantForeseenKnown {
			continue
		}
		antecedent, has := each.t.Antecedent()
		known := has && m.ids[antecedent] && !m.looked[antecedent]
		code := m.state.Foreseen(each.t, at, known)
		if code != ledger.Applied {
			each.foreseen = true
			w.foreseen[each.id] = foresight{m.String(), len(m.records), code}
		}
	}
}

// judgeForeseen judges that what was foreseen to fail took effect nowhere.
func (w *world) judgeForeseen() {
	w.result.Foreseen = len(w.foreseen)
	for _, g := range w.groups {
		for _, r := range g.records {
			for i := range r.block.Unpacked {
				entry := &r.block.Unpacked[i]
				said, foreseen := w.foreseen[entry.ID]
				if foreseen && g.tookEffectAt(entry) {
					w.fail(Foresight, fmt.Sprintf("%s took effect in shard %d, block %d, and %s "+
						"foresaw after block %d that it fails: %s", short(entry.ID), g.shard,
						r.block.Header.Height, said.by, said.height, said.code))
				}
			}
		}
	}
}
