package trains

import "github.com/ledgerd/ledgerd/order"

// Trains that rest. The paper's trains go round for ever, in an idle group too. Here a train rests
// where it is when 3·Trains rounds in a row had no payload: then the train of the last payload has
// come to all servers for the second time since, so all have A-delivered it. The trains behind it
// rest there too, or at other servers, each by the same rule. The group is silent.
//
// A server that has something to say and no train calls one. It tells all servers the round that it
// waits for, as if that round had a payload, so no train rests for the next rotations. A server
// that fails does the same to all servers that know of it: under P its removal has to be
// A-delivered, and under ◇P the ring has to show that it stands still.

// rests reports whether the train of a round may rest where it is.
func (e *Engine) rests(round order.Round) bool {
	return round >= e.restsFrom && e.last == 0 && e.ring == e.members
}

// keepGoing keeps the trains going until all servers have A-delivered a round.
func (e *Engine) keepGoing(round order.Round) {
	rotations := order.Round(3)
	if e.config.Fault == FaultRestsEarly {
		rotations = 2
	}
	e.restsFrom = max(e.restsFrom, round+rotations*e.trains)
}

// callTrain keeps a wagon for the next train, and wakes the trains.
func (e *Engine) callTrain(payload []byte) {
	e.pending, e.hasPending = append(e.pending[:0], payload...), true
	round := e.attached + 1
	e.keepGoing(round)
	e.wakeAll(round)
}

// probe makes the trains go round, for a server that suspects another one under ◇P. A ring that
// rests, or that is about to, does not notice that a member failed, or never began. With the probe,
// either the trains come here again, or the server waits for one and its driver sees that the ring
// stands still.
func (e *Engine) probe() {
	if round := e.attached + 1; !e.isAlone() && !e.ended &&
		e.config.Fault != FaultSuspicionIgnored {
		e.keepGoing(round)
		e.wakeAll(round)
	}
}

// wakeAll tells all servers that this one waits for a round.
func (e *Engine) wakeAll(round order.Round) {
	frame := encodeWake(e.config.Layout, e.config.Generation, round)
	for left := e.ring &^ one(e.self); left != 0; left &= left - 1 {
		e.send(left.least(), frame)
	}
}

// wake lets trains go on for a server that waits for a round. It is at most a rotation ahead.
func (e *Engine) wake(round order.Round) {
	e.keepGoing(min(round, e.arrived+e.trains))
}

// attachPending attaches the wagon that waited, if there is one, to the train of the next round.
func (e *Engine) attachPending() {
	if e.hasPending && e.halted == "" && !e.ended && e.inEon(e.attached+1) {
		e.hasPending = false
		e.attach(e.pending)
	}
}
