package multicast

import (
	"errors"

	"github.com/ledgerd/ledgerd/order"
)

// Form is one deployment of a form of TRAM, all processes of it. The frame calls it from one goroutine.
type Form interface {
	// Submit has a client A-multicast a message, which is due from here on. Where the form has no room it keeps the message and submits it in a later Poll of the client, in order. The
	// message's slices are never changed by anyone.
	Submit(client order.Replica, message order.Multicast)
	// Lead tells a replica what its leader oracle says now: who leads its group. It comes once before the replica's first Poll, and again whenever the oracle changes its mind. Oracles err, each by itself,
	// and name servers that crashed too; in the end all of a group name one that lives [TRAM, section 2.1]. A form without leaders ignores it.
	Lead(at order.Replica, leader order.ServerID)
	// Poll has a process, a replica or a client, work once: take its letters, completions, log entries, look at its memory, and do what follows. It never waits.
	Poll(at order.Replica)
	// AppendState appends all that a process's further behaviour depends on, other than what the World holds for it (memory, letters, operations under way, logs). Two processes with equal state behave the same.
	// Instants in it are relative to World.Now. Only the exhaustive search calls it.
	AppendState(state []byte, at order.Replica) []byte
	// Describe says in a line where a process stands, for the evidence of a run that does not come to rest: what it waits for.
	Describe(at order.Replica) string
}

// Copier is a Form that the exhaustive search can copy, which makes it many times as fast; the others it runs from their beginning again and again.
type Copier interface {
	Form
	// Copy returns a form that goes its own way from here on, in the same World. What the World handed out (hosts, regions, attachments, queues, logs) is shared: the search sees to their contents.
	Copy() Form
}

// Maker makes a form in a world: it starts the hosts that it needs, exposes and grants regions, attaches. Plant is "" or one of Engine.Plants.
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

// The engines that Engines lists. Sequencer is the frame's own: it is trivially right, and shows that the frame finds what is wrong.
const (
	EngineTRAM       = "tram"
	EngineLeaderless = "tram-leaderless"
	EngineSequencer  = "sequencer"
)
