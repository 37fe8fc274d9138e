package stream

import "github.com/ledgerd/ledgerd/order"

// WriterStatus is a writer's view of its stream, for people and for metrics.
type WriterStatus struct {
	// Position is the last number that the child's log has durably, Known the last entry that was
	// offered.
	Position, Known uint64
	// Waited is for how many ticks the position has stood still with more entries to carry. It is 0
	// if there are none.
	Waited uint64
	// TookOver reports whether this member writes entries that other members should write.
	TookOver bool
	// Rings are the rings at the carriers, by ascending carrier.
	Rings []RingStatus
}

// RingStatus is a writer's view of one ring.
type RingStatus struct {
	Carrier  order.ServerID
	Attached bool
	// Position is the last number that this carrier itself reported.
	Position uint64
	// Used is the number of bytes of the ring that are not released. UnderWay counts the writes
	// that have not completed.
	Used, UnderWay int
}

// Status returns the state of the stream. It allocates, so do not call it with every poll.
func (w *Writer) Status() WriterStatus {
	s := WriterStatus{Position: w.position, Known: max(w.known, w.position), TookOver: w.TookOver()}
	if w.known > w.position {
		s.Waited = w.now - w.since
	}
	for _, o := range w.outlets {
		if o.seat.taken() {
			s.Rings = append(s.Rings, RingStatus{Carrier: o.carrier, Attached: o.attached,
				Position: o.position, Used: int(o.occupied()), UnderWay: o.count})
		}
	}
	return s
}

// CarrierStatus is a carrier's view of its stream, for people and for metrics.
type CarrierStatus struct {
	// Ordered is the last number that the log has, Durable the last that it has durably, Proposed
	// the last that this member proposed.
	Ordered, Durable, Proposed uint64
	// Held counts the entries that were received and that the log does not have durably.
	Held int
	// Doubted counts those of them that too few writers of a witnessed stream wrote.
	Doubted int
	// Waited is for how many ticks the next entry has been here without the log taking it. It is 0
	// if the entry is not here.
	Waited uint64
	// TookOver reports whether this member proposes entries that other members should propose.
	TookOver bool
	// Writers are the writers with attached rings, ascending.
	Writers []order.ServerID
}

// Status returns the state of the stream. It allocates, so do not call it with every poll.
func (c *Carrier) Status() CarrierStatus {
	s := CarrierStatus{Ordered: c.ordered, Durable: c.durable, Proposed: c.proposed,
		TookOver: c.TookOver()}
	for i := range c.slots {
		if c.slots[i].number > 0 {
			s.Held++
			if c.config.Witnessed && !c.slots[i].believed {
				s.Doubted++
			}
		}
	}
	if c.holds(c.ordered + 1) {
		s.Waited = c.now - c.since
	}
	for _, b := range c.inboxes {
		s.Writers = append(s.Writers, b.writer)
	}
	return s
}
