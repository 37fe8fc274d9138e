// Package turn decides what one server does with its engine, turn by turn. It is the part of a
// driver that a simulator can judge. A driver (node/driver, node/poller, sim) has the lanes, the
// timers and the goroutines. All drivers run this package, so each decision exists once.
//
// There are three pure machines. A Gate serves a server for its whole life: frames arrive at it,
// and it decides which frames are taken. A Machine serves one run of an engine that takes frames.
// It owns the engine and decides what happens in a turn, and in which order. A Polled serves one
// run of an engine that works on one-sided memory and takes none (polled.go).
//
//	lanes ───> Gate.Admit ──┐                                       ┌─> Send    -> lanes
//	detector > Gate.Suspect ┼> Gate.Take -> Machine.Step -> Next ───┼─> Deliver -> pipeline
//	pool ──────────────────────> Machine.Broadcast ─────────────────┴─> Linger, Lost, Removed, ...
//
// The loop of a driver:
//
//	machine := turn.New(turn.Config{Engine: engine, Self: place, Servers: len(members)})
//	gate.Activate(run, members)
//	for !machine.Over() {
//		machine.Step(gate.Take(nil))       // everything that came since the last turn
//		if machine.MayBroadcast() {
//			machine.Broadcast(pool.Next()) // nil if there is nothing
//		}
//		for do := machine.Next(); do.Kind != turn.Done; do = machine.Next() {
//			switch do.Kind {
//			case turn.Send:     // put do.Sends on the lanes; if one is broken, machine.Break
//			case turn.Deliver:  // hand over do.Deliveries; if refused, machine.Untaken
//			case turn.Record:   // offer do.Deliveries to the recorder
//			case turn.Linger:   // set a timer that calls machine.LingerOver
//			case turn.Lost:     // do.Server gets no more frames in this run: close its lane
//			case turn.Silenced: // nothing more is taken from it: gate.Silence
//			case turn.Removed:  // both, for all of do.Deliveries[0].Removed
//			case turn.Suspected, turn.Trusted: // for the log
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
//     with them or after them. An engine ignores a predecessor once it suspects it, and the proofs
//     need the engine to have everything that came before [Poke19, Proposition 5.2.1].
//   - Send before deliver. Everything that the engine wants sent goes out before the caller hands a
//     round over. Otherwise, if a server crashes after a delivery, the messages and votes that
//     others need to make the same delivery are lost with it.
//   - A server that was lost or silenced in a run is never trusted again in that run. A lost
//     server's lane broke, so it misses some of our frames. A silenced server sent bytes that are
//     no frame, or came back in another life, so we miss some of its frames. A group that trusts
//     such a server waits for messages that never come.
//   - Frames of a server whose lane broke are still taken: its votes count. Frames of a server that
//     was removed, sent bytes that are no frame, or came back are not.
//
// # When a server A-broadcasts
//
// After each batch of inputs, if the engine allows it, the server A-broadcasts the batch that its
// pool has. With nothing to send, it A-broadcasts an empty message in three cases: another server
// is waiting (Solicited); a batch of its own is held back until later rounds, and a client waits
// for it; or another server's batch has been held back for a linger. Own batches wait as long as
// too much is parked for a member (Crowded) that no server suspects. A suspected member does not
// count: the agreement on its failure may need our message.
//
// # Frames of other runs
//
// The Gate holds frames of later runs until their run is activated, a bounded number for each
// sender. Past that bound, their lane waits (Full). The Gate drops frames of earlier runs: their
// rounds are over.
//
// A relayed frame costs no allocation here. Sources: [Poke19, chapters 5 and 6], and the loop in
// the comment of order.Broadcaster.
package turn
