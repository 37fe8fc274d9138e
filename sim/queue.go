package sim

import (
	"github.com/ledgerd/ledgerd/allconcur/generation"
	"github.com/ledgerd/ledgerd/order"
)

// Instant is a point in virtual time, in nanoseconds since the beginning of a run; also a span of
// it.
type Instant int64

// Spans of virtual time.
const (
	microsecond Instant = 1000
	millisecond         = 1000 * microsecond
	second              = 1000 * millisecond
)

// eventKind tells events apart.
type eventKind uint8

const (
	arrival    eventKind = iota // a frame reaches the end of its link
	suspicion                   // the detector of a server suspects another
	submission                  // a user submits a payload to a server
	lingering                   // a server has lingered with undelivered messages
	acting                      // a lazy server gets round to what it has received
	arming                      // a planned crash becomes possible
	loss                        // nothing: it was the arrival of a frame that is lost
	ticking                     // a member's clock ticks, where it has something to wait for
	reviewing                   // a detector looks again whether to suspect or to trust
	beginning                   // a planned disturbance begins
	ending                      // and ends
	settling                    // the liveness phase is looked at: is there rest?
	restarting                  // a server that crashed comes back, or a new one comes
	wishing                     // the operator asks for a change of the membership
	saving                      // the disk has what a member wanted saved
	savingLate                  // and has it too late: a planted bug
	synced                      // the disk has the blocks that were written
)

// event is something that happens to one server.
type event struct {
	at          Instant
	kind        eventKind
	server      order.ServerID
	from        order.ServerID    // of an arrival; the suspect of a suspicion
	number      int               // the planned crash of an arming; the generation of a lingering
	sum         uint32            // of an arrival: the frame's checksum as it was sent
	frame       []byte            // of an arrival, and the payload of a submission
	letter      *letter           // of an arrival among members; nil where it is a frame
	run         generation.Run    // of a frame among members
	state       *generation.State // of a saving
	incarnation int               // of a frame among members: the sender's process
	// of an arrival among members, a ticking, a lingering: the receiver's process; another one does
	// not take it
	process int
}

// queue is a binary heap of events, the earliest first. The heap has only what orders them, so that
// sifting moves little and no pointers; the events stay where they are.
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

// size is how many events are scheduled.
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

// pop takes the earliest event; there must be one.
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

// scheduled calls visit with each event that is scheduled, in no order of meaning, but always the
// same.
func (q *queue) scheduled(visit func(*event)) {
	for i := range q.heap {
		visit(&q.events[q.heap[i].slot])
	}
}
