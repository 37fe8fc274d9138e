package book

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/state"
	"github.com/ledgerd/ledgerd/ledger/verdicts"
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
	group    *ledger.VerdictGroup
	// asked is a transaction whose verdict the sender waits for, or whose testimony with this
	// subject.
	asked   *ledger.Hash
	subject ledger.Subject
	// parcel asks for what an organisation takes along that moves, or has some of it.
	parcel *parcel
	// late is a copy of a transaction for which the sender waits in vain.
	late []byte
}

// carried is an entry of a stream, with the height of the block that has it.
type carried struct {
	ledger.Carried
	hash   ledger.Hash
	height int
}

// exchange is a member's memory of what it has for other shards and has from them.
type exchange struct {
	// streams are the entries for each child. answers are the places of the transactions on
	// which the shard has a verdict, also of those that failed there before others knew that they
	// concern several shards, and in a book with moves those of all transactions. told is
	// how many blocks' verdicts the member has told.
	streams map[ledger.ShardID][]*carried
	answers map[ledger.Hash]place
	leaving departures
	told    int
	// positions are how far each member of each child has the stream, as it last said.
	positions map[address]uint64
	// positionAt is how far the chain has the parent's stream after each block.
	positionAt []uint64
	// entries are the received entries of the parent's stream, by their numbers, each with the
	// members that said so.
	entries map[uint64][]*heard
	// late are copies of transactions that the chain lacks, and that others wait for.
	late *verdicts.LateCopies
	// verdicts are those of other shards, and asking the transactions that wait for them. opened is
	// set until the member first looks at these.
	verdicts *verdicts.Exchange
	asking   *verdicts.Asking
	opened   bool
	// vouched is the last voucher, which serves again for a batch with the same content.
	vouched vouched
}

// vouched is a voucher with the verdicts and groups of its batch.
type vouched struct {
	voucher  *ledger.Voucher
	verdicts []ledger.Verdict
	groups   []ledger.VerdictGroup
}

// heard is an entry that members of a shard sent, the parent of then.
type heard struct {
	*carried
	shard   ledger.ShardID
	members []int
}

func (h *heard) add(member int) {
	if !slices.Contains(h.members, member) {
		h.members = append(h.members, member)
	}
}

// The patience of members: how long until they propose a verdict again, ask for one, and ask again.
const againAfterTurns, askAfterTurns, askEveryTurns = 10, 6, 10

// after is how long turns last, for package verdicts.
func after(turns Turn) time.Duration { return time.Duration(turns) * time.Millisecond }

func (m *member) newExchange() exchange {
	w := m.group.world
	return exchange{streams: make(map[ledger.ShardID][]*carried),
		answers: make(map[ledger.Hash]place), positions: make(map[address]uint64),
		entries: make(map[uint64][]*heard), opened: true,
		late:    verdicts.NewLateCopies(w.plan.late, w.options.verdictsFault()),
		leaving: departures{make(map[uint64]int), make(map[uint64][]*ledger.Bundle)},
		verdicts: verdicts.New(verdicts.Config{Vouched: w.plan.vouched(), Own: m.group.shard,
			Shards: w.shards, Members: m.indexes, Bounds: w.plan.bounds,
			Groups: m.takesGroups, Fault: w.options.verdictsFault()}),
		asking: verdicts.NewAsking(after(askAfterTurns), after(askEveryTurns))}
}

// takesGroups reports whether the member's chain takes groups of verdicts.
func (m *member) takesGroups() bool {
	return m.group.world.plan.vouched() && ledger.TakesAgreements(m.state.Version())
}

// shards returns the number of the book's shards that have begun.
func (w *world) shards() int { return len(w.groups) }

// note adds what an executed block has for other shards.
func (x *exchange) note(m *member, r *record) {
	x.positionAt = append(x.positionAt, r.position)
	for _, number := range r.departed {
		x.leaving.at[number] = int(r.block.Header.Height)
	}
	if m.group.world.options.Plant == plantSnapshot && m.origin != nil &&
		int(r.block.Header.Height) <= m.origin.height {
		return
	}
	plant, old := m.group.world.options.Plant, m.origin != nil && m.origin.passed != nil &&
		int(r.block.Header.Height) <= m.origin.height
	for _, each := range r.carried {
		if old && (plant == plantSnapshotEntries ||
			each.entry.Number <= m.origin.passed[each.child]) {
			continue // the snapshot does not have it
		}
		x.streams[each.child] = append(x.streams[each.child], each.entry)
	}
	if old && plant == plantSnapshotVerdicts {
		return
	}
	for i := range r.block.Unpacked {
		entry := &r.block.Unpacked[i]
		if _, is := ledger.VerdictOf(entry, m.group.shard); is || m.group.world.plan.movers != nil {
			x.answers[entry.ID] = place{int(r.block.Header.Height), i}
		}
	}
}

// believes reports whether enough members of a shard said something.
func (m *member) believes(shard ledger.ShardID, h *heard) bool {
	if !m.group.world.plan.vouched() {
		return len(h.members) > 0
	}
	present, said := m.indexes(shard), 0
	for _, index := range present {
		if slices.Contains(h.members, int(index)) {
			said++
		}
	}
	return said > len(present)/2
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
		m.tellBlock(m.records[m.told].verdicts)
	}
	if w.plan.replacers != nil {
		m.learn()
	}
	tree := m.tree()
	for _, child := range m.fed(tree) {
		if w.random.IntN(3) == 0 {
			m.offer(m.someone(child), m.visible(plant == plantEarlyEntry))
		}
	}
	m.tellAbove(tree)
	m.judge()
	if plant != plantNotAsked && w.random.IntN(4) == 0 {
		m.ask()
	}
	if w.plan.movers != nil && w.random.IntN(4) == 0 {
		m.fetch()
	}
	if w.plan.movers != nil && m.lies() {
		m.sendFalseCopies()
	}
}

// tellBlock sends the verdicts of a block to members of the shards that wait for them.
func (m *member) tellBlock(own []state.OwnVerdict) {
	w := m.group.world
	if !m.takesGroups() {
		for i := range own {
			m.tell(&own[i])
		}
		return
	}
	for _, part := range verdicts.Split(own) {
		if int(part.To) >= len(w.groups) {
			continue // it has not begun, and will ask
		}
		for _, to := range m.indexes(part.To) {
			member := address{part.To, int(to)}
			if m.lies() {
				if lie := m.invent(&part); lie != nil {
					m.sendWord(member, letter{group: lie}, true)
					continue
				}
			}
			for i := range part.Groups {
				w.result.Grouped += len(part.Groups[i].IDs)
				m.send(member, letter{group: &part.Groups[i]})
			}
			for i := range part.Singles {
				m.utter(member, part.Singles[i])
			}
		}
	}
}

// tell sends one of the own verdicts to members of the shards that wait for it.
func (m *member) tell(own *state.OwnVerdict) {
	w := m.group.world
	vouched, at := w.plan.vouched(), slices.Index(m.group.members, m)
	if !verdicts.Tells(own.ID, at, len(m.group.members), vouched) {
		return
	}
	for _, shard := range own.To {
		if int(shard) >= len(w.groups) {
			continue // it has not begun, and will ask
		}
		known := m.indexes(shard)
		for place, to := range known {
			if verdicts.Told(own.ID, place, len(known), vouched) {
				m.utter(address{shard, int(to)}, own.Verdict)
			}
		}
	}
}

// judge gives some of the received verdicts and groups their places.
func (m *member) judge() {
	const most = 16
	for _, verdict := range m.verdicts.TakeReceived(most) {
		if !m.verdicts.Knows(verdicts.KeyOf(&verdict)) {
			m.verdicts.Place(&verdict, verdicts.StandingOf(m.state.Awaits(&verdict),
				m.ids[verdict.ID] && m.state.TakesVerdict(&verdict)), m.verdicts.Blocks())
		}
	}
	for range 4 {
		group, any := m.verdicts.TakeGroup()
		if !any {
			break
		}
		_ = group.Judge(func(verdict *ledger.Verdict) (verdicts.Standing, error) {
			return verdicts.StandingOf(m.state.Awaits(verdict), m.ids[verdict.ID]), nil
		}) // only ever nil
		m.verdicts.PlaceGroup(&group, m.verdicts.Blocks())
	}
}

// ask asks other shards for the verdicts that transactions have waited for long: all members in a
// vouched book, or else one.
func (m *member) ask() {
	const most, never = 8, math.MaxInt
	w := m.group.world
	now := after(w.turn)
	due := m.asking.Overdue(append(m.state.AllPending(), m.state.AwaitedDepartures()...), now,
		m.opened)
	m.opened = false
	m.verdicts.Sweep(m.asking)
	questions, _ := m.verdicts.Questions(m.asking, due, now, most, never)
	for _, question := range questions {
		if int(question.Shard) >= len(w.groups) {
			continue // it has not begun
		}
		m.handOver(&question)
		for i := range question.IDs {
			asked := letter{asked: &question.IDs[i], subject: question.Subject}
			if !w.plan.vouched() {
				m.send(m.someone(question.Shard), asked)
				continue
			}
			for _, to := range m.indexes(question.Shard) {
				m.send(address{question.Shard, int(to)}, asked)
			}
		}
	}
}

// offer sends a member of a child the next entries of its stream.
func (m *member) offer(to address, visible int) {
	const most = 6
	sent := 0
	for _, entry := range m.streams[to.shard] {
		if entry.Number > m.positions[to] && entry.height <= visible && sent < most {
			m.send(to, letter{carried: m.sent(to.shard, entry)})
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
		m.receiveEntry(l.from, l.carried)
	case l.position != nil:
		m.positions[l.from] = max(m.positions[l.from], *l.position)
	case l.verdict != nil:
		m.hear(l)
	case l.group != nil:
		m.hearGroup(l)
	case l.asked != nil && l.subject != 0:
		testimony, _ := l.subject.Testimony()
		if verdict, made := m.testify(*l.asked, testimony); made {
			m.utter(l.from, verdict)
		}
	case l.asked != nil:
		if own, known := m.answer(l); known {
			m.utter(l.from, own)
		}
	case l.parcel != nil:
		m.receiveParcel(l.from, l.parcel)
	case l.late != nil:
		m.receiveLate(l.from, l.late)
	}
}

// hear takes another shard's verdict.
func (m *member) hear(l *letter) {
	from := verdicts.Member{Shard: l.from.shard, Index: ledger.MemberIndex(l.from.member)}
	m.judgeWords(m.verdicts.Hear(from, []ledger.Verdict{*l.verdict}))
}

// hearGroup takes another shard's group of verdicts. One that is not valid is dropped, as it cannot
// be decoded.
func (m *member) hearGroup(l *letter) {
	if l.group.Shard != l.from.shard || l.group.Validate() != nil {
		return
	}
	from := verdicts.Member{Shard: l.from.shard, Index: ledger.MemberIndex(l.from.member)}
	m.judgeWords(m.verdicts.HearGroup(from, *l.group, l.group.ID()))
}

// judgeWords judges that only members that may lie contradict others.
func (m *member) judgeWords(contradictions []verdicts.Contradiction) {
	w := m.group.world
	for _, found := range contradictions {
		from := found.Member
		if w.plan.mayLie(w.groups[from.Shard].slotOf(from.Index)) {
			continue
		}
		w.fail(Verdicts, fmt.Sprintf("%v: the words of members of shard %d on %s contradict each "+
			"other: %v, against %v", m, from.Shard, short(found.Verdict.ID),
			found.Verdict.Result.Code, found.Against.Code))
	}
}

func (m *member) receiveEntry(from address, entry *carried) {
	if parent, below := m.tree().Parent(m.group.shard); !below || parent != from.shard {
		return // it is not the parent any more, or not yet
	}
	variants := m.entries[entry.Number]
	at := slices.IndexFunc(variants, func(h *heard) bool {
		return h.hash == entry.hash && h.shard == from.shard
	})
	if at < 0 {
		at = len(variants)
		variants = append(variants, &heard{carried: entry, shard: from.shard})
		m.entries[entry.Number] = variants
	}
	variants[at].add(from.member)
}

// carry puts what other shards said, and the chain lacks, into a batch.
func (m *member) carry(batch *ledger.Batch) {
	w := m.group.world
	if parent, below := m.state.ShardTree().Parent(m.group.shard); below {
		const most = 8
		for next := m.state.Carried() + 1; len(batch.Carried) < most; next++ {
			at := slices.IndexFunc(m.entries[next], func(h *heard) bool {
				return h.shard == parent && m.believes(parent, h)
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
	m.carryLate(batch)
	batch.Groups, batch.Verdicts = m.verdicts.ProposeWithin(ledger.MaxBatchBytes, w.plan.proposed,
		after(w.turn), after(againAfterTurns))
	if m.lies() {
		m.lieToFellows(batch)
	}
	if w.options.Plant == plantNoAtDeadline {
		m.giveUp(batch)
	}
	if w.plan.vouched() && len(batch.Carried)+len(batch.Verdicts)+len(batch.Groups) > 0 {
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

// vouch signs what a batch takes over from other shards.
func (m *member) vouch(batch *ledger.Batch) {
	var entries []ledger.Vouched
	for _, each := range batch.Carried {
		if each.Number > 0 {
			entries = append(entries, ledger.Vouched{Number: each.Number,
				Hash: ledger.CarriedHash(each.Bundle)})
		}
	}
	slices.SortFunc(entries, func(a, b ledger.Vouched) int {
		return cmp.Compare(a.Number, b.Number)
	})
	if last := &m.vouched; last.voucher != nil && slices.Equal(last.verdicts, batch.Verdicts) &&
		slices.Equal(last.voucher.Stream, entries) &&
		slices.EqualFunc(last.groups, batch.Groups, func(a, b ledger.VerdictGroup) bool {
			return a.Shard == b.Shard && slices.Equal(a.IDs, b.IDs)
		}) {
		batch.Voucher = last.voucher
		return
	}
	batch.Vouch(m.key, m.group.origin.Hash, entries)
	m.vouched = vouched{voucher: batch.Voucher, verdicts: batch.Verdicts, groups: batch.Groups}
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
	case l.group != nil:
		what = fmt.Sprintf("group of %d verdicts", len(l.group.IDs))
	case l.asked != nil:
		what = fmt.Sprintf("asks for %s", short(*l.asked))
	case l.parcel != nil && l.parcel.arrival != nil:
		what = fmt.Sprintf("arrival %s", short(l.parcel.arrival.ID(0)))
	case l.late != nil:
		what = "a copy that is late"
	case l.parcel != nil:
		what = fmt.Sprintf("asks for arrivals of move %d", l.parcel.move)
	}
	return fmt.Sprintf("%d/%d to %d/%d: %s", l.from.shard, l.from.member, l.to.shard,
		l.to.member, what)
}
