// Package replica is TRAM as the paper has it [TRAM]: atomic multicast over one-sided memory, in
// groups with a leader each, whose permission to write is what orders, and a static tree between
// the groups. Replica is one server of a group (Algorithms 2 to 5), Client a client (Algorithm 1).
// Both are machines that are polled: no goroutine, no clock, no waiting. What the leader oracle
// says, who is given up, and the time are inputs.
//
// # Memory
//
// Each replica exposes
//
//	tram/board       a row of words for each process, which only that process writes: the ticket under which it asks for a permission (the paper's perm), the highest ticket that it
//	                 granted, in answer (perm_ack), and a word that says that it, leading, excluded the board's owner. Members, the parent's and the children's replicas and clients may write.
//	tram/log         the group's log, a ring of slots, behind a header with the last entry that the owner has taken. One process may write: to which the owner granted it last. The paper's LOG.
//	tram/parent      the parent's messages, a ring of slots, with a header as the log's. One replica of the parent may write: the leader with the highest ticket. The paper's HM, as are
//	tram/client/C    the messages of client C, likewise; the header also holds the ticket under which C was granted it.
//
// Messages of a buffer are numbered from 1, entries of the log too. Number n lies in slot (n-1) mod
// slots. An entry is written at once, from its first byte to its last, and fills its slot from the
// back:
//
//	buffer    message, zeros up to a word, length, number
//	log       message, zeros up to a word, timestamp, known, origin, number, index
//
// so the words behind the message have places that depend on no length, and the canary, the last
// word, is never where a payload was. It is the number itself: whoever finds number n has all of
// entry n, and what is left of an entry that lay there before has another number. The log's words:
// timestamp, of the leader that wrote it; known, by how much less than the index its leader knew
// all to be ordered, and all to be taken by every member; origin, the buffer that the message came
// from, or none for a no-op, and its length; number, in that buffer.
//
// A ticket is a timestamp (a counter, and then the server that counted: the paper's tmp) and behind
// it the number of the request: who lost the way to a memory asks for it anew under the same
// timestamp. All processes of a deployment have one order of bytes in a word.
//
// # What must always hold
//
//  1. Only who holds the permission for the logs of a majority orders. An owner grants its log to
//     the highest ticket that it has seen, and has revoked it from its holder before it answers. An
//     entry is ordered once a majority has it, complete, under one timestamp. From then on every
//     leader finds it, because it reads a majority, and takes the highest timestamp of each slot.
//  2. What a replica does with the log follows from the log alone: which messages were taken from
//     which buffer, what is delivered, the number of each message in each child's stream. An entry
//     that is not the next of its source (number is not the last one's plus 1) means nothing, to
//     all alike. So a message is delivered once, whatever copies leaders leave behind, and a number
//     of a child's stream has the same message whoever writes it.
//  3. A replica handles an entry only if it knows it to be ordered, and then its own log has it.
//     Each entry says up to where all was ordered when it was written; a leader writes to a
//     member's log in order, from what that member has taken on. What an earlier leader left there
//     a follower passes only once its present leader has made it its own: before that, it may be
//     written anew.
//  4. A slot of the log is used again only when all members that are not excluded took what was
//     there, this leader too, and each child has ordered what it was due of it. A slot of a buffer
//     is used again only when its owner has taken what was there.
//  5. An ordered message is never spoiled. A new leader that finds its message in a member's log
//     already writes the timestamp, one word, and nothing else: a longer write could be cut short
//     by a revocation, and the copy may be the one that a majority needs. Where it finds another
//     message, which cannot be ordered then, it takes the mark away first, so that a beginning of
//     the new entry is not taken for the old one.
//  6. Nothing of an earlier attachment lands where a later one writes. Behind an error writes may
//     still be under way; so the way to a memory is given up with the first error, and taken up
//     again only under a new ticket, for which the owner revokes and grants anew.
//  7. What is ordered reaches the children: a replica remembers what is due to each and not known
//     to be taken, and a new leader hands all of it on again.
//
// From these the properties of package order follow as in [TRAM, section 6].
//
// # What can go wrong, and how a test sees it
//
//	permission requests     two candidates at once, an old leader that does not know yet (or hangs, and its writes land until it is revoked): prefix order breaks if 1 does not hold (FaultNoPermissionCheck).
//	group catch-up          the last leader's entries lie in some logs and not in others: agreement breaks if a candidate takes its own log for the group's (FaultNoGroupCatchUp), or an entry for ordered too soon (FaultDecidedEarly).
//	                        A leader is stopped amid the catch-up: integrity breaks if a mixed entry passes for a whole one (FaultRewrittenInPlace).
//	normal case             the log goes around while a member is behind: it halts, and agreement breaks (FaultSlotReusedEarly). A buffer goes around while nobody ordered: a message is lost, and validity breaks (FaultBufferReusedEarly).
//	tree                    a leader crashes after it ordered and before it handed on: agreement between groups breaks (FaultNoTreeCatchUp).
//	clients                 a client crashes between two writes: some replicas have its message. It is ordered if a leader has it, and then everywhere.
//
// The conformance suite in sim/multicast runs thousands of deployments with all of that, and with
// each fault planted.
//
// # Where this differs from the paper
//
//   - Several entries under way (Options.Window; the paper's is 1). A follower cannot infer from
//     entry i+1 that entry i is ordered; the entry says it (known). A leader can leave several
//     entries behind that are not ordered; later ones may take them up behind others with the same
//     messages, and 2 makes them harmless.
//   - Finite buffers: 4. "Taken" is asked for by reading the owners' headers, and only where it
//     matters. The floor that all members took goes with each entry, so that a new leader need not
//     wait for the dead to use slots again. A member that is down stops its group when the log has
//     gone around, until Exclude says that nobody waits for it any more. No timeout can tell: with
//     finite memory, and without knowing who is dead, either a slow member misses messages or a
//     dead one stops the rest. Who was excluded by mistake finds its slots used again, or reads it
//     on its board, and halts.
//   - The paper's slot_out is in each entry of the log; here it follows from the log (2), as
//     slot_in does, and step 5.1 needs no search.
//   - Group catch-up: the paper writes every entry from FUO on to all, in place. A revocation in
//     between destroys copies (5). It starts at the candidate's own FUO, which leaves a follower
//     that is further behind with holes; here each member's log is read, and written from what that
//     member has taken on. Members whose permission comes later than a majority's are read and
//     written when it comes.
//   - The children's buffers have one writer at a time as well, with tickets: the paper's old
//     leader could write into a slot that was used again since.
//   - A no-op after a quiet moment (Options.Quiet), from which followers learn that the last entry
//     is ordered; the paper assumes an endless stream of messages. A new leader orders one too.
//   - A message of a buffer is needed until some replica of the group has taken it: it is in the
//     group's log then. So neither clients nor parents wait for the slowest.
//   - A replica that crashed stays away: its memory is gone. Its group tolerates f of 2f+1, for
//     good.
//
// # The loop
//
//	r, err := replica.New(options, self, host)
//	for {
//		r.Lead(...)                                    // when the oracle says something new
//		busy := r.Poll(time.Since(start))
//		for _, want := range r.Wanted() {              // Attach may wait: in a goroutine, answered between Polls
//			a, err := host.Attach(ctx, want.Peer, want.Region)
//			r.Attached(want.Number, a, err)
//		}
//		for _, m := range r.Delivered() { apply(m) }
//		if !busy { ... }                               // look again soon, or when one of r.Regions() rings
//	}
//
// A client's loop is the same, with Multicast instead of Lead and Delivered.
package replica
