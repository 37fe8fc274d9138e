package multicast

import (
	"errors"

	"github.com/ledgerd/ledgerd/dare"
	"github.com/ledgerd/ledgerd/order"
)

// Form is one deployment of a form of TRAM, with all its processes. The frame calls it from one
// goroutine.
type Form interface {
	// Submit makes a client A-multicast a message. The message is due from here on. If the form has
	// no room, it keeps the message and submits it in a later Poll of the client, in order. The
	// message's slices never change.
	Submit(client order.Replica, message order.Multicast)
	// Lead tells a replica which server its leader oracle names as the leader of its group. It is
	// called once before the replica's first Poll, and whenever the oracle changes its output.
	// Oracles err independently, and also name crashed servers. Eventually all oracles of a group
	// name the same live server [TRAM, section 2.1]. A form without leaders ignores it.
	Lead(at order.Replica, leader order.ServerID)
	// Poll makes a process, a replica or a client, work once: it takes its letters, completions and
	// log entries, reads its memory, and acts on them. It never waits.
	Poll(at order.Replica)
	// AppendState appends everything that a process's further behaviour depends on, except what the
	// World holds for it (memory, letters, operations under way, logs). Two processes with equal
	// state behave the same. Its instants are relative to World.Now. Only the exhaustive search
	// calls it.
	AppendState(state []byte, at order.Replica) []byte
	// Describe describes in a line what a process waits for, as evidence if a run does not come to
	// rest.
	Describe(at order.Replica) string
}

// Copier is a Form whose processes the exhaustive search can copy, which makes the search many
// times as fast. The search runs other forms from their beginning again and again.
type Copier interface {
	Form
	// Copy returns a copy of a process's state in the form. The copy must not change after that.
	// What the World handed out (hosts, regions, attachments, queues, logs) is shared; the search
	// saves and restores its contents.
	Copy(at order.Replica) any
	// PutBack restores a process to what Copy returned, until it changes again. A copy may be
	// restored several times. By the time of the call, the World is in the state that it had then.
	PutBack(at order.Replica, copied any)
}

// Completer is a Form whose processes handle completions first in each Poll, so the exhaustive
// search may make them do that as soon as completions come.
type Completer interface {
	Form
	// Complete is the first part of Poll: the process handles its completions, and nothing else.
	// While the clock stands still, doing that early must have no effect.
	Complete(at order.Replica)
	// Awaits reports whether the process's behaviour depends on having handled the successful
	// completion with that tag.
	Awaits(at order.Replica, tag uint64) bool
	// AppendOperation appends a description of a process's operation, in place of its tag, which is
	// arbitrary.
	AppendOperation(state []byte, at order.Replica, tag uint64) []byte
}

// Changer is a Form whose groups change while they run. Searches do not change them.
type Changer interface {
	Form
	// Restart tells the form that a replica's host, which had ended, has started again as its next
	// incarnation. The replica has to join its group anew, and has forgotten everything.
	Restart(at order.Replica) error
	// Resize tells the form that a group has from now on so many replicas: its first ones.
	Resize(group order.GroupID, size int)
}

// Maker makes a form in a world: it starts the hosts that it needs, exposes and grants regions, and
// attaches. plant is "" or one of Engine.Plants.
type Maker func(world *World, plant string) (Form, error)

// Engine is a form with its name.
type Engine struct {
	Name string
	New  Maker
	// Plants names the bugs that can be planted, to show that they are found.
	Plants []string
	// Story describes the form in half a line.
	Story string
	// OneGroup says that the form is atomic broadcast: it has one group, of a size that the seed
	// draws in its own way.
	OneGroup bool
	// Changes says that its groups change while they run: the form is a Changer.
	Changes bool
}

// Takes reports whether the engine can have faults of these kinds. FaultsAll
// stands for all that it can have.
func (e *Engine) Takes(faults Faults) bool {
	return e.Changes || faults == FaultsAll || faults&faultsOfChange == 0
}

// Errors of the frame.
var (
	// ErrOptions is returned for options that are inconsistent or out of bounds.
	ErrOptions = errors.New("multicast: bad options")
	// ErrEngine is returned for an unknown engine, or for a plant that the engine does not have.
	ErrEngine = errors.New("multicast: unknown engine")
)

// The engines that Engines lists. Sequencer belongs to the frame: it is trivially correct, and
// shows that the frame finds errors.
const (
	EngineTRAM       = "tram"
	EngineLeaderless = "tram-leaderless"
	EngineDARE       = dare.EngineName
	EngineSequencer  = "sequencer"
)
