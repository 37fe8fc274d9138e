// Package shards is a node's knowledge of the other shards in a book of several, and the exchange
// between their members. A node of a book with one shard uses none of it.
//
// # The members
//
// The Directory holds the members of all shards: those of the genesis, and later changes, which
// each shard's chain records and its members pass on. A member is named by its shard and its index
// in that shard's chain. Members announce their state (the Announcer). From these announcements the
// Directory derives which members to ask (Candidates) and a view for people (States).
//
//	directory, err := shards.NewDirectory(genesis)
//	directory.SetSelf(host.ID())
//	announcer, err := shards.NewAnnouncer(shards.AnnouncerConfig{Directory: directory, Control: control, Own: whatThisNodeDoes})
//	host.Watch(announcer.Event)
//	directory.SetOwn(store.Membership())                   // whenever it changed
//	for { <-directory.Changed(); host.SetMembers(of all shards) }
//
// Trust between shards is as within a shard: members crash, they do not lie. A message counts only
// if it comes from a member of the shard that it describes, and is bounded and validated. There is
// one exception: members of the own shard may also relay the members of other shards. A node that
// has just joined, or was away while a shard's members were replaced, learns them this way from its
// fellows. It saves its knowledge (Directory.Changes) for its next start. If no node of a shard
// runs while all members of another shard are replaced, the first shard cannot find the other by
// itself.
//
// # The verdicts on transactions
//
// A transaction of several shards waits in each of them for the verdicts of the others
// ([ledger.Verdict]). Verdicts is the exchange. Each shard's verdict follows from its chain, so any
// member can send it any number of times, and a lost message only causes a delay:
//
//	verdicts, err := shards.NewVerdicts(shards.VerdictsConfig{Directory: directory, Control: control, Store: current, Durable: height, Ready: pool.Wake})
//	verdicts.Applied(block)                                // each block that is executed here
//	verdicts.DurableTo(height)                             // blocks that are on a majority's disks
//	batch.Verdicts = verdicts.Propose(room)                // with this node's next message
//	verdicts.Reset()                                       // another store took the place of the one before
//
// The path of a verdict:
//
//   - Told: once a block is durable, f+1 of the n members of its shard, of which f = ⌊(n-1)/2⌋ may
//     crash, send the verdicts in it to f+1 members of each other shard that they concern. The
//     choice of members rotates with the transaction's id.
//   - Asked for: the members that should have told a verdict may have crashed, been cut off, or had
//     no room. A node therefore asks for a verdict that it has waited for longer than AskAfter,
//     each time from another member. A node that starts asks at once.
//   - Proposed: a verdict that the chain waits for goes into this node's next message, and again
//     only after AgainAfter. Blocks take each verdict once, whichever member proposes it. A verdict
//     that arrives before its transaction is kept until the transaction arrives.
//
// What always holds:
//
//   - Only verdicts of durable blocks are told: other shards act on them for ever.
//   - A proposed verdict is well-formed, from another shard, and was waited for when it was judged.
//     A verdict that was settled meanwhile is dropped with the next executed block, or at the next
//     look.
//   - All memory is bounded. A verdict that does not fit is dropped, and asked for later.
//   - One goroutine reads the chain. Handlers of messages, Applied and DurableTo only take notes.
//     With nothing to do the goroutine sleeps, without a ticker.
//
// # Files
//
//	directory.go  the members, and which of them to ask
//	state.go      the state of the shards, for people
//	announcer.go  the nodes' reports about themselves
//	verdicts.go   the exchange of verdicts, as the node sees it
//	exchange.go   its goroutine: judging, answering, telling, asking
//	awaited.go    the sets of verdicts
//	wire.go       the messages, byte by byte
package shards
