package allconcur

// The end of an eon [Poke19, section 6.3.3.2]. One engine serves one eon, in which G_R and the group stay what they are but for servers that fail. When a round r is A-delivered that holds a
// change of the group, r+2 is the transitional round, the eon's last: it is run reliably, and when it is A-delivered the engine has ended; that of the next eon goes on with r+3.
//
// Every server knows of the change before it leaves round r+2, since completing [e,r+2] A-delivers r. Who finds itself in [e,r+2] when it learns of it completes it all
// the same (who is behind needs its message), and goes from [e,r+3] to [[e+1,r+2]] as if a notification had come. But none has; so a message of [[e+1,r+2]] takes along who is
// still in [e,r+2]. Its sender completed [e,r+2]: all have completed r+1 and voted for r, as in a skip.

// noteChange asks whether the round that was A-delivered last holds a change of the group.
func (e *Engine) noteChange() {
	if e.config.Change == nil {
		return
	}
	d := e.out.deliveries[len(e.out.deliveries)-1]
	if e.config.Change(d) && e.last == 0 {
		e.last = d.Round + 2
	}
}

// endsEon reports whether a reliable message comes from the transitional round, the very round that this server runs unreliably.
func (e *Engine) endsEon(header frameHeader) bool {
	return e.config.Change != nil && !e.reliable && e.newer.filled && header.epoch == e.epoch+1 && header.round == e.round && (e.last == 0 || e.last == e.round)
}

// followToTransitional goes from [e,r+2] to [[e+1,r+2]] behind a server that completed [e,r+2].
func (e *Engine) followToTransitional() {
	e.epoch++
	e.leaveRerun()
	e.startReliable()
}

// end ends the engine with the A-delivery of the transitional round.
func (e *Engine) end() {
	e.ended = true
	e.decided, e.confirmed, e.reliable = false, false, true
	e.solicit, e.revoking, e.held = 0, 0, 0
	clear(e.links)
	e.next.reset()
}
