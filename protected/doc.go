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
// # Search
//
// A machine can be copied, and its state appended to bytes, so that sim/multicast's search visits
// every schedule: Copy, Redirect, Reads, Awaits, AppendOperation and Facts.
package protected
