// Package driver turns an engine, which is a pure state machine, into a running server: it owns the
// engine in one goroutine, feeds it what comes from the fabric, the failure detector, the pool of
// transactions and the clock, and carries out what it wants done.
//
//	lanes "order" ──> inbox ─┐                ┌─> outboxes ──> lanes "order"
//	detector ─────> Suspect ─┼─> turn.Machine ┤
//	pool ─────────> Source ──┘                └─> Sink ──> the pipeline of blocks
//
// Package shard/turn makes the decisions: whose frames are taken, what comes before what in a turn,
// which members are silenced, when a batch is due. The simulator runs it, too. This room has the
// lanes, the timers, the goroutines, and what is parked for slow members.
//
// One Driver serves a node for its whole life. It runs one engine at a time, that of a run: an eon
// of a generation of the group.
//
//	d, err := driver.New(driver.Config{Host: host, Self: self, Peers: peers, NewEngine: newEngine, FrameGeneration: allconcur.FrameGeneration,
//		Source: pool, Sink: pipeline, Ended: func(group driver.Group, members []order.ServerID) { ... }})
//	err = d.Activate(driver.Group{Generation: 7 << 16, FirstRound: 1, Members: members, Shard: 5})
//	...                                    // rounds run; the detector calls d.Suspect and d.Trust
//	                                       // Ended: the eon is over, everything was handed to the Sink
//	err = d.SetPeers(peers)                // somebody joined
//	err = d.Activate(driver.Group{Generation: 7<<16 + 1, FirstRound: d.Status().Engine.Round + 1, Members: others, Shard: 6})
//	...
//	remains := d.Freeze()                  // from here on the Sink hears nothing more; what may have been A-delivered is in remains
//	...
//	d.Close()
//
// Outside, a server is its place in Config.Peers; inside an engine it is its place in
// Group.Members. The driver translates.
//
// # When it A-broadcasts
//
// After each batch of inputs, if the engine may: whatever the Source has, up to MaxBatch. With
// nothing to send it A-broadcasts an empty message in three cases: another server is waiting
// (Solicited); a batch of its own is held back until later rounds, and somebody here waits for it;
// or somebody else's has been for Linger. So an idle group is silent, and the last transaction
// before a quiet spell takes as many rounds as the engine needs, without a pause in between.
//
// # What is bounded, and why nothing waits in a circle
//
//   - The inbox holds at most InboxFrames frames and InboxBytes bytes (and one frame more). When it
//     is full the lanes' receive functions block, which closes the senders' windows.
//   - The engine's goroutine blocks on one thing only, the Sink. A full Sink thus stops reading and
//     A-broadcasting, and in the end the group, since every round needs every server. The Sink must
//     not wait for the group.
//   - A lane whose window is full never blocks the engine: that peer's frames are parked in its
//     outbox, in order, and reading goes on. So two servers that wait for room at each other still
//     read, acknowledge, and make that room.
//   - What is parked for a member without which no round is complete is bounded by the protocol:
//     nobody is further ahead than the round after the one that it A-broadcast in last, and a
//     server relays a message of a round once to each peer, and each vote once in either direction
//     and phase: two rounds of n messages and 4n votes are under way, three where a rerun overlaps,
//     again for each of the fewer than n failures; and a notification for each edge of the reliable
//     digraph and round. [parkedFramesMax] is that number. A member for which more waits goes on
//     without this server's frames, since others relay the same to it: its link is cut, and all
//     rounds are reliable. Its lane is given up then, at both ends, and nothing else.
//   - Own batches wait as long as more than ParkedBytes are parked for a peer that nobody suspects
//     and that takes something now and then; one that takes nothing for ParkedPatience is given up.
//   - Frames of later runs than the running one are held, HeldFrames a peer, until that run is
//     activated here or a later one is; past that the peer's lane waits. Frames of earlier ones are
//     dropped: their rounds are over. What a run that ended has parked goes out before the frames
//     of the next one, and to members that are not in that one beside it, each in a goroutine that
//     ends with its Farewell, or when there is a run with that member again.
//   - Frames to a peer whose lane is broken are discarded: the peer lost some already, is suspected
//     for the rest of the run, and never trusted. What comes from it is still taken, votes above
//     all. The next run takes a fresh lane.
//
// Each relayed frame costs a place in two reused slices: no allocation, no lock, no channel
// operation of its own. All frames of a batch of inputs that go to one peer are one TrySend.
//
// Sources: [Poke19, chapters 5 and 6] for what the engine needs; the loop is the one in the comment
// of [order.Broadcaster].
package driver
