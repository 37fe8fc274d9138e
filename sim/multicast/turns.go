package multicast

import "encoding/binary"

// This file says when the turns of a process are the same in two states. They depend on its local
// state and the rest. Of another process they depend on what it has under way to this one, on
// whether it crashed, and on whether this one may attach to its memory. If this process waits for
// operations of its own, reads see the memory of the other, and what others have under way to the
// same region may come before or behind.

// sight is what the turns of a process depend on.
type sight struct {
	process     uint8
	local, rest uint32
	others      [tabledMax]uint32
}

// sight returns what a process's turns in a state depend on.
func (t *table) sight(g *tabled, process int) sight {
	s := sight{process: uint8(process), local: g.locals[process], rest: g.rest}
	for other := range t.play.standings {
		if other != process {
			s.others[other] = t.looks(t.local(g, other), process, other)
		}
	}
	own := t.local(g, process)
	var more []byte
	for i := range own.ways {
		w := &own.ways[i]
		owner := t.local(g, w.owner)
		if !w.awaited && w.live && !owner.crashed {
			continue
		}
		overlaps := false
		for other := range t.play.standings {
			if other == process || other == w.owner {
				continue
			}
			l := t.local(g, other)
			for j := range l.ways {
				if o := &l.ways[j]; o.owner == w.owner && o.region == w.region {
					overlaps = true
					more = binary.AppendUvarint(append(more, byte(other)), uint64(l.parts.net))
				}
			}
		}
		if overlaps || w.reads() {
			more = binary.AppendUvarint(append(more, 'm', byte(w.owner)),
				uint64(owner.parts.memory))
		}
	}
	if more != nil {
		s.others[process] = t.name('m', more)
	}
	return s
}

// reads reports whether there are reads among an attachment's operations.
func (w *localWay) reads() bool {
	for _, o := range w.operations {
		if !o.write {
			return true
		}
	}
	return false
}

// looks numbers how a process's local state looks to another one.
func (t *table) looks(l *local, to, process int) uint32 {
	if l.looks[to] != 0 {
		return l.looks[to]
	}
	state := []byte{0}
	if l.crashed {
		state[0] = 1
	} else if t.play.stage.hosts[process] != nil {
		m := &t.memories[process][l.parts.memory]
		for at := to; at < len(m.grants); at += len(t.play.standings) {
			state = append(state, byte(m.grants[at]))
		}
	}
	for i := range l.ways {
		w := &l.ways[i]
		if w.owner != to {
			continue
		}
		state = append(state, 'w', byte(w.region), byte(w.ordinal))
		if w.live {
			state = append(state, 1)
		}
		for _, o := range w.operations {
			state = binary.AppendUvarint(state, uint64(o.number))
		}
	}
	l.looks[to] = t.name('k', state)
	return l.looks[to]
}
