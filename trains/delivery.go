package trains

import "github.com/ledgerd/ledgerd/order"

// output collects what the driver is to do. Its slices are reused: the result of Ready is valid
// until the next call.
type output struct {
	sends      []order.Send
	deliveries []order.Delivery
	messages   []order.Message
	// taken says that Ready returned it.
	taken bool
}

// begin starts every call that changes the engine. From here on the result of the last Ready is no
// longer valid.
func (e *Engine) begin() {
	if !e.out.taken {
		return
	}
	e.out.taken = false
	clear(e.out.sends)
	clear(e.out.deliveries)
	clear(e.out.messages)
	e.out.sends, e.out.deliveries = e.out.sends[:0], e.out.deliveries[:0]
	e.out.messages = e.out.messages[:0]
}

// Ready returns what is to be done since the last call, and forgets it.
func (e *Engine) Ready() order.Ready {
	e.begin()
	e.out.taken = true
	return order.Ready{Sends: e.out.sends, Deliveries: e.out.deliveries}
}

// sendTrain sends a train to the successor, as it left here last.
func (e *Engine) sendTrain(s *stop) {
	for _, frame := range s.sent {
		e.send(e.successor, frame)
	}
}

func (e *Engine) send(to order.ServerID, frame []byte) {
	e.out.sends = append(e.out.sends, order.Send{To: e.peers[to : to+1 : to+1], Frame: frame})
}

// deliver A-delivers the next round, with the wagons that this server holds. Members without a
// wagon leave the group with it: a member that the train passed attached one, even if it was empty.
func (e *Engine) deliver(round order.Round) {
	assert(round == e.delivered+1, "rounds are A-delivered in order, each once")
	held := e.heldOf(round)
	missing := e.members &^ held.present
	if e.config.Fault == FaultEmptyUnmarked {
		missing &^= e.ring
	}
	if missing != 0 && !e.perfect {
		e.halt("round %d came round twice without the wagons of %v", round, missing.appendTo(nil))
		return
	}
	start := len(e.out.messages)
	for left := e.members &^ missing; left != 0; left &= left - 1 {
		origin := left.least()
		e.out.messages = append(e.out.messages, order.Message{Origin: origin,
			Payload: held.wagons[origin]})
	}
	end := len(e.out.messages)
	filled := held.payloads > 0
	e.payloads -= held.payloads
	clear(held.wagons)
	held.present, held.payloads = 0, 0
	e.delivered = round
	if missing != 0 {
		e.members &^= missing
		e.keepGoing(round)
	}
	if missing != 0 || round == e.last {
		e.epoch++
	}
	e.out.deliveries = append(e.out.deliveries, order.Delivery{Epoch: e.epoch, Round: round,
		Messages: e.out.messages[start:end:end], Removed: missing.appendTo(nil)})
	if filled {
		e.noteChange(e.out.deliveries[len(e.out.deliveries)-1])
	}
	if round == e.last {
		e.ended = true
	}
}

// deliverEarly is FaultOneRotation: it A-delivers a round after one rotation.
func (e *Engine) deliverEarly(round order.Round) {
	for e.delivered+e.trains < round {
		e.deliver(e.delivered + 1)
	}
}
