// Package shards is what a node of a book with several shards knows of the others, and what their
// members tell each other. A node of a book with one shard makes none of this.
//
// # Who they are
//
// The Directory holds the members of all shards: those of the genesis, and what came since, which
// each shard's chain says and its members pass on. A member is named by its shard and its index in
// that shard's chain. From what members say of themselves (the Announcer) the Directory knows whom
// to ask (Candidates) and what people want to see (States).
//
//	directory, err := shards.NewDirectory(genesis)
//	directory.SetSelf(host.ID())
//	announcer, err := shards.NewAnnouncer(shards.AnnouncerConfig{Directory: directory, Control: control, Own: whatThisNodeDoes})
//	host.Watch(announcer.Event)
//	directory.SetOwn(store.Membership())                   // whenever it changed
//	for { <-directory.Changed(); host.SetMembers(of all shards) }
//
// Network-wide trust is as within a shard: members crash, they do not lie. A message counts only if
// it comes from a member of the shard that it speaks of, and is bounded and validated; but who the
// members of a shard are may be said by members of the own shard, too. So a node that has just
// joined, or was away while a shard's members were replaced, hears of them from its fellows, and
// what it knows (Directory.Changes) it keeps for when it begins again. A shard of which no node
// runs while all members of another are replaced does not find that one by itself.
//
// # What they say of transactions
//
// A transaction of several shards waits in each of them for what the others say of it
// ([ledger.Verdict]). Verdicts is the exchange. Each shard's verdict follows from its chain, so any
// member can tell it as often as it likes, and whatever gets lost is only late:
//
//	verdicts, err := shards.NewVerdicts(shards.VerdictsConfig{Directory: directory, Control: control, Store: current, Durable: height, Ready: pool.Wake})
//	verdicts.Applied(block)                                // each block that is executed here
//	verdicts.DurableTo(height)                             // blocks that are on a majority's disks
//	batch.Verdicts = verdicts.Propose(room)                // with this node's next message
//	verdicts.Reset()                                       // another store took the place of the one before
//
// A verdict's way:
//
//   - Told: once a block is durable, f+1 members of its shard, of n, of which f = ⌊(n-1)/2⌋ may
//     crash, tell the verdicts in it to f+1 members of each other shard that they concern. Which
//     ones rotates with the transaction's id.
//   - Asked for: what waits longer than AskAfter, as those who should have told crashed, were cut
//     off, or had no room, is asked for, each time from another member. A node that starts asks at
//     once.
//   - Proposed: a verdict that the chain waits for goes into this node's next message, and again
//     only after AgainAfter. Blocks take each once, whoever proposes it. One that comes before its
//     transaction is kept until that comes.
//
// What always holds:
//
//   - Only what durable blocks say is told: other shards act on it for ever.
//   - What is proposed is well-formed, of a shard other than the own, and was waited for when it
//     was judged; what was settled meanwhile goes out with the next block that is executed, or the
//     next look.
//   - All that is kept is bounded. What does not fit is dropped, and asked for later.
//   - One goroutine reads the chain. Handlers of messages, Applied and DurableTo only take notes;
//     with nothing to do the goroutine sleeps, without a ticker.
//
// # Where to find what
//
//	directory.go  who the members are, and whom to ask
//	state.go      how the shards are, for people
//	announcer.go  what nodes say of themselves
//	verdicts.go   the exchange of verdicts, as the node sees it
//	exchange.go   its goroutine: judging, answering, telling, asking
//	awaited.go    the sets of verdicts
//	wire.go       the messages, byte by byte
package shards
