// Package generation decides how a shard starts and starts anew: which members form the next generation of the ordering group, and from which block, and rounds after that block, they
// go on. A generation is one life of the group: it begins with a decision of this package and ends when the group halts or stalls, when every process stopped, or when its members agree
// to take somebody in. Within a generation the group may change its members in order, in eons; each eon is one engine, a run.
//
// # The synod
//
// Each generation is one instance of single-decree Paxos among the members of the chain (the "synod" of Lamport's Part-Time Parliament), as a pure
// state machine: Synod takes messages, ticks and facts about its own node, and answers what to write to disk, what to send, what to fetch and what was decided. A promise freezes the
// engine of the promising node for good, and reports what that delivered and what it voted for (Report). The proposer that gathers promises of a majority works out what may have been
// A-delivered anywhere (choose.go: the rule, and its proof) and proposes to go on from there, with those who promised as the members.
//
// # What always holds
//
//   - At most one value is decided for a generation. Promises are on disk before they are sent; two quorums have a server in common (see below).
//   - No generation is decided while a majority works and makes progress: who does refuses to promise, unless the asker is itself a member of that generation that ended it in order.
//   - Nothing that was A-delivered anywhere is lost, unless so many servers restarted at once that no majority remembers its votes; nor is then what a majority has on disk.
//   - Bases never go back: a Prepare carries the decision that it follows, and a group of which nobody is known to have worked is followed from its own base and tail.
//   - What is on a node's disk counts towards "a majority has it on disk" only if the node stored it while it worked: what it fetched after a promise may be
//     left behind, since the promise did not tell of it.
//   - A decided base can be had: an acceptor accepts only when the blocks up to the base, and the contents of the tail, are on its own disk.
//
// # Quorums of a membership that changes
//
// Members are named by chain-wide indexes, and change by one at a time; the next change waits for a run that counts with the last one. Each proposer needs a majority of the newest membership that
// any promise shows and, where it is another, of the one that counted in the newest run shown, to promise as well as to accept. Majorities of neighbours intersect, so it is left to show that
// proposers for one generation use the same membership or neighbours. Let a run k count with a, the chain change to b, and run k+1 count with b, then the chain change to d.
// Run k+1 starts only after the transitional round of run k was A-delivered by c votes of members of a, all given by servers that know b. A proposer that has a majority of a without any that knows b
// has frozen one of these voters before its vote: so run k+1 never starts, and d never comes to be. One that knows b but sees no run k+1 has majorities of both a and b: it meets the ones of a
// alone and those of b alone; and its majority of b, frozen before run k+1, keeps that from delivering anything, so d never comes to be. One that sees run k+1 needs a majority of b, and one of d when that is
// shown; by the same argument, one run later, neither those of a alone (that excluded run k+1) nor those beyond d exist beside it. A change that is only in a tail is no exception: the group that begins with it counts with the
// new membership, and those who do not know it have a majority of its neighbour.
// So while a group changes over, that is for three rounds, and for as long as the next one has not begun, a majority of the old members as well as of the new ones has to be there; without a
// majority of the old ones nobody could tell what they A-delivered.
//
// # The loop that drives it
//
//	for {
//		select one input: a message -> synod.Receive(from, message); a tick -> synod.Tick(); something fetched and synced -> synod.Holds(id);
//			the node's state -> synod.Report(report), synod.Working(run, shard), synod.Stalled(bool), synod.Idle(report, ended)
//		if synod.MustEnd() { freeze the engine for good, execute what it delivered; synod.Idle(report with the engine's votes, 0) }
//		ready := synod.Ready()
//		if ready.MustSave { write ready.State to disk and sync it }
//		send ready.Messages
//		for each ready.Fetch { have it from one of From, or from the own frozen engine; sync it; synod.Holds(fetch.ID()) }
//		if ready.Decided != nil { stop the engine; execute the blocks up to the base, then the tail; sync; synod.Working(NewRun(generation, 0), membership of the chain); save; start the engine at First }
//	}
//
// No ticks are given while an engine that was stopped settles, nor, for as long as the driver thinks right, while a decision waits for what it needs to be activated: a tick there is a step towards
// yet another generation.
package generation
