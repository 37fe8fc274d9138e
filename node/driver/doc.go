// Package driver turns an engine, which is a pure state machine, into a running server. It feeds
// the engine with inputs from the fabric, the failure detector, the pool of transactions and the
// clock, and carries out the engine's outputs.
//
//	lanes "order" ──> inbox ─┐                ┌─> outboxes ──> lanes "order"
//	detector ─────> Suspect ─┼─> turn.Machine ┤
//	pool ─────────> Source ──┘                └─> Sink ──> the pipeline of blocks
//
// Package shard/turn makes the decisions: which frames to take, the order of actions in a turn,
// which members to silence, when a batch is due. The simulator runs that package, too. Package
// driver has the lanes, the timers, the goroutines, and the frames parked for slow members.
//
// One Driver serves a node for its whole life. It runs one engine at a time, that of a run: an eon
// of a generation of the group.
//
//	d, err := driver.New(driver.Config{Host: host, Self: self, Peers: peers, NewEngine: newEngine,
//		FrameRun: allconcur.FrameGeneration, Source: pool, Sink: pipeline,
//		Ended: func(group driver.Group, members []order.ServerID) { ... }})
//	err = d.Activate(driver.Group{Run: 7 << 16, FirstRound: 1, Members: members, Shard: 5})
//	...                     // rounds run; the detector calls d.Suspect and d.Trust
//	                        // Ended: the eon is over, the Sink got all rounds
//	err = d.SetPeers(peers) // a server joined
//	err = d.Activate(driver.Group{Run: 7<<16 + 1,
//		FirstRound: d.Status().Engine.Round + 1, Members: others, Shard: 6})
//	...
//	remains := d.Freeze()   // the Sink gets nothing more; remains: what may have been A-delivered
//	...
//	d.Close()
//
// # Turns
//
// All of this happens in turns, and one goroutine at a time takes them: the one that holds the lock
// running.turning. A turn takes what waits in the inbox, feeds it to the engine, and carries out
// what the engine wants. Each run has a goroutine for it, which sleeps until there is something.
//
// Over a fabric that can hand over frames without a switch of goroutines (rdmanet.PromptHost) to a
// Sink that can take rounds without waiting (PromptSink), the fabric's goroutine takes the turns
// for the frames that it has read. So a round costs no wakeup but the network's. That goroutine
// serves all lanes, so it must not wait for anything:
//
//   - It only tries to take the lock. If another goroutine has it, the run's goroutine gets the
//     frames.
//   - It puts frames into the inbox as far as there is room. A goroutine of their own lane waits
//     with the others.
//   - If the Sink has no room, it leaves off in the middle of the turn. The run's goroutine waits
//     for the Sink and finishes the turn. Until then nobody begins another one.
//
// All other events (the source, timers, opinions of the detector, the end) wake the run's
// goroutine. It also ends the run: when it has ended, it still holds the lock, so nobody takes
// another turn.
//
// Outside an engine, a server is its place in Config.Peers. Inside an engine it is its place in
// Group.Members. The driver translates.
//
// # Frames that are lent
//
// If the Sink has no use for payloads once it has returned (BorrowingSink), the fabric may use the
// memory of frames again, and the driver says when. It holds what the fabric lends it until all
// readers are done:
//
//   - the engine, once the round that it named after receiving the frames (order.Borrower) is
//     A-delivered;
//   - the Sink, at the end of the turn that handed this round over;
//   - the lanes, once the members have acknowledged all that was sent to them until then.
//
// The memory of large own messages is lent to the engine and used again in the same way, over a
// rdmanet.PromptHost: others may pass on the bytes of a message without a copy.
//
// What a run or the inbox holds for later runs, what a lost member may still get, and what a Sink
// refused is never given back. The garbage collector frees it. A node's pipeline keeps payloads, as
// do Config.Arrived and Config.Record, so nodes borrow nothing.
//
// # When it A-broadcasts
//
// After each batch of inputs, if the engine may, the driver A-broadcasts the Source's next batch,
// up to MaxBatch bytes. With nothing to send it A-broadcasts an empty message in three cases:
//
//   - another server is waiting (Solicited);
//   - a batch of its own is held back until later rounds, and a client of this server waits for it;
//   - a batch of another server has been held back for Linger.
//
// A RoundSource may have a batch in place of the empty message.
//
// So an idle group is silent. The last transaction before a quiet spell takes as many rounds as the
// engine needs, without a pause in between.
//
// # What is bounded, and why nothing waits in a circle
//
//   - The inbox holds at most InboxFrames frames and InboxBytes bytes (and one frame more). When it
//     is full the lanes' receive functions block, which closes the senders' windows. They run in
//     goroutines of their own lanes.
//   - The run's goroutine blocks on one thing only, the Sink. A full Sink thus stops reading and
//     A-broadcasting. This stops the whole group, since every round needs every server. The Sink
//     must not wait for the group.
//   - A lane whose window is full never blocks the engine: that peer's frames are parked in its
//     outbox, in order, and reading continues. So two servers that wait for room at each other
//     still read, acknowledge, and make that room.
//   - The protocol bounds the frames parked for a member without which no round is complete. No
//     server is further ahead than the round after the one that this member A-broadcast in last. A
//     server relays a message of a round once to each peer, and each vote once in either direction
//     and phase. So two rounds of n messages and 4n votes are under way, three where a rerun
//     overlaps, again for each of the fewer than n failures. To that add a notification for each
//     edge of the reliable digraph and round. [parkedFramesMax] is that number. If more frames wait
//     for a member, its link is cut and all rounds are reliable. Then only the lane to it is given
//     up, at both ends. The member continues without this server's frames, since others relay the
//     same frames to it.
//   - Own batches wait while more than ParkedBytes are parked for a peer that is not suspected and
//     still takes frames now and then. A peer that takes nothing for ParkedPatience is given up.
//   - Frames of runs later than the current one are held, HeldFrames a peer, until that run or a
//     later one is activated here. Beyond that the peer's lane waits. Frames of earlier runs are
//     dropped, since their rounds are over.
//   - Frames parked by a run that ended are sent before the frames of the next run. Members that
//     are not in the next run get them beside it, each from a goroutine. That goroutine ends with
//     its Farewell, or when a new run includes the member.
//   - Frames to a peer whose lane is broken are discarded. The peer lost some frames already, so it
//     is suspected for the rest of the run, and never trusted. Frames from it are still taken,
//     above all votes. The next run takes a fresh lane.
//
// Each relayed frame costs a place in two reused slices: no allocation, no lock, no channel
// operation of its own. All frames of a batch of inputs that go to one peer are one TrySend.
//
// Sources: [Poke19, chapters 5 and 6] for the engine's requirements. The loop is the one in the
// comment of [order.Broadcaster].
package driver
