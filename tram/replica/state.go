package replica

import (
	"time"

	"github.com/ledgerd/ledgerd/protected"
)

// This file encodes states for exhaustive search. It appends everything that a machine's further
// behaviour depends on, except memory and operations under way. Instants are relative to now, and
// all instants in the past are equal.

// AppendState appends what the replica's further behaviour depends on, except its memory and its
// operations under way, which AppendOperation appends. Do not call it in the hot path.
func (r *Replica) AppendState(state []byte, now time.Duration) []byte {
	f := protected.Facts{B: state, Now: now}
	f.Log(r.log)
	f.Truth(r.closed)
	f.Number(uint64(len(r.delivered)))
	for i := range r.askers {
		f.Number(uint64(r.askers[i].Seen))
	}
	for _, b := range r.buffers {
		if b != nil {
			f.Held(&b.Held)
			f.Number(b.taken)
			if r.log.Leading() {
				f.Number(b.proposed)
			}
		}
	}
	if r.log.Leading() {
		f.Number(uint64(r.cursor))
	}
	for _, c := range r.children {
		f.Numbers(c.out, c.taken, c.first, uint64(len(c.indexes)))
		f.Numbers(c.indexes...)
		for _, v := range c.receivers {
			f.Petition(&v.Petition)
			f.Number(v.taken)
			if r.log.Leading() {
				f.Number(v.next)
			}
		}
	}
	f.Boards(r.boards)
	f.Batch(r.ways)
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
