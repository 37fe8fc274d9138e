package shard

import (
	"github.com/ledgerd/ledgerd/allconcur/generation"
	"github.com/ledgerd/ledgerd/order"
)

// Effect is one of the things below that a member wants done. Effects are carried out in their
// order. Those that are answered by an input may take their time, but only one of Freeze, Fetch,
// SetAside and Replay is under way at a time: the chain has one hand that changes it.
type Effect interface{ effect() }

// Save wants everything that was executed on the disk, and then State, and both synced. It is
// answered by Saved or SaveFailed. What rests on it follows in a later Ready.
type Save struct{ State generation.State }

// SendSynod sends a message of the synod. It may be lost.
type SendSynod struct {
	To      order.ServerID
	Message generation.Message
}

// Announce sends Announcement to every server that is linked, and where All is set to every other
// member, too, so that the fabric looks for it. It may be lost.
type Announce struct {
	Announcement Announcement
	All          bool
}

// SendWish sends a wish to a member that works. It may be lost.
type SendWish struct {
	To   order.ServerID
	Wish Wish
}

// Start starts the engine of a run. Everything before its first round is executed and on the disk.
// Frames that came for the run before are its first.
type Start struct {
	Group Group
	// Former are the memberships before changes in the chain that are not known to be durable, for
	// Durability.
	Former []generation.Former
}

// Freeze stops the engine for good, before any later effect: nothing is A-delivered by it
// afterwards. What it had A-delivered is executed. It is answered by Settled.
type Freeze struct{}

// Fetch appends blocks to the chain from the first of some peers that has them, up to Limit where
// that is not 0. It is answered by Fetched, also where nothing could be had.
type Fetch struct {
	From  []Source
	Limit uint64
	// Base is the hash that the block at Limit is to have; the zero value for any. Nothing is appended
	// from a peer that has another block there: it is on another branch. Blocks of that, on this disk,
	// would be taken for the generation's.
	Base [32]byte
}

// Vouches reports whether a source is known to have the base, by its own word.
func (e *Fetch) Vouches(s *Source) bool {
	return e.Base == [32]byte{} || s.Height == e.Limit && s.Hash == e.Base
}

// Source is a peer to fetch from, and where its chain ended as it said last.
type Source struct {
	Server order.ServerID
	Height uint64
	Hash   [32]byte
}

// FetchRound has the contents of a round on the disk: from this server's memory, where it voted for
// the round, or else from one of some peers. It is answered by RoundHeld or RoundMissing.
type FetchRound struct {
	ID   [32]byte
	From []order.ServerID
}

// SetAside takes the blocks above Keep off the chain; the driver keeps them under another name.
// It is answered by WasSetAside.
type SetAside struct{ Keep uint64 }

// Replay executes rounds whose contents this server holds. It is answered by Replayed.
type Replay struct{ Rounds []generation.TailRound }

// Mark puts a mark into this server's next batch, so that it is ordered.
type Mark struct {
	// Entrant is the server to take in with the next eon. With Bench, its server is the one that
	// the next eon begins without. Regroup ends the generation instead.
	Entrant Entrant
	Bench   bool
	Regroup bool
}

// Admit proposes the entry with which a member counts with another disk. The driver signs it as a
// member and submits it. Proposing it twice does no harm.
type Admit struct {
	Server order.ServerID
	Disk   generation.DiskID
}

// Suspect tells the failure detector that a server said that it left the run.
type Suspect struct {
	Run    generation.Run
	Server order.ServerID
}

// Stored reports that the disk of a member outside of the group holds the own chain up to a height,
// and counts in the run: it follows the group, and Announcement.Follows says so.
type Stored struct {
	Run    generation.Run
	Server order.ServerID
	Height uint64
}

// KnowDurable reports that a height of the own chain is durable, as another member says.
type KnowDurable struct{ Height uint64 }

// SettleDoubt reports that no block matters any more that the disk had perhaps as the process began.
// The driver tells the disk, which notes it with its next sync.
type SettleDoubt struct{}

// RemovedForGood reports that the block at a height removed this server, and is durable. The driver
// records it: after a restart no member would tell, since none talks to a server that left.
type RemovedForGood struct{ Height uint64 }

// Changed reports that what Member.View returns has changed: the mode, its reason, or the group.
type Changed struct{}

// Drop reports that what a server announced of a run makes no sense, and is not followed. Reason is
// for the log.
type Drop struct {
	Server order.ServerID
	Reason string
}

// End ends the member's part for good. Err says why; it matches ErrRemoved, ErrFork, or an error
// of the chain or the synod.
type End struct{ Err error }

func (Save) effect()           {}
func (SendSynod) effect()      {}
func (Announce) effect()       {}
func (SendWish) effect()       {}
func (Start) effect()          {}
func (Freeze) effect()         {}
func (Fetch) effect()          {}
func (FetchRound) effect()     {}
func (SetAside) effect()       {}
func (Replay) effect()         {}
func (Mark) effect()           {}
func (Admit) effect()          {}
func (Suspect) effect()        {}
func (KnowDurable) effect()    {}
func (Stored) effect()         {}
func (Changed) effect()        {}
func (Drop) effect()           {}
func (End) effect()            {}
func (SettleDoubt) effect()    {}
func (RemovedForGood) effect() {}
