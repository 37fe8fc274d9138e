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
	if err := e.checkWagons(from, h, frame); err != nil {
		return err
	}
	if from != e.predecessor {
		if !e.perfect {
			return errNotPredecessor
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
	e.arrive(round, h, frame, e.loading[from])
	return nil
}

// errNotPredecessor says that a frame of the ring came from a server that has none for this one.
var errNotPredecessor = fmt.Errorf("%w: a train of a server that is not the predecessor",
	order.ErrFrame)

// load takes a wagon with a frame of its own. It belongs to the next train on the same lane.
func (e *Engine) load(from order.ServerID, h frameHeader, frame []byte) error {
	payload := frame[wagonFrameSize:len(frame):len(frame)]
	switch {
	case from != e.predecessor && !e.perfect:
		return errNotPredecessor
	case uint64(h.origin) >= uint64(e.n):
		return fmt.Errorf("%w: a wagon of server %d in a group of %d", order.ErrFrame, h.origin,
			e.n)
	case len(payload) > e.config.MaxPayload:
		return fmt.Errorf("%w: a wagon of %d bytes", order.ErrFrame, len(payload))
	case len(e.loading[from]) == e.n:
		return fmt.Errorf("%w: more wagons than servers, and no train", order.ErrFrame)
	}
	e.loading[from] = append(e.loading[from], relay{h.origin, h.round, payload, frame})
	return nil
}

// answerStale is where a train ends that is not due. The printed algorithm answers it and takes it
// for the last one (FaultStaleAnswered).
func (e *Engine) answerStale(h frameHeader) {
	if e.config.Fault == FaultStaleAnswered {
		e.sendTrain(&e.stops[h.id])
	}
}

// checkWagons checks the form of all wagons of a train before the first is taken, and that those
// with frames of their own are the ones that came before it.
func (e *Engine) checkWagons(from order.ServerID, h frameHeader, frame []byte) error {
	seen, loaded := 0, e.loading[from]
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
		case wagon.size > e.config.MaxPayload:
			return fmt.Errorf("%w: a wagon of %d bytes", order.ErrFrame, wagon.size)
		}
		if seen++; seen > e.n {
			return fmt.Errorf("%w: more wagons than servers", order.ErrFrame)
		}
		at = wagon.next
		if !wagon.apart {
			continue
		}
		if len(loaded) == 0 || loaded[0].origin != wagon.origin ||
			len(loaded[0].payload) != wagon.size || h.rotation <= uint64(wagon.age) ||
			loaded[0].round != e.roundOf(h.id, h.rotation-uint64(wagon.age)) {
			return fmt.Errorf("%w: a train without its wagon of server %d", order.ErrFrame,
				wagon.origin)
		}
		loaded = loaded[1:]
	}
	if len(loaded) > 0 {
		return fmt.Errorf("%w: %d wagons that their train does not have", order.ErrFrame,
			len(loaded))
	}
	return nil
}

// arrive takes the train of the next round, and the wagons with frames of their own that came
// before it. Its arrival here proves that the train went round twice since its round two rotations
// ago, so that round is A-delivered [TRAINS, section III-C].
func (e *Engine) arrive(round order.Round, h frameHeader, frame []byte, loaded []relay) {
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
		at = wagon.next
		switch {
		case wagon.apart:
			e.takeWagon(s, loaded[0])
			loaded = loaded[1:]
		case h.rotation > uint64(wagon.age):
			e.takeWagon(s, relay{origin: wagon.origin, payload: wagon.payload,
				round: e.roundOf(h.id, h.rotation-uint64(wagon.age))})
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
func (e *Engine) takeWagon(s *stop, wagon relay) {
	if e.config.Fault == FaultWagonUnderTrain && wagon.frame == nil {
		wagon.round = e.arrived
	}
	if e.config.Fault == FaultFilterByView && !s.view.has(wagon.origin) {
		return
	}
	if e.config.Fault == FaultJoinerDelivers && int(e.self) == e.n-1 &&
		e.arrived < e.config.FirstRound+e.trains {
		s.relayed = append(s.relayed, wagon)
		return
	}
	if e.hold(wagon.origin, wagon.round, wagon.payload) {
		s.relayed = append(s.relayed, wagon)
	}
}

// hold keeps a wagon until its round is A-delivered. It reports whether the wagon is new.
func (e *Engine) hold(origin order.ServerID, round order.Round, payload []byte) bool {
	if round <= e.delivered {
		return false
	}
	held := e.heldOf(round)
	if held.present.has(origin) {
		return false
	}
	held.present |= one(origin)
	held.wagons[origin] = payload
	if len(payload) > 0 {
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
		e.hold(e.self, round, append([]byte(nil), payload...))
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
	if own {
		s.relayed = append(s.relayed, e.ownWagon(round, payload))
	}
	clear(s.sent)
	s.sent = s.sent[:0]
	size := wagonsAt(layout)
	for i := range s.relayed {
		r := &s.relayed[i]
		switch {
		case r.origin == e.successor:
		case r.frame != nil:
			s.sent = append(s.sent, r.frame)
			size += wagonHeaderSize
		default:
			size += wagonHeaderSize + len(r.payload)
		}
	}
	frame := appendTrain(e.take(size), layout, e.config.Generation, uint8(id), s.clock, rotation)
	for i := range s.relayed {
		r := &s.relayed[i]
		if r.origin == e.successor {
			continue
		}
		frame = appendWagon(frame, layout, r.origin, e.rotationOf(r.round),
			uint8((round-r.round)/e.trains), r.payload, r.frame != nil)
		if own && i == len(s.relayed)-1 {
			e.hold(e.self, round, r.copied(frame))
		}
	}
	clear(s.relayed)
	s.relayed = s.relayed[:0]
	finishTrain(frame, layout)
	s.sent, s.view = append(s.sent, frame), e.ring
	e.attached = round
	e.sendTrain(s)
}

// ownWagon returns this server's wagon, with the caller's payload. Its own frame, if it gets one,
// has a copy.
func (e *Engine) ownWagon(round order.Round, payload []byte) relay {
	r := relay{origin: e.self, round: round, payload: payload}
	if e.config.Layout == LayoutHouse && len(payload) >= e.config.WagonFrameMin {
		r.frame = appendWagonFrame(e.take(wagonFrameSize+len(payload)), e.config.Generation,
			e.self, round, payload)
	}
	return r
}

// copied returns the payload of this server's wagon, whose memory is the caller's, where it is
// copied: in the wagon's own frame or, without one, at the end of its train.
func (r *relay) copied(train []byte) []byte {
	in := train
	switch {
	case len(r.payload) == 0:
		return nil
	case r.frame != nil:
		in = r.frame
	}
	return in[len(in)-len(r.payload) : len(in) : len(in)]
}

// take returns memory for a frame.
func (e *Engine) take(size int) []byte {
	if e.memory != nil {
		return e.memory(size)[:0]
	}
	return make([]byte, 0, size)
}
