package book

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/state"
	"github.com/ledgerd/ledgerd/order"
)

// hold adds a balance to what the shard has of an organisation, as far as that counts.
func (r *record) hold(m *member, name ledger.OrganisationName, balance *ledger.Balance) {
	if _, holds := m.state.Holds(name); !holds {
		return
	}
	if r.holdings[name] == nil {
		r.holdings[name] = make(holding)
	}
	add(r.holdings[name], balance.Asset, balance.Settled())
}

// noteMoves records which organisations are on their way here, and which have left or never will.
func (g *group) noteMoves(m *member, r *record) {
	coming, _ := m.state.Coming()
	r.coming = len(coming)
	for _, each := range m.state.Departures() {
		if _, before := g.departed[each.Number]; !before && (m.state.Departed(each.Number) ||
			m.state.NeverDeparts(each.Number)) {
			r.departed = append(r.departed, each.Number)
		}
	}
}

// homesAfter returns the homes after the block, and how often organisations have moved.
func (r *record) homesAfter() (homes map[ledger.OrganisationName]ledger.ShardID,
	moved map[ledger.OrganisationName]int) {
	if homes, moved = r.homes, r.moved; len(r.moves) == 0 {
		return homes, moved
	}
	homes, moved = maps.Clone(homes), maps.Clone(moved)
	if moved == nil {
		moved = make(map[ledger.OrganisationName]int)
	}
	for _, each := range r.moves {
		homes[each.Organisation] = each.To
		moved[each.Organisation]++
	}
	return homes, moved
}

// arrive records what comes along with an organisation: cancellations and balances.
func (r *record) arrive(a *ledger.Arrival) {
	for i := range a.Entries {
		balances, is, _ := state.MovedBalances(&a.Entries[i])
		if is {
			r.bring(state.AccountOfKey(a.Entries[i].Key).Organisation(), balances)
		}
		if id, by, deadline, is := state.MovedCancellation(&a.Entries[i]); is {
			if r.cancelled = maps.Clone(r.cancelled); r.cancelled == nil {
				r.cancelled = make(map[withdrawal]ledger.Milliseconds)
			}
			r.cancelled[withdrawal{id, by}] = max(r.cancelled[withdrawal{id, by}], deadline)
		}
	}
}

// bring records balances that come along with an organisation.
func (r *record) bring(name ledger.OrganisationName, balances []ledger.Balance) {
	if r.brought = maps.Clone(r.brought); r.brought == nil {
		r.brought = make(map[ledger.OrganisationName]holding)
	}
	if r.brought[name] = maps.Clone(r.brought[name]); r.brought[name] == nil {
		r.brought[name] = make(holding)
	}
	for i := range balances {
		add(r.brought[name], balances[i].Asset, balances[i].Amount)
	}
}

// departures is what a member knows of the organisations that left its shard.
type departures struct {
	// at are the blocks with which they have left, by the number of the move.
	at map[uint64]int
	// made are the arrivals that were made of them.
	made map[uint64][]*ledger.Bundle
}

// parcel asks for arrivals of a move, from one on, or has one.
type parcel struct {
	move    uint64
	from    ledger.Hash
	arrival *ledger.Bundle
}

// departure returns a member's word that an organisation has left, if it asks for that.
func (m *member) departure(asked ledger.Hash) (word ledger.Verdict, known bool) {
	for _, each := range m.state.Departures() {
		if ledger.MoveID(m.group.genesis.Book(), each.Number) != asked {
			continue
		}
		if at, left := m.leaving.at[each.Number]; left && at <= m.visible(false) &&
			m.state.NeverDeparts(each.Number) {
			return ledger.Departure(each.Number, m.group.shard, asked), true
		}
		arrivals := m.arrivals(each.Number)
		if len(arrivals) == 0 {
			return ledger.Verdict{}, false
		}
		return ledger.Departure(each.Number, m.group.shard, arrivals[0].ID(0)), true
	}
	return ledger.Verdict{}, false
}

// arrivals makes the arrivals of a move if the organisation has left with a durable block.
func (m *member) arrivals(number uint64) []*ledger.Bundle {
	at, left := m.leaving.at[number]
	if !left || at > m.visible(m.group.world.options.Plant == plantEarlyVerdict) ||
		m.state.NeverDeparts(number) {
		return nil
	}
	if made := m.leaving.made[number]; made != nil {
		return made
	}
	entries, records := m.state.Leaves(number, func() {})
	for _, each := range records {
		if m.isAbsent(int(each.Height)) {
			return nil
		}
		entry := m.records[each.Height-1].block.Entry(int(each.Index))
		entries = append(entries, state.MovedRecordEntry(each.Key,
			recordValue(entry.Transaction(), each.Item)))
	}
	name := m.organisationOf(number)
	for path := range m.accounts {
		if path.Organisation() == name {
			account, _ := m.account(path)
			entries = append(entries, state.MovedAccountEntry(&account))
		}
	}
	made, _, err := state.Arrivals(m.group.genesis.Book(), number, entries,
		m.group.world.plan.arrival)
	if err != nil {
		m.group.world.fail(SameChain, fmt.Sprintf("%v: the arrivals of move %d: %v", m, number,
			err))
	}
	m.leaving.made[number] = made
	return made
}

func (m *member) organisationOf(number uint64) ledger.OrganisationName {
	for _, each := range m.state.Moves() {
		if each.Number == number {
			return each.Organisation
		}
	}
	return ""
}

// recordValue returns the value of record item of a transaction, or of an arrival.
func recordValue(t *ledger.Transaction, item uint32) []byte {
	if t.Arrival != nil {
		return t.Arrival.Entries[item].Value
	}
	return t.Records[item].Value
}

// fetch asks the old homes for what comes next.
func (m *member) fetch() {
	coming, next := m.state.Coming()
	for i, each := range coming {
		if next[i] != (ledger.Hash{}) {
			m.send(m.someone(each.From), letter{parcel: &parcel{move: each.Number,
				from: next[i]}})
		}
	}
}

// receiveParcel answers who asks for arrivals, or takes one.
func (m *member) receiveParcel(from address, p *parcel) {
	const most = 3
	if p.arrival != nil {
		m.admit(p.arrival)
		return
	}
	arrivals := m.arrivals(p.move)
	at := slices.IndexFunc(arrivals, func(b *ledger.Bundle) bool { return b.ID(0) == p.from })
	if at < 0 {
		return
	}
	if m.lies() {
		at = len(arrivals) - 1
	}
	for _, each := range arrivals[at:min(at+most, len(arrivals))] {
		m.send(from, letter{parcel: &parcel{arrival: each}})
	}
}

// answer returns what a member says when it is asked for a verdict.
func (m *member) answer(l *letter) (said ledger.Verdict, known bool) {
	if said, known = m.departure(*l.asked); known {
		return said, true
	}
	at, here := m.answers[*l.asked]
	if !here || at.height > m.visible(m.group.world.options.Plant == plantEarlyVerdict) {
		return ledger.Verdict{}, false
	}
	if m.isAbsent(at.height) {
		return m.answerAbsent(at, l.from.shard)
	}
	entry := m.records[at.height-1].block.Entry(at.index)
	return m.state.AnswersTo(&entry, ledger.Height(at.height), l.from.shard)
}

// writing is the last transaction that wrote a record, after this many moves of its organisation.
type writing struct {
	id    ledger.Hash
	moved int
	value []byte
}

// note records that a transaction of a shard wrote records of organisations that lived there.
func (w *world) noteWriting(writings map[ledger.RecordKey]writing, g *group, r *record,
	entry *ledger.Entry) {
	t := entry.Transaction()
	for i := range t.Records {
		key := t.Records[i].Key
		if g.home(r, key.Organisation()) != g.shard {
			continue
		}
		moved := r.moved[key.Organisation()]
		if last, again := writings[key]; !again || moved >= last.moved {
			writings[key] = writing{entry.ID, moved, t.Records[i].Value}
		}
	}
}

// judgeRecord judges that a record has the value that was written last.
func (w *world) judgeRecord(key ledger.RecordKey, want writing) {
	g := w.groups[w.finalHome(key.Organisation())]
	at, known := g.members[0].state.Record(key)
	if !known || at.Digest != ledger.Hash(sha256.Sum256(want.value)) {
		w.fail(Outcome, fmt.Sprintf("record %s has not the value of %s, which wrote it last", key,
			short(want.id)))
	}
	entry := g.records[at.Height-1].block.Entry(int(at.Index))
	t := entry.Transaction()
	if !bytes.Equal(recordValue(t, at.Item), want.value) {
		w.fail(Outcome, fmt.Sprintf("the place of record %s has another value", key))
	}
}

// finalHome returns the home of an organisation in the end.
func (w *world) finalHome(name ledger.OrganisationName) ledger.ShardID {
	g := w.groups[w.plan.tree.Root()]
	r := *g.last()
	r.homes, _ = r.homesAfter()
	return g.home(&r, name)
}

// wasLost reports whether an organisation ever lived in a shard that gets lost in this run.
func (w *world) wasLost(name ledger.OrganisationName) bool {
	g := w.groups[w.plan.tree.Root()]
	return w.isLost(w.finalHome(name)) || slices.ContainsFunc(g.records, func(r *record) bool {
		return w.isLost(g.home(r, name))
	})
}

// countStranded counts the organisations that never arrive in their home, because the shard that
// they were coming from is lost.
func (w *world) countStranded() {
	for _, c := range w.plan.workload.clients {
		home := w.finalHome(c.name)
		if !w.isLost(home) && !w.groups[home].members[0].state.LivesHere(c.name) {
			w.result.Stranded++
		}
	}
}

// judgeArrived judges that organisations have arrived only after they left.
func (w *world) judgeArrived() {
	for _, g := range w.groups {
		for _, r := range g.records {
			for i := range r.block.Unpacked {
				t := r.block.Unpacked[i].Transaction()
				if t.Arrival != nil && t.Arrival.Next == (ledger.Hash{}) {
					w.result.Moved++
				}
				verdict := t.Verdict
				if verdict == nil {
					continue
				}
				number, departure := verdict.MoveOf()
				if _, left := w.groups[verdict.Shard].departed[number]; departure && !left {
					w.fail(order.Integrity, fmt.Sprintf("shard %d, block %d: move %d arrives, and "+
						"nothing left shard %d", g.shard, r.block.Header.Height, number,
						verdict.Shard))
				}
			}
		}
	}
}
