package allconcur

import (
	"encoding/binary"

	"github.com/ledgerd/ledgerd/order"
)

// Tolerated returns f, the number of servers of the initial group that may fail.
func (e *Engine) Tolerated() int { return e.tolerated }

// Status describes the engine; it allocates.
func (e *Engine) Status() order.Status {
	s := order.Status{
		Epoch: e.epoch, Round: e.round, Reliable: e.reliable, Decided: e.decided, Ended: e.ended,
		Halted:  e.halted,
		Members: e.members.appendTo(nil), Suspected: e.failures.targets.appendTo(nil),
	}
	for _, p := range e.overlay.members {
		if e.awaits(p) {
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

// awaits reports whether the current round waits for a member: for its message or, once the set is
// decided, for its vote.
func (e *Engine) awaits(p order.ServerID) bool {
	switch {
	case e.ended:
		return false
	case e.decided:
		return e.current.present.has(p) && !e.ownBallot().voters.has(p)
	case e.reliable && e.tracking.awaitedCount > 0:
		return e.tracking.awaited.has(p)
	default:
		return !e.current.present.has(p)
	}
}

// Clone copies the engine. The copy shares frames and payloads, which never change. It does not
// include what Ready returned last.
func (e *Engine) Clone() *Engine {
	e.begin()
	c := *e
	c.members, c.ignored, c.skippers = e.members.clone(), e.ignored.clone(), e.skippers.clone()
	c.current, c.next, c.newer, c.older = e.current.clone(), e.next.clone(), e.newer.clone(),
		e.older.clone()
	c.failures = e.failures.clone()
	c.tracking = e.tracking.clone(c.failures, c.members)
	c.links = append([]link(nil), e.links...)
	for i, l := range e.links {
		c.links[i].held = append([][]byte(nil), l.held...)
	}
	c.ballots = append([]*ballot(nil), e.ballots...)
	for i, b := range e.ballots {
		c.ballots[i] = b.clone()
	}
	c.contents = nil
	c.out = output{sends: append([]order.Send(nil), e.out.sends...),
		deliveries: make([]order.Delivery, len(e.out.deliveries)),
		closings:   append([]order.Closing(nil), e.out.closings...)}
	for i, d := range e.out.deliveries {
		d.Messages = append([]order.Message(nil), d.Messages...)
		c.out.deliveries[i] = d
	}
	return &c
}

// AppendState appends the engine's state in a canonical form. Two engines of equal configuration
// that append the same bytes behave the same from here on. A search compares or hashes them. The
// form does not include what Ready has yet to return: take that first.
func (e *Engine) AppendState(state []byte) []byte {
	state = appendNumber(state, uint64(e.epoch), uint64(e.round), uint64(e.delivered),
		uint64(len(e.failures.arrived)), uint64(len(e.halted)))
	state = append(state, e.halted...)
	state = appendFlag(state, e.reliable)
	state = appendNumber(state, e.members...)
	state = appendNumber(state, e.ignored...)
	state = appendNumber(state, e.skippers...)
	state = appendNumber(state, e.failures.owned...)
	if e.reliable {
		// The digraphs follow from awaited and the notifications.
		state = appendNumber(state, e.tracking.awaited...)
	}
	for _, set := range []*roundSet{e.current, e.next, e.newer, e.older} {
		state = set.appendState(state)
	}
	state = appendFlag(appendFlag(appendFlag(state, e.decided), e.confirmed), e.ended)
	state = appendNumber(state, uint64(e.last), uint64(e.solicit))
	state = e.appendSuspicions(state)
	for _, b := range e.ballots {
		state = b.appendState(state)
	}
	for _, own := range e.own {
		state = appendFlag(state, own.held)
		state = appendNumber(state, uint64(own.round), uint64(len(own.payload)))
		state = append(state, own.payload...)
		if e.config.Prompt {
			state = own.appendVouched(state)
		}
	}
	if e.config.Prompt {
		state = appendNumber(state, uint64(e.prompted))
	}
	return state
}

// appendSuspicions appends the state that ◇P needs.
func (e *Engine) appendSuspicions(state []byte) []byte {
	known := false
	for _, s := range e.failures.sequences {
		known = known || s != sequence{}
	}
	state = appendFlag(state, known)
	if known {
		for _, s := range e.failures.sequences {
			state = binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(state,
				s.last), s.revoked)
		}
	}
	for _, l := range e.links {
		state = appendFlag(appendFlag(appendFlag(appendFlag(state, l.suspected), l.revoking),
			l.again), l.cut)
		state = appendNumber(state, uint64(l.sequence), uint64(len(l.held)))
		for _, frame := range l.held {
			state = append(appendNumber(state, uint64(len(frame))), frame...)
		}
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
