package fabric

import (
	"time"

	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/sim/network"
)

// Timing says how long operations take, for figures. It replaces the delays that a seed draws.
//
// A host then has one processor, and an adapter with a link in each direction. The processor posts
// one operation after the other and takes one completion after the other. The bytes of writes
// leave, and those of reads come in, one operation after the other. A host's adapter serves the
// operations of its peers one after the other. An operation takes place as a whole: a write as its
// last byte arrives, a read as its request arrives.
//
// The links carry only what their own host has posted: bytes that peers write to a host, or read
// from it, do not occupy them. Loads and stores in the own memory take no time.
type Timing interface {
	// Operation returns the parts of an operation's time. inline says that Post copies its bytes.
	Operation(kind rdmanet.OperationKind, bytes int, inline bool) Cost
	// Poll returns the time in which a processor takes a completion.
	Poll() time.Duration
}

// Cost is the parts of an operation's time.
type Cost struct {
	// Overhead occupies the sender's processor.
	Overhead time.Duration
	// Bytes occupies the sender's link, in the direction in which the bytes go: the gap per byte
	// times the bytes behind the first.
	Bytes time.Duration
	// Way is the time of a byte to the owner, and Answer that of a byte back.
	Way, Answer time.Duration
	// Target occupies the owner's adapter.
	Target time.Duration
}

// LogGP times operations by a LogGP model [Poke19, section 4.5.1]. An operation of a host that does
// nothing else takes as long as the model says, until its completion can be taken. The model gives
// the way and the answer together; each is half of them. It neglects the target's part.
type LogGP struct{ network.RDMA }

// Operation returns the parts of an operation's time.
func (l LogGP) Operation(kind rdmanet.OperationKind, bytes int, inline bool) Cost {
	model := l.Write
	switch {
	case kind == rdmanet.OperationRead:
		model = l.Read
	case inline:
		model = l.WriteInline
	}
	way := model.Latency / 2
	return Cost{Overhead: model.Overhead, Bytes: model.Bytes(bytes), Way: way,
		Answer: model.Latency - way}
}

// Poll returns the time in which a processor takes a completion.
func (l LogGP) Poll() time.Duration { return l.Polling }

// occupied is how long the parts of a host are occupied.
type occupied struct {
	processor         time.Duration
	outbound, inbound time.Duration // the links
	serving           time.Duration // the adapter, with its peers' operations
}

// depart returns when an operation has left its host, and when it arrives at its owner.
func (q *Queue) depart(o *operation) (left, arrives time.Duration) {
	n, busy := q.host.network, &q.host.occupied
	if n.options.Timing == nil {
		return n.now, n.now + n.delay()
	}
	writes := o.Kind == rdmanet.OperationWrite
	o.cost = n.options.Timing.Operation(o.Kind, len(o.Bytes),
		writes && len(o.Bytes) <= rdmanet.InlineMax)
	if distance, owner := n.options.Distance, o.attachment.region.host.id; distance != nil {
		o.cost.Way += distance(q.host.id, owner)
		o.cost.Answer += distance(owner, q.host.id)
	}
	busy.processor = max(busy.processor, n.now) + o.cost.Overhead
	link := &busy.inbound
	if writes {
		link = &busy.outbound
	}
	begins := max(*link, busy.processor)
	*link = begins + o.cost.Bytes
	if writes {
		return *link, *link + o.cost.Way
	}
	return *link, begins + o.cost.Way
}

// serve makes an operation take place when the owner's adapter is free for it.
func (n *Network) serve(o *operation) {
	busy := &o.attachment.region.host.occupied
	busy.serving = max(busy.serving, n.now) + o.cost.Target
	if busy.serving == n.now {
		n.land(o)
		return
	}
	n.schedule(busy.serving-n.now, func() { n.land(o) })
}

// back returns how long an operation's answer takes.
func (n *Network) back(o *operation) time.Duration {
	switch {
	case n.options.Timing == nil:
		return n.delay()
	case o.Kind == rdmanet.OperationRead:
		return o.cost.Bytes + o.cost.Answer
	}
	return o.cost.Answer
}

// release makes a completion available, once the processor has polled for it.
func (q *Queue) release(c rdmanet.Completion) {
	n, busy := q.host.network, &q.host.occupied
	if n.options.Timing == nil || q.host.ended {
		q.ready = append(q.ready, c)
		return
	}
	busy.processor = max(busy.processor, n.now) + n.options.Timing.Poll()
	n.schedule(busy.processor-n.now, func() { q.ready = append(q.ready, c) })
}

// BusyUntil returns the instant at which the host's processor has posted everything and taken all
// completions that are there. Under a Timing, a program takes its next step then at the earliest.
func (h *Host) BusyUntil() time.Duration {
	h.network.mu.Lock()
	defer h.network.mu.Unlock()
	return max(h.processor, h.network.now)
}
