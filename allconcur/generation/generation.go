package generation

import (
	"slices"

	"github.com/ledgerd/ledgerd/order"
)

// Generation numbers the lives of the ordering group, from 1; 0 means none yet.
type Generation uint64

// Run names one engine's life: an eon of a generation. Runs compare by generation, then by eon. It is what allconcur.Config.Generation carries; 0 means none yet.
type Run uint64

// eonBits is how much of a run the eon takes.
const eonBits = 16

// NewRun returns the run of an eon, counted from 0 in its generation.
func NewRun(generation Generation, eon uint16) Run { return Run(generation)<<eonBits | Run(eon) }

// Generation is the generation that the run belongs to.
func (r Run) Generation() Generation { return Generation(r >> eonBits) }

// Eon is the run's place in its generation, from 0.
func (r Run) Eon() uint16 { return uint16(r) }

// Ballot orders the attempts to decide one generation: by number, then by proposer.
type Ballot struct {
	Number   uint64
	Proposer order.ServerID
}

// Less tells whether b comes before c.
func (b Ballot) Less(c Ballot) bool {
	if b.Number != c.Number {
		return b.Number < c.Number
	}
	return b.Proposer < c.Proposer
}

// Head is what a node holds of the chain.
type Head struct {
	// Generation is the last one whose chain this is: the node was activated in it, or followed a group that worked in it.
	Generation Generation
	// Height and Hash are those of the last block.
	Height uint64
	Hash   [32]byte
	// Round is the last round that was A-delivered; an empty one makes no block, so that it may be above the last block's. After a restart it is the block's.
	Round order.Round
}

// Before tells whether h is less of the chain than other: an older generation, or the same one and an earlier round.
func (h Head) Before(other Head) bool {
	switch {
	case h.Generation != other.Generation:
		return h.Generation < other.Generation
	case h.Round != other.Round:
		return h.Round < other.Round
	}
	return h.Height < other.Height
}

// Membership is the chain's list of members as of some block. Numbers grow by one with each change; a change adds one member or takes one away.
type Membership struct {
	Number  uint64
	Members []order.ServerID // ascending; indexes are the chain's and stay for ever
}

// Quorum is the number of members that make a majority, written c.
func (m Membership) Quorum() int { return len(m.Members)/2 + 1 }

// Includes tells whether server is a member.
func (m Membership) Includes(server order.ServerID) bool {
	_, found := slices.BinarySearch(m.Members, server)
	return found
}

// Vote is a server's vote for what a round may become, in its last run; allconcur.Vote says the same with places in the group instead of the chain's indexes.
type Vote struct {
	TailRound
	// Confirmed tells that the voter knows that a majority of the shard decided this set.
	Confirmed bool
	// Voters are the servers of the group when the round ran, ascending.
	Voters []order.ServerID
}

// TailRound is a round that the generation begins with, because it may have been A-delivered. Two of them are the same value only if all fields are equal.
type TailRound struct {
	Round order.Round
	Epoch order.Epoch
	// Reliable tells a decided set from a complete unreliable round.
	Reliable bool
	// Origins are the servers whose messages the round has, and Removed those that left the group with it; ascending.
	Origins []order.ServerID
	Removed []order.ServerID
	// Content is the sha256 of the round's contents, in the driver's encoding.
	Content [32]byte
}

// Equal tells whether two rounds are the same value.
func (r TailRound) Equal(other TailRound) bool {
	return r.Round == other.Round && r.Epoch == other.Epoch && r.Reliable == other.Reliable && r.Content == other.Content &&
		slices.Equal(r.Origins, other.Origins) && slices.Equal(r.Removed, other.Removed)
}

// Report is what a node tells of itself in a promise.
type Report struct {
	Head Head
	// Run is the last one in which this node took part. The synod fills it in, from what is on disk.
	Run Run
	// Forgot tells that the process that took part in Run is gone, and its votes with it. The synod fills it in.
	Forgot bool
	// Votes are those of this node in Run that it had when its engine stopped, by ascending round, at most two.
	Votes []Vote
	// Shard is the membership whose majorities the engine of Run counted with: allconcur.Config.Shard is the number of its members. For a node that took no part in any, Membership.
	Shard Membership
	// Membership is the newest that the node knows from its chain.
	Membership Membership
}

// DiskID names a node's folder: drawn at random when the folder is made, and lost with it.
type DiskID uint64

// Decision is the value that the synod decides for a generation.
type Decision struct {
	Generation Generation
	// Base is the block after which the generation begins; then come the rounds of Tail, at most two. All members hold and have executed both before they take part.
	Base Head
	Tail []TailRound
	// Members are the nodes that form the group, ascending. A driver leaves out who is no member any more after Tail.
	Members []order.ServerID
	// Disks are the members' disks, in the order of Members: a member that comes back with another one has lost what it stored.
	Disks []DiskID
}

// First is the first round that the group of the generation runs: after the base, and the tail.
func (d Decision) First() order.Round { return d.Base.Round + order.Round(len(d.Tail)) + 1 }

// Equal tells whether two decisions are the same.
func (d Decision) Equal(other Decision) bool {
	return d.Generation == other.Generation && d.Base == other.Base && slices.Equal(d.Members, other.Members) && slices.Equal(d.Disks, other.Disks) &&
		slices.EqualFunc(d.Tail, other.Tail, TailRound.Equal)
}

// Includes tells whether server is a member of the generation.
func (d Decision) Includes(server order.ServerID) bool {
	_, found := slices.BinarySearch(d.Members, server)
	return found
}

// lost tells whether server is a member that has another disk now.
func (d Decision) lost(server order.ServerID, disk DiskID) bool {
	i, found := slices.BinarySearch(d.Members, server)
	return found && d.Disks[i] != disk
}

// sound tells whether a decision could be one of a chain's.
func (d Decision) sound() bool {
	if d.Generation == 0 || d.Base.Generation >= d.Generation || len(d.Members) == 0 || len(d.Disks) != len(d.Members) || !ascending(d.Members) || len(d.Tail) > tailMax {
		return false
	}
	for i, r := range d.Tail {
		if r.Round != d.Base.Round+order.Round(i)+1 || !ascending(r.Origins) || !ascending(r.Removed) {
			return false
		}
	}
	return true
}

func ascending(servers []order.ServerID) bool {
	for i := 1; i < len(servers); i++ {
		if servers[i-1] >= servers[i] {
			return false
		}
	}
	return true
}

// State is what a node must not forget: it is written to disk, and synced, before any message that rests on it is sent.
type State struct {
	// Disk names the folder that holds this state.
	Disk DiskID
	// Activated is the last run in which this node took part, and Shard the membership that counted in it.
	Activated Run
	Shard     Membership
	// Instance is the generation that Promised and Accepted belong to.
	Instance Generation
	Promised Ballot
	// Accepted is the ballot of AcceptedValue, where there is one.
	Accepted      Ballot
	AcceptedValue *Decision
	// Decided is the latest decision that this node knows.
	Decided *Decision
}

// Fault is a bug to plant, to prove that a checker finds it.
type Fault uint8

// The faults; production has none.
const (
	FaultNone Fault = iota
	// FaultPromiseDoesNotFreeze lets a node promise while its engine goes on.
	FaultPromiseDoesNotFreeze
	// FaultTailForgotten goes on from the base alone: votes count for nothing.
	FaultTailForgotten
	// FaultMinorityQuorum takes one promise, and one acceptance, too few for enough.
	FaultMinorityQuorum
)
