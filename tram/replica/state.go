package replica

import (
	"encoding/binary"
	"time"

	"github.com/ledgerd/ledgerd/rdmanet"
)

// This file encodes states for exhaustive search. It appends everything that a machine's further
// behaviour depends on, except memory and operations under way. Instants are relative to now, and
// all instants in the past are equal.

// facts appends numbers and bytes.
type facts struct {
	b   []byte
	now time.Duration
}

func (f *facts) number(n uint64) { f.b = binary.AppendUvarint(f.b, n) }

func (f *facts) numbers(all ...uint64) {
	for _, n := range all {
		f.number(n)
	}
}

func (f *facts) truth(t bool) {
	if t {
		f.b = append(f.b, 1)
	} else {
		f.b = append(f.b, 0)
	}
}

func (f *facts) bytes(b []byte) {
	f.number(uint64(len(b)))
	f.b = append(f.b, b...)
}

func (f *facts) until(at time.Duration) { f.number(uint64(max(at-f.now, 0))) }

// since appends an instant that matters until some span after it.
func (f *facts) since(at, span time.Duration) { f.until(at + span) }

func (f *facts) peer(p rdmanet.Peer) {
	f.bytes([]byte(p.ID))
	f.number(uint64(p.Incarnation))
}

func (f *facts) header(h header) {
	f.numbers(uint64(h.timestamp), h.decided, h.floor, uint64(h.source), uint64(h.length), h.number,
		h.index)
}

func (f *facts) link(l *link) {
	f.truth(l.attachment != nil)
	f.truth(l.want != 0)
	f.truth(l.reading)
	f.numbers(uint64(l.flying), uint64(l.tries))
	f.until(l.since)
	if l.word != nil && l.reading {
		f.number(getWord(l.word))
	}
}

func (f *facts) board(b *board) {
	f.link(&b.link)
	f.numbers(b.words[:]...)
	f.numbers(b.posted[:]...)
}

func (f *facts) petition(p *permissionRequest) {
	f.link(&p.link)
	f.numbers(uint64(p.state), p.request)
	if p.state == petitionAsked {
		f.until(p.until)
	}
}

// post appends a description of an operation under way. It leaves out the tag: tags are names, and
// behaviour does not depend on them.
func (f *facts) post(p post) {
	if p.life != p.link.life {
		f.truth(false) // its completion only frees the tag
		return
	}
	f.truth(true)
	f.numbers(uint64(p.link.place), uint64(p.kind), p.number)
	f.truth(p.lent != nil)
}

// batch appends the operations that the next flush posts.
func (f *facts) batch(w *fabricLinks) {
	f.number(uint64(len(w.batch)))
	for _, o := range w.batch {
		f.post(w.posts[o.Tag])
		f.number(uint64(o.Offset))
		if o.Kind == rdmanet.OperationWrite {
			f.bytes(o.Bytes)
		}
	}
}

func (f *facts) lent(lent []int) {
	for place, count := range lent {
		if count > 0 {
			f.numbers(uint64(place), uint64(count))
		}
	}
	f.number(^uint64(0))
}

// AppendState appends what the replica's further behaviour depends on, except its memory and its
// operations under way, which AppendOperation appends. Do not call it in the hot path.
func (r *Replica) AppendState(state []byte, now time.Duration) []byte {
	f := facts{b: state, now: now}
	f.truth(r.halted != "" || r.closed)
	f.truth(r.oracle)
	f.numbers(uint64(r.role), uint64(r.leader), uint64(r.stamp), r.counter, uint64(r.granted),
		uint64(r.parent.granted))
	f.peer(r.holder)
	f.peer(r.parent.holder)
	f.numbers(r.applied, r.horizon, r.floor, r.scanned, r.heard, uint64(r.failures),
		uint64(r.missing), uint64(len(r.delivered)))
	f.until(r.notLead)
	for i := range r.askers {
		f.number(uint64(r.askers[i].seen))
	}
	for _, b := range r.buffers {
		if b != nil {
			f.number(b.taken)
			if r.role == leading {
				f.number(b.proposed)
			}
		}
	}
	if r.role == leading {
		f.numbers(r.told, r.real, uint64(r.cursor))
		f.since(r.ordered, r.options.Quiet)
	}
	if r.role >= fetching {
		f.number(r.end)
	}
	for _, x := range r.fetches {
		f.header(x.header)
		f.bytes(x.bytes)
		f.truth(x.posted)
		f.number(uint64(x.member.server))
	}
	for _, m := range r.members {
		f.petition(&m.permissionRequest)
		f.truth(m.excluded)
		f.number(m.taken)
		if r.role == following {
			continue
		}
		f.truth(m.begun)
		f.truth(m.known)
		f.numbers(m.next, m.acked, m.from, m.reached, uint64(m.empty), uint64(m.waits),
			uint64(len(m.held)))
		for _, h := range m.held {
			f.header(h)
		}
		f.bytes(m.batch)
	}
	for _, c := range r.children {
		f.numbers(c.out, c.taken, c.first, uint64(len(c.indexes)))
		f.numbers(c.indexes...)
		for _, v := range c.receivers {
			f.petition(&v.permissionRequest)
			f.number(v.taken)
			if r.role == leading {
				f.number(v.next)
			}
		}
	}
	for _, b := range r.boards {
		if b != nil {
			f.board(b)
		}
	}
	f.batch(r.wiring)
	f.lent(r.staged.lent)
	return f.b
}

// AppendOperation appends a description of the replica's operation with the given tag, which is
// under way, or completed and not handled. Together with the fabric's state of the operation, it is
// all that the replica's further behaviour depends on. It does not depend on the tag itself.
func (r *Replica) AppendOperation(state []byte, tag uint64) []byte {
	return r.wiring.appendOperation(state, tag)
}

func (w *fabricLinks) appendOperation(state []byte, tag uint64) []byte {
	f := facts{b: state}
	f.post(w.posts[tag])
	return f.b
}

// AppendState appends what the client's further behaviour depends on, except its operations under
// way, which AppendOperation appends. Do not call it in the hot path.
func (c *Client) AppendState(state []byte, now time.Duration) []byte {
	f := facts{b: state, now: now}
	f.truth(c.failed != nil)
	for group, s := range c.streams {
		if s == nil {
			continue
		}
		f.numbers(uint64(group), s.sent, s.taken)
		ring := c.options.bufferRing()
		for number := s.taken + 1; number <= s.sent; number++ {
			f.bytes(s.slots[ring.place(number)*ring.slot:][:ring.slot])
		}
		for _, t := range s.targets {
			f.link(&t.link)
			f.board(t.board)
			f.numbers(uint64(t.state), uint64(t.request), t.next, t.taken)
			f.since(t.asked, c.options.Patience)
		}
		f.lent(s.lent)
	}
	f.batch(c.wiring)
	return f.b
}

// AppendOperation is like Replica.AppendOperation.
func (c *Client) AppendOperation(state []byte, tag uint64) []byte {
	return c.wiring.appendOperation(state, tag)
}
