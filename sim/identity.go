package sim

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"

	"github.com/ledgerd/ledgerd/allconcur/generation"
	"github.com/ledgerd/ledgerd/order"
)

// diskIDSize is the size of a disk's identity in an entry.
const diskIDSize = len(generation.DiskID{})

// newDiskID draws the identity of a new disk.
func newDiskID(random *rand.Rand) (id generation.DiskID) {
	binary.LittleEndian.PutUint64(id[:], random.Uint64()|1)
	binary.LittleEndian.PutUint64(id[8:], random.Uint64())
	return id
}

func appendDisk(to []byte, id generation.DiskID) []byte {
	return append(to, id[:]...)
}

func diskAt(b []byte) generation.DiskID {
	return generation.DiskID(b[:diskIDSize])
}

// noDisk is the identity that names no disk.
var noDisk generation.DiskID

// membership is the chain's members and their disks, as of a block. It never changes.
type membership struct {
	number  uint64
	members []order.ServerID // ascending
	disks   []generation.DiskID
}

func (m *membership) quorum() int { return len(m.members)/2 + 1 }

func (m *membership) has(server order.ServerID) bool {
	_, found := slices.BinarySearch(m.members, server)
	return found
}

// counts reports whether a disk counts for a member: the chain names it, or the chain names none
// and the disk was made with the member's home.
func (m *membership) counts(server order.ServerID, id generation.DiskID, original bool) bool {
	at, found := slices.BinarySearch(m.members, server)
	return found && (m.disks[at] == id || m.disks[at] == noDisk && original)
}

// generation returns the membership in the form of the machines.
func (m *membership) generation() generation.Membership {
	return generation.Membership{Number: m.number, Members: m.members, Disks: m.disks}
}

// after returns the membership after a change, nil if the change is invalid.
func (m *membership) after(c change) *membership {
	at, found := slices.BinarySearch(m.members, c.server)
	next := &membership{number: m.number + 1}
	switch {
	case c.kind == entryJoin && !found:
		next.members = slices.Insert(slices.Clone(m.members), at, c.server)
		next.disks = slices.Insert(slices.Clone(m.disks), at, noDisk)
	case c.kind == entryLeave && found && len(m.members) > 1:
		next.members = slices.Delete(slices.Clone(m.members), at, at+1)
		next.disks = slices.Delete(slices.Clone(m.disks), at, at+1)
	case c.kind == entryAdmit && found && m.disks[at] != c.disk && c.disk != noDisk &&
		c.by != c.server && m.has(c.by):
		next.members, next.disks = m.members, slices.Clone(m.disks)
		next.disks[at] = c.disk
	case c.kind == entryEngine:
		next.members, next.disks = m.members, m.disks
	default:
		return nil
	}
	return next
}
