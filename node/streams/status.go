package streams

import (
	"time"

	"github.com/ledgerd/ledgerd/ledger"
)

// Status is where this node's streams stand, for people and for metrics.
type Status struct {
	// Incoming is the stream from the parent, nil at the root.
	Incoming *IncomingStatus
	// Outgoing are the streams to the children, ascending.
	Outgoing []OutgoingStatus
}

// IncomingStatus is where the stream from the parent stands.
type IncomingStatus struct {
	Parent ledger.ShardID
	// Known tells that it is known what is durable; without, no ring is offered.
	Known bool
	// Ordered is the number of the last entry in the chain, Durable of the last one that is
	// durable.
	Ordered, Durable uint64
	// Held counts entries that were received and are not durable.
	Held int
	// Waited is how long the next entry has been here without the chain taking it.
	Waited time.Duration
	// Rings counts those that writers were granted, Writers the members of the parent.
	Rings, Writers int
	// TookOver tells that this member proposes what others were to propose.
	TookOver bool
}

// OutgoingStatus is where the stream to a child stands.
type OutgoingStatus struct {
	Child ledger.ShardID
	// Position is the last entry that is durable in the child, as far as it is known, and Known the
	// last one that this member has offered.
	Position, Known uint64
	// Waited is how long the position has stood still although there is more.
	Waited time.Duration
	// Rings counts those that are attached, Carriers the members of the child.
	Rings, Carriers int
	// TookOver tells that this member writes what others were to write.
	TookOver bool
	// Absent is the number of an entry that the child needs and that this member's chain lacks, 0
	// where it lacks none: others have it.
	Absent uint64
}

// Status tells where the streams stand.
func (s *Streams) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	var status Status
	if in := s.in; in != nil {
		at := s.heights.position()
		status.Incoming = &IncomingStatus{Parent: in.parent, Known: at.known, Ordered: at.ordered,
			Durable: at.durable, Writers: len(s.config.Directory.Members(in.parent))}
		if in.carrier != nil {
			c := in.carrier.Status()
			status.Incoming.Held, status.Incoming.Waited = c.Held, time.Duration(c.Waited)*tick
			status.Incoming.Rings, status.Incoming.TookOver = len(c.Writers), c.TookOver
		}
	}
	for _, o := range s.out {
		out := OutgoingStatus{Child: o.child, Carriers: len(s.config.Directory.Members(o.child))}
		if o.writer != nil {
			w := o.writer.Status()
			out.Position, out.Known, out.Waited, out.TookOver = w.Position, w.Known,
				time.Duration(w.Waited)*tick, w.TookOver
			if o.writer.Next() <= o.absent {
				out.Absent = o.absent
			}
			for _, ring := range w.Rings {
				if ring.Attached {
					out.Rings++
				}
			}
		}
		status.Outgoing = append(status.Outgoing, out)
	}
	return status
}
