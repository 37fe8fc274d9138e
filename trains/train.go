package trains

import (
	"fmt"

	"github.com/ledgerd/ledgerd/order"
)

// rotationsHeld is how many rotations after it was attached a wagon is A-delivered.
const rotationsHeld = 2

// receiveTrain takes a train of a server of the ring [TRAINS, Algorithm 3].
func (e *Engine) receiveTrain(from order.ServerID, h frameHeader, frame []byte) error {
	if order.Round(h.id) >= e.trains {
		return fmt.Errorf("%w: train %d of %d", order.ErrFrame, h.id, e.trains)
	}
	if err := e.checkWagons(frame); err != nil {
		return err
	}
	if from != e.predecessor {
		if !e.perfect {
			return fmt.Errorf("%w: a train of a server that is not the predecessor", order.ErrFrame)
		}
		if e.ring.has(from) {
			e.skippedBy(from)
		}
	}
	round := e.arrived + 1
	s, rotation := &e.stops[h.id], e.rotationOf(round)
	if e.config.Layout == LayoutPaper {
		h.clock, h.rotation = widen(h.clock, s.clock), widen(h.rotation, rotation)
	}
	// The id and the clock together say that this very train is due. Trains that arrive twice, or
	// that a newer one replaced, are ignored.
	due := int64(h.clock) > int64(s.clock) ||
		e.config.Fault == FaultClockNotStrict && h.clock == s.clock
	if int(h.id) != e.idOf(round) || !due || e.waiting() == e.trains {
		e.answerStale(h)
		return nil
	}
	if h.rotation != rotation && h.rotation+1 != rotation {
		return fmt.Errorf("%w: train %d in rotation %d, due in %d", order.ErrFrame, h.id,
			h.rotation, rotation)
	}
	e.arrive(round, h, frame)
	return nil
}

// answerStale is where a train ends that is not due. The printed algorithm answers it and takes it
// for the last one (FaultStaleAnswered).
func (e *Engine) answerStale(h frameHeader) {
	if e.config.Fault == FaultStaleAnswered && e.stops[h.id].sent != nil {
		e.send(e.successor, e.stops[h.id].sent)
	}
}

// checkWagons checks the form of all wagons of a train before the first is taken.
func (e *Engine) checkWagons(frame []byte) error {
	seen := 0
	for at := wagonsAt(e.config.Layout); at < len(frame); {
		wagon, whole := nextWagon(e.config.Layout, frame, at)
		switch {
		case !whole:
			return fmt.Errorf("%w: no whole wagon at byte %d of %d", order.ErrFrame, at, len(frame))
		case uint64(wagon.origin) >= uint64(e.n):
			return fmt.Errorf("%w: a wagon of server %d in a group of %d", order.ErrFrame,
				wagon.origin, e.n)
		case wagon.age > ageMax:
			return fmt.Errorf("%w: a wagon that is %d rotations old", order.ErrFrame, wagon.age)
		case len(wagon.whole) > wagonHeaderSize+e.config.MaxPayload:
			return fmt.Errorf("%w: a wagon of %d bytes", order.ErrFrame, len(wagon.whole))
		}
		if seen++; seen > e.n {
			return fmt.Errorf("%w: more wagons than servers", order.ErrFrame)
		}
		at += len(wagon.whole)
	}
	return nil
}

// arrive takes the train of the next round. Its arrival here proves that the train went round twice
// since its round two rotations ago, so that round is A-delivered [TRAINS, section III-C].
func (e *Engine) arrive(round order.Round, h frameHeader, frame []byte) {
	s := &e.stops[h.id]
	e.arrived = round
	s.clock = h.clock + 1
	for e.halted == "" && e.delivered+rotationsHeld*e.trains < round {
		e.deliver(e.delivered + 1)
	}
	if e.halted != "" {
		return
	}
	e.measure(frame)
	// A wagon's round does not depend on whether this server begins a rotation.
	for at := wagonsAt(e.config.Layout); at < len(frame); {
		wagon, _ := nextWagon(e.config.Layout, frame, at)
		at += len(wagon.whole)
		if h.rotation > uint64(wagon.age) {
			e.takeWagon(s, wagon, e.roundOf(h.id, h.rotation-uint64(wagon.age)))
		}
	}
	if e.config.Fault == FaultOneRotation {
		e.deliverEarly(round)
	}
	e.leaveRing(e.ring &^ e.members)
	e.attachPending()
	e.passUnattached()
}

// takeWagon holds a wagon and notes it to be passed on, unless this server had it before. A wagon
// is named by its origin and its round, so it is taken once, whichever way it came, and a wagon
// whose origin left the ring ends where it is known already.
func (e *Engine) takeWagon(s *stop, wagon wagonView, round order.Round) {
	if e.config.Fault == FaultWagonUnderTrain {
		round = e.arrived
	}
	if e.config.Fault == FaultFilterByView && !s.view.has(wagon.origin) {
		return
	}
	if e.config.Fault == FaultJoinerDelivers && int(e.self) == e.n-1 &&
		e.arrived < e.config.FirstRound+e.trains {
		s.relayed = append(s.relayed, relay{wagon.origin, round, wagon.whole})
		return
	}
	if e.hold(wagon.origin, round, wagon.whole) {
		s.relayed = append(s.relayed, relay{wagon.origin, round, wagon.whole})
	}
}

// hold keeps a wagon until its round is A-delivered. It reports whether the wagon is new.
func (e *Engine) hold(origin order.ServerID, round order.Round, whole []byte) bool {
	if round <= e.delivered {
		return false
	}
	held := e.heldOf(round)
	if held.present.has(origin) {
		return false
	}
	held.present |= one(origin)
	held.wagons[origin] = whole
	if len(whole) > wagonHeaderSize {
		held.payloads++
		e.payloads++
		e.keepGoing(round)
	}
	return true
}

// attach attaches this server's wagon to the train that waits here and sends it on or, if this
// server is alone, A-delivers the round.
func (e *Engine) attach(payload []byte) {
	round := e.attached + 1
	if e.isAlone() {
		e.arrived = max(e.arrived, round)
		wagon := appendWagon(make([]byte, 0, wagonHeaderSize+len(payload)), e.config.Layout,
			e.self, e.rotationOf(round), payload)
		e.hold(e.self, round, wagon)
		e.attached = round
		e.deliver(round)
		return
	}
	e.pass(round, payload, true)
}

// passUnattached sends on the trains that come after the last round of the eon, without a wagon.
func (e *Engine) passUnattached() {
	for e.halted == "" && !e.isAlone() && e.last != 0 && e.waiting() > 0 &&
		e.attached+1 > e.last {
		e.pass(e.attached+1, nil, false)
	}
}

// pass sends the train that waits here to the successor: with the wagons that came with it, except
// those of the successor, which have been everywhere, and with this server's own.
func (e *Engine) pass(round order.Round, payload []byte, own bool) {
	assert(round == e.attached+1 && round <= e.arrived, "trains leave in the order of rounds")
	id, layout := e.idOf(round), e.config.Layout
	s, rotation := &e.stops[id], e.rotationOf(round)
	if e.config.Fault == FaultEmptyUnmarked && len(payload) == 0 {
		own = false
	}
	size := wagonsAt(layout)
	for i := range s.relayed {
		if s.relayed[i].origin != e.successor {
			size += len(s.relayed[i].whole)
		}
	}
	if own {
		size += wagonHeaderSize + len(payload)
	}
	frame := appendTrain(e.take(size), layout, e.config.Generation, uint8(id), s.clock, rotation)
	for i := range s.relayed {
		r := &s.relayed[i]
		if r.origin != e.successor {
			frame = appendRelayed(frame, layout, r.whole, uint8((round-r.round)/e.trains))
		}
		r.whole = nil
	}
	s.relayed = s.relayed[:0]
	if own {
		at := len(frame)
		frame = appendWagon(frame, layout, e.self, rotation, payload)
		e.hold(e.self, round, frame[at:len(frame):len(frame)])
	}
	finishTrain(frame, layout)
	s.sent, s.view = frame, e.ring
	e.attached = round
	e.send(e.successor, frame)
}

// take returns memory for a frame.
func (e *Engine) take(size int) []byte {
	if e.memory != nil {
		return e.memory(size)[:0]
	}
	return make([]byte, 0, size)
}
