package generation

import "github.com/ledgerd/ledgerd/order"

// Kind tells the messages of the synod apart.
type Kind uint8

// The messages of the synod.
const (
	KindPrepare  Kind = 1 // a proposer asks for promises
	KindPromise  Kind = 2 // an acceptor promises, and reports
	KindAccept   Kind = 3 // a proposer asks to accept its value
	KindAccepted Kind = 4 // an acceptor holds the value's contents, and accepted
	KindDecided  Kind = 5 // the decision, to everyone and to whoever asks about a decided generation
	KindRefuse   Kind = 6 // a higher ballot is promised, or the acceptor works in a generation of its own
)

// Message is one message of the synod; which fields count depends on Kind.
type Message struct {
	Kind       Kind
	Generation Generation
	Ballot     Ballot
	// Regroup, of a Prepare: the proposer was a member of generation Generation-1 and delivered its last round.
	Regroup bool
	// Report, of a Promise.
	Report Report
	// Accepted, of a Promise with a Value: the ballot in which it was accepted. Of a Refuse: the higher ballot that was promised.
	Accepted Ballot
	// Value, of Promise (may be nil), Accept and Decided.
	Value *Decision
	// Disk and Original, of an Accepted: the acceptor's disk, as in a Report.
	Disk     DiskID
	Original bool
	// Known, of a Prepare: the decision of Generation-1; nil for the first generation. Of a Promise: the latest decision that the acceptor knows; nil if it knows none.
	Known *Decision
	// Holders, of Accept and Decided: who holds what Value's base and tail name, as far as the sender knows; ascending.
	Holders []order.ServerID
	// Working, of a Refuse: the generation in which the acceptor works; 0 if a higher ballot is the reason.
	Working Generation
}

// Envelope is a message and its receiver.
type Envelope struct {
	To      order.ServerID
	Message Message
}

// Fetch is something that this node needs on its disk, before it accepts or takes part: the blocks up to a base, or the contents of a round.
type Fetch struct {
	// Base is set for blocks, Tail for a round; the other is nil.
	Base *Head
	Tail *TailRound
	// From lists who may have it, the likeliest first; this node may be among them.
	From []order.ServerID
}

// ID is what the driver says to Holds, once it has it on disk: the base's block hash, or the round's content hash.
func (f Fetch) ID() [32]byte {
	if f.Base != nil {
		return f.Base.Hash
	}
	return f.Tail.Content
}

// Ready is what the synod wants done, in this order: save, send, fetch, adopt.
type Ready struct {
	// MustSave tells that State changed and has to be on disk before Messages are sent.
	MustSave bool
	State    State
	Messages []Envelope
	// Fetch lists what is wanted now and was not asked for lately.
	Fetch []Fetch
	// Decided is a decision that was not known before.
	Decided *Decision
}
