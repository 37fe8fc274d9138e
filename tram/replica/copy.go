package replica

import (
	"bytes"
	"slices"

	"github.com/ledgerd/ledgerd/protected"
)

// This file copies machines for exhaustive search. A copy behaves independently from then on, in
// the same memory. The copies share what the fabric handed out (regions, attachments, the queue).
// The caller takes care of the contents of the memory.

// ofAll lists a replica's ways, always in the same order.
func (r *Replica) ofAll() []*protected.Way {
	var all []*protected.Way
	for _, m := range r.members {
		all = append(all, &m.Way)
	}
	for _, c := range r.children {
		for _, v := range c.receivers {
			all = append(all, &v.Way)
		}
	}
	for _, b := range r.boards.Rows() {
		if b != nil {
			all = append(all, &b.Way)
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
		other.Way = m.Way.Copy()
		other.Owner = &other
		other.held, other.batch = slices.Clip(m.held), bytes.Clone(m.batch)
		own.members[i] = &other
	}
	own.children = make([]*child, len(r.children))
	for i, c := range r.children {
		other := *c
		other.indexes, other.receivers = slices.Clip(c.indexes), make([]*receiver, len(c.receivers))
		for j, v := range c.receivers {
			receiver := *v
			receiver.Way = v.Way.Copy()
			receiver.Owner, receiver.child = &receiver, &other
			other.receivers[j] = &receiver
		}
		own.children[i] = &other
	}
	own.boards = r.boards.Copy()
	own.all = own.ofAll()
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
	own.ways = r.ways.Copy(
		func(place int) *protected.Way { return own.all[place] },
		func(lent *int) *int {
			return protected.SameCount(lent, r.staged.lent, own.staged.lent)
		},
	)
	own.ways.Redirect(own.into)
	return &own
}

// Reads calls each for every read under way, with its tag and the memory that its result should go
// to.
func (r *Replica) Reads(each func(tag uint64, into []byte)) { r.ways.Reads(r.into, each) }

// into returns the memory that a post reads into, nil for a post that does not read.
func (r *Replica) into(p protected.Post) []byte {
	m, is := p.Way.Owner.(*member)
	switch {
	case !is:
	case p.Kind == postTrailer:
		return m.batch[int(p.Number-m.reached)*logTrailer:][:logTrailer]
	case p.Kind == postMessage:
		for _, f := range r.fetches {
			if f.header.index == p.Number && f.member == m {
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
func (r *Replica) Awaits(tag uint64) bool { return r.ways.Awaits(tag, depends) }

func depends(p protected.Post) bool {
	switch owner := p.Way.Owner.(type) {
	case *protected.Row:
		return false
	case *member:
		return p.Kind != postTrailer || p.Number == owner.reached+trailersAtOnce-1
	}
	return true
}

// Copy returns a client in the same state, like Replica.Copy.
func (c *Client) Copy() *Client {
	own := *c
	own.streams = make([]*stream, len(c.streams))
	ways := make([]*protected.Way, 2*c.options.processes())
	for group, s := range c.streams {
		if s == nil {
			continue
		}
		other := *s
		other.box, other.targets = s.box.Copy(), make([]*target, len(s.targets))
		for i, t := range s.targets {
			way := *t
			way.Way, way.board = t.Way.Copy(), t.board.Copy()
			way.Owner, way.stream = &way, &other
			ways[t.Place], ways[t.board.Place] = &way.Way, &way.board.Way
			other.targets[i] = &way
		}
		own.streams[group] = &other
	}
	own.ways = c.ways.Copy(
		func(place int) *protected.Way { return ways[place] },
		func(lent *int) *int {
			for group, s := range c.streams {
				if s == nil {
					continue
				}
				if same := s.box.SameCount(lent, own.streams[group].box); same != nil {
					return same
				}
			}
			return nil
		},
	)
	own.ways.Redirect(noReads)
	return &own
}

// Reads is like Replica.Reads.
func (c *Client) Reads(each func(tag uint64, into []byte)) {
	c.ways.Reads(noReads, each)
}

// noReads says that a client reads nothing but words.
func noReads(protected.Post) []byte { return nil }

// Awaits is like Replica.Awaits.
func (c *Client) Awaits(tag uint64) bool { return c.ways.Awaits(tag, depends) }
