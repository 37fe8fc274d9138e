package network

import (
	"time"

	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/sim/timeline"
)

// Event is an event that the network's caller must act upon.
type Event struct {
	// At is the instant since the beginning of the run. It equals the network's Now.
	At time.Duration
	// Server is the server that the event concerns.
	Server order.ServerID
	// From and Frame are the sender and contents of a frame that Server's processor has received.
	// Frame is nil for a timer.
	From  order.ServerID
	Frame []byte
	// Token is the token that was given to After.
	Token uint64
}

// chunk is a piece of a frame on its way.
type chunk struct {
	frame    []byte
	from, to int32
	// bytes are the bytes of the frame and its lane's header, for the window.
	bytes int32
	// last reports that this chunk completes the frame.
	last bool
}

// queued is a chunk that waits for its host's link. It leaves at ready at the earliest, when the
// processor has finished with it.
type queued struct {
	chunk
	ready time.Duration
}

// arriving is a chunk on a host's incoming link. It has arrived at the instant at.
type arriving struct {
	chunk
	at time.Duration
}

// flight is a chunk between its sender's link and its receiver's. Its last bit is at the next
// unsettled port at the instant tail. After all other ports, that is the receiver's.
type flight struct {
	chunk
	tail time.Duration
	// passed is the number of settled ports of its way.
	passed int32
}

// acknowledgement acknowledges a number of bytes. It arrives at the sender at an instant.
type acknowledgement struct {
	at    time.Duration
	bytes int32
}

// connection is the connection from one server to another.
type connection struct {
	// unacknowledged counts the bytes under way. blocked are the chunks that the window holds back.
	unacknowledged int
	acknowledged   ring[acknowledgement]
	blocked        ring[chunk]
	// waking reports that a windowOpen is scheduled.
	waking bool
	// back is how long an acknowledgement takes.
	back time.Duration
}

// host is one server's processor and its link.
type host struct {
	crashed bool
	// processor is the instant until which the processor is busy, at least.
	processor time.Duration
	// inbox holds the frames that have arrived and wait for the processor. receiving reports that a
	// received event is scheduled for the oldest.
	inbox     ring[chunk]
	receiving bool
	// out holds the chunks that wait for the outgoing link, which is busy until outFree. waking
	// reports that a linkFree is scheduled.
	out     ring[queued]
	outFree time.Duration
	waking  bool
	// in holds the chunks that are on the incoming link or wait for it. It is busy until inFree.
	in     ring[arriving]
	inFree time.Duration
}

// caller is a timer of the caller's.
type caller struct {
	server order.ServerID
	token  uint64
}

// Network runs a model. It is not safe for concurrent use.
type Network struct {
	model Model
	ports []Port
	busy  []time.Duration // each port is busy until then
	hosts []host
	queue timeline.Wheel[time.Duration, event]
	now   time.Duration
	// connections has a connection for each pair that was used, by from·n+to. It is nil without a
	// window.
	connections []*connection
	// underway counts the chunks from one server to another that have left its link and have not
	// been taken yet, by from·n+to.
	underway []int32
	flights  []flight
	landed   []int32 // free places in flights
	timers   []caller
	rung     []int32 // free places in timers
	route    []PortID
	// active is the server whose event was handed out last, or -1. Its processor may have more to
	// do now.
	active int
	stats  Statistics
}

// Statistics counts the traffic of a network.
type Statistics struct {
	// Frames and Bytes were handed to Send, counted once for each receiver. Wire is the number of
	// bytes that the hosts' outgoing links carried for them.
	Frames, Bytes, Wire int64
	// Received counts the frames that were handed out, and Lost those that a crash lost.
	Received, Lost int64
	// Events counts internal events.
	Events int64
}

// New returns a network that runs a model. The error wraps ErrModel.
func New(model Model) (*Network, error) {
	if err := model.Validate(); err != nil {
		return nil, err
	}
	n := &Network{model: model, hosts: make([]host, model.Servers), active: -1,
		underway: make([]int32, model.Servers*model.Servers)}
	if model.Topology != nil {
		n.ports = model.Topology.Ports()
		n.busy = make([]time.Duration, len(n.ports))
	}
	if model.Window > 0 {
		n.connections = make([]*connection, model.Servers*model.Servers)
	}
	return n, nil
}

// Now returns the virtual time: that of the event handed out last.
func (n *Network) Now() time.Duration { return n.now }

// Statistics returns the traffic so far.
func (n *Network) Statistics() Statistics { return n.stats }

// After schedules a timer of a server. Next hands it out with the token after the given wait. A
// crash of the server does not stop it.
func (n *Network) After(wait time.Duration, server order.ServerID, token uint64) {
	var place int32
	if last := len(n.rung) - 1; last >= 0 {
		place, n.rung = n.rung[last], n.rung[:last]
	} else {
		place = int32(len(n.timers))
		n.timers = append(n.timers, caller{})
	}
	n.timers[place] = caller{server: server, token: token}
	n.schedule(n.now+max(0, wait), timer, place)
}

// Send sends a frame to servers, in this order. Each send costs the sender's processor its
// overhead. Send keeps the frame, which must not be changed. Crashed servers send nothing.
func (n *Network) Send(from order.ServerID, to []order.ServerID, frame []byte) {
	h := &n.hosts[from]
	for _, receiver := range to {
		n.stats.Frames++
		n.stats.Bytes += int64(len(frame))
		if h.crashed {
			n.stats.Lost++
			continue
		}
		h.processor = max(h.processor, n.now) + n.model.Overhead
		rest := len(frame) + n.model.FrameHeader
		for {
			piece := rest
			if n.model.Chunk > 0 {
				piece = min(piece, n.model.Chunk)
			}
			rest -= piece
			n.admit(chunk{frame: frame, from: int32(from), to: int32(receiver), bytes: int32(piece),
				last: rest == 0}, h.processor)
			if rest == 0 {
				break
			}
		}
	}
}

// Crash crashes a server. The frames that have not left its link are lost, and nothing reaches it
// any more.
func (n *Network) Crash(server order.ServerID) {
	h := &n.hosts[server]
	h.crashed = true
	lose := func(c chunk) {
		if c.last {
			n.stats.Lost++
		}
	}
	for h.out.count > 0 {
		lose(h.out.pop().chunk)
	}
	for h.inbox.count > 0 {
		n.take(h.inbox.pop())
	}
	if n.connections == nil {
		return
	}
	for to := range n.hosts {
		if c := n.connections[int(server)*len(n.hosts)+to]; c != nil {
			for c.blocked.count > 0 {
				lose(c.blocked.pop())
			}
		}
	}
}

// Revive lets a crashed server start again, with nothing in its queues.
func (n *Network) Revive(server order.ServerID) {
	h := &n.hosts[server]
	h.crashed = false
	h.processor, h.outFree = max(h.processor, n.now), max(h.outFree, n.now)
}

// UnderWay reports whether something that the first server sent has still to be handed out at the
// second. Frames that wait to leave a working host's link do not count.
func (n *Network) UnderWay(from, to order.ServerID) bool {
	return n.underway[int(from)*len(n.hosts)+int(to)] > 0
}

// Next moves time on to the next event that concerns the caller, and hands it out. It returns false
// if no event is left.
func (n *Network) Next() (Event, bool) {
	if n.active >= 0 {
		n.receiveNext(n.active)
		n.active = -1
	}
	for n.queue.Len() > 0 {
		at, e := n.queue.Pop()
		n.now = at
		n.stats.Events++
		switch e.kind {
		case linkFree:
			n.hosts[e.number].waking = false
			n.drain(int(e.number))
		case headArrived:
			n.enterIncoming(e.number)
		case fibrePassed:
			n.pass(e.number, n.now)
		case windowOpen:
			n.openWindow(int(e.number))
		case timer:
			t := n.timers[e.number]
			n.rung = append(n.rung, e.number)
			return Event{At: at, Server: t.server, Token: t.token}, true
		case tailArrived:
			if c, whole := n.leaveIncoming(int(e.number)); whole {
				return n.handOut(c), true
			}
		case received:
			h := &n.hosts[e.number]
			h.receiving = false
			if h.inbox.count > 0 { // otherwise it has crashed
				n.active = int(e.number)
				return n.handOut(h.inbox.pop()), true
			}
		}
	}
	return Event{}, false
}

// schedule schedules an internal event.
func (n *Network) schedule(at time.Duration, kind eventKind, number int32) {
	n.queue.Push(at, event{number: number, kind: kind})
}

// handOut makes an event of a complete frame.
func (n *Network) handOut(c chunk) Event {
	n.stats.Received++
	n.underway[int(c.from)*len(n.hosts)+int(c.to)]--
	return Event{At: n.now, Server: order.ServerID(c.to), From: order.ServerID(c.from),
		Frame: c.frame}
}

// take drops a chunk because its receiver has crashed, or because the rest of the frame is still to
// come.
func (n *Network) take(c chunk) {
	n.underway[int(c.from)*len(n.hosts)+int(c.to)]--
	if c.last {
		n.stats.Lost++
	}
}
