// Package streams moves the streams of entries from shard to shard at one node: to the shard's
// children the entries that pass through it, from its parent what is for it or lies below it. The
// streams' machines are those of package tram/stream; this package gives them memory on the fabric,
// the chain, the time, and members that come and go. A book of one shard has none of it.
//
// # The story
//
// A node has, for each child shard, a Writer, and where its shard has a parent, a Carrier. Between
// a member of the parent and one of the child is a ring: a region of the fabric at the carrier,
// which the writer writes one-sided. Rings are made on demand, by three small messages over the
// lane "control":
//
//	ask       the writer wants a ring, for its attempt of that number; said again until it has one
//	offer     the carrier made a region for that attempt, granted it to that life of the writer, and has the stream for good up to a position
//	feedback  what the child's chain has for good, and how much of the ring is free again
//
// One goroutine owns all machines. It sleeps until a ring rings, an operation completed, a message
// came, the chain moved, the members changed, or a machine's deadline is due: an idle node says its
// feedback a last few times, more and more rarely, and has the goroutine look around once a second.
//
// # What always holds
//
//   - A writer is offered only what is durable in a majority of its shard (Chain.Stream up to
//     Config.Durable): never what its chain could take back, else two members could write different
//     entries of one number.
//   - A position is told to writers only where it is durable in the child: of the blocks executed
//     here, the carried number as of the durable height. As long as that is not known, after a
//     start or a Reset, no ring is offered at all, so a writer that starts anew learns from its
//     first ring where the child is, and does not begin at the beginning.
//   - Each life of a ring has a region of its own, of a name that was never used. So what a lost
//     attachment still lands, lands where nobody reads. The carrier revokes, has the machine look a
//     last time and let go of the memory, and only then gives the region back; the new one is
//     granted after the machine has it.
//   - Messages may be lost, late or repeated. An ask is answered with the same offer as long as the
//     ring is the one of that attempt, and with a fresh ring where it is not (after a Reset here).
//     An attempt ends with the first operation that fails, and its number is never used again.
//     While the child's position stands still although there is more, a writer asks again for the
//     rings that it has, and so finds out what was lost without its knowing.
//   - Feedback counts for the life of the ring and the life of the peer that it is of.
//   - Every operation's completion is told to the writer that posted it, in the order of posting,
//     also when its attachment, its carrier or its seat is gone; until then its bytes do not
//     change.
//   - Memory is bounded: the rings of the parent's present members, a ring's size for each child,
//     one page of the stream for each child, one message of each kind from each peer, Depth writes
//     outstanding to each carrier.
//
// # What goes wrong, and what happens then
//
//	a writer restarts        it asks in a new life; the carrier takes the old ring away, with what is in it, and makes a new one
//	a carrier restarts       writes fail, or the fabric says so: the writer asks again, and writes again what the child has not for good
//	an offer, an ask is lost the ask is repeated
//	a feedback is lost       it is repeated, after 1 s, 2 s, 4 s and then every 8 s
//	a ring holds nonsense    it is taken away (and its writer asks for another once a write failed)
//	a store is replaced      Reset: the carrier and its rings go; once the durable position is known there are new ones, offered to whoever had asked
//	entries are not here     a member that began with a snapshot (store.ErrAbsent) takes no part until the child is past them
//	members change           who is new is asked, who is gone is forgotten; who was no member itself begins
//
// # The loop that drives it
//
//	s, err := streams.New(streams.Config{Directory: members, Host: host, Control: control, Chain: chain, Durable: durable, Ready: pool.Wake})
//	host.Watch(s.Event)
//	s.Applied(height, store.Carried())    // each executed block
//	s.DurableTo(height)                   // a majority has it on disk
//	s.Reset()                             // another store took the place of the one before; nothing of the old one's is said after that
//	s.Propose(room, func(carried []ledger.Carried) { ... copy ... }) // when a batch is made
//	s.Close()                             // before the host
//
// # Where to find what
//
//	streams.go   the configuration, the life of all, the loop
//	incoming.go  the carrier and its rings
//	outgoing.go  a writer, and what it is offered
//	outlet.go    the way from a writer to one carrier
//	heights.go   which carried number is durable
//	mail.go      what came in since the loop last looked
//	wire.go      the messages
//	status.go    where it stands, for people
package streams
