package verdicts

import (
	"bytes"
	"slices"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
)

// In a vouched book whose chain takes them, good verdicts come in groups (ledger.VerdictGroup). A
// group is heard, believed, judged and proposed as one thing. As soon as one of its verdicts is
// awaited, it is proposed, and blocks take from it what is awaited. So the exchange knows one
// verdict of each group: it watches one that is awaited, or else one that is early. When that
// enters the chain, or is awaited no more, the group is judged again.

// place is where a group is on its way.
type place uint8

const (
	// heard: too few members told it.
	heard place = iota
	// queued: it is believed, and to be judged. judging: it is being judged.
	queued
	judging
	// early: none of its verdicts is awaited, and a transaction is not in the chain yet.
	early
	// proposed: one of its verdicts is awaited.
	proposed
	places
)

// group is a group of verdicts of another shard.
type group struct {
	ledger.VerdictGroup
	id    ledger.Hash
	place place
	// words are those of the members that told it, while it is heard.
	words []groupWord
	// from is the first verdict that was not over when the group was judged last.
	from int
	// slot is the group's place in groupSet.slots. While the group is early or proposed, it watches
	// one of its verdicts: watched is the place of the fact, and next the slot of another group
	// that does.
	slot, watched, next index
}

// finishedMax bounds the groups that are remembered as over, so that late words make no new ones.
const finishedMax = 1 << 12

// groupSet has the groups. It is not safe for concurrent use.
type groupSet struct {
	by map[ledger.Hash]*group
	// held counts the verdicts of the groups at each place.
	held [places]int
	// slots has the groups that watch a verdict. It begins with one that is none.
	slots []*group
	free  []index
	// toJudge are the queued groups, early those that are early, both in the order of their
	// arrival. awaited are those to propose, by their ids.
	toJudge, early, awaited []*group
	words                   groupWords
	finished                map[ledger.Hash]bool
	ring                    []ledger.Hash
	next                    int
	// ended are groups whose watched verdict the block has that is being applied.
	ended []*group
}

func newGroupSet() groupSet {
	return groupSet{by: map[ledger.Hash]*group{}, slots: make([]*group, 1),
		finished: map[ledger.Hash]bool{}, words: newGroupWords()}
}

// move gives a group a place.
func (s *groupSet) move(g *group, to place) {
	s.held[g.place] -= len(g.IDs)
	g.place = to
	s.held[to] += len(g.IDs)
}

// remove removes a group that watches nothing and is in no list.
func (s *groupSet) remove(g *group) {
	s.held[g.place] -= len(g.IDs)
	delete(s.by, g.id)
}

// byID compares a group with an id.
func byID(g *group, id ledger.Hash) int { return bytes.Compare(g.id[:], id[:]) }

// watch makes a group watch one of its verdicts.
func (x *Exchange) watch(g *group, i int) {
	s := &x.groups
	if count := len(s.free); count > 0 {
		g.slot, s.free = s.free[count-1], s.free[:count-1]
		s.slots[g.slot] = g
	} else {
		g.slot = index(len(s.slots))
		s.slots = append(s.slots, g)
	}
	g.watched = x.facts.need(Key{ID: g.IDs[i], Shard: g.Shard})
	f := &x.facts.facts[g.watched]
	g.next, f.watch = f.watch, g.slot
}

// unwatch makes a group watch nothing.
func (x *Exchange) unwatch(g *group) {
	if g.slot == 0 {
		return
	}
	s := &x.groups
	at := &x.facts.facts[g.watched].watch
	for *at != g.slot {
		at = &s.slots[*at].next
	}
	*at = g.next
	s.slots[g.slot] = nil
	s.free = append(s.free, g.slot)
	x.facts.release(g.watched)
	g.slot, g.watched, g.next = 0, 0, 0
}

// unplace takes a group from its place among those to propose or those that are early.
func (x *Exchange) unplace(g *group) {
	s := &x.groups
	x.unwatch(g)
	switch g.place {
	case early:
		at := slices.Index(s.early, g)
		s.early = slices.Delete(s.early, at, at+1)
	case proposed:
		at, _ := slices.BinarySearchFunc(s.awaited, g.id, byID)
		s.awaited = slices.Delete(s.awaited, at, at+1)
	}
}

// again makes a group that is early or proposed one to judge.
func (x *Exchange) again(g *group) {
	x.unplace(g)
	x.groups.move(g, queued)
	x.groups.toJudge = append(x.groups.toJudge, g)
}

// forget drops a group that is not queued. Words on it that are late make no new one.
func (x *Exchange) forget(g *group) {
	s := &x.groups
	x.unplace(g)
	s.remove(g)
	if len(s.ring) < finishedMax {
		s.ring = append(s.ring, g.id)
	} else {
		delete(s.finished, s.ring[s.next])
		s.ring[s.next] = g.id
		s.next = (s.next + 1) % finishedMax
	}
	s.finished[g.id] = true
}

// wake judges the groups anew that watch a verdict. If a block has the verdict, ended is set.
func (x *Exchange) wake(at index, ended bool) {
	for {
		g := x.groups.slots[x.facts.facts[at].watch]
		if g == nil || ended && x.config.Fault == FaultWatchedOnce {
			return
		}
		switch {
		case ended:
			x.unplace(g)
			x.groups.move(g, judging) // until the block is through
			x.groups.ended = append(x.groups.ended, g)
		case x.config.Fault == FaultForgetArrived:
			x.forget(g)
		default:
			x.again(g)
		}
	}
}

// takesGroups reports whether members of the own shard propose groups.
func (x *Exchange) takesGroups() bool {
	return x.config.Vouched && x.config.Groups != nil && x.config.Groups()
}

// HearGroup takes a valid group that a member of its shard told, and the group's id, which takes a
// while to compute. If the chain does not take groups, that is the same as hearing its verdicts.
func (x *Exchange) HearGroup(member Member, told ledger.VerdictGroup,
	id ledger.Hash) []Contradiction {
	if !x.takesGroups() {
		singles := make([]ledger.Verdict, len(told.IDs))
		for i := range singles {
			singles[i] = told.Verdict(i)
		}
		return x.Hear(member, singles)
	}
	s := &x.groups
	if x.config.Fault == FaultGroupUnchecked {
		id = told.IDs[0]
	}
	if s.finished[id] {
		return nil
	}
	g := s.by[id]
	if g == nil {
		g = &group{VerdictGroup: told, id: id}
		s.by[id] = g
		s.held[heard] += len(g.IDs)
	}
	if g.place != heard {
		return nil
	}
	s.words.add(member, g)
	x.dropped += uint64(s.trim(member, s.words.share))
	if x.enough(g, x.config.Members(member.Shard)) {
		x.believeGroup(g)
	}
	return nil
}

// enough reports whether enough present members told a group.
func (x *Exchange) enough(g *group, present []ledger.MemberIndex) bool {
	count := 0
	for i := range g.words {
		if contains(present, g.words[i].member.Index) || x.config.Fault == FaultCountDeparted {
			count++
		}
	}
	return 2*count > len(present) || count > 0 && (x.config.Fault == FaultGroupOfOne ||
		x.config.Fault == FaultQuorumOfOne)
}

// believeGroup makes a group one to judge. If there is no room, its verdicts are asked for later.
func (x *Exchange) believeGroup(g *group) {
	s := &x.groups
	s.words.drop(g)
	if s.held[queued]+len(g.IDs) > x.config.Bounds.Received {
		x.dropped += uint64(len(g.IDs))
		x.forget(g)
		return
	}
	s.move(g, queued)
	s.toJudge = append(s.toJudge, g)
}

// JudgedGroup is a group that is being judged.
type JudgedGroup struct {
	ledger.VerdictGroup
	id ledger.Hash
	// from and watched are the first verdict that is not over, and the one to watch, which has this
	// standing. All are over if it is Over.
	from, watched int
	standing      Standing
}

// GroupsToJudge reports whether there are groups to judge.
func (x *Exchange) GroupsToJudge() bool { return len(x.groups.toJudge) > 0 }

// TakeGroup removes and returns a group to judge, if there is one. The caller calls Judge, then
// PlaceGroup or DropGroup.
func (x *Exchange) TakeGroup() (judged JudgedGroup, any bool) {
	s := &x.groups
	if len(s.toJudge) == 0 {
		return JudgedGroup{}, false
	}
	g := s.toJudge[0]
	if s.toJudge = s.toJudge[1:]; len(s.toJudge) == 0 {
		s.toJudge = nil
	}
	s.move(g, judging)
	return JudgedGroup{VerdictGroup: g.VerdictGroup, id: g.id, from: g.from}, true
}

// Judge asks a chain for the standing of the group's verdicts, until one is awaited. It changes
// nothing but the JudgedGroup. It may be called again.
func (j *JudgedGroup) Judge(standing func(*ledger.Verdict) (Standing, error)) error {
	j.standing = Over
	for i := j.from; i < len(j.IDs); i++ {
		verdict := j.Verdict(i)
		at, err := standing(&verdict)
		switch {
		case err != nil:
			return err
		case at == Awaited:
			if j.standing == Over {
				j.from = i
			}
			j.standing, j.watched = Awaited, i
			return nil
		case at == Early && j.standing == Over:
			j.standing, j.from, j.watched = Early, i, i
		}
	}
	return nil
}

// PlaceGroup gives a group its place, after Judge asked the chain when Blocks returned blocks. It
// reports whether there is something to propose now. If blocks came since, the place may be wrong,
// and a later look at the waiting transactions corrects it.
func (x *Exchange) PlaceGroup(judged *JudgedGroup, blocks uint64) (ready bool) {
	g := x.groups.by[judged.id]
	if g == nil || g.place != judging {
		return false // Reset queued it again
	}
	x.fresh = x.fresh || x.blocks != blocks
	g.from = judged.from
	switch judged.standing {
	case Over:
		x.forget(g)
	case Early:
		x.keepEarly(g, judged.watched)
	case Awaited:
		return x.awaitGroup(g, judged.watched)
	}
	return false
}

// DropGroup drops a group that cannot be judged.
func (x *Exchange) DropGroup(judged *JudgedGroup) {
	if g := x.groups.by[judged.id]; g != nil && g.place == judging {
		x.forget(g)
	}
}

// keepEarly keeps a group until a transaction arrives. At the bound the oldest ones are dropped.
func (x *Exchange) keepEarly(g *group, watched int) {
	s := &x.groups
	if len(g.IDs) > x.config.Bounds.Early {
		x.forget(g)
		return
	}
	for len(s.early) > 0 && s.held[early]+len(g.IDs) > x.config.Bounds.Early {
		x.forget(s.early[0])
	}
	s.move(g, early)
	s.early = append(s.early, g)
	x.watch(g, watched)
}

// awaitGroup makes a group one to propose, if there is room. If there is not, the last ones in
// canonical order are dropped, so that the members agree on the first ones.
func (x *Exchange) awaitGroup(g *group, watched int) bool {
	s := &x.groups
	for s.held[proposed]+len(g.IDs) > x.config.Bounds.Awaited {
		last := g
		if count := len(s.awaited); count > 0 && byID(g, s.awaited[count-1].id) < 0 {
			last = s.awaited[count-1]
		}
		x.dropped += uint64(len(last.IDs))
		if x.forget(last); last == g {
			return false
		}
	}
	s.move(g, proposed)
	at, _ := slices.BinarySearchFunc(s.awaited, g.id, byID)
	s.awaited = slices.Insert(s.awaited, at, g)
	x.watch(g, watched)
	return true
}

// resetGroups judges all believed groups anew.
func (x *Exchange) resetGroups() {
	s := &x.groups
	for _, g := range s.sorted() {
		switch g.place {
		case judging:
			s.move(g, queued)
			s.toJudge = append(s.toJudge, g)
		case early, proposed:
			x.again(g)
		}
		g.from = 0
	}
	clear(s.finished)
	s.ring, s.next = nil, 0
}

// sorted returns the groups by their ids.
func (s *groupSet) sorted() []*group {
	all := make([]*group, 0, len(s.by))
	for _, g := range s.by {
		all = append(all, g)
	}
	slices.SortFunc(all, func(a, b *group) int { return byID(a, b.id) })
	return all
}

// sweepGroups makes misplaced groups ones to judge again: those to propose whose watched verdict no
// transaction waits for, and early ones of which a transaction waits. If the chain does not take
// groups any more, their verdicts take their places.
func (x *Exchange) sweepGroups(a *Asking) {
	s := &x.groups
	if len(s.by) > 0 && !x.takesGroups() {
		x.dissolve()
		return
	}
	wanted := func(id ledger.Hash, shard ledger.ShardID) bool {
		w := a.waiting[id]
		return w != nil && w.of.Wants(shard, 0)
	}
	for _, g := range slices.Clone(s.awaited) {
		if x.config.Fault != FaultWatchedOnce && !wanted(x.facts.facts[g.watched].key.ID, g.Shard) {
			x.again(g)
		}
	}
	for _, g := range slices.Clone(s.early) {
		if slices.ContainsFunc(g.IDs[g.from:], func(id ledger.Hash) bool {
			return wanted(id, g.Shard)
		}) {
			x.again(g)
		}
	}
}

// dissolve makes single verdicts of all groups that are believed, and forgets the others.
func (x *Exchange) dissolve() {
	s := &x.groups
	all := s.sorted()
	s.toJudge = nil
	for _, g := range all {
		for i := g.from; i < len(g.IDs) && g.place != heard; i++ {
			verdict := g.Verdict(i)
			x.Believe(&verdict)
		}
		s.words.drop(g)
		x.forget(g)
	}
	clear(s.finished)
	s.ring, s.next = nil, 0
}

// asking returns the verdicts of groups that are believed, and not early. They need not be asked
// for: what waits for them is in a group that is, or is about to be, proposed.
func (s *groupSet) asking() map[Key]bool {
	var all map[Key]bool
	for _, g := range s.by {
		if g.place == heard || g.place == early {
			continue
		}
		if all == nil {
			all = make(map[Key]bool)
		}
		for _, id := range g.IDs[g.from:] {
			all[Key{ID: id, Shard: g.Shard}] = true
		}
	}
	return all
}

// ProposeWithin returns what goes into a batch: groups in canonical order, and what Propose
// returns. It keeps to this many bytes and verdicts in all, which must not exceed
// ledger.MaxBatchVerdicts. If not all fit, the first ones of both go into the batch, so that
// members propose the same. Single verdicts have at least a quarter of the room. Of a group that
// does not fit, which may be larger than all of the room, some verdicts go in by themselves.
func (x *Exchange) ProposeWithin(room, most int, now, patience time.Duration) (
	groups []ledger.VerdictGroup, verdicts []ledger.Verdict) {
	if !x.takesGroups() || len(x.groups.awaited) == 0 {
		return nil, x.Propose(min(most, room/ledger.VerdictSize), now, patience)
	}
	x.proposedGroups = now
	most = max(0, min(most, room/ledger.HashSize))
	reserved := min(x.awaited.len(), most/4, room/4/ledger.VerdictSize)
	most, room = most-reserved, room-reserved*ledger.VerdictSize
	var part []ledger.Verdict
	for _, g := range x.groups.awaited {
		size := ledger.VerdictGroupSize(len(g.IDs))
		if len(g.IDs) > most || size > room {
			part = x.partOf(g, min(most, room/ledger.VerdictSize))
			most, room = most-len(part), room-len(part)*ledger.VerdictSize
			break
		}
		most, room = most-len(g.IDs), room-size
		groups = append(groups, g.VerdictGroup)
	}
	verdicts = x.Propose(reserved+min(most, room/ledger.VerdictSize), now, patience)
	if len(part) > 0 {
		verdicts = inOrder(append(part, verdicts...))
	}
	return groups, verdicts
}

// partOf returns at most so many verdicts of a group to propose, from the first one on that is
// awaited.
func (x *Exchange) partOf(g *group, most int) (part []ledger.Verdict) {
	first := slices.Index(g.IDs, x.facts.facts[g.watched].key.ID)
	for i := first; i < min(first+most, len(g.IDs)); i++ {
		part = append(part, g.Verdict(i))
	}
	return part
}

// inOrder sorts verdicts in canonical order. Of those that are in it twice, one stays.
func inOrder(verdicts []ledger.Verdict) []ledger.Verdict {
	slices.SortStableFunc(verdicts, func(v, w ledger.Verdict) int {
		return KeyOf(&v).order(KeyOf(&w))
	})
	return slices.CompactFunc(verdicts, func(v, w ledger.Verdict) bool {
		return KeyOf(&v) == KeyOf(&w)
	})
}

// AgainstGroups counts the verdicts of groups that are believed to be bad. Ids are those of the
// groups. A group that is believed has none.
func (x *Exchange) AgainstGroups(told []ledger.VerdictGroup, ids []ledger.Hash) (count uint64) {
	for i := range told {
		if g := x.groups.by[ids[i]]; x.groups.finished[ids[i]] || g != nil && g.place != heard {
			continue
		}
		for j := range told[i].IDs {
			verdict := told[i].Verdict(j)
			if result, believed := x.Believed(KeyOf(&verdict)); believed &&
				result != verdict.Result {
				count++
			}
		}
	}
	return count
}
