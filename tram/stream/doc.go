// Package stream carries the numbered stream of entries from a parent group to a child group, in
// TRAM without leaders. All members of the parent hold the stream in their own log. The package
// carries it into the log of the child, whichever members crash.
//
// # Overview
//
// What a group orders for a child of its tree is a stream of entries, numbered from 1 without gaps.
// The stream follows from the group's log, so every member of the parent holds it (tram.Relay).
// Each member of the parent runs a Writer, and each member of the child a Carrier. Each writer and
// carrier share a ring: memory at the carrier that only this writer writes, one-sided, and that the
// carrier reads and clears.
//
// Of a parent with n members, f = ⌊(n-1)/2⌋ may crash. Therefore f+1 members write an entry, each
// to f+1 members of the child, and at least one live member writes to a live member. The members in
// charge rotate with the entry's number. Carriers propose the entries in their rings to the child's
// log, with their numbers. The child's relay takes number n+1 only after n and drops the rest.
// Repeating an entry is therefore harmless, and an entry can only be late. It is late if those f+1
// members are slow or cut off from each other. Then the other members take over. A writer that sees
// the child's position stand still for its patience writes to all carriers. A carrier that holds
// the next entry and sees the log without it proposes it.
//
// Members that lie need another rule. In a witnessed stream (Config.Witnessed) an entry counts at a
// carrier only once more than half of the present writers wrote the same bytes for it, each into
// its own ring. So more than half of the writers write an entry at once, and they write it to all
// carriers. The other writers take over as above, and then write at once for a while. f+1 carriers
// propose an entry at once, but each carrier says which entries count there (Vouch), as long as the
// log lacks them. The child's log can therefore ask for more than half of the carriers too. A
// proposal that comes too early for that is soon repeated. A writer believes the child's position
// once more than half of the carriers reported it, or more (Placed): a carrier that lies would else
// make it skip what the child lacks. As long as more than half of the writers, and of the carriers,
// do not lie, no lie counts. As long as all of these reach each other, every entry counts in the
// end. The writers that lie are named (Lies).
//
// Both logs have to keep their promises. Offer a writer only what the parent's log will never take
// back (in the node: durable blocks). Otherwise two members could write different entries with the
// same number. Tell writers a position only if the child's log will never go back behind it:
// carriers drop what they received up to there.
//
// The child's position, up to which its log has the stream durably, flows back to the writers
// together with the room that each ring has again (Feedback). It takes one or two words in a
// region, or any message.
//
// # Invariants
//
//   - Entries arrive once and in order. A Carrier proposes a run of numbers that follows what the
//     log has taken, or what it proposed itself. The child's relay takes each number once, in
//     order.
//   - Nothing is lost with a member. A writer keeps an entry, or can be given it again, until the
//     child's log has it durably. A carrier also keeps what was written to it until then, both if
//     the writer is gone and if its ring is taken away (Detach copies what is needed). A member
//     that restarts begins with nothing; it is written to, or writes, from the start.
//   - No byte is read before it was written in full, and none is overwritten before its carrier
//     released it. A record ends with a canary, and becomes visible by its first word, which was
//     zero: the carrier clears what it releases. The canary alone would not suffice for records of
//     different lengths.
//   - No ring gets stuck. An entry is only written if all entries before it that the child's log
//     lacks would still fit. Whatever the ring holds, the next entry has room.
//   - Memory is bounded: at a writer, Config.Entries entries and Config.RingSize bytes of them; at
//     a carrier its rings, Config.Entries places, and copies of the contents of rings that were
//     taken away. Offer returns ErrFull if there is no room. The stream can be read from the
//     parent's log again, from Writer.Next on.
//   - Nothing waits forever while each group has a live majority and some live writer reaches some
//     live carrier. In a witnessed stream, more than half of the writers must reach the same
//     carriers, which are more than half. Every live writer eventually writes the next entry to
//     every carrier that it reaches. Every carrier that holds the entry eventually proposes it,
//     again and again.
//   - A witnessed stream counts each present writer once for an entry, with the first bytes that it
//     wrote. It compares and keeps a copy, never what lies in a ring, which a liar can change. What
//     a departed writer wrote does not count. It is kept only while its ring is attached. All
//     variants of an entry are kept until the log has it durably, so a lie that comes first keeps
//     nothing out. Their records are released like others, so a lie does not hold up its ring. Of
//     each writer at most a ring's size is kept, however many rings it gets. That is enough for a
//     writer that keeps to the protocol; the rest of its ring waits for the log.
//   - Data from memory that other members write is checked before it is used. A malformed record
//     ends its ring (Broken) and nothing else.
//   - Both machines are deterministic. They have no clock: the driver feeds in instants (Tick), as
//     ticks of any length that never go back.
//
// # The loops that drive them
//
// A member of the parent, for one child:
//
//	writer, err := stream.NewWriter(config)
//	for {
//		select one input:
//			a carrier is there, granted a ring and told its life:
//				writer.Attach(carrier, life, position)
//			an operation completed:
//				writer.Completed(carrier); with an error also writer.Detach(carrier)
//			feedback:
//				writer.Feedback(carrier, stream.FeedbackAt(region, offset))
//			the time:
//				writer.Tick(now); writer.Deadline() says when that matters next
//		for writer is Placed and has room {
//			err := writer.Offer(writer.Next(), the entry of that number in the parent's log)
//		}
//		for _, w := range writer.Writes() {
//			post w.Bytes at w.Offset of w.Carrier's ring, with Ring
//		}
//	}
//
// A member of the child:
//
//	carrier, err := stream.NewCarrier(config, ordered, durable)
//	err = carrier.Attach(writer, life, region)
//	grant the region to the writer, and tell it the life
//	for {
//		carrier.Poll()
//		carrier.Advance(relay.Position(), the position that is durable)
//		carrier.Tick(now)
//		if carrier.Pending() || carrier.Unvouched() {
//			make a round message
//		}
//		in each round message: vouch for carrier.Vouch(limit) if the stream is witnessed,
//			then propose carrier.Propose(room in the batch)
//		for _, report := range carrier.Reports() {
//			write report.Feedback to report.Writer
//		}
//	}
//
// # Files
//
//	config.go    what both sides agree on; who acts at once; faults to plant
//	frame.go     a record of a ring, byte by byte
//	feedback.go  what flows back
//	writer.go    the stream at a member of the parent
//	outlet.go    one ring, as its writer sees it
//	carrier.go   the stream at a member of the child
//	inbox.go     one ring, as its reader sees it
//	witness.go   what counts in a witnessed stream, and the writers that lie
//	status.go    the state of a stream, for people
//	state.go     what a search compares and copies
package stream
