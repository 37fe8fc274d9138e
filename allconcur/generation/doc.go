// Package generation decides how a shard starts and starts anew: which members form the next
// generation of the ordering group, and from which block, and which rounds after that block, they
// go on. A generation is one life of the group. It begins with a decision of this package. It ends
// when the group halts or stalls, when all its processes have stopped, or when its members agree to
// take in another server. Within a generation the group may change its members in order, in eons.
// Each eon is one engine, a run.
//
// # The synod
//
// Each generation is one instance of single-decree Paxos among the members of the chain (the
// "synod" of Lamport's Part-Time Parliament), as a pure state machine. Synod takes messages, ticks
// and facts about its own node. It returns what to write to disk, what to send, what to fetch, and
// what was decided. A promise freezes the engine of the promising node for good. It reports what
// that engine delivered, what it voted for, and which votes of others it saw (Report). A proposer
// with promises of a majority determines what may have been A-delivered anywhere (choose.go and
// choose_log.go have the rules and their proofs). It proposes to go on from there, with the servers
// that promised as the members.
//
// # Disks and learners
//
// Majorities count disks, not members: a disk's promises, its acceptances and what it stores. The
// chain's Membership names the disk that counts for each member. If it names none, the member's
// original disk counts (Membership.Counts). Any other disk is a learner. A learner promises and
// accepts, but it counts in no majority, is no member of the generation, and does not propose. What
// it accepted binds no proposer. It is neither a voter nor a non-voter: what the member voted for
// on another disk is unknown.
//
// A server may be unable to help for three reasons, which Synod.Waiting distinguishes. A server
// that is unreachable did not promise. A server that forgot promised from a disk that does not
// count. A server that restarted promised from a disk that counts, but has forgotten its votes in
// the newest run; it remembers its blocks. A proposer that needs restarted servers for its majority
// waits as long as it can reach a member that has not promised. It goes on once there is no such
// member. Blocks that were only ordered, or stored by fewer than a majority, may then be given up.
//
// # What always holds
//
//   - At most one value is decided for a generation. Promises are on disk before they are sent. A
//     ballot names the proposer's disk, so no two proposals share a ballot. Two quorums have a disk
//     in common (see below).
//   - No generation is decided while a majority works and makes progress. A node that works and
//     makes progress refuses to promise, unless the proposer is itself a member of that generation
//     that ended it in order.
//   - Nothing that was A-delivered anywhere is lost, unless so many servers restarted at once that
//     no majority remembers its votes. What a majority has on disk is not lost even then.
//   - A block that a disk perhaps had before a crash is given up only if so many disks did not have
//     it that it was not durable (survey.perhaps has the proof). Nothing is proposed or accepted
//     that ends below a height known to be durable.
//   - Bases never go back. A Prepare carries the decision that it follows. If no member of a
//     decided group is known to have worked, the next generation goes on from that decision's base
//     and tail.
//   - What is on a node's disk counts towards "a majority has it on disk" only if the node stored
//     it while it worked. What it fetched after a promise may be left behind, since the promise did
//     not report it.
//   - A decided base can be fetched: an acceptor accepts only when the blocks up to the base, and
//     the contents of the tail, are on its own disk. A base that was accepted by too few servers to
//     be chosen, and that damaged disks have lost since, is left out (proposer.go, neverChosen).
//
// # Quorums of a membership that changes
//
// Members are named by chain-wide indexes. Memberships change by one member, or one member's disk,
// at a time. The next change waits for a run that counts with the last one. A proposer needs a
// majority of each of these memberships:
//
//   - the membership at the furthest head that any promise shows
//   - each membership before a change in that head's chain that no promise knows to be durable
//   - the membership that counted in the newest run shown, unless it is the one right before the
//     membership at the furthest head (survey.go)
//
// They have to promise as well as to accept.
//
// Majorities before and after a join or a leave intersect. Those before and after a change of a
// member's disk need not. It remains to show that two proposers for one generation meet even so.
// Let run k count with a, the chain change to b, and run k+1 count with b; then let the chain
// change to d.
//
//   - The change to b is durable. Then each majority of a has a disk with it, because package shard
//     takes nothing from a change on for durable before that (Durability). A proposer with a
//     majority of a has a promise that shows b, so it needs a majority of b, as all others do.
//   - The change is not durable. Then no promise knows it to be durable. A proposer that sees b
//     needs majorities of both a and b. A proposer that does not see b needs a majority of a. They
//     meet in a.
//   - The change becomes durable between two proposals, and the second proposer knows that and
//     needs b alone. The first one froze a majority of a. If none of these disks held the change,
//     it never becomes durable: a frozen disk stores nothing that counts. If one of them did, the
//     first proposer saw b and has a majority of b too.
//
// The same holds for b and d. A change that is only in a tail is no exception. The group that
// begins with it counts with the new membership, and its members report the membership before until
// a majority of that membership has the change on disk.
//
// So while a group changes over, a majority of the old disks has to be present as well as one of
// the new disks. Without a majority of the old ones it would be unknown what they A-delivered.
//
// # The loop that drives it
//
//	for {
//		select one input:
//			a message               -> synod.Receive(from, message)
//			a tick                  -> synod.Tick()
//			fetched and synced      -> synod.Holds(id)
//			the node's state        -> synod.Report(report), Working(run, shard), Stalled(bool),
//			                           Stuck(bool), Idle(report, ended), Linked(server, bool)
//		if synod.MustEnd() {
//			freeze the engine for good, execute what it delivered
//			synod.Idle(report with the engine's Votes, KnownVotes and Held, or its log, 0)
//		}
//		ready := synod.Ready()
//		if ready.MustSave { write ready.State to disk and sync it }
//		send ready.Messages
//		for each ready.Fetch {
//			get it from one of From, or from the own frozen engine
//			sync it; synod.Holds(fetch.ID())
//		}
//		if ready.Decided != nil && ready.Decided.Seats(self, disk) {
//			stop the engine; execute the blocks up to the base, then the tail; sync
//			if group := ready.Decided.Group(membership of the chain); len(group) is a majority {
//				synod.Working(NewRun(generation, 0), membership of the chain)
//				save; start the engine at First
//			}
//		}
//	}
//
// The driver gives no ticks while a stopped engine settles. For as long as it sees fit, it also
// gives none while a decision waits for what it needs to be activated: a tick there is a step
// towards yet another generation.
package generation
