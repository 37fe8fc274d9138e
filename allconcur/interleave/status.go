package interleave

import (
	"encoding/binary"
	"slices"

	"github.com/ledgerd/ledgerd/allconcur"
	"github.com/ledgerd/ledgerd/order"
)

// Status describes the engine; it allocates. Round is the round in which this server A-broadcasts
// next. Epoch is one more than the sum of the engines' epochs, each less one. What is said of
// rounds holds of all that are in flight here.
func (e *Engine) Status() order.Status {
	s := order.Status{Epoch: 1, Round: e.round, Halted: e.halted}
	if s.Halted == "" {
		s.Halted = e.haltedEngine()
	}
	for number, engine := range e.engines {
		own := engine.Status()
		s.Epoch += own.Epoch - 1
		s.Reliable = s.Reliable || own.Reliable
		s.Decided = s.Decided || own.Decided
		s.Suspected = append(s.Suspected, own.Suspected...)
		if !engine.CanBroadcast() {
			s.Awaited = append(s.Awaited, own.Awaited...)
		}
		s.Undelivered += own.Undelivered + len(e.waiting[number])
	}
	for server, member := range e.members {
		if member {
			s.Members = append(s.Members, order.ServerID(server))
		}
	}
	s.Suspected, s.Awaited = sorted(s.Suspected), sorted(s.Awaited)
	return s
}

// sorted sorts servers, each once.
func sorted(servers []order.ServerID) []order.ServerID {
	slices.Sort(servers)
	return slices.Compact(servers)
}

// Engines returns the k engines, for searches. They must not be changed.
func (e *Engine) Engines() []*allconcur.Engine { return e.engines }

// Clone copies the engine. The copy shares frames and payloads, which never change. It does not
// include what Ready has yet to return: take that first.
func (e *Engine) Clone() *Engine {
	e.begin()
	c := *e
	c.engines = cloneEngines(e.engines)
	c.touched = slices.Clone(e.touched)
	c.waiting = make([][]order.Delivery, len(e.waiting))
	for number, rounds := range e.waiting {
		c.waiting[number] = slices.Clone(rounds)
	}
	c.kept, c.epochs = slices.Clone(e.kept), slices.Clone(e.epochs)
	c.members, c.gone = slices.Clone(e.members), slices.Clone(e.gone)
	c.out = output{}
	return &c
}

// AppendState appends the engine's state in a canonical form, like that of allconcur.Engine.
func (e *Engine) AppendState(state []byte) []byte {
	state = appendNumbers(state, uint64(e.round), uint64(e.delivered), uint64(e.due),
		uint64(len(e.halted)))
	state = append(state, e.halted...)
	for server := range e.members {
		state = appendFlags(state, e.members[server], e.gone[server])
	}
	for number, engine := range e.engines {
		state = appendNumbers(state, uint64(e.epochs[number]), uint64(len(e.waiting[number])))
		for _, d := range e.waiting[number] {
			state = appendNumbers(state, uint64(d.Epoch), uint64(len(d.Messages)),
				uint64(len(d.Removed)))
			for _, m := range d.Messages {
				state = appendNumbers(state, uint64(m.Origin), uint64(len(m.Payload)))
				state = append(state, m.Payload...)
			}
			for _, server := range d.Removed {
				state = appendNumbers(state, uint64(server))
			}
		}
		state = engine.AppendState(state)
	}
	return state
}

func appendNumbers(state []byte, numbers ...uint64) []byte {
	for _, number := range numbers {
		state = binary.LittleEndian.AppendUint64(state, number)
	}
	return state
}

func appendFlags(state []byte, flags ...bool) []byte {
	for _, flag := range flags {
		state = append(state, 0)
		if flag {
			state[len(state)-1] = 1
		}
	}
	return state
}
