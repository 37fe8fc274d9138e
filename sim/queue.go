package sim

import "github.com/ledgerd/ledgerd/order"

// Instant is a point in virtual time, in nanoseconds since the beginning of a run; also a span of it.
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
	gossiping                   // a member tells some others where it stands
	settling                    // the liveness phase is looked at: is there rest?
	restarting                  // a server that crashed comes back, or a new one comes
	wishing                     // the operator asks for a change of the membership
)

// event is something that happens to one server.
type event struct {
	at Instant
	// sequence breaks ties: of two events at one instant, the one scheduled first happens first.
	sequence uint64
	kind     eventKind
	server   order.ServerID
	from     order.ServerID // of an arrival; the suspect of a suspicion
	number   int            // the planned crash of an arming; the generation of a lingering
	sum      uint32         // of an arrival: the frame's checksum as it was sent
	frame    []byte         // of an arrival, and the payload of a submission
	letter   *letter        // of an arrival among members
	process  int            // of an arrival among members, a ticking, a lingering: the receiver's process; another one does not take it
}

// queue is a binary heap of events, the earliest first.
type queue struct {
	events   []event
	sequence uint64
}

func (a *event) before(b *event) bool {
	return a.at < b.at || (a.at == b.at && a.sequence < b.sequence)
}

// push schedules an event.
func (q *queue) push(e event) {
	q.sequence++
	e.sequence = q.sequence
	q.events = append(q.events, e)
	child := len(q.events) - 1
	for child > 0 {
		parent := (child - 1) / 2
		if !q.events[child].before(&q.events[parent]) {
			return
		}
		q.events[child], q.events[parent] = q.events[parent], q.events[child]
		child = parent
	}
}

// pop takes the earliest event; there must be one.
func (q *queue) pop() event {
	first := q.events[0]
	last := len(q.events) - 1
	q.events[0] = q.events[last]
	q.events[last] = event{}
	q.events = q.events[:last]
	parent := 0
	for {
		child := 2*parent + 1
		if child >= last {
			return first
		}
		if child+1 < last && q.events[child+1].before(&q.events[child]) {
			child++
		}
		if !q.events[child].before(&q.events[parent]) {
			return first
		}
		q.events[child], q.events[parent] = q.events[parent], q.events[child]
		parent = child
	}
}
