package streams

import (
	"time"

	"github.com/ledgerd/ledgerd/ledger"
)

// Status is the state of this node's streams, for people and for metrics.
type Status struct {
	// Incoming is the stream from the parent, nil at the root.
	Incoming *IncomingStatus
	// Outgoing are the streams to the children, ascending.
	Outgoing []OutgoingStatus
}

// IncomingStatus is the state of the stream from the parent.
type IncomingStatus struct {
	Parent ledger.ShardID
	// Known reports that the durable position is known. Until then no ring is offered.
	Known bool
	// Ordered is the number of the last entry in the chain, Durable of the last durable one.
	Ordered, Durable uint64
	// Held counts the entries that were received and are not durable.
	Held int
	// Doubted counts those of them that too few members of the parent wrote, with Config.Vouched.
	Doubted int
	// Liars are the present members of the parent that wrote something else than most members, or
	// two different things as one entry, with Config.Vouched. They ascend.
	Liars []LiarStatus
	// Lies counts the entries that members of the parent, present and past, lied about.
	Lies uint64
	// Waited is how long the next entry has been here without being in the chain.
	Waited time.Duration
	// Rings counts the rings granted to writers, Writers the members of the parent.
	Rings, Writers int
	// TookOver reports that this member proposes entries that others were to propose.
	TookOver bool
}

// LiarStatus is a member of the parent that lied.
type LiarStatus struct {
	Member Member
	// Entries counts the entries that it lied about and of which this node learned.
	Entries uint64
}

// OutgoingStatus is the state of the stream to a child.
type OutgoingStatus struct {
	Child ledger.ShardID
	// Position is the last entry known to be durable in the child, and Known the last entry that
	// this member has offered.
	Position, Known uint64
	// Waited is how long the position has stood still although there is more.
	Waited time.Duration
	// Rings counts the attached rings, Carriers the members of the child.
	Rings, Carriers int
	// TookOver reports that this member writes entries that others were to write.
	TookOver bool
	// Absent is the number of an entry that the child needs and that this member's chain lacks, 0
	// if it lacks none. Other members have it.
	Absent uint64
}

// CarriedDurably returns the number of the last entry of the parent's stream that is durable in
// this chain, once that is known.
func (s *Streams) CarriedDurably() (number uint64, known bool) {
	at := s.heights.position()
	return at.Durable, at.Known
}

// Status returns the state of the streams.
func (s *Streams) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	var status Status
	if in := s.in; in != nil {
		at := s.heights.position()
		status.Incoming = &IncomingStatus{Parent: in.parent, Known: at.Known, Ordered: at.Ordered,
			Durable: at.Durable, Writers: len(s.config.Directory.Members(in.parent))}
		status.Incoming.Liars, status.Incoming.Lies = in.listed(), in.lies
		if in.carrier != nil {
			c := in.carrier.Status()
			status.Incoming.Held, status.Incoming.Waited = c.Held, time.Duration(c.Waited)*tick
			status.Incoming.Doubted = c.Doubted
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
