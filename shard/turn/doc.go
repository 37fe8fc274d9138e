// Package turn decides what one server does with its engine, turn by turn: the part of a driver
// that a simulator can judge. A driver (node/driver, sim) keeps the lanes, the timers and the
// goroutines. Both run this room, so each decision exists once.
//
// There are two pure machines. A Gate is for a server's whole life. It stands where frames come in
// and decides whose are taken. A Machine is for one run. It owns that run's engine and decides what
// happens in a turn, and in which order.
//
//	lanes ────> Gate.Admit ──┐                                        ┌─> Send    -> lanes
//	detector ─> Gate.Suspect ┼─> Gate.Take -> Machine.Step -> Next ───┼─> Deliver -> pipeline
//	pool ───────────────────────> Machine.Broadcast ──────────────────┴─> Linger, Lost, Removed, ...
//
// The loop of a driver:
//
//	machine := turn.New(turn.Config{Engine: engine, Self: place, Servers: len(members)})
//	gate.Activate(run, members)
//	for !machine.Over() {
//		machine.Step(gate.Take(nil))       // all that came since the last turn
//		if machine.MayBroadcast() {
//			machine.Broadcast(pool.Next()) // nil where there is nothing
//		}
//		for do := machine.Next(); do.Kind != turn.Done; do = machine.Next() {
//			switch do.Kind {
//			case turn.Send:     // put do.Sends on the lanes; where one is broken, machine.Break
//			case turn.Deliver:  // hand do.Deliveries over; where they are refused, machine.Untaken
//			case turn.Linger:   // set a timer that calls machine.LingerOver
//			case turn.Lost:     // do.Server gets no more frames in this run: close its lane
//			case turn.Silenced: // nor is anything taken from it: gate.Silence
//			case turn.Removed:  // the same for all in do.Deliveries[0].Removed
//			case turn.Suspected, turn.Trusted: // for people who read the log
//			}
//		}
//		if !machine.Again() {
//			wait for input
//		}
//	}
//	gate.End()
//	members, ended := machine.Ended() // the eon is over, or machine.Halted says why not
//
// # What a turn guarantees
//
//   - Frames before opinions. The frames of a turn go to the engine before any suspicion that came
//     with them or after them. An engine ignores a predecessor from its suspicion on, and the
//     proofs need it to have everything that came before [Poke19, Proposition 5.2.1].
//   - Send before deliver. Whatever the engine wants sent goes out before the caller hands a round
//     over. Otherwise a server that crashes after a delivery takes the messages and votes to the
//     grave that others need to make the same delivery.
//   - A server that was silenced in a run is never trusted again in that run. That is a server
//     whose lane broke, which misses frames of ours, or one that sent what is no frame or came back
//     in another life, of which we miss frames. A group that trusts it waits for messages that
//     never come.
//   - A server whose lane broke is still heard: its votes count. One that was removed, sent what is
//     no frame or came back is not.
//
// # When a server A-broadcasts
//
// After each batch of inputs, if the engine may: the batch that its pool has. With nothing to send,
// a server A-broadcasts an empty message in three cases: another server is waiting (Solicited); a
// batch of its own is held back until later rounds, and somebody here waits for it; or somebody
// else's has been for a linger. Own batches wait as long as too much is parked for a member
// (Crowded) that nobody suspects. A member that is suspected does not count: the agreement on its
// failure may need our message.
//
// # Frames of other runs
//
// The Gate holds frames of later runs until their run is activated, a bounded number for each
// sender. Past that bound their lane waits (Wait). It drops frames of earlier runs: their rounds
// are over.
//
// Nothing here allocates for a relayed frame. Sources: [Poke19, chapters 5 and 6], and the loop in
// the comment of order.Broadcaster.
package turn
