package multicast

import (
	"fmt"
	"time"

	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/sim/trace"
)

// World is the environment of a form: time, memory, links, and the recipient of its deliveries. It
// belongs to one goroutine.
type World struct {
	deployment *Deployment
	stage      stage
	trace      *trace.Trace[time.Duration]
	processes  []process
	first      []int // the first process of each group
	logs       []*Log
	// delivered is called for each A-delivery, and noted for each note unless it is nil.
	delivered func(at order.Replica, m order.Multicast)
	noted     func(at order.Replica)
	// broke is called for each property that a form finds broken.
	broke func(property order.Property, evidence ...string)
	// tabulated says that a search judges all processes together by Tabled.Judge.
	tabulated bool
}

// process is the world's state of a process.
type process struct {
	name    order.Replica
	host    rdmanet.RegionHost // nil until its first use
	letters []Letter
	crashed bool
	hangs   bool
}

// stage is the implementation of a world: in virtual time with a seed's chance, or step by step as
// a search chooses.
type stage interface {
	// now returns the virtual time since the run's beginning.
	now() time.Duration
	// start starts a process's host.
	start(id rdmanet.PeerID) (rdmanet.RegionHost, error)
	// carry brings a letter from one process or log to another some time later, in order between
	// the two, and then makes it arrive. Processes and logs are numbered.
	carry(from, to int, letter Letter)
}

// traceColumn is the width of the instants in a trace.
const traceColumn = 12

func newWorld(deployment *Deployment, t *trace.Trace[time.Duration]) *World {
	w := &World{deployment: deployment, trace: t}
	for _, name := range deployment.Processes() {
		if name.Group != order.Clients && name.Server == 0 {
			w.first = append(w.first, len(w.processes))
		}
		w.processes = append(w.processes, process{name: name})
	}
	return w
}

// Deployment returns the deployment of the world. It must not be changed.
func (w *World) Deployment() *Deployment { return w.deployment }

// Now returns the virtual time since the run's beginning.
func (w *World) Now() time.Duration { return w.stage.now() }

// Host returns a process's host on the fabric, with the name PeerOf(of). The host is started on
// first use. It has regions and queues, and no lanes. Attach is decided at once.
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

// Send puts a letter on the link between two processes, which is reliable and in order. Some of
// what a process sent last before it crashed may get lost. The bytes must not be changed any more.
func (w *World) Send(from, to order.Replica, bytes []byte) {
	w.stage.carry(w.number(from), w.number(to), Letter{from, bytes})
}

// Receive returns the letters that arrived at a process since the last call, in order of arrival.
// The slice is valid until the next call for that process.
func (w *World) Receive(at order.Replica) []Letter {
	p := &w.processes[w.number(at)]
	letters := p.letters
	p.letters = nil
	return letters
}

// Breaks tells the frame that the form found a property broken, which ends the run. Forms that look
// into the memory of all their processes judge more than the frame can.
func (w *World) Breaks(property order.Property, evidence ...string) {
	w.broke(property, evidence...)
}

// searched reports whether a search runs the form.
func (w *World) searched() bool {
	_, is := w.stage.(*chosen)
	return is
}

// redirect makes a read under way of a restored process lead to its current memory. It is for forms
// that a search copies.
func (w *World) redirect(at order.Replica, tag uint64, into []byte) {
	if s, is := w.stage.(*chosen); is {
		s.redirect(w.number(at), tag, into)
	}
}

// Deliver tells the frame that a replica A-delivers a message. It must equal the submitted message,
// including destinations and payload. The frame keeps nothing of it.
func (w *World) Deliver(at order.Replica, m order.Multicast) {
	w.trace.Note(w.Now(), 1, uint64(w.number(at)), uint64(m.ID.Sender.Group),
		uint64(m.ID.Sender.Server), m.ID.Sequence)
	if w.trace.HasText() {
		w.trace.Say(w.Now(), "%v A-delivers %v", at, m.ID)
	}
	w.delivered(at, m)
}

// Note tells the frame that a process takes a step of the protocol, for the trace and for the
// adversary. Arguments are formatted only if there is a trace.
func (w *World) Note(at order.Replica, format string, arguments ...any) {
	if w.trace.HasText() {
		w.trace.Say(w.Now(), "%v %s", at, fmt.Sprintf(format, arguments...))
	}
	if w.noted != nil {
		w.noted(at)
	}
}

// number returns a process's index in Deployment.Processes.
func (w *World) number(of order.Replica) int {
	if of.Group == order.Clients {
		return len(w.processes) - w.deployment.Clients + int(of.Server)
	}
	return w.first[of.Group] + int(of.Server)
}

// arrive delivers a letter to its process or log.
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

// quorate reports whether more than half of some processes have not crashed.
func (w *World) quorate(members []order.Replica) bool {
	live := 0
	for _, member := range members {
		if !w.processes[w.number(member)].crashed {
			live++
		}
	}
	return 2*live > len(members)
}
