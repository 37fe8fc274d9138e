// Package streams runs one node's part in the streams of entries between shards: it sends entries
// to the shard's children, and receives from the shard's parent the entries for this shard and
// those below it. The streams' machines are those of package tram/stream. This package gives them
// memory on the fabric, the chain, the time, and the changes of members. A book of one shard does
// not use it.
//
// # Overview
//
// A node has a Writer for each child shard and, if its shard has a parent, a Carrier. Each pair of
// a member of the parent and a member of the child has a ring: a region of the fabric at the
// carrier, which the writer writes one-sided. Rings are made on demand, with three small messages
// over the lane "control":
//
//   - ask: the writer wants a ring for its attempt of that number. It repeats the ask until it has
//     one.
//   - offer: the carrier made a region for that attempt and granted it to that life of the writer.
//     The offer also says up to which position the carrier has the stream for good.
//   - feedback: how much of the stream the child's chain has for good, and how much of the ring is
//     free again.
//
// One goroutine owns all machines. It sleeps until a ring rings, an operation completes, a message
// arrives, the chain advances, the members change, or a machine's deadline is due. An idle node
// repeats its feedback at growing intervals, up to 8 s, and its goroutine wakes once a second.
//
// In a book with vouched crossings (Config.Vouched), an entry counts here only if more than half of
// the parent's present members wrote the same into their rings. The node's batches say which
// entries these are, as long as the chain lacks them. A block takes an entry if more than half of
// the shard's members say the same in one round. In other books one member of either shard
// suffices.
//
// # What always holds
//
//   - A writer is offered only entries that are durable in a majority of its shard (Chain.Stream up
//     to Config.Durable), never entries that its chain could take back. Otherwise two members could
//     write different entries of one number.
//   - Writers are told a position only if it is durable in the child: the carried number as of the
//     durable height, among the blocks executed here. While that is unknown, after a start or a
//     Reset, no ring is offered at all. A writer that starts anew therefore learns the child's
//     position from its first ring, and does not start at the beginning of the stream.
//   - Each life of a ring has its own region, with a name that was never used before. Late writes
//     of a lost attachment therefore land where no carrier reads. The carrier revokes the grant,
//     makes the machine look a last time and release the memory, and only then frees the region. A
//     new region is granted after the machine has it.
//   - Messages may be lost, late or repeated. An ask gets the same offer again if the ring is still
//     the ring of that attempt, and a fresh ring otherwise (after a Reset here). An attempt ends
//     with the first operation that fails, and its number is never used again. While the child's
//     position stands still although there is more, a writer asks again for the rings that it has.
//     This way it finds losses that it did not notice.
//   - Feedback counts only for the life of the ring and the life of the peer that it came from.
//   - Every operation's completion is passed to the writer that posted it, in the order of posting,
//     even if its attachment, its carrier or its seat is gone. Until then its bytes do not change.
//   - With Config.Vouched, what Propose gives was written by more than half of the parent's present
//     members, so as long as more than half of these do not lie, it is what the parent's chain has.
//     Every entry that counts here is vouched for in every batch until the chain has it, in order,
//     up to a quarter of the batch. A batch vouches for all entries that it carries. So a round in
//     which enough members know an entry is enough, whatever earlier rounds lost.
//   - Ready is called when entries begin to count, and again after the patience. Vouching alone
//     does not keep the rounds going.
//   - A member of the parent whose entry lost against most others is named: in the status, and in
//     the log at most once in 10 s.
//   - Memory is bounded: the rings of the parent's present members, a ring's size for each child,
//     one page of the stream for each child, one message of each kind from each peer, and Depth
//     writes outstanding to each carrier. With Config.Vouched also the entries that wait for the
//     chain, at most a ring's size from each member of the parent, and a hash for each.
//
// # Failures
//
//   - A writer restarts: it asks in a new life. The carrier removes the old ring with its content
//     and makes a new one.
//   - A carrier restarts: writes fail, or the fabric reports it. The writer asks again, and
//     rewrites the entries that the child does not have for good.
//   - An offer or an ask is lost: the ask is repeated.
//   - A feedback is lost: it is repeated, after 1 s, 2 s, 4 s and then every 8 s.
//   - A ring holds malformed data: it is removed, and its writer asks for another after a write
//     failed.
//   - A store is replaced: Reset removes the carrier and its rings. Once the durable position is
//     known, writers that had asked are offered new rings.
//   - Entries are not here: a member that began with a snapshot (store.ErrAbsent) takes no part
//     until it has fetched their blocks, or until the child is past them.
//   - A member of the parent lies: with Config.Vouched its entries lose. Others write those for
//     which it was needed, after their patience and then at once for a while.
//   - Members change: the node asks new members and drops departed ones. A node that was no member
//     itself begins.
//   - The operators settle with a child that is lost: the stream to it ends.
//   - The shard gets a child: the node begins a stream to it. The child's members ignore its asks
//     until they know it, and it repeats them.
//
// # How it is driven
//
//	s, err := streams.New(streams.Config{Directory: members, Host: host, Control: control, Chain: chain, Durable: durable, Ready: pool.Wake})
//	host.Watch(s.Event)
//	s.Applied(height, store.Carried())    // each executed block
//	s.DurableTo(height)                   // a majority has it on disk
//	s.Reset()                             // another store took the place of the one before; the old store is not reported after that
//	s.Propose(room, use) // when a batch is made; use copies what it gets
//	s.Close()                             // before the host
//
// # Files
//
//	streams.go   the configuration, the lifecycle, the loop
//	incoming.go  the carrier and its rings
//	outgoing.go  a writer, and the entries that it is offered
//	outlet.go    the connection from a writer to one carrier
//	heights.go   which carried number is durable (stream.Positions)
//	vouching.go  what this node vouches for, and the members of the parent that lie
//	mail.go      input that arrived since the loop last looked
//	wire.go      the messages
//	status.go    the state of the streams, for people
package streams
