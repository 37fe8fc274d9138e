package shard

import (
	"fmt"
	"slices"

	"github.com/ledgerd/ledgerd/allconcur/generation"
	"github.com/ledgerd/ledgerd/order"
)

// Mode is what a member does.
type Mode uint8

// The modes. Their numbers are part of announcements and of the API and never change.
const (
	// Starting finds out with the others how to go on.
	Starting Mode = 1
	// Ordering takes part in the group that orders.
	Ordering Mode = 2
	// Following is outside of the group: it fetches blocks and serves reads.
	Following Mode = 3
	// Halted can do nothing until something changes: no majority, a full disk, a fork.
	Halted Mode = 4
	// Leaving ends in order.
	Leaving Mode = 5
)

// String returns the mode's name.
func (m Mode) String() string {
	if m > Leaving {
		m = 0
	}
	return [...]string{"unknown", "starting", "ordering", "following", "halted", "stopping"}[m]
}

// Entrant is a server that enters a group with the next eon.
type Entrant struct {
	Server order.ServerID
	// Ticket names one wish of one process; no other process, and no later wish, has the same.
	Ticket uint64
	// Disk is the one that the server counts with.
	Disk generation.DiskID
}

// Group is who takes part in a run, and from where. It does not change once it is made.
type Group struct {
	Run   generation.Run
	First order.Round
	// Base and BaseHash are the last block before the run.
	Base     uint64
	BaseHash [32]byte
	// Members are ascending. Entrants are those of them that entered with this run.
	Members  []order.ServerID
	Entrants []Entrant
	// Shard is the membership of the chain as the run begins. Majorities are taken of it. It is not
	// part of an announcement: a member that enters reads it from its own chain.
	Shard generation.Membership
}

// Includes reports whether a server is in the group as it began.
func (g *Group) Includes(server order.ServerID) bool {
	_, found := slices.BinarySearch(g.Members, server)
	return found
}

// sound reports whether a group that was announced could be one. Whether its members are members of
// the chain shows once the own chain stands where the run begins.
func (g *Group) sound() bool {
	return g.Run == 0 || g.Run.Generation() != 0 && g.First != 0 && len(g.Members) > 0
}

// fits says why a group that was announced cannot be one of the membership that it begins with; "" if
// it can.
func (g *Group) fits(m generation.Membership) string {
	for _, server := range g.Members {
		if !m.Includes(server) {
			return fmt.Sprintf("server %d is no member of the chain at block %d", server, g.Base)
		}
	}
	if len(g.Members) < m.Quorum() {
		return fmt.Sprintf("%d of the %d members at block %d are no majority", len(g.Members), len(m.Members), g.Base)
	}
	return ""
}

// Announcement is what a member says of itself, several times a second and whenever it changes.
type Announcement struct {
	Mode Mode
	// Group is the run in which the sender's engine works; Group.Run is 0 for none. Stalled says
	// that the run gets nowhere. Removed are the members that left it since.
	Group   Group
	Stalled bool
	Removed []order.ServerID
	// Follows is the run of others that the sender's chain came from, if the sender's disk counts in
	// it: the sender took part in that generation, and promised no later one. 0 for none.
	Follows generation.Run
	// Decided is the latest generation whose decision the sender knows.
	Decided generation.Generation
	// Changes is the number of the sender's membership.
	Changes uint64
	// Heights are the sender's, and Tip is its block at Heights.Ordered.
	Heights Heights
	Tip     [32]byte
	// Disk is the sender's, and Learner says that it counts in no majority as far as the sender's
	// own chain tells.
	Disk    generation.DiskID
	Learner bool
	// Full says that the sender's disk has no space for what it would promise.
	Full bool
	// Absent is the height up to which the sender lacks the blocks, since it began with a snapshot.
	// The driver fills it in.
	Absent uint64
	// Clock is the sender's time of day, in milliseconds since 1970. The driver fills it in.
	Clock uint64
	// APIAddress is for people. Settings are what all members have to have set alike.
	APIAddress string
	Settings   string
}

// orders reports whether the sender is in a group that makes progress. A group of two makes none
// while a disk is full: the other cannot go on alone.
func (a *Announcement) orders() bool {
	held := a.Full && len(a.Group.Members)-len(a.Removed) <= 2
	return a.Group.Run != 0 && !a.Stalled && !held
}

// includes reports whether a server is in the sender's group now.
func (a *Announcement) includes(server order.ServerID) bool {
	return a.Group.Includes(server) && !slices.Contains(a.Removed, server)
}

// WishKind says what a server outside of the group wants.
type WishKind uint8

// The wishes.
const (
	// WishEnter wants to be taken in with the next eon, under a ticket.
	WishEnter WishKind = 1
	// WishRegroup wants the generation Number to end: the sender promised a later one and can never
	// enter it.
	WishRegroup WishKind = 2
	// WishAdmit wants the sender's disk to count.
	WishAdmit WishKind = 3

	// wishBench is no wish, and not sent: it stands for a member that is to be benched where marks
	// are remembered.
	wishBench WishKind = 255
)

// Wish is what a server outside of the group asks of a member that works.
type Wish struct {
	Kind WishKind
	// Number is the ticket, or the generation.
	Number uint64
	// Disk is the sender's.
	Disk generation.DiskID
}
