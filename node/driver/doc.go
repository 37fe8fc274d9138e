// Package driver turns an engine, which is a pure state machine, into a running server: it owns the engine in one goroutine, feeds it
// what comes from the fabric, the failure detector, the pool of transactions and the clock, and carries out what it wants done.
//
//	lanes "order" ──> inbox ─┐                      ┌─> outboxes ──> lanes "order"
//	detector ─────> Suspect ─┼─> order.Broadcaster ─┤
//	pool ─────────> Source ──┘                      └─> Sink ──> the pipeline of blocks
//
// One Driver serves a node for its whole life. It runs one engine at a time, that of a generation:
//
//	d, err := driver.New(driver.Config{Host: host, Self: self, Peers: peers, NewEngine: newEngine, FrameGeneration: allconcur.FrameGeneration,
//		Source: pool, Sink: pipeline})
//	err = d.Activate(driver.Group{Generation: 7, FirstRound: 1, Members: members})
//	...                                    // rounds run; the detector calls d.Suspect
//	d.Freeze()                             // from here on the Sink hears nothing more
//	err = d.Activate(driver.Group{Generation: 8, FirstRound: 1, Members: others})
//	...
//	d.Close()
//
// Outside, a server is its place in Config.Peers; inside an engine it is its place in Group.Members. The driver translates.
//
// # When it A-broadcasts
//
// After each batch of inputs, if the engine may: whatever the Source has, up to MaxBatch. With nothing to send it A-broadcasts an
// empty message in three cases: another server is waiting (Solicited); a batch of its own is held back until later rounds, and
// somebody here waits for it; or somebody else's has been for Linger. So an idle group is silent, and the last transaction before a
// quiet spell takes as many rounds as the engine needs, without a pause in between.
//
// # What is bounded, and why nothing waits in a circle
//
//   - The inbox holds at most InboxFrames frames and InboxBytes bytes (and one frame more). When it is full the lanes' receive functions
//     block, which closes the senders' windows.
//   - The engine's goroutine blocks on one thing only, the Sink. A full Sink thus stops reading and A-broadcasting, and in the end the
//     group, since every round needs every server. The Sink must not wait for the group.
//   - A lane whose window is full never blocks the engine: that peer's frames are parked in its outbox, in order, and reading goes
//     on. So two servers that wait for room at each other still read, acknowledge, and make that room.
//   - What is parked is bounded by the protocol. A round completes only with the message of every server, so nobody is further ahead
//     than the round after the one that the slowest live server A-broadcast in, and a server relays a message of a round
//     once to each peer: two rounds of n messages are under way, three where a rerun overlaps, again for each of the fewer than n failures,
//     and a notification for each edge of the reliable digraph. [parkedFramesMax] is that number, and more parked frames halt the
//     engine loudly, as one of these sentences would be wrong. Own batches wait as long as more than ParkedBytes are parked for a peer
//     that nobody suspects.
//   - Frames of later generations than the running one are held, HeldFrames a peer, until that generation is activated here or
//     a later one is; past that the peer's lane waits. Frames of earlier ones are dropped: their rounds are over.
//   - Frames to a peer whose lane is broken are discarded: the peer lost some already and is a failed server to this generation.
//
// Each relayed frame costs a place in two reused slices: no allocation, no lock, no channel operation of its own. All frames of a batch of inputs
// that go to one peer are one TrySend.
//
// Sources: [Poke19, chapters 5 and 6] for what the engine needs; the loop is the one in the comment of [order.Broadcaster].
package driver
