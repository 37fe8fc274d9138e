// Package replica implements TRAM as the paper describes it [TRAM]: atomic multicast over one-sided
// memory. Each group has a leader, whose permission to write the members' logs orders the messages,
// and the groups form a static tree. Replica is one server of a group (Algorithms 2 to 5), Client a
// client (Algorithm 1). Both are machines that are polled: they have no goroutine, no clock and do
// not wait. The leader oracle's choice, the members that are given up, and the time are inputs.
//
// Package protected has what the replicas share with other engines over one-sided memory: ways,
// tickets and boards, rings, and the group's log with its permissions and its catch-up. This
// package has what TRAM makes of them: which messages a leader takes into the log, what all
// replicas do with its entries, the way down the tree, and the clients.
//
// # Memory
//
// Each replica exposes these regions:
//
//	tram/board     A row of words for each process, which only that process writes: the ticket
//	               under which it asks for a permission (the paper's perm), the highest ticket
//	               that it granted, in answer (perm_ack), and a word by which a leader tells the
//	               board's owner that it excluded it. Writers: the members, the replicas of the
//	               parent and the children, and the clients.
//	tram/log       The group's log, a ring of slots, behind a header with the last entry that the
//	               owner has taken. Writer: the one process to which the owner last granted it.
//	               The paper's LOG.
//	tram/parent    The parent's messages, a ring of slots, with a header like the log's. Writer:
//	               one replica of the parent, the leader with the highest ticket. The paper's HM.
//	tram/client/C  The messages of client C, likewise. The header also holds the ticket under
//	               which C was granted the buffer. The paper's HM.
//
// Messages of a buffer are numbered from 1, and so are entries of the log. Number n lies in slot
// (n-1) mod slots. An entry is written in one operation, from its first byte to its last, and fills
// its slot from the back:
//
//	buffer    message, zeros up to a word, length, number
//	log       message, zeros up to a word, timestamp, known, origin, number, index
//
// The places of the words behind the message therefore depend on no length, and the canary, the
// last word, never lies where a payload was. The canary is the number itself. A reader that finds
// number n has all of entry n, because an entry that lay there before has another number. The log's
// words are: timestamp, of the leader that wrote the entry; known, how far below the index its
// leader knew all entries to be ordered, and how far below all were taken by every member; origin,
// the buffer that the message came from, or none for a no-op, and the message's length; number, the
// message's number in that buffer.
//
// A ticket is a timestamp (a counter, then the server that counted: the paper's tmp) followed by
// the number of the request. A process that lost the way to a memory asks for it again under the
// same timestamp. All processes of a deployment have the same byte order.
//
// # Invariants
//
//  1. Only a process that holds the permission for the logs of a majority orders. An owner grants
//     its log to the highest ticket that it has seen, and revokes it from the previous holder
//     before it answers. An entry is ordered once a majority has it, complete, under one timestamp.
//     From then on every leader finds it, because it reads a majority and takes the highest
//     timestamp of each slot.
//  2. What a replica does with the log follows from the log alone: which messages were taken from
//     which buffer, which are delivered, and the number of each message in each child's stream. An
//     entry that is not the next of its source (its number is not the last one's plus 1) has no
//     effect at any replica. A message is therefore delivered once, whatever copies leaders leave
//     behind, and a number of a child's stream has the same message whichever replica writes it.
//  3. A replica handles an entry only if it knows that the entry is ordered and its own log has it.
//     Each entry says up to where all entries were ordered when it was written. A leader writes to
//     a member's log in order, from the last entry that the member has taken. A follower passes an
//     entry of an earlier leader only after its present leader has made it its own. Before that,
//     the entry may be rewritten.
//  4. A slot of the log is reused only when all members that are not excluded, including this
//     leader, took its entry, and each child has ordered what it was due from it. A slot of a
//     buffer is reused only when its owner has taken its message.
//  5. An ordered message is never damaged. A new leader that finds its message already in a
//     member's log writes only the timestamp, one word. A revocation could cut a longer write
//     short, and this copy may be the one that a majority needs. If the leader finds another
//     message there, which cannot be ordered then, it erases the mark first, so that the beginning
//     of the new entry is not taken for the old one.
//  6. Nothing of an earlier attachment lands where a later one writes. After an error, writes may
//     still be under way. The process therefore gives up the way to a memory at the first error,
//     and uses it again only under a new ticket, for which the owner revokes and grants anew.
//  7. Ordered messages reach the children. A replica remembers what is due to each child and not
//     known to be taken, and a new leader hands all of it on again.
//
// The properties of package order follow from these as in [TRAM, section 6].
//
// # What can go wrong, and how a test detects it
//
// Permission requests: there are two candidates at once, or an old leader that does not know of its
// successor yet (or hangs, and its writes land until it is revoked). Prefix order breaks if 1 does
// not hold (FaultNoPermissionCheck).
//
// Group catch-up: the last leader's entries lie in some logs and not in others. Agreement breaks if
// a candidate takes its own log for the group's (FaultNoGroupCatchUp), or treats an entry as
// ordered too soon (FaultDecidedEarly). A leader is stopped during the catch-up: integrity breaks
// if a mixed entry passes for a whole one (FaultRewrittenInPlace).
//
// Normal case: the log wraps around while a member is behind. The member halts, and agreement
// breaks (FaultSlotReusedEarly). A buffer wraps around before its messages are ordered: a message
// is lost, and validity breaks (FaultBufferReusedEarly).
//
// Tree: a leader crashes after it ordered a message and before it handed it on. Agreement between
// groups breaks (FaultNoTreeCatchUp).
//
// Clients: a client crashes between two writes, so some replicas have its message and others do
// not. The message is ordered if a leader has it, and then at all replicas.
//
// The conformance suite in sim/multicast runs thousands of deployments with all of these, and with
// each fault planted.
//
// # Where this differs from the paper
//
//   - Several entries are under way (Options.Window; the paper's is 1). A follower cannot infer
//     from entry i+1 that entry i is ordered, so the entry says it (known). A leader can leave
//     several entries behind that are not ordered. Later leaders may keep some of them behind
//     others with the same messages; 2 makes them harmless.
//   - Finite buffers: 4. A process learns what was taken by reading the owners' headers, and only
//     if it matters. The floor that all members took travels with each entry, so that a new leader
//     need not wait for dead members before it reuses slots. A member that is down stops its group
//     when the log has wrapped around, until Exclude says that the group no longer waits for it. No
//     timeout can decide this: with finite memory, and without knowing which members are dead,
//     either a slow member misses messages or a dead one stops the rest. A member that was excluded
//     by mistake finds its slots reused, or reads the exclusion on its board, and halts.
//   - The paper stores slot_out in each entry of the log. Here it follows from the log (2), as
//     slot_in does, and step 5.1 needs no search.
//   - Group catch-up: the paper writes every entry from FUO on to all members, in place. A
//     revocation in between destroys copies (5). It starts at the candidate's own FUO, which leaves
//     holes at a follower that is further behind. Here the leader reads each member's log, and
//     writes it from the last entry that the member has taken. Members whose permission arrives
//     later than a majority's are read and written when it arrives.
//   - The children's buffers also have one writer at a time, with tickets. The paper's old leader
//     could write into a slot that has been reused since.
//   - A leader orders a no-op after a quiet moment (Options.Quiet), which tells followers that the
//     last entry is ordered. The paper assumes an endless stream of messages. A new leader orders a
//     no-op too.
//   - A message of a buffer is needed until some replica of the group has taken it, because it is
//     in the group's log then. Neither clients nor parents wait for the slowest replica.
//   - A replica that crashed stays away: its memory is gone. Its group tolerates f of 2f+1 crashes,
//     in total.
//
// # The loop
//
//	r, err := replica.New(options, self, host)
//	for {
//		r.Lead(...)                         // when the oracle names another leader
//		busy := r.Poll(time.Since(start))
//		for _, want := range r.Wanted() {   // Attach may wait: use a goroutine
//			a, err := host.Attach(ctx, want.Peer, want.Region)
//			r.Attached(want.Number, a, err) // between Polls
//		}
//		for _, m := range r.Delivered() { apply(m) }
//		if !busy { ... }                    // poll again soon, or when one of r.Regions() rings
//	}
//
// A client's loop is the same, with Multicast instead of Lead and Delivered.
package replica
