// Package generation decides how a shard starts and starts anew: which members form the next
// generation of the ordering group, and from which block, and rounds after that block, they go on. A
// generation is one life of the group: it begins with a decision of this package and ends when the
// group halts or stalls, when every process stopped, or when its members agree to take somebody in.
// Within a generation the group may change its members in order, in eons; each eon is one engine, a
// run.
//
// # The synod
//
// Each generation is one instance of single-decree Paxos among the members of the chain (the "synod"
// of Lamport's Part-Time Parliament), as a pure state machine. Synod takes messages, ticks and facts
// about its own node. It answers what to write to disk, what to send, what to fetch and what was
// decided. A promise freezes the engine of the promising node for good, and reports what that engine
// delivered, what it voted for and which votes of others it saw (Report). The proposer that gathers
// promises of a majority works out what may have been A-delivered anywhere (choose.go: the rule, and
// its proof). It proposes to go on from there, with the servers that promised as the members.
//
// # Disks and learners
//
// What counts in a majority is a disk, not a member: its promises, its acceptances and what it stores.
// The chain's Membership names the disk that counts for each member; where it names none, the member's
// original disk counts (Membership.Counts). Any other disk is a learner. A learner promises and
// accepts, but counts in no majority, is no member of the generation, and does not propose. What it
// accepted binds no proposer. It is neither a voter nor a non-voter: whatever the member voted for on
// another disk is unknown.
//
// Three things that keep a server from helping differ, and Synod.Waiting tells them apart. A server
// that is unreachable did not promise. One that forgot promised from a disk that does not count. One
// that restarted promised from a disk that counts, but has forgotten its votes in the newest run; it
// remembers its blocks. A proposer that needs restarted servers for its majority waits for as long as
// it can reach a member that has not promised, and goes on once there is none. Then blocks that were
// only ordered, or stored by fewer than a majority, may be given up.
//
// # What always holds
//
//   - At most one value is decided for a generation. Promises are on disk before they are sent. A
//     ballot names the proposer's disk, so that no two proposals share one. Two quorums have a disk in
//     common (see below).
//   - No generation is decided while a majority works and makes progress: a node that does refuses to
//     promise, unless the asker is itself a member of that generation that ended it in order.
//   - Nothing that was A-delivered anywhere is lost, unless so many servers restarted at once that no
//     majority remembers its votes. What a majority has on disk is not lost even then.
//   - What a disk had perhaps, before a crash, is given up only when so many disks had not that it was
//     not durable (survey.perhaps has the proof). Nothing is proposed, or accepted, that ends below a
//     height known to be durable.
//   - Bases never go back: a Prepare carries the decision that it follows, and a group of which nobody
//     is known to have worked is followed from its own base and tail.
//   - What is on a node's disk counts towards "a majority has it on disk" only if the node stored it
//     while it worked: what it fetched after a promise may be left behind, since the promise did not
//     tell of it.
//   - A decided base can be had: an acceptor accepts only when the blocks up to the base, and the
//     contents of the tail, are on its own disk. A base that was accepted by too few to be chosen, and
//     that damaged disks have lost since, is left out (proposer.go, neverChosen).
//
// # Quorums of a membership that changes
//
// Members are named by chain-wide indexes. Memberships change by one member, or one member's disk, at
// a time; the next change waits for a run that counts with the last one. A proposer needs a majority
// of the membership at the furthest head that any promise shows; of each one before a change in that
// chain that no promise knows to be durable; and of the one that counted in the newest run shown. They
// have to promise as well as to accept. The last one is left out where it is the one right before the
// membership at the furthest head (survey.go).
//
// Majorities before and after a join or a leave intersect. Those before and after another disk was
// named need not, so it is left to show that two proposers for one generation meet. Let run k count
// with a, the chain change to b, and run k+1 count with b, then the chain change to d.
//
//   - The change to b is durable. Then each majority of a has a disk with it: package shard takes
//     nothing from a change on for durable before (Durability). A proposer with a majority of a
//     has a promise that shows b, and needs a majority of b, as all others do.
//   - It is not durable. Then no promise knows it to be. A proposer that sees b needs majorities of
//     both a and b, one that does not see b needs a majority of a: they meet in a.
//   - It becomes durable between two proposals, the second of which knows that, and needs b alone. The
//     first one froze a majority of a. If none of these disks held the change, it never becomes
//     durable: a frozen disk stores nothing that counts. If one did, the first proposer saw b and has a
//     majority of b, too.
//
// The same holds for b and d. A change that is only in a tail is no exception: the group that begins
// with it counts with the new membership, and its members report the membership before until a
// majority of that has the change on disk.
//
// So while a group changes over, a majority of the old disks as well as of the new ones has to be
// there; without a majority of the old ones nobody could tell what they A-delivered.
//
// # The loop that drives it
//
//	for {
//		select one input:
//			a message               -> synod.Receive(from, message)
//			a tick                  -> synod.Tick()
//			fetched and synced      -> synod.Holds(id)
//			the node's state        -> synod.Report(report), Working(run, shard), Stalled(bool),
//			                           Idle(report, ended), Linked(server, bool)
//		if synod.MustEnd() {
//			freeze the engine for good, execute what it delivered
//			synod.Idle(report with the engine's Votes and KnownVotes, 0)
//		}
//		ready := synod.Ready()
//		if ready.MustSave { write ready.State to disk and sync it }
//		send ready.Messages
//		for each ready.Fetch {
//			have it from one of From, or from the own frozen engine; sync it; synod.Holds(fetch.ID())
//		}
//		if ready.Decided != nil && ready.Decided.Seats(self, disk) {
//			stop the engine; execute the blocks up to the base, then the tail; sync
//			if group := ready.Decided.Group(membership of the chain); len(group) makes a majority {
//				synod.Working(NewRun(generation, 0), membership of the chain)
//				save; start the engine at First
//			}
//		}
//	}
//
// No ticks are given while an engine that was stopped settles, nor, for as long as the driver thinks
// right, while a decision waits for what it needs to be activated: a tick there is a step towards yet
// another generation.
package generation
