package replica

import (
	"time"

	"github.com/ledgerd/ledgerd/protected"
)

// This file encodes states for exhaustive search. It appends everything that a machine's further
// behaviour depends on, except memory and operations under way. Instants are relative to now, and
// all instants in the past are equal.

func appendHeader(f *protected.Facts, h header) {
	f.Numbers(uint64(h.timestamp), h.decided, h.floor, uint64(h.source), uint64(h.length), h.number,
		h.index)
}

// AppendState appends what the replica's further behaviour depends on, except its memory and its
// operations under way, which AppendOperation appends. Do not call it in the hot path.
func (r *Replica) AppendState(state []byte, now time.Duration) []byte {
	f := protected.Facts{B: state, Now: now}
	f.Truth(r.halted != "" || r.closed)
	f.Truth(r.oracle)
	f.Numbers(uint64(r.role), uint64(r.leader), uint64(r.stamp), r.counter)
	f.Held(&r.log)
	f.Numbers(r.applied, r.horizon, r.floor, r.scanned, r.heard, uint64(r.failures),
		uint64(r.missing), uint64(len(r.delivered)))
	f.Until(r.notLead)
	for i := range r.askers {
		f.Number(uint64(r.askers[i].Seen))
	}
	for _, b := range r.buffers {
		if b != nil {
			f.Held(&b.Held)
			f.Number(b.taken)
			if r.role == leading {
				f.Number(b.proposed)
			}
		}
	}
	if r.role == leading {
		f.Numbers(r.told, r.real, uint64(r.cursor))
		f.Since(r.ordered, r.options.Quiet)
	}
	if r.role >= fetching {
		f.Number(r.end)
	}
	for _, x := range r.fetches {
		appendHeader(&f, x.header)
		f.Bytes(x.bytes)
		f.Truth(x.posted)
		f.Number(uint64(x.member.server))
	}
	for _, m := range r.members {
		f.Petition(&m.Petition)
		f.Truth(m.excluded)
		f.Number(m.taken)
		if r.role == following {
			continue
		}
		f.Truth(m.begun)
		f.Truth(m.known)
		f.Numbers(m.next, m.acked, m.from, m.reached, uint64(m.empty), uint64(m.waits),
			uint64(len(m.held)))
		for _, h := range m.held {
			appendHeader(&f, h)
		}
		f.Bytes(m.batch)
	}
	for _, c := range r.children {
		f.Numbers(c.out, c.taken, c.first, uint64(len(c.indexes)))
		f.Numbers(c.indexes...)
		for _, v := range c.receivers {
			f.Petition(&v.Petition)
			f.Number(v.taken)
			if r.role == leading {
				f.Number(v.next)
			}
		}
	}
	f.Boards(r.boards)
	f.Batch(r.ways)
	f.Lent(r.staged.lent)
	return f.B
}

// AppendOperation appends a description of the replica's operation with the given tag, which is
// under way, or completed and not handled. Together with the fabric's state of the operation, it is
// all that the replica's further behaviour depends on. It does not depend on the tag itself.
func (r *Replica) AppendOperation(state []byte, tag uint64) []byte {
	return r.ways.AppendOperation(state, tag)
}

// AppendState appends what the client's further behaviour depends on, except its operations under
// way, which AppendOperation appends. Do not call it in the hot path.
func (c *Client) AppendState(state []byte, now time.Duration) []byte {
	f := protected.Facts{B: state, Now: now}
	f.Truth(c.failed != nil)
	for group, s := range c.streams {
		if s == nil {
			continue
		}
		f.Numbers(uint64(group), s.sent, s.taken)
		f.Outbox(s.box, s.taken+1, s.sent)
		for _, t := range s.targets {
			f.Way(&t.Way)
			f.Row(t.board)
			f.Numbers(uint64(t.state), uint64(t.request), t.next, t.taken)
			f.Since(t.asked, c.options.Patience)
		}
	}
	f.Batch(c.ways)
	return f.B
}

// AppendOperation is like Replica.AppendOperation.
func (c *Client) AppendOperation(state []byte, tag uint64) []byte {
	return c.ways.AppendOperation(state, tag)
}
