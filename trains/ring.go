package trains

import "github.com/ledgerd/ledgerd/order"

// A member that fails, under P [TRAINS, Algorithm 4, mended]. A server learns of it from its
// detector, or from a train of a server before its predecessor: that server skipped everyone in
// between, so they are gone. From then on the server takes no frame of them. A frame that came late
// would carry a second copy of a train, or wagons behind a gap.
//
// A server whose successor changed sends the last trains again, oldest first. The new successor
// takes those that it has not had, which were lost with the failed servers, and ignores the others
// by their clocks. A train sent again has all wagons that this server passed on and that may not
// have been everywhere, since that is how it was sent.

// findNeighbours finds this server's neighbours in the ring.
func (e *Engine) findNeighbours() {
	e.successor, e.predecessor = e.ring.after(e.self), e.ring.before(e.self)
}

// skippedBy removes the servers between a server and this one from the ring.
func (e *Engine) skippedBy(from order.ServerID) {
	gone := serverSet(0)
	for p := e.predecessor; p != from; p = e.ring.before(p) {
		gone |= one(p)
	}
	e.leaveRing(gone)
}

// leaveRing goes on without some servers.
func (e *Engine) leaveRing(gone serverSet) {
	if gone &= e.ring; gone == 0 {
		return
	}
	before := e.successor
	e.ring &^= gone
	for left := gone; left != 0; left &= left - 1 {
		e.loading[left.least()] = nil
	}
	e.findNeighbours()
	switch {
	case e.isAlone():
		e.goAlone()
	case e.successor != before:
		e.sendAgain()
	}
}

// sendAgain sends the last trains to a new successor, in the order in which they left.
func (e *Engine) sendAgain() {
	for next := order.Round(1); next <= e.trains; next++ {
		s := &e.stops[e.idOf(e.attached+next)]
		s.view = e.ring
		if e.config.Fault == FaultResendSome && next == 1 {
			continue
		}
		e.sendTrain(s)
	}
}

// goAlone ends the ring: this server is the last one. Nobody else has A-delivered a round that it
// has not attached to, and it has the wagons of all rounds that any server A-delivered. So it
// A-delivers what it attached to, and from here on each of its messages at once.
func (e *Engine) goAlone() {
	for id := range e.stops {
		e.stops[id].sent, e.stops[id].relayed = nil, nil
	}
	for e.halted == "" && e.delivered < e.attached && !e.ended {
		e.deliver(e.delivered + 1)
	}
	e.attachPending()
}
