// Package protected is what engines over one-sided memory are made of: memory that only the process
// with the permission writes. Its machines are polled. They have no goroutine, no clock and do not
// wait.
//
// # Ways
//
// A process reads and writes regions of others. Ways is its connection to the fabric, and each Way
// leads to one region of one incarnation. A way has lives: Attach begins one, with a Want that the
// driver answers, and Detach ends it. Completions of an earlier life are dropped, so an owner hears
// only of what it posted since it last took the way up.
//
// Operations are collected and posted to all targets together by one Flush [TRAM, section 3]. Each
// post has the kind and the number that its owner gave it. Words up to rdmanet.InlineMax are copied
// when they are posted. The bytes of longer writes stay where they are until the write completes,
// even if the way was given up meanwhile, so each such place has a counter (lent).
//
// # Tickets and boards
//
// A Board is a region with a row of words for each process, which only that process writes. A word
// is small enough never to be torn. A Ticket is a timestamp and the number of a request. A process
// that needs a permission writes a ticket into its row on the owner's board. The owner takes the
// memory from its holder, gives it to the process, and only then answers, in its row on the board
// of the process that asked (Petition, Asker, Held) [TRAM, section 5.4, Algorithm 3].
//
// Two rules hold everywhere:
//
//   - One writer at a time. An owner grants to the highest ticket that it has seen. Once Held.Pass
//     has returned, nothing that an earlier holder posted lands.
//   - A way is given up with its first error, and taken up only under a new grant. After an error,
//     writes may still be under way, and would land where later ones write. The owner revokes and
//     grants anew before it answers the next ticket, so none of them lands behind it
//     (Petition.Lose).
//
// # Rings
//
// Streams of messages lie in rings. A Ring numbers its entries from 1, and number n lies in slot
// (n-1) mod slots. An entry is written from its first byte to its last, and fills its slot from the
// back, so that the places of the words behind a message depend on no length:
//
//	buffer    message, zeros up to a word, length, number
//
// The last word, the canary, is the number itself. A reader that finds number n has all of entry n,
// because an entry that lay there before has another number. The header before the slots is the
// owner's, and says what the owner has taken. Buffer is the owner's end of a ring. Outbox is the
// writer's copy, outside of all regions: the fabric may read it after the host's memory has gone.
// All processes of a deployment have the same byte order.
//
// # The log
//
// Log is Protected Memory Paxos for a sequence of entries, as TRAM uses it in each group [TRAM,
// Algorithms 2 to 4]. The permission to write the members' logs elects: a server that its leader
// oracle names collects the permissions of a majority, reads those logs, makes the group's log its
// own, and writes it to the members under its own timestamp. Each server has a region, a ring whose
// header says what the server has handled:
//
//	log       bytes, zeros up to a word, timestamp, known, origin, number, index
//
// The words are: timestamp, of the leader that wrote the entry; known, how far below the index its
// leader knew all entries to be ordered, and how far below all were taken by every member; origin
// and length, and number, the entry's identity; index, the canary.
//
//   - Only a server that holds the permission for the logs of a majority orders. An entry is
//     ordered once a majority has it, complete, under one timestamp. From then on every leader
//     finds it, because it reads a majority and takes the highest timestamp of each slot.
//   - A server handles an entry only if it knows that the entry is ordered and its own log has it.
//     Each entry says up to where all entries were ordered when it was written. A follower passes
//     an entry of an earlier leader only after its present leader has made it its own. Before that,
//     the entry may be rewritten.
//   - An ordered entry is re-stamped with one word, and never rewritten. A revocation could cut a
//     longer write short, and this copy may be the one that a majority needs. A new leader that
//     finds its entry already in a member's log therefore writes only the timestamp. If it finds
//     another entry there, which cannot be ordered then, it erases the mark first, so that the
//     beginning of the new entry is not taken for the old one.
//   - A slot is reused only when all members that are not excluded took its entry. The log is
//     finite, so a member that is down stops its group when the log has wrapped around, until
//     Exclude says that the group no longer waits for it. A member that was excluded by mistake
//     finds its slots reused, or reads the exclusion on its board, and halts.
//
// The entries that a leader leaves behind with several under way are the user's to judge: what
// User.Apply does must follow from the entries alone.
//
// # What can go wrong, and how a test detects it
//
// Each Fault is one error: an owner that does not revoke, a candidate that takes its own log for
// the group's or the first hole for its end, an entry that is treated as ordered too soon or
// rewritten in place, a slot that is reused while a member or a write needs it. The tests of this
// package look at all logs at every instant of virtual time; sim/multicast runs thousands of
// deployments of tram/replica with the same faults.
//
// # Sources
//
// [TRAM] is the paper's protected LOG, permissions and group catch-up. Where this differs from it,
// package tram/replica says why: several entries are under way, so an entry says what is ordered;
// the members' logs are read and written from what each has taken; memory is finite.
//
// # The loop
//
// A user builds Boards, then the Log on them, numbers all its ways by Place, makes Ways, and calls
// Use and Expose. Its Poll is:
//
//	busy := s.ways.Complete(now, s.completed) // Row.Completed, Log.Completed, its own
//	answered, _ := s.log.Answer()             // and requests for memory of its own
//	busy = s.log.Work() || answered || busy
//	busy = s.log.Apply() || busy
//	if s.log.Leading() {
//		for s.log.Room() { s.log.Append(origin, number, bytes) } // while there are entries
//		if s.log.Unannounced() && s.log.Room() { s.log.Announce() }
//		busy = s.log.Replicate() || busy
//	}
//	busy = s.boards.Drive(s.ways) || busy
//	err := s.ways.Flush()
//
// # Search
//
// A machine can be copied, and its state appended to bytes, so that sim/multicast's search visits
// every schedule: Copy, Redirect, Reads, Awaits, AppendOperation and Facts.
package protected
