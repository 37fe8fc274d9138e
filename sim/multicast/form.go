package multicast

import (
	"errors"

	"github.com/ledgerd/ledgerd/order"
)

// Form is one deployment of a form of TRAM, all processes of it. The frame calls it from one
// goroutine.
type Form interface {
	// Submit has a client A-multicast a message, which is due from here on. Where the form has no
	// room it keeps the message and submits it in a later Poll of the client, in order. The
	// message's slices are never changed by anyone.
	Submit(client order.Replica, message order.Multicast)
	// Lead tells a replica what its leader oracle says now: who leads its group. It comes once
	// before the replica's first Poll, and again whenever the oracle changes its mind. Oracles err,
	// each by itself, and name servers that crashed too; in the end all of a group name one that
	// lives [TRAM, section 2.1]. A form without leaders ignores it.
	Lead(at order.Replica, leader order.ServerID)
	// Poll has a process, a replica or a client, work once: take its letters, completions, log
	// entries, look at its memory, and do what follows. It never waits.
	Poll(at order.Replica)
	// AppendState appends all that a process's further behaviour depends on, other than what the
	// World holds for it (memory, letters, operations under way, logs). Two processes with equal
	// state behave the same. Instants in it are relative to World.Now. Only the exhaustive search
	// calls it.
	AppendState(state []byte, at order.Replica) []byte
	// Describe says in a line where a process stands, for the evidence of a run that does not come
	// to rest: what it waits for.
	Describe(at order.Replica) string
}

// Copier is a Form whose processes the exhaustive search can copy, which makes it many times as
// fast; the others it runs from their beginning again and again.
type Copier interface {
	Form
	// Copy returns what a process is in the form. Nobody changes it from here on. What the World
	// handed out (hosts, regions, attachments, queues, logs) is shared: the search sees to their
	// contents.
	Copy(at order.Replica) any
	// PutBack makes a process what Copy returned, for as long as it does not change anew; it may be
	// put back again later. The World is what it was then by the time of the call.
	PutBack(at order.Replica, copied any)
}

// Completer is a Form whose processes have completions handled first in each Poll, so that the
// exhaustive search may have that done at once, when they come.
type Completer interface {
	Form
	// Complete is what Poll begins with: the process handles what completed, and does no more. With
	// the clock standing still, it must not matter whether that is done early.
	Complete(at order.Replica)
	// Awaits tells whether anything that the process does depends on whether it has handled the
	// completion of that tag, if there is no error.
	Awaits(at order.Replica, tag uint64) bool
	// AppendOperation appends what an operation is to the process, in place of its tag, which may
	// be any.
	AppendOperation(state []byte, at order.Replica, tag uint64) []byte
}

// Maker makes a form in a world: it starts the hosts that it needs, exposes and grants regions,
// attaches. Plant is "" or one of Engine.Plants.
type Maker func(world *World, plant string) (Form, error)

// Engine is a form with its name.
type Engine struct {
	Name string
	New  Maker
	// Plants names the bugs that can be planted, to see that they are found.
	Plants []string
	// Story is half a line on what it is.
	Story string
}

// Errors of the frame.
var (
	// ErrOptions says that options do not fit together, or are out of bounds.
	ErrOptions = errors.New("multicast: bad options")
	// ErrEngine says that there is no engine of a name, or that it has no such plant.
	ErrEngine = errors.New("multicast: unknown engine")
)

// The engines that Engines lists. Sequencer is the frame's own: it is trivially right, and shows
// that the frame finds what is wrong.
const (
	EngineTRAM       = "tram"
	EngineLeaderless = "tram-leaderless"
	EngineSequencer  = "sequencer"
)
