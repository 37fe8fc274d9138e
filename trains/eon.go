package trains

import "github.com/ledgerd/ledgerd/order"

// The end of an eon. One engine serves one eon, in which no member joins. Members leave it only by
// failing. When a round r with a change of the group is A-delivered, r + 2·Trains - 1 is the eon's
// last round: every server A-delivers r as the train of round r + 2·Trains comes to it, so every
// server attaches wagons to all rounds before that one, and to none from there on. The trains go on
// without wagons for two rotations, in which all servers A-deliver the last round. The next eon's
// engine goes on with the round after it. A server that joins takes part from the first wagon on,
// and gets the rounds before in another way. So nobody A-delivers a part of a rotation (E4).
//
// The engine ends as soon as its last round is A-delivered, when it has also sent on all trains
// that others need to end. If a server that has ended was told of a crash among its successors, it
// would have to send trains again. It does so if its driver still tells it. A driver that does not
// leaves the server behind the crashed one to the next generation, or to the eon's blocks.

// noteChange checks whether an A-delivered round contains a change of the group.
func (e *Engine) noteChange(d order.Delivery) {
	if e.config.Change == nil || !e.config.Change(d) || e.last != 0 {
		return
	}
	e.last = d.Round + ChangeRounds(e.config.Trains) - 1
	if e.config.Fault == FaultLastRoundShort {
		e.last--
	}
}

// ChangeRounds returns how many rounds a run of a ring may have from that of a change on: the
// change's round to the last one. A further change in them is A-delivered in the same eon, so a
// chain whose changes take effect one eon at a time ignores it. 0 trains mean TrainsDefault.
func ChangeRounds(trains int) order.Round {
	if trains == 0 {
		trains = TrainsDefault
	}
	return rotationsHeld * order.Round(trains)
}

// inEon reports whether servers attach wagons to the train of a round.
func (e *Engine) inEon(round order.Round) bool { return e.last == 0 || round <= e.last }
