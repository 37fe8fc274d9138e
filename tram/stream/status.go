package stream

import "github.com/ledgerd/ledgerd/order"

// WriterStatus is what a writer knows of its stream, for people and for metrics.
type WriterStatus struct {
	// Position is the last number that the child's log has for good, Known the last entry that was
	// offered.
	Position, Known uint64
	// Waited is for how many ticks the position has stood still while there is more, 0 where there
	// is not.
	Waited uint64
	// TookOver tells that this member writes entries that others were to write.
	TookOver bool
	// Rings are the ways to the carriers, ascending.
	Rings []RingStatus
}

// RingStatus is what a writer knows of one ring.
type RingStatus struct {
	Carrier  order.ServerID
	Attached bool
	// Position is what this carrier said itself.
	Position uint64
	// Used is how much of the ring is not given back, in bytes; UnderWay counts the writes that
	// have not completed.
	Used, UnderWay int
}

// Status tells where the stream stands. It allocates: it is not for every poll.
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

// CarrierStatus is what a carrier knows of its stream, for people and for metrics.
type CarrierStatus struct {
	// Ordered is the last number that the log has, Durable the last that it has for good, Proposed
	// the last that this member proposed.
	Ordered, Durable, Proposed uint64
	// Held counts the entries that were received and that the log has not for good.
	Held int
	// Waited is for how many ticks the next entry has been here without the log taking it, 0 where
	// it is not here.
	Waited uint64
	// TookOver tells that this member proposes entries that others were to propose.
	TookOver bool
	// Writers are those whose rings are attached, ascending.
	Writers []order.ServerID
}

// Status tells where the stream stands. It allocates: it is not for every poll.
func (c *Carrier) Status() CarrierStatus {
	s := CarrierStatus{Ordered: c.ordered, Durable: c.durable, Proposed: c.proposed,
		TookOver: c.TookOver()}
	for i := range c.slots {
		if c.slots[i].number > 0 {
			s.Held++
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
