// Package verdicts decides what a member does with the verdicts of other shards: which it believes,
// which it proposes for its own chain, which it asks for again, when it may forget one, and which
// members tell which. It is pure: it has no clock, no goroutine and no I/O. A node runs it (package
// node/crossing/shards gives it messages, the time and the chain), and so does each member in the
// simulator of whole books (package sim/book).
//
// # How it is driven
//
//	x := verdicts.New(verdicts.Config{Vouched: ..., Bounds: verdicts.DefaultBounds()})
//	a := verdicts.NewAsking(after, every)
//
//	message:   x.Hear(sender, told)              // of a member of another shard
//	           x.HearGroup(sender, group, group.ID())
//	           x.Believe(&proven)                // a verdict with a certified proof
//	block:     x.Applied(block)                  // each block that is executed here, in order
//	soon:      for _, verdict := range x.TakeReceived(some) {
//	               blocks := x.Blocks()
//	               if !x.Knows(verdicts.KeyOf(&verdict)) {
//	                   x.Place(&verdict, its standing in the chain, blocks)
//	               }
//	           }
//	           for group, any := x.TakeGroup(); any; group, any = x.TakeGroup() {
//	               group.Judge(standing of a verdict in the chain)
//	               x.PlaceGroup(&group, blocks)
//	           }
//	batch:     batch.Groups, batch.Verdicts = x.ProposeWithin(room, most, now, patience)
//	at times:  due := a.Overdue(all that wait, now, anew)
//	           x.Sweep(a)
//	           questions, vain := x.Questions(a, due, now, most, often)
//	members:   x.Recount()                       // those of any shard changed
//	chain:     x.Reset()                         // another one took the place of the one before
//
// Times are what has passed since a moment that the caller chooses once.
//
// # Groups
//
// A block has many verdicts, nearly all of them good. In a vouched book, members tell, believe,
// judge and propose those of a block for one shard together, as a group (ledger.VerdictGroup).
// Split says which ones these are, from the block alone, so members say the same. A group is one
// fact, identified by a hash, whatever its size. What a block has of it is known from the block.
// Bad verdicts, testimonies, departures, and answers to questions are single verdicts. A verdict
// may be known in both ways, and counts for the chain in either (ledger/state).
//
// # What always holds
//
//   - A verdict is in at most one place: received and not judged, early, awaited, or settled. So is
//     a group.
//   - Only verdicts that are believed are judged, and only those whose transactions wait in the
//     chain, when it was asked, are proposed.
//   - Vouched: a minority of another shard's present members can neither make a verdict believed
//     that their shard did not give, nor keep one from being believed that the others tell.
//   - A testimony about a shard that is lost is a verdict like any other. Only the asking for it
//     differs: nobody tells it unasked. That of the own shard, if no other one is left, needs no
//     words.
//   - A believed group is proposed while one of its verdicts is awaited. It watches one verdict,
//     and is judged again when that one arrives, or is over. Groups hold no memory for the others
//     but their ids.
//   - Nothing is lost for good. Verdicts are dropped for lack of room, or because they were judged
//     by a chain that has changed, but a transaction that still waits is asked for again.
//   - All memory is bounded (Bounds), and each member has an equal share of the room for words. A
//     word on a group takes as much of it as the group has verdicts. A group that has no room is
//     dropped, and its verdicts are asked for one by one.
//   - The same calls give the same results, whatever the order of maps.
//
// # Files
//
//	exchange.go    from the first word on a verdict until the chain has it
//	asking.go      which transactions wait for long, and what to ask
//	words.go       what members say, until it is believed
//	table.go       what is known of each verdict, and the sets of those that are early or over
//	awaited.go     the verdicts to propose
//	ordered.go     the verdicts to propose in a vouched book
//	groups.go      groups, from the first word until they are over
//	groupwords.go  what members say of groups
//	ended.go       groups of which a block has what is left
//	split.go       what members tell of a block
package verdicts
