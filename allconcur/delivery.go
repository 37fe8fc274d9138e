package allconcur

import "github.com/ledgerd/ledgerd/order"

// output collects what the driver is to do. Its slices are reused: the result of Ready is valid
// until the next call.
type output struct {
	sends      []order.Send
	deliveries []order.Delivery
	messages   []order.Message
	closings   []order.Closing
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
	if len(e.out.sends) > 0 {
		clear(e.out.sends)
		e.out.sends = e.out.sends[:0]
	}
	if len(e.out.deliveries) > 0 {
		clear(e.out.deliveries)
		clear(e.out.messages)
		e.out.deliveries, e.out.messages = e.out.deliveries[:0], e.out.messages[:0]
	}
	e.out.closings = e.out.closings[:0]
}

// Ready returns what is to be done since the last call, and forgets it. The driver must hand over
// all sends before it acts on the first delivery: a server A-delivers only what it has sent on
// (message stability [Poke19, section 5.4]).
func (e *Engine) Ready() order.Ready {
	e.begin()
	e.out.taken = true
	return order.Ready{Sends: e.out.sends, Deliveries: e.out.deliveries, Closings: e.out.closings}
}

func (e *Engine) send(to []order.ServerID, frame []byte) {
	if len(to) > 0 {
		e.out.sends = append(e.out.sends, order.Send{To: to, Frame: frame})
	}
}

// deliverStable A-delivers the round before the last complete one, uniformly, once enough servers
// of the initial group (e.stable, this server included) run the state that follows the last
// complete round, or its rerun. Each of them completed the last round, or knows of a server that
// did, and decides no rerun of the round that is A-delivered. A server that reruns that round needs
// one of them, and skips [Poke19, section 6.4.2, with a majority in place of f].
func (e *Engine) deliverStable() {
	if !e.older.filled {
		return
	}
	count := e.current.count
	if !e.current.present.has(e.self) {
		count++
	}
	if count >= e.stable {
		e.deliver(e.older, nil)
		e.older.reset()
	}
}

// deliver A-delivers a round. The servers in removed leave the group with it.
func (e *Engine) deliver(set *roundSet, removed []order.ServerID) {
	if e.config.Fault == FaultEarlyDelivery && e.n > 1 && !set.reliable {
		return
	}
	e.emit(set, removed)
}

// emit adds one round to the output, with its messages by ascending origin.
func (e *Engine) emit(set *roundSet, removed []order.ServerID) {
	assert(e.config.Fault == FaultEarlyDelivery || set.round == e.delivered+1,
		"rounds are A-delivered in order, each once (Theorem 6.4.1)")
	e.delivered = set.round
	if e.ballots != nil {
		e.ballots[set.round%ballotsKept].reset()
	}
	if e.config.Prompt {
		e.close(set, removed)
		return
	}
	start := len(e.out.messages)
	for p, more := set.present.next(0); more; p, more = set.present.next(p + 1) {
		e.out.messages = append(e.out.messages, order.Message{Origin: p,
			Payload: payloadOf(set.frames[p])})
	}
	end := len(e.out.messages)
	e.out.deliveries = append(e.out.deliveries, order.Delivery{
		Epoch: set.epoch, Round: set.round, Messages: e.out.messages[start:end:end],
		Removed: removed,
	})
	e.noteChange(e.out.deliveries[len(e.out.deliveries)-1])
}

// Delivered returns the last A-delivered round. With prompt delivery it is the last closed one.
func (e *Engine) Delivered() order.Round { return e.delivered }

// Horizon returns the round after which the engine has no use for any frame that it has received or
// made so far, or 0 while it holds messages of suspected servers, which may be of any round. All
// other messages are of the next round at the latest, and a set is given up when its round or a
// later one is A-delivered.
func (e *Engine) Horizon() order.Round {
	if e.held > 0 {
		return 0
	}
	return e.round + 1
}
