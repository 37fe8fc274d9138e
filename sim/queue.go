package sim

import (
	"time"

	"github.com/ledgerd/ledgerd/allconcur/generation"
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/sim/timeline"
)

// Instant is a point in virtual time, in nanoseconds since the beginning of a run, or a span of
// virtual time.
type Instant int64

// String formats an instant as a duration.
func (i Instant) String() string { return time.Duration(i).String() }

// Spans of virtual time.
const (
	microsecond Instant = 1000
	millisecond         = 1000 * microsecond
	second              = 1000 * millisecond
)

// eventKind is the kind of an event.
type eventKind uint8

const (
	arrival     eventKind = iota // a frame reaches the end of its link
	suspicion                    // the detector of a server suspects another
	submission                   // a user submits a payload to a server
	lingering                    // a server has lingered with undelivered messages
	acting                       // a lazy server acts on what it has received
	arming                       // a planned crash becomes possible
	loss                         // nothing: the arrival of a frame that was lost
	ticking                      // a member's clock ticks
	reviewing                    // a detector checks again whether to suspect or to trust
	beginning                    // a planned disturbance begins
	ending                       // a planned disturbance ends
	settling                     // the liveness phase checks for rest
	restarting                   // a crashed server comes back, or a new one starts
	wishing                      // the operator asks for a change of the membership
	saving                       // the disk has what a member saved
	savingLate                   // the disk has it too late: a planted bug
	synced                       // the disk has the blocks that were written
	syncingLate                  // blocks have waited for the next record
	asiding                      // the disk has the chain without the blocks that are set aside
	polling                      // a process looks at its memory
)

// event is an event at one server.
type event struct {
	at          Instant
	kind        eventKind
	server      order.ServerID
	from        order.ServerID    // the sender of an arrival; the suspect of a suspicion
	number      int               // the planned crash of an arming; that of a lingering or polling
	keep        uint64            // of an asiding: the height to keep
	sum         uint32            // of an arrival: the frame's checksum when it was sent
	frame       []byte            // of an arrival; the payload of a submission
	letter      *peerMessage      // of an arrival among members; nil for a frame
	run         generation.Run    // of a frame among members
	state       *generation.State // of a saving
	incarnation int               // of an arrival among members: the sender's process
	// of an arrival among members, a ticking, a lingering or a polling: the receiver's process;
	// another process ignores it
	process int
}

// queue is the run's timeline. Events are large, so they stay where they are, and their places are
// queued.
type queue struct {
	places timeline.Queue[Instant, int32]
	events []event
	free   []int32
}

// size returns the number of scheduled events.
func (q *queue) size() int { return q.places.Len() }

// first returns when the next event is. There must be one.
func (q *queue) first() Instant { return q.places.First() }

// push schedules an event.
func (q *queue) push(e event) {
	var place int32
	if last := len(q.free) - 1; last >= 0 {
		place, q.free = q.free[last], q.free[:last]
		q.events[place] = e
	} else {
		place = int32(len(q.events))
		q.events = append(q.events, e)
	}
	q.places.Push(e.at, place)
}

// pop removes and returns the next event. There must be one.
func (q *queue) pop() event {
	_, place := q.places.Pop()
	q.free = append(q.free, place)
	return q.events[place]
}

// scheduled calls visit with each scheduled event. The order has no meaning, but is always the
// same.
func (q *queue) scheduled(visit func(*event)) {
	q.places.Each(func(place int32) { visit(&q.events[place]) })
}
