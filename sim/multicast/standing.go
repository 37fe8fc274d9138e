package multicast

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"

	"github.com/ledgerd/ledgerd/order"
)

// This file recognises states and restores them. It does so process by process, because a choice
// changes only one or two of them.

// fingerprint is a hash of a state.
type fingerprint [16]byte

func fingerprintOf(b []byte) fingerprint {
	sum := sha256.Sum256(b)
	return fingerprint(sum[:16])
}

// standing is the cached state of a process.
type standing struct {
	print   fingerprint
	printed bool
	// taken is the saved state of the process, nil once the process has changed.
	taken *taken
}

// taken is a saved state of a process. It must not be changed.
type taken struct {
	belongings *belongings
	form       any
	delivered  []byte
	said       order.ServerID
}

// changes records that a process may change from here on.
func (p *play) changes(number int) {
	p.standings[number].taken, p.standings[number].printed = nil, false
}

func (p *play) changesAll() {
	for number := range p.standings {
		p.changes(number)
	}
}

// looksDifferent records that processes may have another fingerprint although they did not change:
// operations that they posted are refused now, or get through.
func (p *play) looksDifferent() {
	for number := range p.standings {
		p.standings[number].printed = false
	}
}

// fingerprint returns a hash of the play's state. States with equal fingerprints have the same
// future.
func (p *play) fingerprint() fingerprint {
	state := p.scratch[:0]
	for number := range p.standings {
		s := &p.standings[number]
		if !s.printed {
			own := p.appendProcess(state, number)
			s.print, s.printed = fingerprintOf(own[len(state):]), true
			p.scratch = own[:0]
		}
		state = append(state, s.print[:]...)
	}
	for _, l := range p.world.logs {
		for _, entries := range l.ordered {
			state = append(state, byte(len(entries)))
			for _, entry := range entries {
				state = appendBytes(state, entry)
			}
		}
	}
	for _, count := range p.submitted {
		state = append(state, byte(count))
	}
	state = append(state, byte(p.crashes), byte(p.leads), byte(p.ticks), byte(p.turn+1))
	state = p.stage.appendLinks(state)
	p.scratch = state[:0]
	return fingerprintOf(state)
}

// appendProcess appends everything that a process's further behaviour depends on.
func (p *play) appendProcess(state []byte, number int) []byte {
	state = p.appendMachine(state, number)
	if h := p.stage.hosts[number]; h != nil {
		state = h.appendState(state, p.naming(number))
	}
	return state
}

// naming returns a process's own names for its operations, which do not depend on tags, or the tags
// if the form has none.
func (p *play) naming(number int) func(state []byte, tag uint64) []byte {
	c, is := p.form.(Completer)
	if !is {
		return binary.AppendUvarint
	}
	name := p.world.processes[number].name
	return func(state []byte, tag uint64) []byte { return c.AppendOperation(state, name, tag) }
}

// appendMachine is appendProcess without the memory and the operations under way.
func (p *play) appendMachine(state []byte, number int) []byte {
	process := p.world.processes[number]
	if process.crashed {
		state = append(state, 'x')
	} else {
		before := len(state)
		state = append(state, 0, 0, 0, 0)
		state = p.form.AppendState(state, process.name)
		binary.BigEndian.PutUint32(state[before:], uint32(len(state)-before))
		for _, letter := range process.letters {
			state = appendBytes(state, letter.Bytes)
		}
	}
	state = appendBytes(state, p.delivered[number])
	return append(state, byte(p.said[number]))
}

// moment is a saved state of a play.
type moment struct {
	standings             []standing
	contents              contents
	submitted             []int
	crashes, leads, ticks int
	turn                  int
}

// takeDown saves the current state. The form must be a Copier.
func (p *play) takeDown() *moment {
	for number := range p.standings {
		if s := &p.standings[number]; s.taken == nil {
			s.taken = &taken{p.stage.belongings(number),
				p.form.(Copier).Copy(p.world.processes[number].name),
				slices.Clip(p.delivered[number]), p.said[number]}
		}
	}
	return &moment{
		standings: slices.Clone(p.standings), contents: p.stage.takeDown(),
		submitted: slices.Clone(p.submitted),
		crashes:   p.crashes, leads: p.leads, ticks: p.ticks, turn: p.turn,
	}
}

// putBack restores a saved state.
func (p *play) putBack(m *moment) {
	p.stage.putBack(m.contents)
	for number := range p.standings {
		if t := m.standings[number].taken; p.standings[number].taken != t {
			p.stage.giveBack(number, t.belongings)
			p.form.(Copier).PutBack(p.world.processes[number].name, t.form)
			p.delivered[number], p.said[number] = t.delivered, t.said
		}
	}
	copy(p.standings, m.standings)
	copy(p.submitted, m.submitted)
	p.crashes, p.leads, p.ticks, p.turn = m.crashes, m.leads, m.ticks, m.turn
}
