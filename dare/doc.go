// Package dare is DARE, atomic broadcast by a leader that writes its log into the memory of the
// others [Poke19, chapter 4], as one pure and polled state machine. It is made for short waits
// among three to five servers that are near to each other. Package node/poller drives it, in nodes
// and in the benchmark of engines.
//
// # The story
//
// The servers of a group have equal logs. A leader appends entries, writes them into the logs of
// its followers, then their tail pointers, and commits what the tails of a majority cover.
// Followers only read their commit pointer, and A-deliver up to there. Each entry holds the next
// message of each server that has one, so one entry is one round (order.Delivery). Its epoch is the
// term of the leader that appended it.
//
// A server may write another's log only if that one gave it the permission. It gives it to its
// leader, and takes it away before it votes. Votes, requests for them and heartbeats are words that
// servers write into rows on each other's boards: the paper's arrays of control data. A leader
// adjusts a log once after each grant, in two accesses: it reads the terms of the entries that may
// not be committed, and sets the tail to the last one that is also in its own log.
//
// Payloads lie in rings in the memory of all servers, so any leader finds them (G15). A number
// makes each of them enter the log once.
//
// # The loop that drives it
//
//	server, err := dare.New(config, host)
//	for {
//		busy := server.Poll(time since some instant)
//		for _, want := range server.Wanted() {
//			attachment, err := host.Attach(ctx, want.Peer, want.Region)
//			server.Attached(want.Number, attachment, err)
//		}
//		for _, delivery := range server.Deliveries() { ... }
//		if server.CanBroadcast() {
//			err = server.Broadcast(payload)
//		}
//		if !busy { wait for a write to server.Regions(), for a completion, or for a beat }
//	}
//
// A server suspects a leader whose heartbeat does not change for Config.Timeout. Suspect and
// Campaign are the same as inputs, for tests. Missing is the opinion of a detector outside, about
// any server.
//
// # The end of a run
//
// In a node, a group orders in runs: each has a machine of its own, and the chain says who the
// members are. With Config.Change, the round that changes the group is the last one. Its entry is
// in the log as all others are, and no leader appends anything behind it. So all servers A-deliver
// the same last round. What was A-broadcast and is in no entry goes into the next run.
//
// A leader may also end the run by an entry that takes one server out, if a detector says that it
// is missing and it applies nothing. Otherwise the slots that it needs would stop the others before
// long. Such an entry always finds a slot.
//
// When a majority cannot go on, the servers that are left freeze the run, report what their logs
// have, and begin a new one (package generation). freeze.go says why that loses nothing.
//
// # Where to find what
//
//	config.go    what a group agrees on
//	faults.go    errors to plant
//	layout.go    control data, log, entries [Poke19, section 4.3.1.1]
//	election.go  campaigns, votes, heartbeats, permissions [sections 4.3.2 and 4.4.2.2]
//	leader.go    adjustment, update, commit, pruning [sections 4.3.3.2 and 4.3.3.3]
//	offers.go    the rings of what servers A-broadcast
//	server.go    the machine, and what it A-delivers
//	freeze.go    what a run leaves behind
//	watch.go     what must always hold, checked by looking into all servers
//	search.go    copies and states for exhaustive search
//
// # What always holds
//
//	I1  a term has at most one leader
//	I2  two logs with an entry of the same index and term of birth are equal up to there
//	I3  every later leader's log has all committed entries
//	I4  term, commit and applied never go back, and applied ≤ commit, applied ≤ tail
//	I5  no slot is written while a server that is not excluded has not applied its entry
//	I7  what a server A-delivered is committed
//	I8  no log has an entry behind one that ends the run
//	I9  nothing lands in the log of a frozen server
//
// It is live while a majority of servers works, timeouts grow beyond the beat and the fabric's
// delays, and servers that are gone for good are excluded before the log is full, or are missing in
// a run with an end. Memory is bounded by LogSlots and Window.
//
// # Where it differs from the paper, and why
//
// The letters are those of the faults. The tests plant the errors.
//
//   - G1, G4. Entries of earlier terms must not be committed by counting (text 1609-1611), and an
//     entry without operations (text 1568-1573) needs room that a full log lacks. A new leader puts
//     its own stamp on its last entry instead, in one word, here and in each log that has the
//     entry. From then on the entry is one of its own. The term of birth stays and is the identity;
//     the stamp decides which log is more recent. So nothing that frees room needs room.
//   - HEAD entries. The leader alone needs to know what is free, and reads it in the members'
//     memory when slots become few.
//   - G3. A server that supports a leader gives it the log, whatever it voted. A leader that beats
//     and cannot commit steps down.
//   - G5. Access is granted to incarnations. A server that restarted is no member. Votes are still
//     copied to q servers before they are answered, as in the paper (text 1489-1494).
//   - G6. A heartbeat is a term and a counter. A leader is alive if it changed.
//   - G7. A leader takes over the greatest commit pointer before it writes one.
//   - G12. A deposed leader can still write logs that were not taken from it. They are never those
//     of a majority, because a vote takes the log away.
//   - G13. Slots have equal size, so head, tail and commit are indexes and no entry wraps around.
//   - G16. Entries that are the same are not rewritten in adjustment.
//   - Majorities are those of the shard, of which the group may be a part (Config.Shard).
//   - An entry has not room for the largest messages of all servers, if Config.MessagesMax says so.
//     Servers then take turns.
//   - The tail follows the entries in one post, where the paper waits for their completion. Several
//     entries are under way.
//   - A log whose tail is more than a ring ahead of what its server applied belongs to a server
//     that was excluded by mistake. It halts, and lists for a leader only what fits.
//   - Words of two vote requests are told apart by bits of the term: a write that timed out may
//     land late. A leader that lost its way to a log asks for it anew, under a ticket of package
//     protected.
//
// # What is not here
//
// Reconfiguration, recovery and read requests. Reconfiguration before a leader's own entry
// (G2) and votes of restarted servers (G5) can therefore not be planted: no entry changes the
// majorities of a run, and access is by incarnation. A
// server that is gone is excluded by Exclude, whose caller must not err for servers that are to go
// on: one that was excluded may be left behind, and then halts.
package dare
