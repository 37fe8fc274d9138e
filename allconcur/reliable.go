package allconcur

import "github.com/ledgerd/ledgerd/order"

// handleReliable handles ⟨RBCAST, m⟩ [Poke19, Algorithm 6.3, Table 6.1 #6, #7, #8; Algorithm 5.1,
// lines 12-18]. Propositions 6.2.5 and 6.2.6 say that m comes from this state, from the next round
// of this epoch (a skip), or from the next round of the next epoch. If a frame contradicts them,
// either P or the sender is wrong, and the frame is dropped. One further case occurs at the end of
// an eon, from the transitional round (eon.go).
func (e *Engine) handleReliable(from order.ServerID, header frameHeader, frame []byte) {
	if header.epoch < e.epoch || header.epoch == e.epoch && header.round < e.round {
		return // outdated
	}
	if e.endsEon(header) {
		e.followToTransitional()
	}
	if !e.reliable || header.round < e.round {
		e.proposition(header.epoch == e.epoch, "6.2.5")
		e.proposition(false, "6.2.6")
		// It is reliable and ahead of this server's unreliable round. The notification before it
		// would have ended that round.
		return
	}
	premature := header.epoch == e.epoch+1 && header.round == e.round+1
	skip := header.epoch == e.epoch && header.round == e.round+1 &&
		e.newer.is(e.epoch-1, e.round, false)
	if !premature && !skip && (header.epoch != e.epoch || header.round != e.round) || e.last != 0 &&
		header.round > e.last {
		e.proposition(header.epoch == e.epoch, "6.2.5")
		e.proposition(false, "6.2.6")
		return
	}
	if e.perfect && e.isLost(header.origin) {
		e.halt("a message of server %d is here that the failure notifications had proven lost: "+
			"a suspicion was false", header.origin)
		return
	}
	switch {
	case premature:
		e.postponeReliable(from, header, frame)
		return
	case skip:
		if !e.maySkip() {
			e.haltIfSkipped(header.origin)
			return
		}
		e.skip()
	case e.decided || e.current.present.has(header.origin):
		return // a decided set takes no more messages
	}
	e.forwardReliable(from, header, frame)
	e.current.add(header.origin, frame)
	e.tracking.received(header.origin)
	e.tryToComplete()
}

// isLost reports whether this server stopped tracking a message that is not here: according to the
// notifications, no working server has it.
func (e *Engine) isLost(origin order.ServerID) bool {
	return !e.tracking.awaited.has(origin) && !e.current.present.has(origin)
}

// postponeReliable keeps a premature message of [[epoch+1, round+1]]. It relays the message at
// once: the failure notifications that come after it are relayed too, and their order matters. The
// message is counted when this server gets to that state [Poke19, section 6.3.2.6].
func (e *Engine) postponeReliable(from order.ServerID, header frameHeader, frame []byte) {
	if !e.next.is(header.epoch, header.round, true) {
		e.next.begin(header.epoch, header.round, true)
	}
	if !e.next.present.has(header.origin) {
		e.next.add(header.origin, frame)
		if e.config.Fault != FaultPrematureNotRelayed {
			e.forwardReliable(from, header, frame)
		}
	}
}

// forwardReliable relays a message over G_R.
func (e *Engine) forwardReliable(from order.ServerID, header frameHeader, frame []byte) {
	if e.config.Fault == FaultDroppedForward {
		return
	}
	e.send(e.overlay.forward.relays(header.origin, from), frame)
}

// startReliable starts [[epoch, round]] with the messages that arrived early, and redelivers the
// valid failure notifications.
func (e *Engine) startReliable() {
	e.reliable, e.decided, e.confirmed = true, false, false
	e.skippers.clear()
	if e.held > 0 {
		e.forgetHeld()
	}
	e.adopt()
	e.tracking.reset()
	for p, more := e.current.present.next(0); more; p, more = e.current.present.next(p + 1) {
		e.tracking.received(p)
	}
	e.tracking.redeliver()
	e.rerunOwn()
}

// completeReliable completes [[epoch, round]], on which enough servers agree. It A-delivers the
// round, removes the servers without a message, and moves on: by T_R▷ if no failure notification is
// valid any more, else by T_RR; in AllConcur always by T_RR [Poke19, Algorithm 6.5, lines 67-91;
// Algorithm 5.1, lines 5-11].
func (e *Engine) completeReliable() {
	assert(e.current.present.has(e.self), "a server's own message is never given up")
	if e.perfect && e.current.count < e.majority {
		e.halt("the messages of only %d servers are left in round %d, a majority is %d of %d",
			e.current.count, e.round, e.majority, e.n)
		return
	}
	if e.older.filled {
		assert(!e.perfect, "a round is A-delivered before the rerun of the next one is "+
			"complete, which a majority takes part in")
		e.deliver(e.older, nil) // voters for the set of [[e+1,r+1]] voted for [e,r]
		e.older.reset()
	}
	removed := e.removeAbsent()
	e.applyRevocations(e.current)
	e.deliver(e.current, removed)
	e.current.reset()
	e.newer.reset() // it was rerun
	e.solicit = max(0, e.solicit-1)
	if e.round == e.last {
		e.end()
		return
	}
	e.round++
	if e.plus && len(e.failures.arrived) == 0 && e.round != e.last {
		e.startUnreliable()
		return
	}
	e.epoch++
	e.startReliable()
}

// removeAbsent removes the servers whose messages of the completed reliable round do not exist, and
// returns them.
func (e *Engine) removeAbsent() []order.ServerID {
	if e.current.count == len(e.overlay.members) {
		return nil
	}
	removed := make([]order.ServerID, 0, len(e.overlay.members)-e.current.count)
	for _, p := range e.overlay.members {
		if !e.current.present.has(p) {
			assert(e.failures.targets.has(p), "only a server that failed is removed")
			removed = append(removed, p)
			e.members.remove(p)
		}
	}
	e.removedCount += len(removed)
	e.failures.retain(e.members)
	e.overlay = newOverlay(e.config.Reliable, e.self, e.members, e.plus, e.config.Detector)
	e.setThresholds()
	if !e.perfect {
		e.forgetHeld()
	}
	return removed
}
