package network

import "time"

// eventKind tells internal events apart.
type eventKind uint8

const (
	// linkFree: a host's outgoing link is free for the next chunk.
	linkFree eventKind = iota
	// headArrived: the head of a chunk is at the switch port that leads to its receiver.
	headArrived
	// tailArrived: the oldest chunk on a host's incoming link is there.
	tailArrived
	// received: the processor has received the oldest frame that waits for it.
	received
	// windowOpen: acknowledgements are back on a connection that waits for them.
	windowOpen
	// timer is the caller's.
	timer
)

// event is something that happens at an instant; sequence breaks ties.
type event struct {
	at       time.Duration
	sequence uint64
	// number is a server, a connection, a flight or a timer, as the kind has it.
	number int32
	kind   eventKind
}

// queue is a heap of events with four children a node, the earliest first: flat, without a pointer or an allocation an event.
type queue struct {
	events   []event
	sequence uint64
}

func (a *event) before(b *event) bool {
	return a.at < b.at || (a.at == b.at && a.sequence < b.sequence)
}

func (q *queue) push(at time.Duration, kind eventKind, number int32) {
	q.sequence++
	e := event{at: at, sequence: q.sequence, number: number, kind: kind}
	q.events = append(q.events, e)
	child := len(q.events) - 1
	for child > 0 {
		parent := (child - 1) / 4
		if !e.before(&q.events[parent]) {
			break
		}
		q.events[child] = q.events[parent]
		child = parent
	}
	q.events[child] = e
}

// pop takes the earliest event; there must be one.
func (q *queue) pop() event {
	first := q.events[0]
	last := len(q.events) - 1
	e := q.events[last]
	q.events = q.events[:last]
	if last == 0 {
		return first
	}
	parent := 0
	for {
		child := 4*parent + 1
		if child >= last {
			break
		}
		least := child
		for other := child + 1; other < min(child+4, last); other++ {
			if q.events[other].before(&q.events[least]) {
				least = other
			}
		}
		if !q.events[least].before(&e) {
			break
		}
		q.events[parent] = q.events[least]
		parent = least
	}
	q.events[parent] = e
	return first
}

// ring is a first-in-first-out queue that reuses its memory.
type ring[T any] struct {
	items []T // a power of two long
	first int
	count int
}

func (r *ring[T]) push(item T) {
	if r.count == len(r.items) {
		grown := make([]T, max(8, 2*len(r.items)))
		for i := range r.count {
			grown[i] = r.items[(r.first+i)&(len(r.items)-1)]
		}
		r.items, r.first = grown, 0
	}
	r.items[(r.first+r.count)&(len(r.items)-1)] = item
	r.count++
}

// peek shows the oldest item; there must be one.
func (r *ring[T]) peek() *T { return &r.items[r.first] }

// pop takes the oldest item; there must be one.
func (r *ring[T]) pop() T {
	var none T
	item := r.items[r.first]
	r.items[r.first] = none // it may hold a frame
	r.first = (r.first + 1) & (len(r.items) - 1)
	r.count--
	return item
}

func (r *ring[T]) clear() {
	clear(r.items)
	r.first, r.count = 0, 0
}
