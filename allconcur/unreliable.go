package allconcur

// handleUnreliable handles ⟨BCAST, m⟩ [Poke19, Algorithm 6.2, Table 6.1 #1, #2, #5]. Proposition
// 6.2.3 says that m comes from this server's epoch or an earlier one, and from at most the next
// round. If a frame contradicts it, either P or the sender is wrong, and the frame is dropped.
func (e *Engine) handleUnreliable(header frameHeader, frame []byte) {
	switch {
	case header.epoch != e.epoch || header.round < e.round || header.round > e.round+1 ||
		e.last != 0 && header.round > e.last:
		e.proposition(header.epoch <= e.epoch && (header.epoch < e.epoch ||
			header.round <= e.round+1), "6.2.3")
		return
	case header.round == e.round+1:
		e.postponeUnreliable(header, frame)
	case e.reliable:
		e.proposition(false, "6.2.2") // no state is both reliable and unreliable
		return
	case !e.current.present.has(header.origin):
		e.current.add(header.origin, frame)
		e.forwardUnreliable(header, frame)
		e.tryToComplete()
	}
}

// postponeUnreliable keeps a premature message of [epoch, round+1]. The message is relayed and
// counted when this server gets to that round. Reliable messages of the next epoch replace it
// [Poke19, Algorithm 6.2, line 23].
func (e *Engine) postponeUnreliable(header frameHeader, frame []byte) {
	if !e.next.filled {
		e.next.begin(header.epoch, header.round, false)
	}
	if e.next.is(header.epoch, header.round, false) && !e.next.present.has(header.origin) {
		e.next.add(header.origin, frame)
	}
}

// forwardUnreliable sends a message of the current unreliable round to this server's children in
// its origin's tree.
func (e *Engine) forwardUnreliable(header frameHeader, frame []byte) {
	if e.config.Fault == FaultDroppedForward {
		return
	}
	e.send(e.overlay.children[header.origin], frame)
}

// completeUnreliable completes [epoch, round] and moves on to [epoch, round+1], T_UU [Poke19,
// Algorithm 6.5, lines 58-66].
func (e *Engine) completeUnreliable() {
	switch {
	case e.n == 1:
		e.deliver(e.current, nil) // no other server to agree with
		e.current.reset()
	case e.uniform:
		assert(!e.older.filled, "a round is A-delivered before the next but one is complete, "+
			"which a majority is in by then")
		e.older, e.newer, e.current = e.newer, e.current, e.older
	default:
		if e.newer.filled {
			e.deliver(e.newer, nil)
			e.newer.reset()
		}
		e.newer, e.current = e.current, e.newer
	}
	if e.config.Fault == FaultEarlyDelivery && e.newer.filled {
		e.emit(e.newer, nil)
	}
	e.round++
	switch {
	case e.last == 0 || e.round < e.last || e.round == e.last && e.n > 1:
		e.startUnreliable()
	case e.round == e.last:
		e.epoch++
		e.startReliable()
	default:
		e.failFromUnreliable() // the transitional round is rerun reliably
	}
}

// startUnreliable starts [epoch, round] with the messages that arrived early.
func (e *Engine) startUnreliable() {
	assert(len(e.failures.arrived) == 0, "no valid failure notification in an unreliable round "+
		"(Lemma 6.2.4)")
	e.reliable, e.decided, e.confirmed = false, false, false
	e.solicit = 0
	if e.held > 0 {
		e.forgetHeld()
	}
	e.adopt()
	for p, more := e.current.present.next(0); more; p, more = e.current.present.next(p + 1) {
		e.forwardUnreliable(frameHeader{origin: p}, e.current.frames[p])
	}
	e.rerunOwn()
}
