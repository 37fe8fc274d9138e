package multicast

import (
	"slices"
	"time"

	"github.com/ledgerd/ledgerd/rdmanet"
)

// This file saves and restores the state of a chosen stage. It does so process by process, because
// a choice changes only one or two of them.

// contents is the state of the stage and its world that belongs to no process.
type contents struct {
	clock   time.Duration
	links   []chosenLink
	ordered [][][][]byte // by log and member
}

// takeDown copies this state.
func (s *chosen) takeDown() contents {
	c := contents{clock: s.clock, links: slices.Clone(s.links)}
	for i := range c.links {
		c.links[i].letters = slices.Clip(c.links[i].letters)
	}
	for _, l := range s.world.logs {
		var ordered [][][]byte
		for _, entries := range l.ordered {
			ordered = append(ordered, slices.Clip(entries))
		}
		c.ordered = append(c.ordered, ordered)
	}
	return c
}

// putBack restores a state. Everything created since then is dropped.
func (s *chosen) putBack(c contents) {
	s.clock = c.clock
	s.links = append(s.links[:0], c.links...)
	clear(s.linkAt)
	for i, l := range s.links {
		s.linkAt[[2]int{l.from, l.to}] = i
	}
	for i, l := range s.world.logs {
		copy(l.ordered, c.ordered[i])
	}
}

// belongings is the state of the stage and its world that belongs to one process.
type belongings struct {
	crashed bool
	letters []Letter
	memory  []byte               // of all regions, one after the other
	grants  []rdmanet.Permission // likewise
	closed  []bool
	ways    []wayState
	queues  []queueState
}

type wayState struct {
	way     *chosenAttachment
	revoked bool
	err     error
	pending []chosenOperation
}

type queueState struct {
	count  uint64
	posted []chosenEntry
	ready  []rdmanet.Completion
	closed bool
}

// belongings copies the state of a process.
func (s *chosen) belongings(number int) *belongings {
	p := s.world.processes[number]
	b := &belongings{crashed: p.crashed, letters: slices.Clone(p.letters)}
	h := s.hosts[number]
	if h == nil {
		return b
	}
	size, grants := 0, 0
	for _, r := range h.regions {
		size += len(r.bytes)
		grants += len(r.grants)
	}
	b.memory, b.grants, b.closed = make([]byte, 0, size),
		make([]rdmanet.Permission, 0, grants), make([]bool, len(h.regions))
	for i, r := range h.regions {
		b.memory, b.grants, b.closed[i] = append(b.memory, r.bytes...),
			append(b.grants, r.grants...), r.closed
	}
	b.ways = make([]wayState, len(h.ways))
	for i, a := range h.ways {
		b.ways[i] = wayState{a, a.revoked, a.err, slices.Clip(a.pending)}
	}
	b.queues = make([]queueState, len(h.queues))
	for i, q := range h.queues {
		b.queues[i] = queueState{q.count, slices.Clip(q.posted), slices.Clip(q.ready), q.closed}
	}
	return b
}

// giveBack restores a process's state. Regions and queues stay where they are. Other attachments
// than it had are dropped.
func (s *chosen) giveBack(number int, b *belongings) {
	p := &s.world.processes[number]
	p.crashed, p.letters = b.crashed, slices.Clone(b.letters)
	h := s.hosts[number]
	if h == nil {
		return
	}
	memory, grants := b.memory, b.grants
	for i, r := range h.regions {
		memory, grants = memory[copy(r.bytes, memory):], grants[copy(r.grants, grants):]
		r.closed = b.closed[i]
	}
	h.ways = h.ways[:0]
	for _, w := range b.ways {
		w.way.revoked, w.way.err, w.way.pending = w.revoked, w.err, w.pending
		h.ways = append(h.ways, w.way)
	}
	for i, q := range h.queues {
		q.count, q.posted, q.ready, q.closed = b.queues[i].count, b.queues[i].posted,
			b.queues[i].ready, b.queues[i].closed
	}
}

// redirect makes a read under way lead to the current memory of a process.
func (s *chosen) redirect(number int, tag uint64, into []byte) {
	for _, a := range s.hosts[number].ways {
		for i := range a.pending {
			if a.pending[i].Tag == tag {
				a.pending[i].Bytes = into
			}
		}
	}
}
