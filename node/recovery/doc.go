// Package recovery decides how a shard starts and starts anew: which members form the next generation of the ordering group, and from which
// block they go on. A generation is one life of the ordering engine: it begins with a decision of this package and ends when the group halts,
// when every process stopped, or when its members agree to take somebody in.
//
// # The synod
//
// Each generation is one instance of single-decree Paxos among all members of the chain (the "synod" of Lamport's Part-Time Parliament), as a pure
// state machine: Synod takes messages, ticks and facts about its own node, and answers what to write to disk, what to send and what was decided.
// A promise reports what the promising node holds: the last generation in which it took part, and its head. The proposer that gathers a majority of
// promises proposes to go on from the greatest report, with those who promised as the members.
//
// # What always holds
//
//   - At most one value is decided for a generation (agreement of Paxos: quorums are majorities of all members of the chain, promises are on disk before they are sent).
//   - No generation is decided while a majority of the members works in an older one: a node that works refuses to promise, unless the asker is
//     itself a member of that generation that ended it in order (Regroup).
//   - The base of a generation is at least every block that is durable: a durable block is on a majority of disks, and a majority of promises holds
//     one of them. Reports compare by generation first, then by height, so that a block of an abandoned generation never wins over a newer one's.
//   - A group that ended in order goes on from exactly the block at which it ended: everyone stops at the same round, and the proposer has delivered it.
//
// # How a group is opened for a node that comes back
//
// A node that finds a working group follows the chain until it is close to the head and then asks to enter. A member puts a regroup mark into its next
// batch; when the round with the mark is A-delivered, every member stops its engine after that round and the synod of the next generation decides, with the
// newcomer among those who promise.
//
// # The loop that drives it
//
//	for {
//		select one input: a message -> synod.Receive(from, message); a tick -> synod.Tick(); the node's state -> synod.Report(report), synod.Working(generation), synod.Idle()
//		ready := synod.Ready()
//		if ready.MustSave { write ready.State to disk and sync it }
//		send ready.Messages
//		if ready.Decided != nil { fetch the blocks up to its base, then activate the engine }
//	}
package recovery
