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

// Ballot orders the attempts to decide one generation: by number, then by proposer, then by the
// proposer's disk. The disk makes a ballot unique: a proposer never forgets on one disk which
// ballots it used, and knows nothing of those that it used on another.
type Ballot struct {
	Number   uint64
	Proposer order.ServerID
	Disk     DiskID
}

// Less reports whether b comes before c.
func (b Ballot) Less(c Ballot) bool {
	if b.Number != c.Number {
		return b.Number < c.Number
	}
	if b.Proposer != c.Proposer {
		return b.Proposer < c.Proposer
	}
	return b.Disk.compare(c.Disk) < 0
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

// KnownVote is a vote of some server for a value, as far as another server's engine saw it:
// allconcur.KnownVote says the same with places in the group. It does not name the content: the
// state and the origins determine it.
type KnownVote struct {
	Voter    order.ServerID
	Round    order.Round
	Epoch    order.Epoch
	Reliable bool
	Origins  []order.ServerID // ascending
	// Confirmed reports that the voter said that a majority of the shard decided this set.
	Confirmed bool
}

// isFor reports whether the vote is for a value.
func (k KnownVote) isFor(r TailRound) bool {
	return k.Round == r.Round && k.Epoch == r.Epoch && k.Reliable == r.Reliable &&
		slices.Equal(k.Origins, r.Origins)
}

// Report is what a node tells of itself in a promise.
type Report struct {
	Head Head
	// Disk is the node's disk, and Original reports that it was made together with the member and
	// not in place of another. The synod fills them in, from Config.
	Disk     DiskID
	Original bool
	// Durable is the highest height that the node knows to be durable. Nothing at or below it is
	// ever given up.
	Durable uint64
	// Empty is how many of the rounds up to Head.Round made no block after the last one. Those that
	// this node executed are of the generation in which it worked. In a later one that it follows they
	// may have gone another way, so that the synod does not count them there. Promises do not have it.
	Empty order.Round
	// Perhaps reports that after a crash something other than zeros followed the last whole record
	// of the disk: the node had perhaps one more group of blocks behind Head, and perhaps said so.
	Perhaps bool
	// PerhapsTo is the height of the last block that this group can have held; 0 if that is not
	// known.
	PerhapsTo uint64
	// Run is the last one in which this node took part. The synod fills it in, from what is on disk.
	Run Run
	// Restarted reports that the process that took part in Run is gone, and its votes with it. The
	// synod fills it in.
	Restarted bool
	// Votes are those of this node in Run that it had when its engine stopped, by ascending round,
	// at most two.
	Votes []Vote
	// Known are all votes and confirmations of others in Run that the node's engine saw for rounds
	// that it had not A-delivered.
	Known []KnownVote
	// Shard is the membership whose majorities the engine of Run counted with:
	// allconcur.Config.Shard is the number of its members. For a node that took no part in any,
	// Membership.
	Shard Membership
	// Membership is the newest that the node knows from its chain, up to Head.
	Membership Membership
	// Former are the memberships before changes in the node's chain that it does not know to be
	// durable: the one before each, by ascending height.
	Former []Former
}

// hadPerhaps reports whether the node had perhaps a block behind a head that is at least its own, and
// its disk may have counted for it. A disk counts in the generation that its state says it took part
// in, so one that took part in none counted for nothing.
// Heights of a generation before the one in which the node worked last say nothing of that: the head
// may be on a branch that was given up.
func (r Report) hadPerhaps(head Head) bool {
	if r.Run == 0 {
		return false
	}
	beyond := r.PerhapsTo == 0 || r.PerhapsTo > head.Height || head.Generation < r.Run.Generation()
	return r.Perhaps && beyond
}

// Decision is the value that the synod decides for a generation.
type Decision struct {
	Generation Generation
	// Base is the block after which the generation begins; then come the rounds of Tail, at most two. All members hold and have executed both before they take part.
	Base Head
	Tail []TailRound
	// Members are the nodes that form the group, ascending. A driver leaves out who is no member any more after Tail.
	Members []order.ServerID
	// Disks are the members' disks, in the order of Members: a member that comes back with another
	// one has lost what it stored.
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

// Group lists the members of the generation that take part in it under the membership after its
// tail: those whose disk still counts. A group smaller than that membership's Quorum does not work:
// then the next generation goes on.
func (d Decision) Group(after Membership) []order.ServerID {
	var group []order.ServerID
	for i, server := range d.Members {
		named := after.Disk(server)
		if after.Includes(server) && (named == DiskID{} || named == d.Disks[i]) {
			group = append(group, server)
		}
	}
	return group
}

// Seats reports whether the decision makes server a member with this disk. A node whose disk is
// another one takes no part in the generation, even if Includes holds: it was not that disk which
// promised.
func (d Decision) Seats(server order.ServerID, disk DiskID) bool {
	return d.Includes(server) && !d.lost(server, disk)
}

// lost reports whether server is a member that has another disk now.
func (d Decision) lost(server order.ServerID, disk DiskID) bool {
	i, found := slices.BinarySearch(d.Members, server)
	return found && d.Disks[i] != disk
}

// sound tells whether a decision could be one of a chain's.
func (d Decision) sound() bool {
	if d.Generation == 0 || d.Base.Generation >= d.Generation || len(d.Members) == 0 || len(d.Disks) != len(d.Members) || !ascending(d.Members) || len(d.Tail) > tailMax {
		return false
	}
	if d.First() <= d.Base.Round {
		return false // no round follows the last number
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
	// Start is the head with which that run began, of the generation before if it was the first run.
	Start Head
	// Instance is the generation that Promised and Accepted belong to.
	Instance Generation
	Promised Ballot
	// Accepted is the ballot of AcceptedValue, where there is one.
	Accepted      Ballot
	AcceptedValue *Decision
	// Decided is the latest decision that this node knows.
	Decided *Decision
}

// OnDisk returns the state as it counts on a disk. Promises, acceptances and decisions bind the server
// on any disk. The run that it took part in labels the blocks of the disk that it had then: heads
// compare by generation first. Where another disk left the state, the blocks at hand may have come
// from anywhere, also from a branch that was given up, so the label is dropped. A state that names no
// disk is of an older version, and of the disk that the server was made with.
func (s State) OnDisk(disk DiskID, original bool) State {
	if s.Disk != disk && (s.Disk != DiskID{} || !original) {
		s.Activated, s.Shard, s.Start = 0, Membership{}, Head{}
	}
	s.Disk = disk
	return s
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
	// FaultAcceptBelowPromise accepts whatever was promised.
	FaultAcceptBelowPromise
	// FaultPromiseNotPersisted leaves the promise out of what is saved.
	FaultPromiseNotPersisted
	// FaultLowestAccepted proposes the value that was accepted in the lowest ballot.
	FaultLowestAccepted
	// FaultChosenLeftOut leaves a value out that a bare majority may have accepted.
	FaultChosenLeftOut
	// FaultBoundIgnoresPerhaps does not ask what disks had perhaps where a value was accepted.
	FaultBoundIgnoresPerhaps
	// FaultDurableElsewhere takes a change for durable since as high a block of another branch is.
	FaultDurableElsewhere
	// FaultNewMembershipDropped asks for no majority of the newest membership while the newest run
	// counted with another.
	FaultNewMembershipDropped
	// FaultBaseWithoutGeneration takes a base for held that is of another generation's chain.
	FaultBaseWithoutGeneration
	// FaultLostDiskIgnored counts every disk of a member.
	FaultLostDiskIgnored
	// FaultFormerIgnored asks for no majority of the membership before a change that is not known
	// to be durable.
	FaultFormerIgnored
	// FaultPerhapsIgnored takes a disk that had perhaps more for one that had not.
	FaultPerhapsIgnored
)
