package generation

import "github.com/ledgerd/ledgerd/order"

// Kind is the kind of a synod message.
type Kind uint8

// The messages of the synod.
const (
	KindPrepare  Kind = 1 // a proposer asks for promises
	KindPromise  Kind = 2 // an acceptor promises, and reports
	KindAccept   Kind = 3 // a proposer asks to accept its value
	KindAccepted Kind = 4 // an acceptor holds the value's contents, and accepted
	// KindDecided carries the decision. It goes to all members, and to any server that asks about a
	// decided generation.
	KindDecided Kind = 5
	// KindRefuse says that a higher ballot is promised, or that the acceptor works in a generation.
	KindRefuse Kind = 6
)

// Message is one message of the synod. Kind determines which fields count.
type Message struct {
	Kind       Kind
	Generation Generation
	Ballot     Ballot
	// Regroup, of a Prepare: the proposer was a member of generation Generation-1 and delivered its
	// last round.
	Regroup bool
	// Report, of a Promise.
	Report Report
	// Accepted, of a Promise with a Value: the ballot in which it was accepted. Of a Refuse: the
	// higher ballot that was promised.
	Accepted Ballot
	// Value, of Promise (may be nil), Accept and Decided.
	Value *Decision
	// Disk and Original, of an Accepted: the acceptor's disk, as in a Report.
	Disk     DiskID
	Original bool
	// Known, of a Prepare: the decision of Generation-1; nil for the first generation. Of a
	// Promise: the latest decision that the acceptor knows; nil if it knows none.
	Known *Decision
	// Holders, of Accept and Decided: the servers that hold the blocks and rounds of Value's base
	// and tail, as far as the sender knows; ascending.
	Holders []order.ServerID
	// Working, of a Refuse: the generation in which the acceptor works; 0 if a higher ballot is the
	// reason.
	Working Generation
}

// Envelope is a message and its receiver.
type Envelope struct {
	To      order.ServerID
	Message Message
}

// Fetch is something that this node needs on its disk before it accepts or takes part: the blocks
// up to a base, or the contents of a round.
type Fetch struct {
	// Base is set for blocks, Tail for a round; the other is nil.
	Base *Head
	Tail *TailRound
	// From lists the servers that may have it, the likeliest first. This node may be among them.
	From []order.ServerID
}

// ID returns the argument for Holds once the driver has it on disk: the base's block hash, or the
// round's content hash.
func (f Fetch) ID() [32]byte {
	if f.Base != nil {
		return f.Base.Hash
	}
	return f.Tail.Content
}

// Ready is what the synod wants done, in this order: save, send, fetch, adopt.
type Ready struct {
	// MustSave says that State changed and has to be on disk before Messages are sent.
	MustSave bool
	State    State
	Messages []Envelope
	// Fetch lists what is wanted now and was not asked for recently.
	Fetch []Fetch
	// Decided is a decision that was not known before.
	Decided *Decision
}
