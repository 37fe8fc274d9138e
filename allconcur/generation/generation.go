package generation

import (
	"fmt"
	"slices"

	"github.com/ledgerd/ledgerd/order"
)

// Generation numbers the lives of the ordering group, from 1; 0 means none yet.
type Generation uint64

// Run identifies one engine's life: an eon of a generation. Runs compare by generation, then by
// eon. allconcur.Config.Generation carries a Run; 0 means none yet.
type Run uint64

// eonBits is the number of bits that the eon takes in a Run.
const eonBits = 16

// NewRun returns the run of an eon, counted from 0 in its generation.
func NewRun(generation Generation, eon uint16) Run { return Run(generation)<<eonBits | Run(eon) }

// Generation returns the generation that the run belongs to.
func (r Run) Generation() Generation { return Generation(r >> eonBits) }

// Eon returns the run's place in its generation, from 0.
func (r Run) Eon() uint16 { return uint16(r) }

// Ballot orders the attempts to decide one generation: by number, then by proposer, then by the
// proposer's disk. The disk makes a ballot unique: a proposer never forgets which ballots it used
// on a disk, and knows nothing of those that it used on another.
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

// Head is how far a node's chain goes.
type Head struct {
	// Generation is the last generation whose chain this is: the node was activated in it, or
	// followed a group that worked in it.
	Generation Generation
	// Height and Hash are those of the last block.
	Height uint64
	Hash   [32]byte
	// Round is the last A-delivered round. An empty round makes no block, so Round may be above the
	// last block's. After a restart it is the block's.
	Round order.Round
}

// Before reports whether h covers less of the chain than other: an older generation, or the same
// one and an earlier round, or the same round and a lower height.
func (h Head) Before(other Head) bool {
	switch {
	case h.Generation != other.Generation:
		return h.Generation < other.Generation
	case h.Round != other.Round:
		return h.Round < other.Round
	}
	return h.Height < other.Height
}

// Vote is a server's vote, in its last run, for what a round may become. order.Vote is the same
// with places in the group instead of the chain's indexes.
type Vote struct {
	TailRound
	// Confirmed says that the voter knows that a majority of the shard decided this set.
	Confirmed bool
	// Voters are the servers of the group when the round ran, ascending.
	Voters []order.ServerID
}

// Bound is how many rounds a server may have voted for in a run without having A-delivered them. It
// is a property of the kind of engine that the run has (order.Voter). So it bounds the rounds that
// may have been A-delivered after the furthest head. It also says by which rule (choose.go,
// choose_log.go). The zero value is AllConcur's bound.
type Bound uint8

const (
	// votesOfAllConcur is what the zero Bound stands for.
	votesOfAllConcur = 2
	// boundMax is the greatest number of rounds.
	boundMax = 64
	// boundOfLog marks the bound of an engine that orders by a log.
	boundOfLog = 0x80
)

// BoundOf returns the bound of an engine that votes for up to so many rounds, at least 1 and at
// most 64.
func BoundOf(votes int) Bound {
	if votes < 1 || votes > boundMax {
		panic(fmt.Sprintf("generation: invariant broken: an engine votes for %d rounds", votes))
	}
	if votes == votesOfAllConcur {
		return 0
	}
	return Bound(votes)
}

// LogBound returns the bound of an engine that orders by a log. The log has up to so many rounds
// that its server has not A-delivered, at least 1 and at most 64.
func LogBound(rounds int) Bound {
	if rounds < 1 || rounds > boundMax {
		panic(fmt.Sprintf("generation: invariant broken: a log has %d rounds", rounds))
	}
	return boundOfLog | Bound(rounds)
}

// Log reports whether b is a LogBound.
func (b Bound) Log() bool { return b&boundOfLog != 0 }

// Votes returns how many rounds a server may have voted for without having A-delivered them.
func (b Bound) Votes() int {
	if b == 0 {
		return votesOfAllConcur
	}
	return int(b &^ boundOfLog)
}

// Tail returns how many rounds may have been A-delivered after the furthest head. AllConcur+ has
// prompt delivery, with which it is one more than the votes (choose.go).
func (b Bound) Tail() int {
	if b == 0 {
		return votesOfAllConcur + 1
	}
	return b.Votes()
}

// ChangeRounds returns how many rounds a run may have from that of a change of the group on, the
// change's own included. No second change may take effect in them: a run counts with one change.
// AllConcur's eons end with the second round after the change. In TRAINS all servers have attached
// wagons to the trains of two rotations when they A-deliver the change. A run that is ordered by a
// log ends with the change.
func (b Bound) ChangeRounds() order.Round {
	const ofAllConcur, rotations = 3, 2
	if b == 0 || b.Log() {
		return ofAllConcur
	}
	return max(ofAllConcur, rotations*order.Round(b))
}

// sound reports whether b could be a BoundOf or a LogBound.
func (b Bound) sound() bool {
	if b.Log() {
		return b.Votes() >= 1 && b.Votes() <= boundMax
	}
	return b <= boundMax && b != votesOfAllConcur
}

// LogEnd is the last entry of a log, as order.FrozenLog has it. The zero value is that of an empty
// log.
type LogEnd struct{ Stamp, Index uint64 }

// Less reports whether a log that ends with e is less recent than one that ends with other.
func (e LogEnd) Less(other LogEnd) bool {
	if e.Stamp != other.Stamp {
		return e.Stamp < other.Stamp
	}
	return e.Index < other.Index
}

// TailRound is a round that the generation begins with because it may have been A-delivered. Two of
// them are the same value only if all fields are equal.
type TailRound struct {
	Round order.Round
	Epoch order.Epoch
	// Reliable is true for a decided set, false for a complete unreliable round.
	Reliable bool
	// Origins are the servers whose messages the round has. Removed are the servers that left the
	// group with it. Both are ascending.
	Origins []order.ServerID
	Removed []order.ServerID
	// Content is the sha256 of the round's contents, in the driver's encoding.
	Content [32]byte
}

// Equal reports whether two rounds are the same value.
func (r TailRound) Equal(other TailRound) bool {
	return r.Round == other.Round && r.Epoch == other.Epoch && r.Reliable == other.Reliable &&
		r.Content == other.Content &&
		slices.Equal(r.Origins, other.Origins) && slices.Equal(r.Removed, other.Removed)
}

// KnownVote is a server's vote for a value that another server's engine saw. order.KnownVote is
// the same with places in the group. It does not name the content, which the state and the origins
// determine.
type KnownVote struct {
	Voter    order.ServerID
	Round    order.Round
	Epoch    order.Epoch
	Reliable bool
	Origins  []order.ServerID // ascending
	// Confirmed says that the voter said that a majority of the shard decided this set.
	Confirmed bool
}

// isFor reports whether the vote is for a value.
func (k KnownVote) isFor(r TailRound) bool {
	return k.Round == r.Round && k.Epoch == r.Epoch && k.Reliable == r.Reliable &&
		slices.Equal(k.Origins, r.Origins)
}

// Report is what a node reports about itself in a promise.
type Report struct {
	Head Head
	// Disk is the node's disk. Original says that the disk was made together with the member and
	// not as a replacement. The synod fills both in, from Config.
	Disk     DiskID
	Original bool
	// Durable is the highest height that the node knows to be durable. Nothing at or below it is
	// ever given up.
	Durable uint64
	// Empty is how many of the rounds up to Head.Round made no block after the last one. The rounds
	// that this node executed belong to the generation in which it worked. In a later generation
	// that it follows, these rounds may have had another outcome, so the synod does not count them
	// there. Promises do not carry it.
	Empty order.Round
	// Perhaps says that, after a crash, something other than zeros followed the last whole record
	// on the disk: the node perhaps had one more group of blocks after Head, and perhaps announced
	// it.
	Perhaps bool
	// PerhapsTo is the greatest height that the last block of this group can have had; 0 if that is
	// not known.
	PerhapsTo uint64
	// Run is the last run in which this node took part. The synod fills it in, from the disk.
	Run Run
	// Restarted says that the process that took part in Run is gone, and its votes with it. The
	// synod fills it in.
	Restarted bool
	// Bound is that of the engine of Run. It is 0 for a node without votes of that engine.
	Bound Bound
	// Votes are the votes that this node had in Run when its engine stopped, by ascending round, as
	// many as Bound allows. With a LogBound, they are the rounds that the node's log had behind the
	// last A-delivered one, and have no voters.
	Votes []Vote
	// Last is the last entry of the node's log, with a LogBound.
	Last LogEnd
	// Known are all votes and confirmations of others in Run that the node's engine saw for rounds
	// that it had not A-delivered.
	Known []KnownVote
	// Recorded are the complete rounds that the node's disk recorded last in Run, one or two in a
	// row (docs/design/rounds.md). Head covers everything before the first of them, and perhaps
	// more.
	Recorded []TailRound
	// Vouched are the rounds of Run whose content the node's engine held, with prompt delivery, and
	// had not closed (docs/design/prompt.md), by ascending round. Epoch and Reliable are the last
	// state in which the node A-broadcast in the round, Origins those whose messages it held.
	Vouched []TailRound
	// Shard is the membership whose majorities the engine of Run counted with:
	// allconcur.Config.Shard is the number of its members. If the node took part in no run, it
	// equals Membership.
	Shard Membership
	// Membership is the newest membership in the node's chain, up to Head.
	Membership Membership
	// Former are the memberships before changes in the node's chain that it does not know to be
	// durable: one before each change, by ascending height.
	Former []Former
}

// hadPerhaps reports whether the node perhaps had a block beyond head, and its disk may have
// counted for that block. The head is at least as far as the node's own. A disk counts in the
// generation that its state says it took part in, so a disk that took part in none counted for
// nothing. If the head's generation is older than the one in which the node last worked, heights
// prove nothing: the head may be on a branch that was given up.
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
	// Base is the block after which the generation begins. The rounds of Tail follow it. All
	// members hold and have executed both before they take part.
	Base Head
	Tail []TailRound
	// Bound is that of the run that Tail is of. Tail has no more rounds than it allows.
	Bound Bound
	// Members are the nodes that form the group, ascending. A driver leaves out a node that is no
	// longer a member after Tail.
	Members []order.ServerID
	// Disks are the members' disks, in the order of Members. A member that comes back with another
	// disk has lost what it stored.
	Disks []DiskID
}

// First returns the first round that the group of the generation runs, after the base and the tail.
func (d Decision) First() order.Round { return d.Base.Round + order.Round(len(d.Tail)) + 1 }

// Equal reports whether two decisions are the same.
func (d Decision) Equal(other Decision) bool {
	return d.Generation == other.Generation && d.Base == other.Base && d.Bound == other.Bound &&
		slices.Equal(d.Members, other.Members) && slices.Equal(d.Disks, other.Disks) &&
		slices.EqualFunc(d.Tail, other.Tail, TailRound.Equal)
}

// Includes reports whether server is a member of the generation.
func (d Decision) Includes(server order.ServerID) bool {
	_, found := slices.BinarySearch(d.Members, server)
	return found
}

// Group returns the members of the generation that take part in it under the membership after its
// tail: those whose disks still count. A group smaller than that membership's Quorum does not work,
// and the next generation goes on instead.
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

// Seats reports whether the decision makes server a member with this disk. A node with another disk
// takes no part in the generation, even if Includes is true: that disk did not promise.
func (d Decision) Seats(server order.ServerID, disk DiskID) bool {
	return d.Includes(server) && !d.lost(server, disk)
}

// lost reports whether server is a member of the decision with a disk other than this one.
func (d Decision) lost(server order.ServerID, disk DiskID) bool {
	i, found := slices.BinarySearch(d.Members, server)
	return found && d.Disks[i] != disk
}

// sound reports whether a decision could be one of a chain's.
func (d Decision) sound() bool {
	if d.Generation == 0 || d.Base.Generation >= d.Generation || len(d.Members) == 0 ||
		len(d.Disks) != len(d.Members) || !ascending(d.Members) || !d.Bound.sound() ||
		len(d.Tail) > d.Bound.Tail() {
		return false
	}
	if d.First() <= d.Base.Round {
		return false // round numbers would overflow
	}
	for i, r := range d.Tail {
		if r.Round != d.Base.Round+order.Round(i)+1 || !ascending(r.Origins) ||
			!ascending(r.Removed) {
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

// State is what a node must not forget. It is written to disk and synced before any message that
// depends on it is sent.
type State struct {
	// Disk identifies the folder that holds this state.
	Disk DiskID
	// Activated is the last run in which this node took part, and Shard the membership that counted
	// in it.
	Activated Run
	Shard     Membership
	// Start is the head with which that run began. If the run was the first of its generation, the
	// head's generation is the one before.
	Start Head
	// Instance is the generation that Promised and Accepted belong to.
	Instance Generation
	Promised Ballot
	// Accepted is the ballot of AcceptedValue, if there is one.
	Accepted      Ballot
	AcceptedValue *Decision
	// Decided is the latest decision that this node knows.
	Decided *Decision
}

// OnDisk returns the state as it counts on a disk. Promises, acceptances and decisions bind the
// server on any disk. The run that the server took part in labels the blocks of the disk that it
// had then, since heads compare by generation first. If another disk left the state, the blocks at
// hand may have come from anywhere, including a branch that was given up, so OnDisk drops the
// label. A state that names no disk is of an older version and belongs to the original disk.
func (s State) OnDisk(disk DiskID, original bool) State {
	if s.Disk != disk && (s.Disk != DiskID{} || !original) {
		s.Activated, s.Shard, s.Start = 0, Membership{}, Head{}
	}
	s.Disk = disk
	return s
}

// Fault is a bug that a test plants to prove that a checker finds it.
type Fault uint8

// The faults; production has none.
const (
	FaultNone Fault = iota
	// FaultPromiseDoesNotFreeze lets a node promise while its engine goes on.
	FaultPromiseDoesNotFreeze
	// FaultTailForgotten goes on from the base alone and ignores votes.
	FaultTailForgotten
	// FaultMinorityQuorum takes one promise too few, and one acceptance too few, for enough.
	FaultMinorityQuorum
	// FaultAcceptBelowPromise accepts below a higher promised ballot.
	FaultAcceptBelowPromise
	// FaultPromiseNotPersisted leaves the promise out of what is saved.
	FaultPromiseNotPersisted
	// FaultLowestAccepted proposes the value that was accepted in the lowest ballot.
	FaultLowestAccepted
	// FaultChosenLeftOut leaves out a value that a bare majority may have accepted.
	FaultChosenLeftOut
	// FaultBoundIgnoresPerhaps ignores what disks perhaps had if a value was accepted.
	FaultBoundIgnoresPerhaps
	// FaultDurableElsewhere takes a change for durable because a block of another branch is durable
	// at that height.
	FaultDurableElsewhere
	// FaultNewMembershipDropped does not require a majority of the newest membership if the newest
	// run counted with another one.
	FaultNewMembershipDropped
	// FaultBaseWithoutGeneration takes a base of another generation's chain for held.
	FaultBaseWithoutGeneration
	// FaultLostDiskIgnored counts every disk of a member.
	FaultLostDiskIgnored
	// FaultFormerIgnored does not require a majority of the membership before a change that is not
	// known to be durable.
	FaultFormerIgnored
	// FaultPerhapsIgnored treats a disk that perhaps had more as one that did not.
	FaultPerhapsIgnored
	// FaultRecordsIgnored goes on without the rounds that disks recorded.
	FaultRecordsIgnored
	// FaultRecordsFirst prefers recorded rounds to the votes of a majority.
	FaultRecordsFirst
	// FaultVouchedIgnored goes on without the rounds that were perhaps A-delivered promptly.
	FaultVouchedIgnored
	// FaultVouchedEarliest takes what a server held that A-broadcast in an earlier state.
	FaultVouchedEarliest
	// FaultTailShort takes one round less than servers may have voted for.
	FaultTailShort
	// FaultTailOfAllConcur takes no more rounds than after a run of AllConcur's.
	FaultTailOfAllConcur
	// FaultTailByLength takes the longest log, and not the most recent one.
	FaultTailByLength
	// FaultTailOfMinority takes the most recent log of a minority.
	FaultTailOfMinority
)
