package replica

import (
	"bytes"
	"slices"

	"github.com/ledgerd/ledgerd/rdmanet"
)

// This file copies machines for exhaustive search. A copy behaves independently from then on, in
// the same memory. The copies share what the fabric handed out (regions, attachments, the queue).
// The caller takes care of the contents of the memory.

// linked lists a replica's links, always in the same order.
func (r *Replica) linked() []*link {
	var all []*link
	for _, m := range r.members {
		all = append(all, &m.link)
	}
	for _, c := range r.children {
		for _, v := range c.receivers {
			all = append(all, &v.link)
		}
	}
	for _, b := range r.boards {
		if b != nil {
			all = append(all, &b.link)
		}
	}
	return all
}

// Copy returns a replica in the same state. Reads under way still lead into the memory of the
// original; Reads returns where they should lead. The two must not be used concurrently.
func (r *Replica) Copy() *Replica {
	own := *r
	own.buffers = make([]*buffer, len(r.buffers))
	for i, b := range r.buffers {
		if b != nil {
			other := *b
			own.buffers[i] = &other
		}
	}
	own.members = make([]*member, len(r.members))
	for i, m := range r.members {
		other := *m
		other.link = m.link.copy()
		other.link.member = &other
		other.held, other.batch = slices.Clip(m.held), bytes.Clone(m.batch)
		own.members[i] = &other
	}
	own.children = make([]*child, len(r.children))
	for i, c := range r.children {
		other := *c
		other.indexes, other.receivers = slices.Clip(c.indexes), make([]*receiver, len(c.receivers))
		for j, v := range c.receivers {
			receiver := *v
			receiver.link = v.link.copy()
			receiver.link.receiver, receiver.child = &receiver, &other
			other.receivers[j] = &receiver
		}
		own.children[i] = &other
	}
	own.boards = make([]*board, len(r.boards))
	for i, b := range r.boards {
		if b != nil {
			other := *b
			other.link = b.link.copy()
			other.link.board = &other
			own.boards[i] = &other
		}
	}
	own.links = own.linked()
	own.askers = slices.Clone(r.askers)
	own.staged = staged{bytes.Clone(r.staged.bytes), slices.Clone(r.staged.indexes),
		slices.Clone(r.staged.lent)}
	own.fetches = nil
	for _, f := range r.fetches {
		other := *f
		other.bytes, other.member = bytes.Clone(f.bytes), own.members[f.member.server]
		own.fetches = append(own.fetches, &other)
	}
	own.delivered, own.handed = slices.Clone(r.delivered), nil
	own.wiring = r.wiring.copy(
		func(l *link) *link { return own.links[l.place] },
		func(lent *int) *int { return sameCount(lent, r.staged.lent, own.staged.lent) },
	)
	own.wiring.redirect(own.into)
	return &own
}

// Reads calls each for every read under way, with its tag and the memory that its result should go
// to.
func (r *Replica) Reads(each func(tag uint64, into []byte)) { r.wiring.reads(r.into, each) }

// into returns the memory that a post reads into, nil for a post that does not read.
func (r *Replica) into(p post) []byte {
	switch p.kind {
	case postTaken, postTicket:
		return p.link.word[:]
	case postTrailer:
		m := p.link.member
		return m.batch[int(p.number-m.reached)*logTrailer:][:logTrailer]
	case postMessage:
		for _, f := range r.fetches {
			if f.header.index == p.number && &f.member.link == p.link {
				return f.bytes
			}
		}
	}
	return nil
}

// Awaits reports whether the replica's behaviour depends on having handled the successful
// completion with the given tag. It does not for a word of a board, which is posted and forgotten.
// Nor does it for a trailer that is read before others of its batch, because the replica only looks
// at the whole batch.
func (r *Replica) Awaits(tag uint64) bool { return r.wiring.awaits(tag) }

// Copy returns a client in the same state, like Replica.Copy.
func (c *Client) Copy() *Client {
	own := *c
	own.streams = make([]*stream, len(c.streams))
	links := make([]*link, 2*c.options.processes())
	for group, s := range c.streams {
		if s == nil {
			continue
		}
		other := *s
		other.slots, other.lent, other.targets = bytes.Clone(s.slots), slices.Clone(s.lent),
			make([]*target, len(s.targets))
		for i, t := range s.targets {
			way, b := *t, *t.board
			way.link, b.link = t.link.copy(), t.board.link.copy()
			way.link.target, way.stream, way.board, b.link.board = &way, &other, &b, &b
			links[t.place], links[t.board.place] = &way.link, &b.link
			other.targets[i] = &way
		}
		own.streams[group] = &other
	}
	own.wiring = c.wiring.copy(
		func(l *link) *link { return links[l.place] },
		func(lent *int) *int {
			for group, s := range c.streams {
				if s == nil {
					continue
				}
				if same := sameCount(lent, s.lent, own.streams[group].lent); same != nil {
					return same
				}
			}
			return nil
		},
	)
	own.wiring.redirect(own.into)
	return &own
}

// Reads is like Replica.Reads.
func (c *Client) Reads(each func(tag uint64, into []byte)) { c.wiring.reads(c.into, each) }

func (c *Client) into(p post) []byte {
	if p.kind == postTaken || p.kind == postTicket {
		return p.link.word[:]
	}
	return nil
}

// Awaits is like Replica.Awaits.
func (c *Client) Awaits(tag uint64) bool { return c.wiring.awaits(tag) }

// copy returns a link with memory of its own. The caller sets its owner.
func (l *link) copy() link {
	own := *l
	if l.word != nil {
		word := *l.word
		own.word = &word
	}
	return own
}

// sameCount returns the place of a count in a copy of the slice that holds it, nil if the slice
// does not hold it.
func sameCount(count *int, in, other []int) *int {
	for i := range in {
		if count == &in[i] {
			return &other[i]
		}
	}
	return nil
}

// copy returns a wiring with links and counts of its own.
func (w *fabricLinks) copy(moved func(*link) *link, count func(*int) *int) *fabricLinks {
	own := &fabricLinks{queue: w.queue, now: w.now, posts: make([]post, len(w.posts)),
		free: slices.Clone(w.free), done: w.done, lent: w.lent, wants: slices.Clone(w.wants),
		number: w.number}
	for tag, p := range w.posts {
		if p.link == nil {
			continue
		}
		p.link = moved(p.link)
		if p.lent != nil {
			p.lent = count(p.lent)
		}
		own.posts[tag] = p
	}
	for _, o := range w.batch {
		if o.Kind == rdmanet.OperationWrite {
			o.Bytes = bytes.Clone(o.Bytes)
		}
		own.batch = append(own.batch, o)
	}
	for _, l := range w.waiting {
		own.waiting = append(own.waiting, moved(l))
	}
	return own
}

// redirect makes the reads that are not posted yet lead into this process's memory.
func (w *fabricLinks) redirect(into func(post) []byte) {
	for i := range w.batch {
		o := &w.batch[i]
		if p := w.posts[o.Tag]; o.Kind == rdmanet.OperationRead && p.life == p.link.life {
			o.Bytes = into(p)
		}
	}
}

// reads calls each for every read under way.
func (w *fabricLinks) reads(into func(post) []byte, each func(tag uint64, into []byte)) {
	for tag, p := range w.posts {
		if p.link == nil || p.life != p.link.life {
			continue
		}
		if bytes := into(p); bytes != nil {
			each(uint64(tag), bytes)
		}
	}
}

func (w *fabricLinks) awaits(tag uint64) bool {
	p := w.posts[tag]
	switch {
	case p.link == nil:
		return true
	case p.life != p.link.life, p.kind == postWord:
		return false
	case p.kind == postTrailer:
		return p.number == p.link.member.reached+trailersAtOnce-1
	}
	return true
}
