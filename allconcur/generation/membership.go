package generation

import (
	"encoding/hex"
	"slices"

	"github.com/ledgerd/ledgerd/order"
)

// DiskID identifies a disk: 128 random bits, drawn when the disk is made and lost with it. The
// zero value means "none".
type DiskID [16]byte

// String returns the 32 hex digits of the identity.
func (d DiskID) String() string { return hex.EncodeToString(d[:]) }

// compare orders disks by their bytes.
func (d DiskID) compare(other DiskID) int { return slices.Compare(d[:], other[:]) }

// Membership is the chain's list of members as of some block, with the disk that counts for each.
// Numbers grow by one with each change. A change adds one member, removes one, or names another
// disk for one.
type Membership struct {
	Number uint64
	// Members is ascending. It has the chain's indexes, which never change.
	Members []order.ServerID
	// Disks are the members' disks, in the order of Members; nil stands for zeros. If the chain
	// names no disk for a member, the entry is zero and the member's original disk counts.
	Disks []DiskID
}

// Quorum returns the number of members in a majority, written c.
func (m Membership) Quorum() int { return len(m.Members)/2 + 1 }

// Includes reports whether server is a member.
func (m Membership) Includes(server order.ServerID) bool {
	_, found := slices.BinarySearch(m.Members, server)
	return found
}

// Disk returns the disk that the chain names for a member; zero if it names none.
func (m Membership) Disk(server order.ServerID) DiskID {
	i, found := slices.BinarySearch(m.Members, server)
	if !found || i >= len(m.Disks) {
		return DiskID{}
	}
	return m.Disks[i]
}

// Counts reports whether a server's disk counts in majorities of m: the server is a member, and the
// chain names this disk for it. If the chain names none, the disk has to be original, which means
// that it was made together with the member and not as a replacement. A disk that does not count is
// a learner.
func (m Membership) Counts(server order.ServerID, disk DiskID, original bool) bool {
	if !m.Includes(server) {
		return false
	}
	named := m.Disk(server)
	return named == disk && named != DiskID{} || named == DiskID{} && original
}

// Equal reports whether two memberships have the same members with the same disks.
func (m Membership) Equal(other Membership) bool {
	return m.Number == other.Number && slices.Equal(m.Members, other.Members) &&
		!slices.ContainsFunc(m.Members, func(server order.ServerID) bool {
			return m.Disk(server) != other.Disk(server)
		})
}

// neighbour reports whether next is the membership after one change: a member joined or left, or
// counts with another disk. Memberships with consecutive numbers may also be of different branches
// of the chain, and differ in more than one change.
func (m Membership) neighbour(next Membership) bool {
	changes := 0
	for _, server := range m.Members {
		if !next.Includes(server) || next.Disk(server) != m.Disk(server) {
			changes++
		}
	}
	for _, server := range next.Members {
		changes += truth(!m.Includes(server))
	}
	return next.Number == m.Number+1 && changes == 1
}

// sound reports whether a membership could be one of a chain's.
func (m Membership) sound() bool {
	return ascending(m.Members) && (len(m.Disks) == 0 || len(m.Disks) == len(m.Members))
}

// Former is a membership that a change of the chain replaced.
type Former struct {
	Membership Membership
	// Until is the height of the block with the change. Once that block is durable, the change is
	// effective and the former membership is needed in no quorum.
	Until uint64
}
