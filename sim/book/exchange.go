package book

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/ledgerd/ledgerd/ledger"
)

// address is a member of the book.
type address struct {
	shard  ledger.ShardID
	member int
}

// letter is a message between members of two shards. Exactly one of its contents is set.
type letter struct {
	from, to address
	// carried is an entry of the stream from the parent, and hash the hash of its bundle.
	carried *carried
	// position is how far the sender's shard has its parent's stream durably.
	position *uint64
	verdict  *ledger.Verdict
	// asked is a transaction whose verdict the sender waits for.
	asked *ledger.Hash
}

// carried is an entry of a stream, with the height of the block that has it.
type carried struct {
	ledger.Carried
	hash   ledger.Hash
	height int
}

// made is a shard's own verdict, with the height of the block that has it.
type made struct {
	verdict ledger.Verdict
	height  int
}

// exchange is a member's memory of what it has for other shards and has from them.
type exchange struct {
	// streams are the entries for each child. made are the shard's own verdicts, also on
	// transactions that failed there before others knew that they concern several shards. told is
	// how many blocks' verdicts the member has told.
	streams map[ledger.ShardID][]*carried
	made    map[ledger.Hash]made
	told    int
	// positions are how far each member of each child has the stream, as it last said.
	positions map[address]uint64
	// positionAt is how far the chain has the parent's stream after each block.
	positionAt []uint64
	// entries are the received entries of the parent's stream, by their numbers, and words the
	// received verdicts, each with the members that said so.
	entries map[uint64][]*heard
	words   map[ledger.Verdict]*heard
}

// heard is something that members of another shard said.
type heard struct {
	*carried
	members []int
}

func (h *heard) add(member int) {
	if !slices.Contains(h.members, member) {
		h.members = append(h.members, member)
	}
}

func newExchange() exchange {
	return exchange{streams: make(map[ledger.ShardID][]*carried),
		made: make(map[ledger.Hash]made), positions: make(map[address]uint64),
		entries: make(map[uint64][]*heard), words: make(map[ledger.Verdict]*heard)}
}

// note adds what an executed block has for other shards.
func (x *exchange) note(m *member, r *record) {
	x.positionAt = append(x.positionAt, r.position)
	if m.group.world.options.Plant == plantSnapshot && m.origin != nil &&
		int(r.block.Header.Height) <= m.origin.height {
		return
	}
	for _, each := range r.carried {
		x.streams[each.child] = append(x.streams[each.child], each.entry)
	}
	for i := range r.block.Unpacked {
		if own, is := ledger.VerdictOf(&r.block.Unpacked[i], m.group.shard); is {
			x.made[own.ID] = made{own, int(r.block.Header.Height)}
		}
	}
}

// believes reports whether enough members of a shard said something.
func (m *member) believes(shard ledger.ShardID, h *heard) bool {
	if !m.group.world.plan.vouched() {
		return len(h.members) > 0
	}
	return len(h.members) >= m.group.world.groups[shard].majority()
}

// visible is up to which block a member tells others what its chain has. early plants a bug.
func (m *member) visible(early bool) int {
	if early {
		return len(m.records)
	}
	return m.durable
}

// talk makes a member tell other shards what its chain has for them, and ask for what it lacks.
func (m *member) talk() {
	w := m.group.world
	plant := w.options.Plant
	for visible := m.visible(plant == plantEarlyVerdict); m.told < visible; m.told++ {
		for _, verdict := range m.records[m.told].verdicts {
			for _, to := range verdict.To {
				said := verdict.Verdict
				for range w.groups[to].majority() {
					m.send(w.someone(to), letter{verdict: &said})
				}
			}
		}
	}
	for _, child := range w.plan.tree.Children(m.group.shard) {
		if w.random.IntN(3) == 0 {
			m.offer(w.someone(child), m.visible(plant == plantEarlyEntry))
		}
	}
	if parent, below := w.plan.tree.Parent(m.group.shard); below && w.random.IntN(4) == 0 &&
		m.durable > 0 {
		position := m.positionAt[m.durable-1]
		m.send(w.someone(parent), letter{position: &position})
	}
	if plant != plantNotAsked && w.random.IntN(6) == 0 {
		m.ask()
	}
}

// ask asks other shards for the verdicts that some of the transactions wait for.
func (m *member) ask() {
	const most = 8
	w := m.group.world
	waiting := m.state.AllPending()
	for range min(len(waiting), most) {
		one := waiting[w.random.IntN(len(waiting))]
		for _, shard := range one.Waits {
			m.send(w.someone(shard), letter{asked: &one.ID})
		}
	}
}

// offer sends a member of a child the next entries of its stream.
func (m *member) offer(to address, visible int) {
	const most = 6
	sent := 0
	for _, entry := range m.streams[to.shard] {
		if entry.Number > m.positions[to] && entry.height <= visible && sent < most {
			m.send(to, letter{carried: entry})
			sent++
		}
	}
}

func (m *member) send(to address, l letter) {
	l.from, l.to = address{m.group.shard, m.number}, to
	m.group.world.send(l)
}

// receive takes a message from another shard.
func (m *member) receive(l *letter) {
	switch {
	case l.carried != nil:
		m.receiveEntry(l.from.member, l.carried)
	case l.position != nil:
		m.positions[l.from] = max(m.positions[l.from], *l.position)
	case l.verdict != nil:
		if m.words[*l.verdict] == nil {
			m.words[*l.verdict] = new(heard)
		}
		m.words[*l.verdict].add(l.from.member)
	case l.asked != nil:
		if own, known := m.made[*l.asked]; known &&
			own.height <= m.visible(m.group.world.options.Plant == plantEarlyVerdict) {
			m.send(l.from, letter{verdict: &own.verdict})
		}
	}
}

func (m *member) receiveEntry(writer int, entry *carried) {
	variants := m.entries[entry.Number]
	at := slices.IndexFunc(variants, func(h *heard) bool { return h.hash == entry.hash })
	if at < 0 {
		at = len(variants)
		variants = append(variants, &heard{carried: entry})
		m.entries[entry.Number] = variants
	}
	variants[at].add(writer)
}

// carry puts what other shards said, and the chain lacks, into a batch.
func (m *member) carry(batch *ledger.Batch) {
	w := m.group.world
	if parent, below := w.plan.tree.Parent(m.group.shard); below {
		const most = 8
		for next := m.state.Carried() + 1; len(batch.Carried) < most; next++ {
			at := slices.IndexFunc(m.entries[next], func(h *heard) bool {
				return m.believes(parent, h)
			})
			if at < 0 {
				break
			}
			if w.random.IntN(8) > 0 {
				batch.Carried = append(batch.Carried, m.entries[next][at].Carried)
			}
		}
		if w.random.IntN(2) == 0 {
			slices.Reverse(batch.Carried)
		}
	}
	maps.DeleteFunc(m.words, func(verdict ledger.Verdict, _ *heard) bool {
		return m.ids[verdict.ID] && !m.state.Awaits(&verdict) // it is over
	})
	for _, verdict := range sorted(m.words) {
		if m.believes(verdict.Shard, m.words[verdict]) && m.state.Awaits(&verdict) &&
			w.random.IntN(8) > 0 {
			batch.Verdicts = append(batch.Verdicts, verdict)
		}
	}
	if w.options.Plant == plantNoAtDeadline {
		m.giveUp(batch)
	}
	if w.plan.vouched() && len(batch.Carried)+len(batch.Verdicts) > 0 {
		m.vouch(batch)
	}
}

// giveUp adds refusals in the name of other shards, of transactions whose deadline is over. It is a
// bug: plantNoAtDeadline.
func (m *member) giveUp(batch *ledger.Batch) {
	for _, one := range m.state.AllPending() {
		entry := m.records[one.Height-1].block.Entry(int(one.Index))
		deadline := entry.Transaction().Deadline
		if deadline == 0 || batch.Header.Time < deadline {
			continue
		}
		for _, shard := range one.Waits {
			batch.Verdicts = append(batch.Verdicts, ledger.Verdict{ID: one.ID, Shard: shard,
				Result: ledger.Result{Code: ledger.DeadlinePassed, Item: ledger.NoItem}})
		}
	}
}

// sorted returns the verdicts in one order.
func sorted(words map[ledger.Verdict]*heard) []ledger.Verdict {
	all := make([]ledger.Verdict, 0, len(words))
	for verdict := range words {
		all = append(all, verdict)
	}
	slices.SortFunc(all, func(a, b ledger.Verdict) int {
		return cmp.Or(slices.Compare(a.ID[:], b.ID[:]), cmp.Compare(a.Shard, b.Shard),
			cmp.Compare(a.Result.Code, b.Result.Code), cmp.Compare(a.Result.Item, b.Result.Item))
	})
	return all
}

// vouch signs what a batch takes over from other shards.
func (m *member) vouch(batch *ledger.Batch) {
	entries := make([]ledger.Vouched, len(batch.Carried))
	for i, each := range batch.Carried {
		entries[i] = ledger.Vouched{Number: each.Number, Hash: ledger.CarriedHash(each.Bundle)}
	}
	slices.SortFunc(entries, func(a, b ledger.Vouched) int {
		return cmp.Compare(a.Number, b.Number)
	})
	batch.Vouch(m.group.world.plan.keys[m.group.shard][m.number], m.group.origin.Hash, entries)
}

// String describes a letter.
func (l *letter) String() string {
	what := ""
	switch {
	case l.carried != nil:
		what = fmt.Sprintf("entry %d", l.carried.Number)
	case l.position != nil:
		what = fmt.Sprintf("position %d", *l.position)
	case l.verdict != nil:
		what = fmt.Sprintf("verdict %s: %v", short(l.verdict.ID), l.verdict.Result.Code)
	case l.asked != nil:
		what = fmt.Sprintf("asks for %s", short(*l.asked))
	}
	return fmt.Sprintf("%d/%d to %d/%d: %s", l.from.shard, l.from.member, l.to.shard,
		l.to.member, what)
}
