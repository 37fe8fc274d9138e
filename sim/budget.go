package sim

import (
	"slices"

	"github.com/ledgerd/ledgerd/allconcur/generation"
	"github.com/ledgerd/ledgerd/order"
)

// The faults of a run leave what the guarantees require. Of every map of disks that may count, a
// majority remembers and comes back, and enough disks can say that they did not have a group that
// no disk holds whole.
//
// A server may have several disks at hand. One of them is inserted, and the operator may insert
// another one instead. A fault is therefore allowed if some choice of disks leaves enough of them.

// nobody stands for no server.
const nobody order.ServerID = ^order.ServerID(0)

// inserted lists the disks that are in the servers.
func (s *simulation) inserted() []*disk {
	in := make([]*disk, len(s.servers))
	for id := range s.servers {
		in[id] = s.servers[id].disk
	}
	return in
}

// choose looks for a choice of disks at hand for which holds returns true, starting with first. It
// returns nil if there is none. It tries the disks that are in the servers or will be again or, if
// all is set, all disks.
func (s *simulation) choose(first []*disk, all bool, holds func(in []*disk) bool) []*disk {
	if holds(first) {
		return first
	}
	in := slices.Clone(first)
	var others func(id int) bool
	others = func(id int) bool {
		if id == len(in) {
			return holds(in)
		}
		v := &s.servers[id]
		disks := []*disk{v.disk}
		switch {
		case !s.hasOther(order.ServerID(id)):
		case all:
			disks = append(disks, v.shelf...)
		case v.usual != nil:
			disks = append(disks, v.usual)
		}
		for _, d := range disks {
			in[id] = d
			if others(id + 1) {
				return true
			}
		}
		return false
	}
	if !slices.ContainsFunc(s.servers, func(v server) bool {
		return len(v.shelf) > 0
	}) || !others(0) {
		return nil
	}
	return in
}

// effective returns the newest membership that a disk knows to be in force if one server's disk is
// struck. Disks that the operator would take out, and disks left on the shelf, do not count. asked
// leaves out servers that are not members under what their disks know: a server may hold the chain
// while its join is yet to be ordered, and no proposer asks it for a promise.
func (s *simulation) effective(struck order.ServerID, in []*disk, asked bool) *membership {
	effective := s.life.genesis.members
	for id, d := range in {
		id, v := order.ServerID(id), &s.servers[id]
		known := d.blocks[d.durable].members
		if (id != struck || d != v.disk) && !v.away && !v.leaves &&
			known.number > effective.number &&
			(!asked || known.has(id)) {
			effective = known
		}
	}
	return effective
}

// maps lists the memberships that may count if one server's disk is struck: those of the chains,
// and that of the newest run.
func (s *simulation) maps(struck order.ServerID, in []*disk) []*membership {
	return append(s.mapsOfChains(struck, in), s.mapsOfRuns(struck, in)...)
}

// mapsOfChains lists the memberships at the ends of all chains, except those older than the newest
// one that the disk of another member knows to be durable.
func (s *simulation) mapsOfChains(struck order.ServerID, in []*disk) []*membership {
	effective := s.effective(struck, in, true)
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
		add(v.disk.blocks[v.disk.height()])
		if v.process != nil {
			add(v.process.chain.head())
		}
		add(in[id].blocks[in[id].height()])
	}
	return all
}

// mapsOfRuns lists the memberships that the newest run counted with, according to the disks, and
// those that it counted with according to all disks but the struck one. A generation also needs a
// majority of these disks, unless the change after it was the only one.
func (s *simulation) mapsOfRuns(struck order.ServerID, in []*disk) (all []*membership) {
	disks := slices.Clone(in)
	for id := range s.servers {
		if v := &s.servers[id]; v.disk != in[id] {
			disks = append(disks, v.disk)
		}
	}
	of := func(disks []*disk) {
		var newest *generation.State
		for _, d := range disks {
			if state := &d.state; len(state.Shard.Members) > 0 &&
				(newest == nil || state.Activated > newest.Activated) {
				newest = state
			}
		}
		if newest != nil {
			all = append(all, &membership{number: newest.Shard.Number,
				members: newest.Shard.Members, disks: newest.Shard.Disks})
		}
	}
	of(disks)
	if struck != nobody {
		of(slices.DeleteFunc(disks, func(d *disk) bool { return d == s.servers[struck].disk }))
	}
	return all
}

// newestRun returns the newest run that any disk in a server took part in.
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
	spared              // nothing happens to it
)

// remembers reports whether a disk of a server counts under a membership, and comes back. If
// another disk of the server may be about to count, it is unknown which of them will.
func (s *simulation) remembers(id order.ServerID, m *membership, d *disk, f fate) bool {
	v := &s.servers[id]
	if v.away || v.leaves || !m.counts(id, d.id, d.original) {
		return false
	}
	return f == spared || len(v.shelf) == 0 || v.proposed == noDisk ||
		m.counts(id, v.proposed, false)
}

// ambiguous reports whether a server says that its disk perhaps had more.
func (s *simulation) ambiguous(id order.ServerID, d *disk) bool {
	v := &s.servers[id]
	return d.state.Activated != 0 && (d.perhaps || d == v.disk && v.process != nil &&
		v.process.perhaps)
}

// mayBe reports whether a fate may befall the disk that is in a server.
func (s *simulation) mayBe(id order.ServerID, f fate) bool {
	return s.choose(s.inserted(), false, func(in []*disk) bool {
		return s.allSound(id, f, in)
	}) != nil
}

// allSound reports whether a choice of disks is sound under all memberships that may count.
func (s *simulation) allSound(struck order.ServerID, f fate, in []*disk) bool {
	for _, m := range s.maps(struck, in) {
		if !s.sound(m, struck, f, in) {
			return false
		}
	}
	return true
}

// sound reports whether enough of a membership's disks are left if a fate befalls one of them. A
// majority must remember everything up to the last group. The others must be able to tell that no
// disk had the whole of a group of which no disk has more than a part.
func (s *simulation) sound(m *membership, struck order.ServerID, f fate, in []*disk) bool {
	remember, whole, had := 0, 0, 0
	for _, id := range m.members {
		d := in[id]
		hit := id == struck && d == s.servers[id].disk
		if !s.remembers(id, m, d, f) || hit && f == gone {
			continue
		}
		remember++
		if !d.damaged && (!hit || f != damaged) {
			whole++
		}
		if s.ambiguous(id, d) || hit {
			had++
		}
	}
	absent, tolerated := len(m.members)-remember, len(m.members)-m.quorum()
	return whole >= m.quorum() && (had == 0 || min(had, tolerated)+absent <= tolerated)
}

// mayForget reports whether the disk that is in a server may be lost. A disk whose admission is
// under way may not.
func (s *simulation) mayForget(id order.ServerID) bool {
	v := &s.servers[id]
	if v.proposed == v.disk.id && slices.ContainsFunc(s.maps(id,
		s.inserted()), func(m *membership) bool {
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
	v := &s.servers[id]
	v.away = true
	defer func() { v.away = false }()
	return s.mayBe(nobody, gone)
}

// mayLeave reports whether the operator may remove a server from the membership.
func (s *simulation) mayLeave(id order.ServerID) bool {
	v := &s.servers[id]
	if v.leaves {
		return true // the operator asked for it before
	}
	v.leaves = true
	defer func() { v.leaves = false }()
	return s.choose(s.inserted(), false, func(in []*disk) bool {
		for _, m := range s.maps(nobody, in) {
			next := m.after(change{kind: entryLeave, server: id})
			if !s.sound(m, nobody, gone, in) || next != nil && !s.sound(next, nobody, gone, in) {
				return false
			}
		}
		return true
	}) != nil
}

// clash reports whether the shard cannot go on with any choice of disks at hand, because different
// disks of one server count under memberships that may both count. This happens if an old disk came
// back for long enough to request its admission, the admission is ordered after the newer disk is
// back, and another disk is lost before it is durable. Nothing is lost then, but the shard waits.
func (s *simulation) clash() bool {
	if s.choose(s.inserted(), true, func(in []*disk) bool {
		return s.allSound(nobody, spared, in)
	}) != nil {
		return false
	}
	maps := s.maps(nobody, s.inserted())
	for id := range s.servers {
		v := &s.servers[id]
		counted := 0
		for _, d := range append([]*disk{v.disk}, v.shelf...) {
			if slices.ContainsFunc(maps, func(m *membership) bool {
				return m.counts(order.ServerID(id), d.id, d.original)
			}) {
				counted++
			}
		}
		if counted > 1 {
			return true
		}
	}
	return false
}
