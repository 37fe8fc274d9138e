package network

import (
	"math/bits"
	"time"
)

// eventKind is the kind of an internal event.
type eventKind uint8

const (
	// linkFree: a host's outgoing link is free for the next chunk.
	linkFree eventKind = iota
	// headArrived: the head of a chunk is at the switch port that leads to its receiver.
	headArrived
	// fibrePassed: the head of a chunk is at the switch behind a fibre.
	fibrePassed
	// tailArrived: the oldest chunk on a host's incoming link has arrived.
	tailArrived
	// received: the processor has received the oldest frame in its inbox.
	received
	// windowOpen: acknowledgements have arrived on a connection that waits for them.
	windowOpen
	// timer is a timer of the caller's.
	timer
)

// event is an event at an instant. sequence breaks ties.
type event struct {
	at       time.Duration
	sequence uint64
	// number is a server, a connection, a flight or a timer, depending on the kind.
	number int32
	kind   eventKind
}

// Times fall into slots of 2^slotBits nanoseconds. The wheel has wheelSlots of them.
const (
	slotBits   = 8
	wheelSlots = 1 << 14
	slotMask   = wheelSlots - 1
)

// queue returns events by time, and by sequence if times are equal. It is a wheel of slots for the
// next 4 ms. The events of a slot are sorted when it becomes current, and memory is reused. Later
// events wait in a heap.
type queue struct {
	// slots hold the first and the last of their events in nodes, in the order in which they were
	// pushed. free is the first unused node, plus 1.
	slots [wheelSlots]slot
	nodes []node
	free  int32
	// slot is the number of the current slot, counted from time 0. current holds its events in
	// order. Those from place on are still to come.
	slot    int64
	current []event
	place   int
	// near counts the events in current or in slots. occupied has a bit for each slot that has any.
	near     int
	occupied [wheelSlots / 64]uint64
	far      heap
	sequence uint64
}

// slot is a list of events in nodes, by their places plus 1. 0 is none.
type slot struct{ first, last int32 }

// node is an event in a slot, and the place of the next one there, plus 1.
type node struct {
	event
	next int32
}

func (a *event) before(b *event) bool {
	return a.at < b.at || (a.at == b.at && a.sequence < b.sequence)
}

// push schedules an event, at or after the one that pop returned last.
func (q *queue) push(at time.Duration, kind eventKind, number int32) {
	q.sequence++
	e := event{at: at, sequence: q.sequence, number: number, kind: kind}
	if int64(at)>>slotBits-q.slot >= wheelSlots {
		q.far.push(e)
		return
	}
	q.put(e)
}

// put puts an event into its slot, or in order into current if its slot is the current one.
func (q *queue) put(e event) {
	q.near++
	slot := int64(e.at) >> slotBits
	if slot == q.slot {
		q.insert(e)
		return
	}
	place := q.free - 1
	if place < 0 {
		place = int32(len(q.nodes))
		q.nodes = append(q.nodes, node{})
	} else {
		q.free = q.nodes[place].next
	}
	q.nodes[place] = node{event: e}
	s := &q.slots[slot&slotMask]
	if s.first == 0 {
		s.first = place + 1
	} else {
		q.nodes[s.last-1].next = place + 1
	}
	s.last = place + 1
	q.occupied[slot&slotMask/64] |= 1 << (slot & 63)
}

// insert puts an event in order into current.
func (q *queue) insert(e event) {
	at := len(q.current)
	q.current = append(q.current, e)
	for ; at > q.place && e.before(&q.current[at-1]); at-- {
		q.current[at] = q.current[at-1]
	}
	q.current[at] = e
}

// empty reports whether there is no event.
func (q *queue) empty() bool { return q.near+len(q.far) == 0 }

// pop removes and returns the earliest event. There must be one.
func (q *queue) pop() event {
	for q.place == len(q.current) {
		q.turn()
	}
	e := q.current[q.place]
	q.place++
	q.near--
	return e
}

// turn moves on to the next slot that has events, and takes in events from the heap that are now
// near enough.
func (q *queue) turn() {
	q.current, q.place = q.current[:0], 0
	if q.near == 0 {
		q.slot = int64(q.far[0].at) >> slotBits
	} else {
		q.slot = q.nextOccupied()
	}
	for len(q.far) > 0 && int64(q.far[0].at)>>slotBits-q.slot < wheelSlots {
		q.put(q.far.pop())
	}
	index := q.slot & slotMask
	for place := q.slots[index].first; place != 0; {
		n := &q.nodes[place-1]
		q.insert(n.event)
		next := n.next
		n.next, q.free = q.free, place
		place = next
	}
	q.slots[index] = slot{}
	q.occupied[index/64] &^= 1 << (index & 63)
}

// nextOccupied returns the next slot that has events. There must be one within a turn of the wheel.
func (q *queue) nextOccupied() int64 {
	slot := q.slot + 1
	for {
		if word := q.occupied[slot&slotMask/64] >> (slot & 63); word != 0 {
			return slot + int64(bits.TrailingZeros64(word))
		}
		slot = (slot | 63) + 1
	}
}

// heap is a heap with four children a node, the earliest event first.
type heap []event

func (h *heap) push(e event) {
	*h = append(*h, e)
	events := *h
	child := len(events) - 1
	for child > 0 {
		parent := (child - 1) / 4
		if !e.before(&events[parent]) {
			break
		}
		events[child] = events[parent]
		child = parent
	}
	events[child] = e
}

// pop removes and returns the earliest event. There must be one.
func (h *heap) pop() event {
	events := *h
	first := events[0]
	last := len(events) - 1
	e := events[last]
	*h = events[:last]
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
			if events[other].before(&events[least]) {
				least = other
			}
		}
		if !events[least].before(&e) {
			break
		}
		events[parent] = events[least]
		parent = least
	}
	events[parent] = e
	return first
}

// ring is a first-in-first-out queue that reuses its memory.
type ring[T any] struct {
	items []T // its length is a power of two
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

// peek returns the oldest item. There must be one.
func (r *ring[T]) peek() *T { return &r.items[r.first] }

// pop removes and returns the oldest item. There must be one.
func (r *ring[T]) pop() T {
	var none T
	item := r.items[r.first]
	r.items[r.first] = none // it may hold a frame
	r.first = (r.first + 1) & (len(r.items) - 1)
	r.count--
	return item
}
