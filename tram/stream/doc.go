// Package stream carries the numbered stream of entries from a parent group to a child group, in
// TRAM without leaders: from the members of the parent, who all hold the stream in their own log,
// into the log of the child, whoever crashes.
//
// # The story
//
// What a group orders for a child of its tree is a stream of entries, numbered from 1 without gaps,
// and it follows from the group's log, so every member of the parent holds it (tram.Relay). Each
// member runs a Writer, each member of the child a Carrier. Between each two of them is a ring:
// memory at the carrier, which the writer alone writes, one-sided, and the carrier reads and
// clears.
//
// Of a parent with n members, of which f = ⌊(n-1)/2⌋ may crash, f+1 write an entry, each to f+1 of
// the child's; so at least one who lives writes to one who lives. Which ones rotates with the
// entry's number. Carriers propose what is in their rings to the child's log, with the numbers, and
// the child's relay takes number n+1 only after n and drops the rest: so repeating is harmless, and
// an entry can only be late. Late it is where those f+1 are slow, or cut off from each other. Then
// the others take over: a writer that sees the child's position stand still for its patience writes
// to all carriers, and a carrier that holds the next entry and sees the log without it proposes it.
//
// Both logs have to stand by what they say. A writer is offered only what the parent's log will
// never take back (in the node: durable blocks), or two members could write different entries of
// the same number. And a position is told to writers only where the child's log will never go back
// behind it; up to there, what was received is forgotten.
//
// The child's position, up to which its log has the stream for good, flows back to the writers with
// the room that each ring has again (Feedback): a word or two in a region, or any message.
//
// # What always holds
//
//   - Once and in order. A Carrier proposes a run of numbers that follows what the log has taken,
//     or what it proposed itself; the child's relay takes each number once, in order.
//   - Nothing is lost with a member. A writer keeps an entry, or can be given it again, until the
//     child's log has it for good. A carrier keeps what was written to it until then too, when the
//     writer is gone as well as when its ring is taken away (Detach copies what is needed). Who
//     restarts starts with nothing and is written to, or writes, anew.
//   - No byte is read before it was written in whole, and none is overwritten before its carrier
//     let go of it. A record ends with a canary, and becomes visible by its first word, which was
//     zero: the carrier clears what it gives back. The canary alone would not do where records
//     differ in length.
//   - No ring is stuck. An entry is only written where all entries before it that the child's log
//     lacks would still fit in. So whatever the ring holds, the next entry has room.
//   - Memory is bounded: at a writer, Config.Entries entries and Config.RingSize bytes of them; at
//     a carrier its rings, Config.Entries places, and copies of what was in rings that were taken
//     away. Offer gives ErrFull where there is no room; the stream can be read from the parent's
//     log again, from Writer.Next on.
//   - Nothing waits for ever while each group has a majority that lives and some writer of those
//     reaches some carrier of those: every writer that lives ends up writing the next entry to
//     every carrier that it reaches, and every carrier that holds it ends up proposing it, again
//     and again.
//   - What comes from memory that others write is checked before it is used: a record out of form
//     ends its ring (Broken), nothing else.
//   - Both machines are deterministic. They have no clock: instants are ticks that the driver feeds
//     in (Tick), of any length, never going back.
//
// # The loops that drive them
//
// A member of the parent, for one child:
//
//	writer, err := stream.NewWriter(config)
//	for {
//		select one input:
//			a carrier is there, granted a ring and told its life -> writer.Attach(carrier, life, position)
//			an operation completed                               -> writer.Completed(carrier); with an error also writer.Detach(carrier)
//			feedback                                             -> writer.Feedback(carrier, stream.FeedbackAt(region, offset))
//			the time                                             -> writer.Tick(now); writer.Deadline() says when that matters next
//		for writer has room { err := writer.Offer(writer.Next(), the entry of that number in the parent's log) }
//		for _, w := range writer.Writes() { post w.Bytes at w.Offset of w.Carrier's ring, with Ring }
//	}
//
// A member of the child:
//
//	carrier, err := stream.NewCarrier(config)
//	err = carrier.Attach(writer, life, region) // then grant the region to the writer, and tell it the life
//	for {
//		carrier.Poll()
//		carrier.Advance(relay.Position(), the position that is durable)
//		carrier.Tick(now)
//		if carrier.Pending() { propose carrier.Propose(nil, room in the batch) with the next round message }
//		for _, report := range carrier.Reports() { write report.Feedback to report.Writer }
//	}
//
// # Where to find what
//
//	config.go    what both sides agree on; who acts at once; faults to plant
//	frame.go     a record of a ring, byte by byte
//	feedback.go  what flows back
//	writer.go    the stream at a member of the parent
//	outlet.go    one ring, as its writer sees it
//	carrier.go   the stream at a member of the child
//	inbox.go     one ring, as its reader sees it
//	status.go    where it stands, for people
//	state.go     what a search compares and copies
package stream
