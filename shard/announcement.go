package shard

import (
	"fmt"
	"slices"

	"github.com/ledgerd/ledgerd/allconcur/generation"
	"github.com/ledgerd/ledgerd/order"
)

// Mode is the state of a member as others see it.
type Mode uint8

// The modes. Their numbers are part of announcements and of the API and never change.
const (
	// Starting works out with the others how to go on.
	Starting Mode = 1
	// Ordering takes part in the group that orders.
	Ordering Mode = 2
	// Following is outside of the group: it fetches blocks and serves reads.
	Following Mode = 3
	// Halted cannot act until something changes: no majority, a full disk, a fork.
	Halted Mode = 4
	// Leaving shuts down in order.
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
	// Ticket identifies one wish of one process. No other process and no later wish has the same.
	Ticket uint64
	// Disk is the disk that the server counts with.
	Disk generation.DiskID
}

// Group is the set of members of a run and the point of the chain where the run starts. It does not
// change after it is made.
type Group struct {
	Run   generation.Run
	First order.Round
	// Base and BaseHash identify the last block before the run.
	Base     uint64
	BaseHash [32]byte
	// Members is ascending. Entrants lists the members that entered with this run.
	Members  []order.ServerID
	Entrants []Entrant
	// Shard is the membership of the chain at the start of the run. Majorities are taken of it. It
	// is not part of an announcement: an entering member reads it from its own chain.
	Shard generation.Membership
	// Engine is the engine that the chain names at the base, "" if it names none: the members then
	// take that of their settings. It is not part of an announcement either. All members of a run
	// have its base in their chains, so they run the same engine.
	Engine string
}

// Includes reports whether a server was in the group when it began.
func (g *Group) Includes(server order.ServerID) bool {
	_, found := slices.BinarySearch(g.Members, server)
	return found
}

// sound reports whether an announced group is possible at all. Whether its members are members of
// the chain can be checked only once the own chain ends where the run begins.
func (g *Group) sound() bool {
	return g.Run == 0 || g.Run.Generation() != 0 && g.First != 0 && len(g.Members) > 0
}

// fits returns why an announced group is impossible under the membership that it begins with, or
// "".
func (g *Group) fits(m generation.Membership) string {
	for _, server := range g.Members {
		if !m.Includes(server) {
			return fmt.Sprintf("server %d is no member of the chain at block %d", server, g.Base)
		}
	}
	if len(g.Members) < m.Quorum() {
		return fmt.Sprintf("%d of the %d members at block %d are no majority", len(g.Members),
			len(m.Members), g.Base)
	}
	return ""
}

// Announcement is what a member reports about itself, several times a second and on every change.
type Announcement struct {
	Mode Mode
	// Group is the run in which the sender's engine works; Group.Run is 0 for none. Stalled says
	// that the run makes no progress. Removed lists the members that left the run since.
	Group   Group
	Stalled bool
	Removed []order.ServerID
	// Follows is the run, of other members, that the sender's chain came from. It is set if the
	// sender's disk counts in that run: the sender took part in its generation and promised no
	// later one. 0 for none.
	Follows generation.Run
	// Decided is the latest generation whose decision the sender knows.
	Decided generation.Generation
	// Changes is the number of the sender's membership.
	Changes uint64
	// Heights are the sender's, and Tip is the hash of its block at Heights.Ordered.
	Heights Heights
	Tip     [32]byte
	// Disk is the sender's. Original says that it was created with the sender's home. Learner says
	// that it counts in no majority, according to the sender's own chain.
	Disk     generation.DiskID
	Original bool
	Learner  bool
	// Full says that the sender's disk has no space to save a promise.
	Full bool
	// Absent is the height up to which the sender lacks the blocks because it began with a
	// snapshot. The driver sets it.
	Absent uint64
	// Clock is the sender's time of day, in milliseconds since 1970. The driver sets it.
	Clock uint64
	// APIAddress is for people. Settings are the settings that must be equal on all members.
	APIAddress string
	Settings   string
}

// orders reports whether the sender is in a group that makes progress. A group of two makes no
// progress while one disk is full, since the other member cannot go on alone.
func (a *Announcement) orders() bool {
	held := a.Full && len(a.Group.Members)-len(a.Removed) <= 2
	return a.Group.Run != 0 && !a.Stalled && !held
}

// includes reports whether a server is in the sender's group now.
func (a *Announcement) includes(server order.ServerID) bool {
	return a.Group.Includes(server) && !slices.Contains(a.Removed, server)
}

// WishKind is the kind of request from a server outside of the group.
type WishKind uint8

// The wishes.
const (
	// WishEnter asks to be taken in with the next eon, under a ticket.
	WishEnter WishKind = 1
	// WishRegroup asks for the end of generation Number. The sender promised a later generation and
	// can never enter this one.
	WishRegroup WishKind = 2
	// WishAdmit asks that the sender's disk count.
	WishAdmit WishKind = 3

	// wishBench is never sent. In the list of recent marks it stands for a member to be benched.
	wishBench WishKind = 255
)

// Wish is a request from a server outside of the group to a working member.
type Wish struct {
	Kind WishKind
	// Number is the ticket of a WishEnter, or the generation of a WishRegroup.
	Number uint64
	// Disk is the sender's.
	Disk generation.DiskID
}
