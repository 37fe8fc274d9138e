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

// foresee asks the member about all submissions that it has in no block. Its blocks are durable, as
// those of a node that refuses.
func (m *member) foresee() {
	w := m.group.world
	if int(w.turn)%foreseenEvery != m.number%foreseenEvery || len(m.records) == 0 ||
		m.durable < len(m.records) {
		return
	}
	at := m.records[len(m.records)-1].block.Header.Time
	for i := range w.plan.submissions {
		bundle := w.plan.submissions[i].bundle
		for j := range bundle.Len() {
			id, t := bundle.ID(j), bundle.Transaction(j)
			if _, again := w.foreseen[id]; again ||
				m.ids[id] && w.options.Plant != plantForeseenKnown {
				continue
			}
			code := m.state.Foreseen(t, at, t.HoldEnd != nil && m.ids[t.HoldEnd.Hold])
			if code != ledger.Applied {
				w.foreseen[id] = foresight{m.String(), len(m.records), code}
			}
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
