package sim

import (
	"slices"

	"github.com/ledgerd/ledgerd/order"
)

// The faults of a run leave what the guarantees ask for: of every map of disks that may count, a
// majority that remembers and comes back, and enough disks that can say that they did not have a
// group that nobody holds whole.

// maps lists the memberships that may count: those at the ends of all chains, but for what is older
// than the newest one that is known to be durable.
func (s *simulation) maps() []*membership {
	effective := s.life.genesis.members
	if last := len(s.life.durable) - 1; last >= 0 {
		effective = s.life.durable[last].members
	}
	all := []*membership{effective}
	add := func(m *membership) {
		if m.number >= effective.number && !slices.Contains(all, m) {
			all = append(all, m)
		}
	}
	for id := range s.servers {
		v := &s.servers[id]
		add(v.disk.blocks[len(v.disk.blocks)-1].members)
		if v.process != nil {
			add(v.process.chain.head().members)
		}
	}
	return all
}

// remembers reports whether a server's disk counts under a membership, holds what it announced, and
// comes back.
func (s *simulation) remembers(id order.ServerID, m *membership) bool {
	v := &s.servers[id]
	return !v.away && m.counts(id, v.disk.id, v.disk.original)
}

// sound reports whether enough disks remember if one server's does not, -1 for none.
func (s *simulation) sound(but int) bool {
	for _, m := range s.maps() {
		if !s.soundIn(m, but) {
			return false
		}
	}
	return true
}

func (s *simulation) soundIn(m *membership, but int) bool {
	remember, clean := 0, 0
	for _, id := range m.members {
		if int(id) == but || !s.remembers(id, m) {
			continue
		}
		remember++
		if !s.servers[id].disk.perhaps {
			clean++
		}
	}
	return remember >= m.quorum() && clean >= len(m.members)-m.quorum()+1
}

// mayForget reports whether a server's disk may be lost.
func (s *simulation) mayForget(id order.ServerID) bool { return s.sound(int(id)) }

// mayGoAway reports whether a server may stay away for good.
func (s *simulation) mayGoAway(id order.ServerID) bool {
	for _, w := range s.life.wishes {
		if !w.done {
			return false // the membership is about to change
		}
	}
	return s.sound(int(id))
}

// mayBeAmbiguous reports whether a server's last group may be torn or damaged.
func (s *simulation) mayBeAmbiguous(id order.ServerID) bool {
	for _, m := range s.maps() {
		clean := 0
		for _, other := range m.members {
			if other != id && s.remembers(other, m) && !s.servers[other].disk.perhaps {
				clean++
			}
		}
		if clean < len(m.members)-m.quorum()+1 {
			return false
		}
	}
	return true
}

// mayLeave reports whether the operator may take a server out of the membership.
func (s *simulation) mayLeave(id order.ServerID) bool {
	if !s.sound(int(id)) {
		return false
	}
	for _, m := range s.maps() {
		if next := m.after(change{kind: entryLeave, server: id}); next != nil && !s.soundIn(next, int(id)) {
			return false
		}
	}
	return true
}
