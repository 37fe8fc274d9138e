package replica

import (
	"slices"

	"github.com/ledgerd/ledgerd/protected"
)

// This file copies machines for exhaustive search. A copy behaves independently from then on, in
// the same memory. The copies share what the fabric handed out (regions, attachments, the queue).
// The caller takes care of the contents of the memory.

// ofAll lists a replica's ways, always in the same order.
func (r *Replica) ofAll() []*protected.Way {
	var all []*protected.Way
	r.log.Ways(func(way *protected.Way) { all = append(all, way) })
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
	own.log = r.log.Copy(own.boards, (*asUser)(&own))
	own.all = own.ofAll()
	own.askers = slices.Clone(r.askers)
	for i := range own.askers {
		a := &own.askers[i]
		a.buffer = own.buffers[slices.Index(r.buffers, a.buffer)]
	}
	own.delivered, own.handed = slices.Clone(r.delivered), nil
	own.ways = r.ways.Copy(
		func(place int) *protected.Way { return own.all[place] },
		func(lent *int) *int { return r.log.SameCount(lent, own.log) },
	)
	own.log.Use(own.ways)
	own.ways.Redirect(own.log.Into)
	return &own
}

// Reads calls each for every read under way, with its tag and the memory that its result should go
// to.
func (r *Replica) Reads(each func(tag uint64, into []byte)) { r.ways.Reads(r.log.Into, each) }

// Awaits reports whether the replica's behaviour depends on having handled the successful
// completion with the given tag.
func (r *Replica) Awaits(tag uint64) bool { return r.ways.Awaits(tag, protected.Depends) }

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
func (c *Client) Awaits(tag uint64) bool { return c.ways.Awaits(tag, protected.Depends) }
