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
	for i := len(c.links); i < len(s.links); i++ {
		delete(s.linkAt, [2]int{s.links[i].from, s.links[i].to})
	}
	s.links = append(s.links[:0], c.links...)
	for i, l := range s.world.logs {
		copy(l.ordered, c.ordered[i])
	}
}

// belongings is the state of the stage and its world that belongs to one process.
type belongings struct {
	crashed bool
	letters []Letter
	memory  []byte        // of all regions, one after the other
	grants  []chosenGrant // likewise
	regions []regionState
	ways    []wayState
	queues  []queueState
}

type regionState struct {
	closed bool
	number uint32
}

type wayState struct {
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
	b.memory, b.grants, b.regions = make([]byte, 0, size), make([]chosenGrant, 0, grants),
		make([]regionState, len(h.regions))
	for i, r := range h.regions {
		b.memory, b.grants, b.regions[i] = append(b.memory, r.bytes...),
			append(b.grants, r.grants...), regionState{r.closed, r.number}
	}
	b.ways = make([]wayState, len(h.ways))
	for i, a := range h.ways {
		b.ways[i] = wayState{a.err, slices.Clip(a.pending)}
	}
	b.queues = make([]queueState, len(h.queues))
	for i, q := range h.queues {
		b.queues[i] = queueState{q.count, slices.Clip(q.posted), slices.Clip(q.ready), q.closed}
	}
	return b
}

// giveBack restores a process's state. Regions and queues stay where they are. Attachments created
// since then are dropped.
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
		r.closed, r.number = b.regions[i].closed, b.regions[i].number
	}
	h.ways = h.ways[:len(b.ways)]
	for i, a := range h.ways {
		a.err, a.pending = b.ways[i].err, b.ways[i].pending
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
