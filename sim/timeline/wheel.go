package timeline

import "math/bits"

// Times fall into slots of 2^slotBits nanoseconds. The wheel has wheelSlots of them.
const (
	slotBits   = 8
	wheelSlots = 1 << 14
	slotMask   = wheelSlots - 1
)

// Wheel returns events like Queue. It is a wheel of slots for the next 4 ms. The events of a slot
// are sorted when it becomes current, and memory is reused. Later events wait in a Queue. The zero
// value is an empty wheel. T counts nanoseconds. The wheel's memory keeps events that Pop returned
// until it is used again, so E should hold no pointers.
type Wheel[T ~int64, E any] struct {
	// slots hold the first and the last of their events in nodes, in the order in which they were
	// pushed. free is the first unused node, plus 1.
	slots [wheelSlots]slot
	nodes []node[T, E]
	free  int32
	// slot is the number of the current slot, counted from time 0. current holds its events in
	// order. Those from place on are still to come.
	slot    int64
	current []entry[T, E]
	place   int
	// near counts the events in current or in slots. occupied has a bit for each slot that has any.
	near     int
	occupied [wheelSlots / 64]uint64
	far      Queue[T, E]
	sequence uint64
}

// slot is a list of events in nodes, by their places plus 1. 0 is none.
type slot struct{ first, last int32 }

// node is an event in a slot, and the place of the next one there, plus 1.
type node[T ~int64, E any] struct {
	entry[T, E]
	next int32
}

// Push schedules an event, at or after the one that Pop returned last.
func (w *Wheel[T, E]) Push(at T, event E) {
	w.sequence++
	e := entry[T, E]{at: at, sequence: w.sequence, event: event}
	if int64(at)>>slotBits-w.slot >= wheelSlots {
		w.far.push(e)
		return
	}
	w.put(e)
}

// put puts an event into its slot, or in order into current if its slot is the current one.
func (w *Wheel[T, E]) put(e entry[T, E]) {
	w.near++
	slot := int64(e.at) >> slotBits
	if slot == w.slot {
		w.insert(e)
		return
	}
	place := w.free - 1
	if place < 0 {
		place = int32(len(w.nodes))
		w.nodes = append(w.nodes, node[T, E]{})
	} else {
		w.free = w.nodes[place].next
	}
	w.nodes[place] = node[T, E]{entry: e}
	s := &w.slots[slot&slotMask]
	if s.first == 0 {
		s.first = place + 1
	} else {
		w.nodes[s.last-1].next = place + 1
	}
	s.last = place + 1
	w.occupied[slot&slotMask/64] |= 1 << (slot & 63)
}

// insert puts an event in order into current.
func (w *Wheel[T, E]) insert(e entry[T, E]) {
	at := len(w.current)
	w.current = append(w.current, e)
	for ; at > w.place && e.before(&w.current[at-1]); at-- {
		w.current[at] = w.current[at-1]
	}
	w.current[at] = e
}

// Len returns the number of scheduled events.
func (w *Wheel[T, E]) Len() int { return w.near + w.far.Len() }

// Pop removes and returns the next event and its instant. There must be one.
func (w *Wheel[T, E]) Pop() (T, E) {
	for w.place == len(w.current) {
		w.turn()
	}
	e := &w.current[w.place]
	w.place++
	w.near--
	return e.at, e.event
}

// turn moves on to the next slot that has events, and takes in the far events that are now near
// enough.
func (w *Wheel[T, E]) turn() {
	w.current, w.place = w.current[:0], 0
	if w.near == 0 {
		w.slot = int64(w.far.First()) >> slotBits
	} else {
		w.slot = w.nextOccupied()
	}
	for w.far.Len() > 0 && int64(w.far.First())>>slotBits-w.slot < wheelSlots {
		w.put(w.far.pop())
	}
	index := w.slot & slotMask
	for place := w.slots[index].first; place != 0; {
		n := &w.nodes[place-1]
		w.insert(n.entry)
		next := n.next
		n.next, w.free = w.free, place
		place = next
	}
	w.slots[index] = slot{}
	w.occupied[index/64] &^= 1 << (index & 63)
}

// nextOccupied returns the next slot that has events. There must be one within a turn of the wheel.
func (w *Wheel[T, E]) nextOccupied() int64 {
	slot := w.slot + 1
	for {
		if word := w.occupied[slot&slotMask/64] >> (slot & 63); word != 0 {
			return slot + int64(bits.TrailingZeros64(word))
		}
		slot = (slot | 63) + 1
	}
}
