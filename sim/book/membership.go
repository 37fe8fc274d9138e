package book

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/ledgerd/ledgerd/ledger"
)

// Replacements of members. For each, the operators submit to the shard that a new member joins it.
// Once the entry is durable, the new member begins with a snapshot of a fellow. Then they submit
// that the old one leaves, which stops once enough others have all durable blocks.

// replacement is one of a member's place by a new member.
type replacement struct {
	slot  int
	began Turn
	// name is the new member's name, and joined its index once that is durable.
	name   string
	joined ledger.MemberIndex
	known  bool
	// fresh is the new member, up to when it has a disk. begun is set from then on.
	fresh *member
	begun bool
}

// replaces draws the chance of a book's replacements, or returns nil if it has none. It is apart
// from others, so that other books stay as they were without them.
func replaces(options *Options) *rand.Rand {
	random := rand.New(rand.NewPCG(options.Seed, 1<<43))
	if options.Faults&FaultMembers == 0 || random.IntN(4) > 0 {
		return nil
	}
	return random
}

// replace draws the replacements: of some members of a shard or of all of them. In the same time
// another shard may be down, and members that will leave may lie.
func (p *plan) replace(kinds Faults) {
	if p.replacers == nil {
		return
	}
	random, members := p.replacers, len(p.keys[0])
	add := func(f fault) {
		f.number = len(p.faults) + 1
		p.faults = append(p.faults, f)
	}
	for range 1 + random.IntN(2) {
		f := fault{at: Turn(20 + random.IntN(max(1, int(p.calm)-20))), kind: FaultMembers,
			shard: ledger.ShardID(random.IntN(p.shards()))}
		count := members
		if random.IntN(3) == 0 {
			count = 1 + random.IntN(members)
		}
		for slot := range count {
			f.members = append(f.members, slot)
		}
		add(f)
		if random.IntN(2) == 0 && kinds&FaultStop != 0 {
			down := fault{at: max(1, f.at-Turn(random.IntN(10))), kind: FaultStop,
				shard: ledger.ShardID(random.IntN(p.shards())), length: Turn(60 + random.IntN(90))}
			for slot := range members {
				down.members = append(down.members, slot)
			}
			if down.shard != f.shard {
				p.calm = max(p.calm, down.at+down.length)
				add(down)
			}
		}
		if kinds&FaultLie != 0 && p.mayLie(0) {
			p.calm = max(p.calm, f.at+120)
			for slot := range p.minority() {
				add(fault{at: max(1, f.at-20), kind: FaultLie, shard: f.shard,
					members: []int{slot}, length: 140})
			}
		}
	}
}

// member returns the present member with an index, or nil.
func (g *group) member(index int) *member {
	for _, m := range g.members {
		if m.number == index {
			return m
		}
	}
	return nil
}

// inSlot returns the present members that have a place that the plan names: at times two, of which
// one is to leave.
func (g *group) inSlot(slot int) (present []*member) {
	for _, m := range g.members {
		if m.slot == slot {
			present = append(present, m)
		}
	}
	return present
}

// slotOf returns the place of a member, present or not. A minority of places may lie.
func (g *group) slotOf(index ledger.MemberIndex) int {
	if int(index) < len(g.slots) {
		return g.slots[index]
	}
	return int(index) // of one that has not begun
}

// replaceMembers takes the next steps of the replacements.
func (w *world) replaceMembers() {
	for _, g := range w.groups {
		if len(g.replacing) > 0 && !w.isGone(g.shard) {
			g.replaceNext(g.replacing[0])
		}
	}
}

// replaceNext takes the next step of a replacement.
func (g *group) replaceNext(r *replacement) {
	w := g.world
	old := g.inSlot(r.slot)[0]
	present := g.membership(g.durable)
	again := r.began == 0 || (w.turn-r.began)%againAfter == 0
	if r.began == 0 {
		r.began = w.turn
		r.name = fmt.Sprintf("node-%d-%d", g.shard, len(g.slots))
	}
	switch {
	case !r.known:
		for i := range present {
			if present[i].Name == r.name {
				r.joined, r.known = present[i].Index, true
				r.fresh = &member{group: g, number: int(r.joined), slot: r.slot, key: keyOf(r.name),
					heir: true, diskless: true}
				return
			}
		}
		if again {
			key := keyOf(r.name)
			g.change(&ledger.MembershipChange{Kind: ledger.ChangeJoin, Member: ledger.Member{
				Name: r.name, Key: key[32:],
				Address: fmt.Sprintf("10.1.%d.%d:7000", g.shard, len(g.slots))}})
		}
	case !r.begun:
		if r.fresh.renew() {
			r.begun = true
			g.slots = append(g.slots, r.slot)
			g.members = append(g.members, r.fresh)
			r.fresh.up = true
			r.fresh.open(false)
		}
	case slices.ContainsFunc(present, func(each ledger.GroupMember) bool {
		return int(each.Index) == old.number
	}):
		if again {
			g.change(&ledger.MembershipChange{Kind: ledger.ChangeLeave,
				Index: ledger.MemberIndex(old.number)})
		}
	case g.mayGo(old):
		w.say("%v has left", old)
		old.crash()
		g.members = slices.DeleteFunc(g.members, func(m *member) bool { return m == old })
		g.former = append(g.former, old)
		r.fresh.heir, r.fresh.liesUntil = false, max(r.fresh.liesUntil, old.liesUntil)
		g.replacing = g.replacing[1:]
		w.result.Replaced++
	}
}

// mayGo reports whether enough of the others have all durable blocks, and work.
func (g *group) mayGo(leaving *member) bool {
	have := 0
	for _, m := range g.members {
		if m != leaving && m.takesPart() && len(m.disk) >= g.durable {
			have++
		}
	}
	return g.running && !leaving.isLastHolder() && have >= (len(g.members)-1)/2+1
}

// change submits a change of the membership to the members, as a new transaction each time.
func (g *group) change(change *ledger.MembershipChange) {
	g.attempts++
	t := ledger.Transaction{Ledger: g.origin.Hash, Change: change,
		Nonce:     ledger.Nonce{Stream: g.attempts, Sequence: 1},
		LastValid: ledger.Height(g.head() + ledger.AdmitLife)}
	bundle, err := ledger.NewBundle(t)
	if err == nil {
		err = bundle.Sign(ledger.Operator, operatorKey())
	}
	if err != nil {
		panic(fmt.Sprintf("sim/book: a change of the membership: %v", err))
	}
	g.world.say("shard %d: the operators submit: %v %s %d", g.shard, change.Kind,
		change.Member.Name, change.Index)
	for _, m := range g.members {
		if m.up {
			m.admit(bundle)
		}
	}
}

// membership returns the members after a block of the chain.
func (g *group) membership(height int) []ledger.GroupMember {
	if height > 0 {
		return g.records[height-1].members
	}
	return nil // those of the genesis, none of them new
}

// indexes returns those of a shard's members as this member knows them.
func (m *member) indexes(shard ledger.ShardID) []ledger.MemberIndex {
	if known := m.known[shard]; known != nil {
		return known
	}
	return m.group.world.plan.indexes
}

// learn makes a member learn, some time later, of the members of another shard as they are after
// its durable blocks. It keeps that, as it keeps proofs.
func (m *member) learn() {
	w := m.group.world
	g := w.groups[w.random.IntN(len(w.groups))]
	if g.durable == 0 || w.random.IntN(4) > 0 {
		return
	}
	var now []ledger.MemberIndex
	for _, each := range g.membership(g.durable) {
		now = append(now, each.Index)
	}
	if slices.Equal(now, m.indexes(g.shard)) {
		return
	}
	if m.known == nil {
		m.known = make(map[ledger.ShardID][]ledger.MemberIndex)
	}
	m.known[g.shard] = now
	m.judgeWords(m.verdicts.Recount())
}

// someone returns a random member of a shard, as this member knows them.
func (m *member) someone(shard ledger.ShardID) address {
	known := m.indexes(shard)
	return address{shard, int(known[m.group.world.random.IntN(len(known))])}
}

// utter sends what a member says of its shard's verdict. Members that left repeat the lies of those
// in their places: nobody may count both.
func (m *member) utter(to address, verdict ledger.Verdict) {
	said := m.said(verdict)
	m.sendWord(to, letter{verdict: &said}, said != verdict)
}

// sendWord sends what a member says. If it is a lie, the members whose place it took say it, too.
func (m *member) sendWord(to address, l letter, lie bool) {
	m.send(to, l)
	if !lie {
		return
	}
	for _, former := range m.group.former {
		if former.slot == m.slot {
			former.send(to, l)
		}
	}
}

// passed returns up to where each child has its stream, as a member knows that whose state becomes
// the beginning of a new member. Its snapshot has the entries above.
func (m *member) passed() map[ledger.ShardID]uint64 {
	passed := make(map[ledger.ShardID]uint64)
	if m.origin != nil {
		for child, position := range m.origin.passed {
			passed[child] = position
		}
	}
	for from, position := range m.positions {
		passed[from.shard] = max(passed[from.shard], position)
	}
	return passed
}

// replacementsInWords lists which members are replaced.
func (p *plan) replacementsInWords() (text string) {
	for i := range p.faults {
		if f := &p.faults[i]; f.kind == FaultMembers {
			text += fmt.Sprintf(", from turn %d members %v of shard %d are replaced", f.at,
				f.members, f.shard)
		}
	}
	return text
}
