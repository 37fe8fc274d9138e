package multicast

import (
	"fmt"
	"time"

	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/rdmanet"
)

// World is what a form lives in: time, memory, links, and somebody who listens. It belongs to one
// goroutine.
type World struct {
	deployment *Deployment
	stage      stage
	trace      *trace
	processes  []process
	first      []int // the first process of each group
	logs       []*Log
	// delivered is told of each A-delivery; noted of each note, unless it is nil.
	delivered func(at order.Replica, m order.Multicast)
	noted     func(at order.Replica)
}

// process is what the world knows of a process.
type process struct {
	name    order.Replica
	host    rdmanet.RegionHost // nil until asked for
	letters []Letter
	crashed bool
	hangs   bool
}

// stage is where a world is played: in virtual time, with a seed's chance; or step by step, as a
// search chooses.
type stage interface {
	// now is the virtual time since the run's beginning.
	now() time.Duration
	// start starts a process's host.
	start(id rdmanet.PeerID) (rdmanet.RegionHost, error)
	// carry brings a letter from one process or log to another some time later, in order between
	// the two, and then has it arrive. Processes and logs are numbered.
	carry(from, to int, letter Letter)
}

func newWorld(deployment *Deployment, trace *trace) *World {
	w := &World{deployment: deployment, trace: trace}
	for _, name := range deployment.Processes() {
		if name.Group != order.Clients && name.Server == 0 {
			w.first = append(w.first, len(w.processes))
		}
		w.processes = append(w.processes, process{name: name})
	}
	return w
}

// Deployment is what the world was made for. Nobody changes it.
func (w *World) Deployment() *Deployment { return w.deployment }

// Now is the virtual time since the run's beginning.
func (w *World) Now() time.Duration { return w.stage.now() }

// Host is a process's host on the fabric, PeerOf(of) by name, started when it is asked for first.
// It has regions and queues, and no lanes. Attach is decided at once.
func (w *World) Host(of order.Replica) (rdmanet.RegionHost, error) {
	p := &w.processes[w.number(of)]
	if p.host == nil && !p.crashed {
		host, err := w.stage.start(PeerOf(of))
		if err != nil {
			return nil, fmt.Errorf("start the host of %v: %w", of, err)
		}
		p.host = host
	}
	return p.host, nil
}

// Send puts a letter on the link between two processes: reliable and in order. Of what a process
// sent last before it crashed, some may get lost. The bytes are not changed by anyone from here on.
func (w *World) Send(from, to order.Replica, bytes []byte) {
	w.stage.carry(w.number(from), w.number(to), Letter{from, bytes})
}

// Receive takes the letters that arrived at a process since the last call, in order of arrival. The
// slice is valid until the next call for that process.
func (w *World) Receive(at order.Replica) []Letter {
	p := &w.processes[w.number(at)]
	letters := p.letters
	p.letters = nil
	return letters
}

// redirect has a read that a process has under way lead to where its memory is now that it was put
// back: for forms that a search copies.
func (w *World) redirect(at order.Replica, tag uint64, into []byte) {
	if s, is := w.stage.(*chosen); is {
		s.redirect(w.number(at), tag, into)
	}
}

// Deliver tells the frame that a replica A-delivers a message, which is to be the message that was
// submitted, destinations and payload too. It keeps nothing of it.
func (w *World) Deliver(at order.Replica, m order.Multicast) {
	w.trace.note(w.Now(), 1, uint64(w.number(at)), uint64(m.ID.Sender.Group),
		uint64(m.ID.Sender.Server), m.ID.Sequence)
	if w.trace.text != nil {
		w.trace.say(w.Now(), "%v A-delivers %v", at, m.ID)
	}
	w.delivered(at, m)
}

// Note tells the frame that a process takes a step of the protocol, for the trace and for the
// adversary. Arguments are formatted only where somebody reads the trace.
func (w *World) Note(at order.Replica, format string, arguments ...any) {
	if w.trace.text != nil {
		w.trace.say(w.Now(), "%v %s", at, fmt.Sprintf(format, arguments...))
	}
	if w.noted != nil {
		w.noted(at)
	}
}

// number is a process's place among Deployment.Processes.
func (w *World) number(of order.Replica) int {
	if of.Group == order.Clients {
		return len(w.processes) - w.deployment.Clients + int(of.Server)
	}
	return w.first[of.Group] + int(of.Server)
}

// arrive puts a letter where it was carried to.
func (w *World) arrive(from, to int, letter Letter) {
	switch {
	case to >= len(w.processes):
		w.logs[to-len(w.processes)].order(letter)
	case w.processes[to].crashed:
	case from >= len(w.processes):
		w.logs[from-len(w.processes)].reach(w.processes[to].name, letter.Bytes)
	default:
		w.processes[to].letters = append(w.processes[to].letters, letter)
	}
}

// quorate tells whether more than half of some processes have not crashed.
func (w *World) quorate(members []order.Replica) bool {
	live := 0
	for _, member := range members {
		if !w.processes[w.number(member)].crashed {
			live++
		}
	}
	return 2*live > len(members)
}
