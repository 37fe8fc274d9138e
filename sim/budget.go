package sim

import (
	"slices"

	"github.com/ledgerd/ledgerd/allconcur/generation"
	"github.com/ledgerd/ledgerd/order"
)

// The faults of a run leave what the guarantees ask for: of every map of disks that may count, a
// majority that remembers and comes back, and enough disks that can say that they did not have a
// group that nobody holds whole.

// maps lists the memberships that may count if one server's disk is struck: those at the ends of
// all chains, but for what is older than the newest one that another disk knows to be durable.
func (s *simulation) maps(struck order.ServerID) []*membership {
	effective := s.life.genesis.members
	for id := range s.servers {
		v := &s.servers[id]
		if known := v.disk.blocks[v.disk.durable].members; order.ServerID(id) != struck && !v.away && !v.leaves && known.number > effective.number {
			effective = known
		}
	}
	all := []*membership{effective}
	add := func(b *block) {
		for ; b.members.number > effective.number; b = b.ancestor(b.changed - 1) {
			if !slices.Contains(all, b.members) {
				all = append(all, b.members)
			}
		}
	}
	for id := range s.servers {
		v := &s.servers[id]
		add(v.disk.blocks[len(v.disk.blocks)-1])
		if v.process != nil {
			add(v.process.chain.head())
		}
		// A generation needs a majority of the disks that counted in the newest run as well.
		if shard := v.disk.state.Shard; len(shard.Members) > 0 && v.disk.state.Activated == s.newestRun() {
			all = append(all, &membership{number: shard.Number, members: shard.Members, disks: shard.Disks})
		}
	}
	return all
}

// newestRun returns the newest run that any disk took part in.
func (s *simulation) newestRun() (newest generation.Run) {
	for id := range s.servers {
		newest = max(newest, s.servers[id].disk.state.Activated)
	}
	return newest
}

// fate is what is about to happen to a server's disk.
type fate uint8

const (
	gone    fate = iota // it is lost, or does not come back
	torn                // the last record may be there in part
	damaged             // the last group is damaged
)

// remembers reports whether a server's disk counts under a membership, and comes back.
func (s *simulation) remembers(id order.ServerID, m *membership) bool {
	v := &s.servers[id]
	return !v.away && !v.leaves && m.counts(id, v.disk.id, v.disk.original)
}

// ambiguous reports whether a server says that its disk had perhaps more.
func (s *simulation) ambiguous(id order.ServerID) bool {
	v := &s.servers[id]
	return v.disk.perhaps || v.process != nil && v.process.perhaps
}

// mayBe reports whether a fate may befall a server's disk.
func (s *simulation) mayBe(id order.ServerID, f fate) bool {
	for _, m := range s.maps(id) {
		if !s.sound(m, id, f) {
			return false
		}
	}
	return true
}

// sound reports whether enough of a membership's disks are left if a fate befalls one of them: a
// majority remembers, whole to the last group; and the others can tell that nobody had the group of
// which no disk has more than a part.
func (s *simulation) sound(m *membership, struck order.ServerID, f fate) bool {
	remember, whole, had := 0, 0, 0
	for _, id := range m.members {
		if !s.remembers(id, m) || id == struck && f == gone {
			continue
		}
		remember++
		if !s.servers[id].damaged && (id != struck || f != damaged) {
			whole++
		}
		if s.ambiguous(id) || id == struck {
			had++
		}
	}
	absent, tolerated := len(m.members)-remember, len(m.members)-m.quorum()
	return whole >= m.quorum() && (had == 0 || min(had, tolerated)+absent < m.quorum())
}

// mayForget reports whether a server's disk may be lost. One whose admission is under way may not.
func (s *simulation) mayForget(id order.ServerID) bool {
	v := &s.servers[id]
	if v.proposed == v.disk.id && slices.ContainsFunc(s.maps(id), func(m *membership) bool {
		return m.has(id) && !m.counts(id, v.disk.id, v.disk.original)
	}) {
		return false
	}
	return s.mayBe(id, gone)
}

// mayGoAway reports whether a server may stay away for good.
func (s *simulation) mayGoAway(id order.ServerID) bool {
	for _, w := range s.life.wishes {
		if !w.done {
			return false // the membership is about to change
		}
	}
	return s.mayBe(id, gone)
}

// mayLeave reports whether the operator may take a server out of the membership.
func (s *simulation) mayLeave(id order.ServerID) bool {
	if s.servers[id].leaves {
		return true // it was asked for
	}
	maps := s.maps(id)
	for _, m := range maps {
		next := m.after(change{kind: entryLeave, server: id})
		if !s.sound(m, id, gone) || next != nil && !s.sound(next, id, gone) {
			return false
		}
	}
	// A server that has its old disk back may be about to count with the one that it had meanwhile.
	for other := range s.servers {
		v := &s.servers[other]
		if v.proposed != (generation.DiskID{}) && v.proposed != v.disk.id &&
			!slices.ContainsFunc(maps, func(m *membership) bool {
				return m.counts(order.ServerID(other), v.proposed, false)
			}) {
			return false
		}
	}
	return true
}
