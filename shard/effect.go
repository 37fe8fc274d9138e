package shard

import (
	"github.com/ledgerd/ledgerd/allconcur/generation"
	"github.com/ledgerd/ledgerd/order"
)

// Effect is one of the effects below. A driver carries them out in their order. Effects that are
// answered by an input may take time, but only one of Freeze, Fetch, SetAside and Replay is under
// way at a time: only one effect may change the chain.
type Effect interface{ effect() }

// Save writes everything that was executed to the disk, then State, and syncs both. It is answered
// by Saved or SaveFailed. What depends on it follows in a later Ready.
type Save struct{ State generation.State }

// SendSynod sends a message of the synod. It may be lost.
type SendSynod struct {
	To      order.ServerID
	Message generation.Message
}

// Announce sends Announcement to every linked server. If All is set, it also goes to every other
// member, so that the fabric looks for that member. It may be lost.
type Announce struct {
	Announcement Announcement
	All          bool
}

// SendWish sends a wish to a working member. It may be lost.
type SendWish struct {
	To   order.ServerID
	Wish Wish
}

// Start starts the engine of a run. Everything before the run's first round is executed and on the
// disk. Frames that arrived for the run earlier are its first frames.
type Start struct {
	Group Group
	// Former are the memberships before changes in the chain that are not known to be durable, with
	// the names that Group.Shard gives to original disks. Durability takes them.
	Former []generation.Former
}

// Freeze stops the engine for good, before any later effect: the engine A-delivers nothing
// afterwards. What it had A-delivered is executed. Freeze is answered by Settled.
type Freeze struct{}

// Fetch appends blocks to the chain from the first of some peers that has them, up to Limit if that
// is not 0. It is answered by Fetched, even if no block could be fetched.
type Fetch struct {
	From  []Source
	Limit uint64
	// Base is the hash that the block at Limit must have; the zero value allows any. Nothing is
	// appended from a peer that has another block there, because it is on another branch. Blocks of
	// that branch on this disk would be taken for the generation's.
	Base [32]byte
}

// Vouches reports whether a source has the base, according to its last announcement.
func (e *Fetch) Vouches(s *Source) bool {
	return e.Base == [32]byte{} || s.Height == e.Limit && s.Hash == e.Base
}

// Source is a peer to fetch from, and the end of its chain as it announced last.
type Source struct {
	Server order.ServerID
	Height uint64
	Hash   [32]byte
}

// FetchRound gets the contents of a round onto the disk: from this server's memory if it voted for
// the round, otherwise from one of some peers. It is answered by RoundHeld or RoundMissing.
type FetchRound struct {
	ID   [32]byte
	From []order.ServerID
}

// SetAside takes the blocks above Keep off the chain, unless one of them is known to be durable by
// then. The driver keeps them under another name. It is answered by WasSetAside.
type SetAside struct{ Keep uint64 }

// Replay executes rounds whose contents this server holds. It is answered by Replayed.
// Bound is that of the run in which the rounds were voted for.
type Replay struct {
	Rounds []generation.TailRound
	Bound  generation.Bound
}

// Mark puts a mark into this server's next batch, so that it is ordered.
type Mark struct {
	// Entrant is the server to take in with the next eon. With Bench, its server is instead the
	// member that the next eon leaves out. Regroup ends the generation instead.
	Entrant Entrant
	Bench   bool
	Regroup bool
}

// Admit proposes the entry that makes a member count with another disk. The driver signs it as a
// member and submits it. Proposing it twice does no harm.
type Admit struct {
	Server order.ServerID
	Disk   generation.DiskID
}

// Suspect tells the failure detector that a server announced that it left the run.
type Suspect struct {
	Run    generation.Run
	Server order.ServerID
}

// Stored reports that the disk of a member outside of the group holds the own chain up to a height
// and counts in the run. The member follows the group, as Announcement.Follows says.
type Stored struct {
	Run    generation.Run
	Server order.ServerID
	Height uint64
}

// KnowDurable reports that a height of the own chain is durable, according to another member.
type KnowDurable struct{ Height uint64 }

// SettleDoubt reports that blocks which the disk may have held when the process began no longer
// matter. The driver tells the disk, which records it with its next sync.
type SettleDoubt struct{}

// RemovedForGood reports that the block at a height removed this server and is durable. The driver
// records it. After a restart no member would say so, since members do not talk to a server that
// left.
type RemovedForGood struct{ Height uint64 }

// Changed reports that what Member.View returns has changed: the mode, its reason, or the group.
type Changed struct{}

// Drop reports that what a server says is inconsistent and is ignored: the run that it announces,
// or a decision that it states. Reason is for the log.
type Drop struct {
	Server order.ServerID
	Reason string
}

// End ends the member for good. Err says why; it matches ErrRemoved, ErrFork, or an error of the
// chain or the synod.
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
