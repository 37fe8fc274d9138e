package shard

import (
	"github.com/ledgerd/ledgerd/allconcur/generation"
	"github.com/ledgerd/ledgerd/order"
)

// Input is one of the inputs below. The machine keeps the slices in it, so the caller must not
// change them afterwards.
type Input interface{ input() }

// Tick says that one tick of time has passed. Timing counts in ticks.
type Tick struct{}

// Linked reports whether the fabric reaches a server now. Restarted says that the server runs
// another process than before; its link is then up.
type Linked struct {
	Server        order.ServerID
	Up, Restarted bool
}

// SynodReceived delivers a message of the synod.
type SynodReceived struct {
	From    order.ServerID
	Message generation.Message
}

// AnnouncementReceived delivers a member's announcement.
type AnnouncementReceived struct {
	From         order.ServerID
	Announcement Announcement
}

// WishReceived delivers the wish of a server outside of the group.
type WishReceived struct {
	From order.ServerID
	Wish Wish
}

// Progressed reports the progress of a run's engine. The driver gives it with each tick.
type Progressed struct {
	Run generation.Run
	// Waiting is the number of ticks in which the engine reached nothing new while it waited for
	// other members.
	Waiting int
	// Outside says that the engine knows that it is outside of the majority.
	Outside bool
	// Relayed says that messages go from member to member, so that Awaited are not known to be the
	// slow ones. Stuck says that the engine does not go on without the members that it suspects.
	Relayed, Stuck bool
	// Round is the round that waits, and Awaited are the servers it waits for.
	Round   order.Round
	Awaited []order.ServerID
	// Removed are the members of the group that have left it since the run began.
	Removed []order.ServerID
}

// EonEnded reports that a run ended in order and that everything it A-delivered is executed.
type EonEnded struct {
	Run generation.Run
	// Members are the members of the group that were not removed, ascending.
	Members []order.ServerID
	// Entrants, Benched and Regroup are the marks in the run's rounds, in their order.
	Entrants []Entrant
	Benched  []order.ServerID
	Regroup  bool
}

// EngineHalted reports that the engine of a run delivers nothing more, and why.
type EngineHalted struct {
	Run    generation.Run
	Reason string
}

// Settled answers Freeze: everything that the engine A-delivered is executed. Report has the votes
// and confirmations that the engine knew for rounds that it had not A-delivered, with the places of
// the run replaced by the chain's servers. The driver remembers the contents of the rounds that
// this server voted for, serves them to other servers, and lists them in Held.
type Settled struct {
	Report generation.Report
	// Record is what the disk recorded last, nil for nothing. No record was being written any more
	// when it was read, and none is announced or written afterwards that it lacks.
	Record *Record
}

// Saved answers Save.
type Saved struct{}

// SaveFailed answers Save: the disk takes no writes now, and nothing was written. Reason says why
// and what to do, for people.
type SaveFailed struct{ Reason string }

// Fetched answers Fetch.
type Fetched struct {
	// Reached is the index in Fetch.From of the peer whose announced tip is now the end of this
	// chain; -1 for none.
	Reached int
	// Forked says that the peer at index Parted in Fetch.From holds another block at a height where
	// this chain has one. Common is the last height at which both hold the same block.
	Forked bool
	Parted int
	Common uint64
}

// RoundHeld reports that the contents of a round are on the disk. The round was asked for with
// FetchRound, or was there before.
type RoundHeld struct{ ID [32]byte }

// RoundMissing answers FetchRound: the contents could not be fetched, or could not be written. If
// they could not be written, Reason says why the disk takes no writes now.
type RoundMissing struct {
	ID     [32]byte
	Reason string
}

// WasSetAside answers SetAside: the chain now ends at the wanted height. The disk has its last
// record still, unless that follows a later block. In two cases nothing changed. If Reason is not
// empty, the disk takes no writes now, and Reason says why. If Durable is set, a block that was to
// go became known to be durable meanwhile.
type WasSetAside struct {
	Reason  string
	Durable bool
}

// Replayed answers Replay: the rounds are executed. Failed says that contents are missing.
type Replayed struct{ Failed bool }

// DiskFull reports why the disk holds up execution. An empty reason says that it no longer does.
// Low says that there is too little space to enter a group.
type DiskFull struct {
	Reason string
	Low    bool
}

// Failed reports an error outside of the machine. The member cannot go on after it.
type Failed struct{ Err error }

// Stopping reports that the process is about to end in order. The member enters no further group.
type Stopping struct{}

func (Tick) input()                 {}
func (Linked) input()               {}
func (SynodReceived) input()        {}
func (AnnouncementReceived) input() {}
func (WishReceived) input()         {}
func (Progressed) input()           {}
func (EonEnded) input()             {}
func (EngineHalted) input()         {}
func (Settled) input()              {}
func (Saved) input()                {}
func (SaveFailed) input()           {}
func (Fetched) input()              {}
func (RoundHeld) input()            {}
func (RoundMissing) input()         {}
func (WasSetAside) input()          {}
func (Replayed) input()             {}
func (DiskFull) input()             {}
func (Failed) input()               {}
func (Stopping) input()             {}
