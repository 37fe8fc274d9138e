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
// # Full rounds
//
// A leader does not wait for servers that have nothing to say, unless Config.FullRounds asks for a
// message of each server that is not missing in every round, as AllConcur has it. Servers without a
// message are solicited then, and A-broadcast an empty one. So what servers say at a time comes in
// one round, where a user can count it: in a ledger of several shards, most members have to say the
// same of another shard. The loop below then has
//
//	if server.Solicited() {
//		err = server.Broadcast(nil)
//	}
//
// # Groups that change
//
// A group may change while it runs, unless the run has an end (Config.Change) or is that of a part
// of a shard (Config.Shard). So it is in nodes, where the chain says who the members are. Remove,
// Add, Shrink and Config.Joins are errors there.
//
// A group has seats, the paper's slots. Each is held by one incarnation of a server, or free. A
// leader changes the group by an entry with the new configuration, which is in force as soon as a
// log has it, and not any more if adjustment takes it away. Remove frees seats: the size n of the
// group stays, and with it the majority that is needed. Add puts a server in a free seat, or
// extends a full group: the newcomer recovers, then a majority of both sizes elects and commits,
// then the group has the new size. Shrink goes through both sizes likewise. The leader takes these
// steps by itself, and also those that an earlier leader began.
//
// A server that restarts is another incarnation with empty memory. It is made with Config.Joins,
// waits until an entry names it, and recovers: it reads a snapshot that another server published
// when it applied that entry, and the log behind it, both from the other's memory. From then on it
// votes, and its log counts. Remove the old incarnation, and Add the new one:
//
//	err := leader.Remove(2)              // ErrUnsettled: not yet, ask again
//	server, err := dare.New(dare.Config{Self: 2, Joins: true, Peers: theOthers, ...}, host)
//	err = leader.Add(2, host's peer)
//	first, from, has := server.Recovered()
//
// The snapshot has what the engine needs: the configuration, the number of rounds, and the number
// of messages of each seat. The application's state is its user's matter. Recovered names the first
// round that the server A-delivers, and a server whose user was handed all rounds before. The new
// server's user copies that one's state, as of then or later, and leaves out the rounds that are in
// it already.
//
// # Reads
//
// A leader may answer read requests from its own state once it has checked that it still leads.
// Barrier begins a check, Passed says whether it is over. One check serves all requests that came
// before it began.
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
// long. Such an entry always finds a slot. Its kind says what it is. While nobody has anything to
// order, the leader gives a missing server an entry without messages to apply. So a server that
// restarted, or never began the run, is taken out and can enter again.
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
//	full.go      rounds in which all servers have a part
//	configuration.go  configurations, majorities, and where they are in the log [section 4.3.4]
//	reconfigure.go    the leader changes the group [section 4.3.4]
//	recovery.go  snapshots, and servers that recover or missed a configuration [section 4.3.4]
//	seats.go     with whom a server shares memory
//	reads.go     read requests [section 4.3.3.1]
//	server.go    the machine, and what it A-delivers
//	freeze.go    what a run leaves behind
//	watch.go     what must always hold, checked by looking into all servers
//	trail.go     the same for searches, from what each server has shown
//	search.go    copies and states for exhaustive search
//
// # What always holds
//
//	I1  a term has at most one leader
//	I2  two logs with an entry of the same index and term of birth are equal up to there
//	I3  every later leader's log has all committed entries
//	I4  term, commit and applied never go back, and applied ≤ commit, applied ≤ tail
//	I5  no slot is written while a server that is not excluded has not applied its entry. One that
//	    recovers counts from the entry on that names it
//	I6  two majorities, of whatever configurations are in force at once, have an incarnation in
//	    common: a configuration begins only when the one before is committed, with an entry of the
//	    leader's own term, and a newcomer counts only after the entry that names it is committed
//	I7  what a server A-delivered is committed
//	I8  no log has an entry behind one that ends the run
//	I9  nothing lands in the log of a frozen server
//	I10 with full rounds, a round has a message of each server that its leader did not think
//	    missing, and a message is in the round that NextRound foretold, if its server was never
//	    thought missing
//
// It is live while a majority of servers works, timeouts grow beyond the beat and the fabric's
// delays, and servers that are gone for good are removed, or excluded before the log is full, or
// are missing in a run with an end. With full rounds, the leader must also be told of each server
// that does not answer (Server.Missing). Memory is bounded by LogSlots, Window and Seats.
//
// # Where it differs from the paper, and why
//
// The letters are those of the faults. The tests plant the errors.
//
//   - G1, G4. Entries of earlier terms must not be committed by counting (text 1609-1611), and an
//     entry without operations (text 1568-1573) needs room that a full log lacks. A new leader puts
//     its own stamp on its last entry instead, in one word, here and in each log that has the
//     entry. From then on the entry is one of its own. The term of birth stays and is the identity;
//     the stamp decides which log is more recent. So a new leader needs no room.
//   - G2. A leader changes the group only when an entry with its own stamp and the configuration in
//     force are committed. The text asks for a stable configuration only (text 1662).
//   - G4. The log has one slot more than LogSlots, for the configuration without the servers which
//     keep it full, or for the entry that ends the run without one of them. A new leader knows from
//     its own log how far the others have applied, because the leader that appended its entries
//     found room.
//   - HEAD entries. The leader alone needs to know what is free, and reads it in the members'
//     memory when slots become few.
//   - A server that refuses its vote does not wait any longer for its own turn: it may be the only
//     one that can win.
//   - G3. A server that supports a leader gives it the log, whatever it voted. A leader that beats
//     and cannot commit steps down.
//   - G5. Access is granted to incarnations. A server that restarted is no member before an entry
//     names it. Votes are still copied to q servers before they are answered, as in the paper (text
//     1489-1494).
//   - G6. A heartbeat is a term and a counter. A leader is alive if it changed.
//   - G7. A leader takes over the greatest commit pointer before it writes one.
//   - G8. A server stores its term before it takes its log away and votes, so a leader that reads
//     the terms of a majority learns of every election that is over.
//   - G9. A leader outside of the new size has no seat in it, and does not count itself.
//   - G10. A new leader goes on with a configuration that is not stable: it waits for the newcomer
//     some timeouts long, and then gives it up.
//   - G11. A snapshot is of the entry that names the newcomer. Until the newcomer is known to have
//     applied more, the leader keeps what nobody needed at that entry's time and all behind it. The
//     paper's newcomer may find that pruned (text 1707-1711).
//   - Late servers. A server that missed the entry which names another has not admitted it, and can
//     neither vote for it nor be asked for its log. It may be the only one with all entries, if a
//     majority is left and no more. A server that finds no leader therefore reads the others'
//     snapshots, and admits the servers that the last committed configuration names. Majorities
//     come from its own log alone.
//   - A server that was removed keeps its access until that is committed: two servers may need it
//     to commit its own removal. Then it hears of it, and halts (Removed).
//   - An incarnation is added at most once.
//   - G12. A deposed leader can still write logs that were not taken from it. They are never those
//     of a majority, because a vote takes the log away.
//   - G13. Slots have equal size, so head, tail and commit are indexes and no entry wraps around.
//   - G16. Entries that are the same are not rewritten in adjustment.
//   - Majorities are those of the shard, of which the group may be a part (Config.Shard). Its
//     members outside of the group are like free seats.
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
// The reset of memory by HEAD entries is not needed. A server that is gone can also be excluded by
// Exclude, without an entry. Its caller must not err for servers that are to go on: one that was
// excluded may be left behind, and then halts. A run whose group changed cannot be frozen.
package dare
