package allconcur

import (
	"encoding/binary"

	"github.com/ledgerd/ledgerd/order"
)

// Tolerated is f, how many servers of the initial group may fail.
func (e *Engine) Tolerated() int { return e.tolerated }

// Status describes the engine; it allocates.
func (e *Engine) Status() order.Status {
	s := order.Status{
		Epoch: e.epoch, Round: e.round, Reliable: e.reliable, Halted: e.halted,
		Members: e.members.appendTo(nil), Suspected: e.failures.targets.appendTo(nil),
	}
	for _, p := range e.overlay.members {
		if e.reliable && e.tracking.awaited.has(p) || !e.reliable && !e.current.present.has(p) {
			s.Awaited = append(s.Awaited, p)
		}
	}
	if e.older.filled {
		s.Undelivered++
	}
	if e.newer.filled && !e.reliable {
		s.Undelivered++
	}
	return s
}

// Clone copies the engine. Frames and payloads, which never change, are shared; what Ready returned last is not part of the copy.
func (e *Engine) Clone() *Engine {
	e.begin()
	c := *e
	c.members, c.ignored = e.members.clone(), e.ignored.clone()
	c.current, c.next, c.newer, c.older = e.current.clone(), e.next.clone(), e.newer.clone(), e.older.clone()
	c.failures = e.failures.clone()
	c.tracking = e.tracking.clone(c.failures, c.members)
	c.out = output{sends: append([]order.Send(nil), e.out.sends...), deliveries: make([]order.Delivery, len(e.out.deliveries))}
	for i, d := range e.out.deliveries {
		d.Messages = append([]order.Message(nil), d.Messages...)
		c.out.deliveries[i] = d
	}
	return &c
}

// AppendState appends the engine's state in a canonical form: two engines of equal configuration that append the same bytes behave the same from here on. A
// search compares or hashes them. What Ready has yet to return is not part of it: take it first.
func (e *Engine) AppendState(state []byte) []byte {
	state = appendNumber(state, uint64(e.epoch), uint64(e.round), uint64(e.delivered), uint64(len(e.failures.arrived)), uint64(len(e.halted)))
	state = append(state, e.halted...)
	state = appendFlag(state, e.reliable)
	state = appendNumber(state, e.members...)
	state = appendNumber(state, e.ignored...)
	state = appendNumber(state, e.failures.owned...)
	if e.reliable {
		state = appendNumber(state, e.tracking.awaited...) // the digraphs follow from it and the notifications
	}
	for _, set := range []*roundSet{e.current, e.next, e.newer, e.older} {
		state = set.appendState(state)
	}
	for _, own := range e.own {
		state = appendFlag(state, own.held)
		state = appendNumber(state, uint64(own.round), uint64(len(own.payload)))
		state = append(state, own.payload...)
	}
	return state
}

func (s *roundSet) appendState(state []byte) []byte {
	state = appendFlag(appendFlag(state, s.filled), s.reliable)
	state = appendNumber(state, uint64(s.epoch), uint64(s.round))
	state = appendNumber(state, s.present...)
	for p, more := s.present.next(0); more; p, more = s.present.next(p + 1) {
		state = appendNumber(state, uint64(len(s.frames[p])))
		state = append(state, s.frames[p]...)
	}
	return state
}

func appendNumber(state []byte, numbers ...uint64) []byte {
	for _, number := range numbers {
		state = binary.LittleEndian.AppendUint64(state, number)
	}
	return state
}

func appendFlag(state []byte, flag bool) []byte {
	if flag {
		return append(state, 1)
	}
	return append(state, 0)
}
