package sim

import (
	"slices"

	"github.com/ledgerd/ledgerd/order"
)

// diskFault is what happens to a server's home.
type diskFault uint8

const (
	diskFull         diskFault = iota // it is full for a while
	diskDataLost                      // the data are gone
	diskPromisesLost                  // the promises are gone
	diskBothLost                      // both are
	diskExchanged                     // both are gone, and later the old disk is put back
	diskCopied                        // an older copy of the home takes its place, and the node sees that
	diskFaultsEnd
	// diskRolledBack is an older copy that takes the home's place, and nobody sees that.
	diskRolledBack
)

// String says what happens to the home.
func (f diskFault) String() string {
	return [...]string{"is full", "loses its data", "loses its promises", "loses data and promises", "has another disk", "gets an older copy back",
		"", "is rolled back"}[f]
}

// disksFail begins or ends what a disturbance does to a home. A home that is damaged or exchanged
// is so while no process runs; the next one finds out.
func (s *simulation) disksFail(d *disturbance, begins bool) {
	v := &s.servers[d.server]
	switch {
	case d.disk == diskFull:
		v.disk.full = begins
		if v.shelf != nil {
			v.shelf.full = false
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
		if v.shelf == nil && (d.beyond || s.mayForget(d.server)) {
			s.stop(d.server)
			s.lose(d.server, d.disk)
		}
	case d.disk == diskExchanged && v.shelf != nil:
		if (s.counted(d.server) || v.proposed == v.disk.id) && !s.mayForget(d.server) {
			v.shelf = nil // the chain counts with the new disk by now
			break
		}
		s.stop(d.server)
		s.trace.say(s.now, "%d has its old disk back", d.server)
		v.disk, v.shelf, v.acked = v.shelf, nil, nil
	case (d.disk == diskCopied || d.disk == diskRolledBack) && v.copied != nil:
		s.restore(d)
	}
	if !begins {
		s.bear(d.server)
	}
}

// lose takes a part of a home away. The next process makes a new identity.
func (s *simulation) lose(id order.ServerID, fault diskFault) {
	v := &s.servers[id]
	s.trace.note(s.now, 113, uint64(id), uint64(fault))
	s.trace.say(s.now, "%d %v", id, fault)
	if fault == diskExchanged {
		v.shelf = v.disk
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
	v.acked = nil
	if s.life.setting.plant == PlantIdentityBeside && fault == diskDataLost {
		return // what is beside the data says that all is well
	}
	v.disk.renew(newDiskID(s.life.disks), why)
}

// counted reports whether a server's disk counts under any membership that may.
func (s *simulation) counted(id order.ServerID) bool {
	v := &s.servers[id]
	return slices.ContainsFunc(s.maps(id), func(m *membership) bool { return m.counts(id, v.disk.id, v.disk.original) })
}

// restore puts an older copy in a home's place.
func (s *simulation) restore(d *disturbance) {
	id := d.server
	v := &s.servers[id]
	copied := v.copied
	v.copied = nil
	if !d.beyond && !s.mayForget(id) || v.shelf != nil {
		return
	}
	if d.beyond {
		s.life.hopeless = "a majority of the disks forgot"
	}
	s.stop(id)
	s.trace.note(s.now, 114, uint64(id))
	s.trace.say(s.now, "%d gets an older copy of its home, with %d blocks for %d", id, copied.height(), v.disk.height())
	v.disk, v.acked = copied, nil
	if d.disk != diskRolledBack {
		v.disk.renew(newDiskID(s.life.disks), "it is a copy")
	}
}
