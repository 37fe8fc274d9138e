package allconcur

import "github.com/ledgerd/ledgerd/order"

// The end of an eon [Poke19, section 6.3.3.2]. One engine serves one eon, in which G_R and the
// group do not change except for servers that fail. When a round r with a change of the group is
// A-delivered, r+2 is the transitional round, the eon's last. It is run reliably. The engine has
// ended when it is A-delivered, and the next eon's engine goes on with r+3.
//
// Every server knows of the change before it leaves round r+2, since completing [e,r+2] A-delivers
// r. A server that is in [e,r+2] when it learns of the change completes that round all the same,
// because a server behind it needs its message. It then goes from [e,r+3] to [[e+1,r+2]] as if a
// notification had arrived. But no notification has, so a message of [[e+1,r+2]] also moves a
// server that is still in [e,r+2]. The message's sender completed [e,r+2], so all servers have
// completed r+1 and voted for r, as in a skip.

// noteChange checks whether a round contains a change of the group. The round was A-delivered or,
// with prompt delivery, closed.
func (e *Engine) noteChange(d order.Delivery) {
	if e.config.Change == nil {
		return
	}
	if e.config.Change(d) && e.last == 0 {
		e.last = d.Round + 2
	}
}

// endsEon reports whether a reliable message comes from the transitional round while this server
// runs that same round unreliably.
func (e *Engine) endsEon(header frameHeader) bool {
	return e.config.Change != nil && !e.reliable && e.newer.filled && header.epoch == e.epoch+1 &&
		header.round == e.round && (e.last == 0 || e.last == e.round)
}

// followToTransitional goes from [e,r+2] to [[e+1,r+2]], after a server that completed [e,r+2].
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
