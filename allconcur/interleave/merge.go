package interleave

import (
	"slices"

	"github.com/ledgerd/ledgerd/allconcur"
	"github.com/ledgerd/ledgerd/order"
)

// merge is what the engines A-delivered, and how much of it had its turn.
type merge struct {
	// delivered is the last A-delivered round.
	delivered order.Round
	// due is the engine whose round has its turn next.
	due int
	// waiting are the rounds that each engine A-delivered and that wait for their turn, oldest
	// first. The first kept of them are in this server's own memory.
	waiting [][]order.Delivery
	kept    []int
	// epochs are the engines' epochs in their last rounds that had their turn.
	epochs []order.Epoch
	// members are the servers that are left after the last A-delivered round. gone are those that
	// some engine removed.
	members, gone []bool
	out           output
}

// output collects what the driver is to do. Its slices are reused.
type output struct {
	sends      []order.Send
	deliveries []order.Delivery
	messages   []order.Message
	// taken says that Ready returned it.
	taken bool
}

func newMerge(config Config) merge {
	m := merge{
		delivered: config.Engine.FirstRound - 1, waiting: make([][]order.Delivery, config.InFlight),
		kept: make([]int, config.InFlight), epochs: make([]order.Epoch, config.InFlight),
		members: make([]bool, config.Engine.Servers), gone: make([]bool, config.Engine.Servers),
	}
	for number := range m.epochs {
		m.epochs[number] = 1
	}
	for server := range m.members {
		m.members[server] = true
	}
	return m
}

// begin starts every call that changes the engine. From here on the result of the last Ready is no
// longer valid.
func (e *Engine) begin() {
	if !e.out.taken {
		return
	}
	clear(e.out.sends)
	clear(e.out.deliveries)
	clear(e.out.messages)
	e.out = output{sends: e.out.sends[:0], deliveries: e.out.deliveries[:0],
		messages: e.out.messages[:0]}
}

// Ready returns what is to be done since the last call, and forgets it.
func (e *Engine) Ready() order.Ready {
	e.begin()
	e.out.taken = true
	for number := 0; number < len(e.engines); number++ {
		if e.touched[number] && e.collect(number) {
			number = -1 // others were told of a removal
		}
	}
	e.deliver()
	e.keep()
	return order.Ready{Sends: e.out.sends, Deliveries: e.out.deliveries}
}

// collect takes an engine's output. It reports whether the engine removed a server, which all
// engines then suspect.
func (e *Engine) collect(number int) (removes bool) {
	e.touched[number] = false
	ready := e.engines[number].Ready()
	e.out.sends = append(e.out.sends, ready.Sends...)
	for i := range ready.Deliveries {
		for _, server := range ready.Deliveries[i].Removed {
			removes = !e.gone[server] || removes
			e.gone[server] = true
		}
	}
	e.waiting[number] = append(e.waiting[number], ready.Deliveries...)
	if !removes {
		return false
	}
	e.keep() // the slices of an engine's output are valid until the engine is told something
	for server, gone := range e.gone {
		if gone {
			e.suspectRemoved(order.ServerID(server))
		}
	}
	return true
}

// suspectRemoved tells the engines that a server, which one of them removed, has failed. Those of
// which it is no predecessor refuse it, as do those that halted.
func (e *Engine) suspectRemoved(server order.ServerID) {
	if e.config.Fault == FaultOneEngineSuspects {
		return
	}
	for number, engine := range e.engines {
		if engine.Suspect(server) == nil {
			e.touched[number] = true
		}
	}
}

// isGone reports whether some engine removed a server.
func (m *merge) isGone(server order.ServerID) bool {
	return uint64(server) < uint64(len(m.gone)) && m.gone[server]
}

// hasWaiting reports whether a message waits for its turn.
func (m *merge) hasWaiting() bool {
	for _, rounds := range m.waiting {
		for i := range rounds {
			if slices.ContainsFunc(rounds[i].Messages, isFilled) {
				return true
			}
		}
	}
	return false
}

func isFilled(message order.Message) bool { return len(message.Payload) > 0 }

// deliver A-delivers the rounds whose turn it is.
func (e *Engine) deliver() {
	for e.passTurn(); len(e.waiting[e.due]) > 0; e.passTurn() {
		d := e.waiting[e.due][0]
		e.waiting[e.due] = slices.Delete(e.waiting[e.due], 0, 1)
		e.kept[e.due] = max(0, e.kept[e.due]-1)
		e.emit(d)
		if e.due++; e.due == len(e.waiting) {
			e.due = 0
		}
	}
}

// passTurn lets another engine go first, if a bug is planted.
func (e *Engine) passTurn() {
	if e.config.Fault != FaultArrivalOrder && e.config.Fault != FaultEmptyTurnSkipped ||
		len(e.waiting[e.due]) > 0 {
		return
	}
	for number := range e.waiting {
		if len(e.waiting[number]) > 0 && (e.config.Fault == FaultArrivalOrder ||
			slices.ContainsFunc(e.waiting[number][0].Messages, isFilled)) {
			e.due = number
			return
		}
	}
}

// emit adds an engine's round to the output, without the messages of servers that left before.
func (e *Engine) emit(d order.Delivery) {
	e.delivered++
	e.epochs[e.due] = d.Epoch
	epoch := order.Epoch(1)
	for _, own := range e.epochs {
		epoch += own - 1
	}
	start := len(e.out.messages)
	for _, message := range d.Messages {
		if e.members[message.Origin] || e.config.Fault == FaultRemovedSpeaks {
			e.out.messages = append(e.out.messages, message)
		}
	}
	end := len(e.out.messages)
	e.out.deliveries = append(e.out.deliveries, order.Delivery{
		Epoch: epoch, Round: e.delivered, Messages: e.out.messages[start:end:end],
		Removed: e.leave(d.Removed),
	})
}

// leave takes servers out of the group, and returns those that were still in it.
func (m *merge) leave(removed []order.ServerID) []order.ServerID {
	var leaving []order.ServerID
	for _, server := range removed {
		if m.members[server] {
			leaving = append(leaving, server)
			m.members[server] = false
		}
	}
	return leaving
}

// keep copies the rounds that wait for their turn, whose messages' slices belong to the engines.
func (m *merge) keep() {
	for number, rounds := range m.waiting {
		for i := m.kept[number]; i < len(rounds); i++ {
			rounds[i].Messages = slices.Clone(rounds[i].Messages)
			rounds[i].Removed = slices.Clone(rounds[i].Removed)
		}
		m.kept[number] = len(rounds)
	}
}

// Delivered returns the last A-delivered round.
func (e *Engine) Delivered() order.Round { return e.delivered }

// cloneEngines copies engines.
func cloneEngines(engines []*allconcur.Engine) []*allconcur.Engine {
	copies := make([]*allconcur.Engine, len(engines))
	for number, engine := range engines {
		copies[number] = engine.Clone()
	}
	return copies
}
