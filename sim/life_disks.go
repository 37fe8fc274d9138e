package sim

import (
	"slices"

	"github.com/ledgerd/ledgerd/order"
)

// diskFault is a fault of a server's home.
type diskFault uint8

const (
	diskFull         diskFault = iota // it is full for a while
	diskDataLost                      // the data are lost
	diskPromisesLost                  // the promises are lost
	diskBothLost                      // both are lost
	diskExchanged                     // both are lost, and later the old disk is inserted again
	diskReplaced                      // both are lost, and the old disk stays at hand
	// an older copy of the home takes its place, and the node detects that
	diskCopied
	diskFaultsEnd
	// diskRolledBack is an older copy that takes the home's place undetected.
	diskRolledBack
	// diskReturned is an old disk that takes the place of the inserted one for a while.
	diskReturned
)

// String describes the fault.
func (f diskFault) String() string {
	return [...]string{"is full", "loses its data", "loses its promises", "loses data and promises",
		"has another disk", "gets a new disk for good", "gets an older copy back",
		"", "is rolled back", "has old disks back"}[f]
}

// disksFail begins or ends a disturbance of a home. A home is damaged or exchanged while no process
// runs; the next process finds out.
func (s *simulation) disksFail(d *disturbance, begins bool) {
	v := &s.servers[d.server]
	switch {
	case d.disk == diskReturned:
		s.oldDisks(d, begins)
		return
	case d.disk == diskFull:
		v.disk.full = begins
		for _, other := range v.shelf {
			other.full = false
		}
		if p := v.process; !begins && p != nil && p.up() {
			p.execute()
			s.settleSoon(d.server)
		}
		return
	case v.process == nil || v.process.ended != nil:
		return
	case begins && (d.disk == diskCopied || d.disk == diskRolledBack):
		v.copied = v.disk.copy()
		return
	case begins:
		if d.beyond || s.mayForget(d.server) {
			s.stop(d.server)
			d.before = v.disk
			s.lose(d.server, d.disk)
		}
	case d.disk == diskExchanged && slices.Contains(v.shelf, d.before):
		if (s.counted(d.server) || v.proposed == v.disk.id) && !s.mayForget(d.server) {
			break // the chain counts with the new disk by now
		}
		s.trace.Say(s.now, "%d has its old disk back", d.server)
		s.insert(d.server, d.before)
	case (d.disk == diskCopied || d.disk == diskRolledBack) && v.copied != nil:
		s.restore(d)
	}
	if !begins {
		s.bear(d.server)
	}
}

// lose removes a part of a home. The next process makes a new identity.
func (s *simulation) lose(id order.ServerID, fault diskFault) {
	v := &s.servers[id]
	s.trace.Note(s.now, 113, uint64(id), uint64(fault))
	s.trace.Say(s.now, "%d %v", id, fault)
	if fault == diskExchanged || fault == diskReplaced {
		v.shelf = append(v.shelf, v.disk)
		v.disk = v.disk.copy()
	}
	why := "its promises are missing"
	if fault != diskDataLost {
		v.disk.losePromises()
	}
	v.disk.crash(s.life.disks, s.mayBe(id, torn))
	if fault != diskPromisesLost {
		v.disk.loseData(s.life.genesis)
		why = "its data are missing"
	}
	v.acked, v.ackedRecord = nil, nil
	if s.life.setting.plant == PlantIdentityBeside && fault == diskDataLost {
		return // the identity beside the data hides the loss
	}
	v.disk.renew(newDiskID(s.life.disks), why)
}

// counted reports whether a server's disk counts under any membership that may count.
func (s *simulation) counted(id order.ServerID) bool {
	v := &s.servers[id]
	return slices.ContainsFunc(s.maps(id, s.inserted()), func(m *membership) bool {
		return m.counts(id, v.disk.id, v.disk.original)
	})
}

// restore replaces a home by an older copy.
func (s *simulation) restore(d *disturbance) {
	id := d.server
	v := &s.servers[id]
	copied := v.copied
	v.copied = nil
	if !d.beyond && !s.mayForget(id) {
		return
	}
	if d.beyond {
		s.life.hopeless = "a majority of the disks forgot"
	}
	s.stop(id)
	s.trace.Note(s.now, 114, uint64(id))
	s.trace.Say(s.now, "%d gets an older copy of its home, with %d blocks for %d",
		id, copied.height(), v.disk.height())
	if d.disk == diskRolledBack {
		copied.vowed, copied.damaged = v.disk.vowed, v.disk.damaged
	} else {
		v.shelf = append(v.shelf, v.disk)
	}
	v.disk, v.acked, v.ackedRecord, v.usual = copied, nil, nil, nil
	if d.disk != diskRolledBack {
		v.disk.renew(newDiskID(s.life.disks), "it is a copy")
	}
}

// hasOther reports whether a server has another disk at hand.
func (s *simulation) hasOther(id order.ServerID) bool {
	v := &s.servers[id]
	return len(v.shelf) > 0 && v.process != nil && v.process.ended == nil && !v.away && !v.leaves
}

// insert replaces the disk in a server by one at hand. The next process finds it.
func (s *simulation) insert(id order.ServerID, d *disk) {
	v := &s.servers[id]
	if v.disk == d {
		return
	}
	s.stop(id)
	s.trace.Note(s.now, 118, uint64(id), d.height())
	s.trace.Say(s.now, "%d has another disk back, with %d blocks for %d", id, d.height(),
		v.disk.height())
	at := slices.Index(v.shelf, d)
	v.disk, v.shelf[at], v.acked, v.ackedRecord = d, v.disk, nil, nil
	s.life.insertedAt = s.now
}

// oldDisks inserts old disks, and others after a while: the disks that were there before, or others
// with which the shard can go on.
func (s *simulation) oldDisks(d *disturbance, begins bool) {
	if begins {
		for _, id := range d.servers {
			v := &s.servers[id]
			if s.hasOther(id) {
				if v.usual == nil {
					v.usual = v.disk
				}
				s.insert(id, v.shelf[s.life.olds.IntN(len(v.shelf))])
				s.comeBack(id, between(0, 500*millisecond)(s.life.olds))
			}
		}
		return
	}
	first := s.inserted()
	if s.life.olds.IntN(4) > 0 {
		for _, id := range d.servers {
			if usual := s.servers[id].usual; usual != nil {
				first[id] = usual
			}
		}
	}
	for _, id := range d.servers {
		s.servers[id].usual = nil
	}
	s.insertSound(first)
}

// insertSound makes the operator insert disks with which the shard can go on, preferably the given
// ones. If no choice is certain, a majority of the disks that the newest run counted with may be
// missing: often it is not needed.
func (s *simulation) insertSound(first []*disk) {
	in := s.choose(first, true, func(in []*disk) bool { return s.allSound(nobody, spared, in) })
	if in == nil {
		in = s.choose(first, true, func(in []*disk) bool {
			return !slices.ContainsFunc(s.mapsOfChains(nobody, in), func(m *membership) bool {
				return !s.sound(m, nobody, spared, in)
			})
		})
	}
	if in == nil {
		in = first
	}
	for id, d := range in {
		if s.servers[id].disk != d && s.hasOther(order.ServerID(id)) {
			s.insert(order.ServerID(id), d)
			s.bear(order.ServerID(id))
		}
	}
}
