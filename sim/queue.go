package sim

import (
	"github.com/ledgerd/ledgerd/allconcur/generation"
	"github.com/ledgerd/ledgerd/order"
)

// Instant is a point in virtual time, in nanoseconds since the beginning of a run, or a span of
// virtual time.
type Instant int64

// Spans of virtual time.
const (
	microsecond Instant = 1000
	millisecond         = 1000 * microsecond
	second              = 1000 * millisecond
)

// eventKind is the kind of an event.
type eventKind uint8

const (
	arrival    eventKind = iota // a frame reaches the end of its link
	suspicion                   // the detector of a server suspects another
	submission                  // a user submits a payload to a server
	lingering                   // a server has lingered with undelivered messages
	acting                      // a lazy server acts on what it has received
	arming                      // a planned crash becomes possible
	loss                        // nothing: the arrival of a frame that was lost
	ticking                     // a member's clock ticks
	reviewing                   // a detector checks again whether to suspect or to trust
	beginning                   // a planned disturbance begins
	ending                      // a planned disturbance ends
	settling                    // the liveness phase checks for rest
	restarting                  // a crashed server comes back, or a new one starts
	wishing                     // the operator asks for a change of the membership
	saving                      // the disk has what a member saved
	savingLate                  // the disk has it too late: a planted bug
	synced                      // the disk has the blocks that were written
)

// event is an event at one server.
type event struct {
	at          Instant
	kind        eventKind
	server      order.ServerID
	from        order.ServerID    // the sender of an arrival; the suspect of a suspicion
	number      int               // the planned crash of an arming; the number of a lingering
	sum         uint32            // of an arrival: the frame's checksum when it was sent
	frame       []byte            // of an arrival; the payload of a submission
	letter      *peerMessage      // of an arrival among members; nil for a frame
	run         generation.Run    // of a frame among members
	state       *generation.State // of a saving
	incarnation int               // of a frame among members: the sender's process
	// of an arrival among members, a ticking or a lingering: the receiver's process; another
	// process ignores it
	process int
}

// queue is a binary heap of events, the earliest first. The heap only has the events' order, so
// sifting moves little memory and no pointers. The events stay where they are.
type queue struct {
	heap     []queued
	events   []event
	free     []int32
	sequence uint64
}

// queued is an event's place in time, and in queue.events.
type queued struct {
	at Instant
	// sequence breaks ties: of two events at one instant, the one scheduled first happens first.
	sequence uint64
	slot     int32
}

func (a *queued) before(b *queued) bool {
	return a.at < b.at || (a.at == b.at && a.sequence < b.sequence)
}

// size returns the number of scheduled events.
func (q *queue) size() int { return len(q.heap) }

// push schedules an event.
func (q *queue) push(e event) {
	q.sequence++
	own := queued{at: e.at, sequence: q.sequence}
	if last := len(q.free) - 1; last >= 0 {
		own.slot, q.free = q.free[last], q.free[:last]
		q.events[own.slot] = e
	} else {
		own.slot = int32(len(q.events))
		q.events = append(q.events, e)
	}
	q.heap = append(q.heap, own)
	child := len(q.heap) - 1
	for child > 0 {
		parent := (child - 1) / 2
		if !own.before(&q.heap[parent]) {
			break
		}
		q.heap[child] = q.heap[parent]
		child = parent
	}
	q.heap[child] = own
}

// pop removes and returns the earliest event. There must be one.
func (q *queue) pop() event {
	slot := q.heap[0].slot
	first := q.events[slot]
	q.free = append(q.free, slot)
	last := len(q.heap) - 1
	own := q.heap[last]
	q.heap = q.heap[:last]
	if last == 0 {
		return first
	}
	parent := 0
	for {
		child := 2*parent + 1
		if child >= last {
			break
		}
		if child+1 < last && q.heap[child+1].before(&q.heap[child]) {
			child++
		}
		if !q.heap[child].before(&own) {
			break
		}
		q.heap[parent] = q.heap[child]
		parent = child
	}
	q.heap[parent] = own
	return first
}

// scheduled calls visit with each scheduled event. The order has no meaning, but is always the
// same.
func (q *queue) scheduled(visit func(*event)) {
	for i := range q.heap {
		visit(&q.events[q.heap[i].slot])
	}
}
