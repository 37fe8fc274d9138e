package shard

import (
	"github.com/ledgerd/ledgerd/allconcur/generation"
	"github.com/ledgerd/ledgerd/order"
)

// Input is one of the inputs below. The machine keeps the slices in it; the caller does not change
// them afterwards.
type Input interface{ input() }

// Tick passes Timing.Tick of time.
type Tick struct{}

// Linked reports that the fabric reaches a server now, or does not. Restarted says that the server
// is another process than before; its link is up then.
type Linked struct {
	Server        order.ServerID
	Up, Restarted bool
}

// SynodReceived delivers a message of the synod.
type SynodReceived struct {
	From    order.ServerID
	Message generation.Message
}

// AnnouncementReceived delivers what a member says of itself.
type AnnouncementReceived struct {
	From         order.ServerID
	Announcement Announcement
}

// WishReceived delivers the wish of a server outside of the group.
type WishReceived struct {
	From order.ServerID
	Wish Wish
}

// Progressed reports how the engine of a run is doing. The driver gives it with each tick.
type Progressed struct {
	Run generation.Run
	// Waiting is for how many ticks the engine has reached nothing new while it waits for others.
	Waiting int
	// Outside says that the engine knows that it is outside of the majority.
	Outside bool
	// Round and Awaited say which round waits for which servers.
	Round   order.Round
	Awaited []order.ServerID
	// Removed are the members of the group that left it since the run began.
	Removed []order.ServerID
}

// EonEnded reports that a run is over in order, and that everything it A-delivered is executed.
type EonEnded struct {
	Run generation.Run
	// Members are those of the group that were not removed, ascending.
	Members []order.ServerID
	// Entrants, Benched and Regroup are the marks that the run's rounds held, in their order.
	Entrants []Entrant
	Benched  []order.ServerID
	Regroup  bool
}

// EngineHalted reports that the engine of a run delivers no more, and why.
type EngineHalted struct {
	Run    generation.Run
	Reason string
}

// Settled answers Freeze: everything that the engine A-delivered is executed. Report has the votes
// and confirmations that the engine knew for rounds that it had not A-delivered, with the chain's
// servers for places. The driver remembers the contents of the rounds that this server voted for,
// gives them to others that ask, and lists them in Held.
type Settled struct {
	Report generation.Report
}

// Saved answers Save.
type Saved struct{}

// SaveFailed answers Save: the disk takes no writes now, and nothing was written. Reason says why,
// for people, and what to do.
type SaveFailed struct{ Reason string }

// Fetched answers Fetch.
type Fetched struct {
	// Reached is the index in Fetch.From of the peer whose announced tip this chain ends with now;
	// -1 for none.
	Reached int
	// Forked says that a peer holds another block at a height where this chain has one: the one at the
	// index Parted in Fetch.From. Common is the last height at which both hold the same block.
	Forked bool
	Parted int
	Common uint64
}

// RoundHeld reports that the contents of a round are on the disk: of one asked for with
// FetchRound, or of one that was there before.
type RoundHeld struct{ ID [32]byte }

// RoundMissing answers FetchRound: the contents could not be had, or not be written. In the second
// case Reason says why the disk takes no writes now.
type RoundMissing struct {
	ID     [32]byte
	Reason string
}

// WasSetAside answers SetAside: the chain ends at the wanted height now. If Reason is not empty the
// disk takes no writes now, for that reason, and nothing changed.
type WasSetAside struct{ Reason string }

// Replayed answers Replay: the rounds are executed. Failed says that contents are missing.
type Replayed struct{ Failed bool }

// DiskFull reports why the disk holds up execution; an empty reason says that it does not, any
// more. Low says that there is too little space to enter a group.
type DiskFull struct {
	Reason string
	Low    bool
}

// Failed reports an error outside of the machine after which the member cannot go on.
type Failed struct{ Err error }

// Stopping reports that the process is about to end in order: it enters no group any more.
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
