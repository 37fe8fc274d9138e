// Package book is the judge of a whole book of several shards. It draws a book from a seed, runs
// the production ledger (package ledger/state) at every member of every shard, injects faults into
// members, disks and messages, and judges what the chains say.
//
// # A run
//
// Time passes in turns. In each turn messages arrive, shards order rounds, and members execute
// them, flush blocks, and tell other shards what is durable. A run has two phases. In the first,
// clients submit bundles and faults happen. In the second there are no more of either, and the book
// must come to rest within a bounded number of turns: every bundle in its chains, every stream
// taken, no transaction waiting.
//
// What runs is what production runs: ledger/state seals each round at each member, and executes
// it. Package ledger/verdicts decides which verdicts of other shards a member believes, proposes,
// asks for and forgets, which members tell which, and which copies of late transactions a member
// keeps and proposes. Package tram/stream says up to where a member knows its chain to have the
// parent's stream durably. ledger/state says which ids are looked up before a block takes a
// transaction. The rest is the simulator's:
//
//	ordering   a shard's members agree on rounds (package sim judges that), until fewer than half
//	           of them are up. Then the shard stops. When enough are back it begins a new
//	           generation, at the best block that they have on disk or in memory. Every other block
//	           above is lost (group.go).
//	memory     in some books only some accounts are in memory. The entries of the others are what
//	           blocks changed (memory.go).
//	disks      flush later than blocks are executed, each at its own pace. A block is durable once
//	           more than half of the disks have it (member.go).
//	streams    each member of a parent sends entries of durable blocks to each member of the child,
//	           again and again. They are lost, repeated and overtaken (exchange.go).
//	verdicts   members tell verdicts of durable blocks once, in groups where the chain takes them,
//	           and answer when they are asked. In
//	           some books few of them fit into memory, or into a batch.
//
// # What clients do
//
// They register organisations, some pinned to a shard, open accounts, move amounts, write records
// and change policies (workload.go). They submit some bundles twice, at the wrong shard, or before
// what these need. A chain begins with any version up to ledger.CancelVersion, or with
// ledger.GrowthVersion or the newest one, and in some books the operators raise it on the way.
// Where chains take deadlines, many of them end while the transaction or a verdict on it is on its
// way, some have passed, and some are missing or too far.
// Where chains take cancellations, clients cancel many transactions, their own and others', at some
// shards, before the transaction is submitted there and after. In a third of the books the version
// is one of these two, in the beginning or later, and the operators move organisations, whose
// earlier bundles are submitted again (moves.go). In some books accounts may have few assets, and
// clients issue new ones to the same accounts (assets.go). In half of the books of the newest
// version, clients register an asset with a cap, and issue it in all shards (supply.go). Where
// chains take holds, clients place them, and others post them in part or whole, void them, or let
// them expire (holds.go). Where chains take details of entries, clients use idempotency keys again,
// and refund entries in part, several times and too often (details.go). Where chains take them,
// organisations set terms of their accounts (terms.go).
//
// Where chains take changes of the book, the operators add one or two shards on the way, below any
// shard. The members of a new shard begin once its addition is durable in some chain, and all
// chains must have added it with the same directory. An organisation registers in the newest shard
// as soon as that is there. In a third of the books the operators make changes of all kinds in any
// order: they add shards, move organisations, and settle with lost shards, from which organisations
// come and to which they go at about that time (mixed.go).
//
// # Faults
//
// A seed draws all faults before the run (plan.go), so bundles and faults have numbers and can be
// left out one by one.
//
//	crash    a member loses power, and all that it has not flushed
//	stop     all members of a shard lose power at once
//	replace  members of a shard lose their disks, one after the other. Each begins again with the
//	         entries of a fellow's state at a durable block. In half of the books it has no more of
//	         the earlier blocks than their outlines, and in some it fills them in (outlines.go)
//	slow     a member's disk flushes nothing for a while. In some books no disk of a shard does, and
//	         then more than half of its members lose power: several blocks are lost at once, which
//	         the others still have in memory
//	network  messages between shards are lost, repeated and held up
//	lie      a minority of a shard's members tell other shards and their fellows false verdicts,
//	         groups of verdicts and entries of streams, in a book with vouched crossings (lies.go).
//	         Where organisations move, they also hand over and propose copies of transactions that
//	         are forged, cut short, too large, too early, known, or of no concern to the shard
//	         (late.go)
//	members  the operators replace members of a shard, in some books all of them, one after the
//	         other. A new member joins by an entry of the chain, and begins with a snapshot of a
//	         fellow; then the old one leaves. Other shards learn of that later (membership.go).
//	lose     shards are gone for good, or some others do not hear them for a while, and the
//	         operators settle with them (loss.go). The remaining shards are judged without them:
//	         their amounts and what crossed to the lost ones add up to zero.
//
// # What is judged
//
//	same chain    members of a shard seal and execute the same blocks, after a restart too
//	durability    a durable block stays in its chain
//	integrity     a chain has a transaction once, and nothing out of place
//	atomicity     a transaction takes effect in all of its shards or in none, and in no other one
//	              after an organisation moved
//	conservation  amounts add up to zero in each asset, at the heads of the chains after each turn
//	              and at consistent cuts of the whole history (ledger/state/doc.go). Of a lost
//	              shard count the transactions that took effect in others, and what organisations
//	              took there and came away with
//	supply        what issuers issued is what their accounts are below zero, and no more is issued
//	              over all shards than the cap of the asset, at the same cuts
//	holds         each decision on a hold, the holds that are open and what is set aside of each
//	              account are those of the rules, gone through once more: what is held is never
//	              spent, and nothing expires early or late. Over all shards each hold is ended at
//	              most once, and no more is posted of it than it held
//	keys          of the entries of an organisation with one idempotency key at most one takes
//	              effect over all shards, and each decision and the keys that a chain remembers are
//	              those of the rules
//	refunds       over all shards no more is given back of a posting than it posted. Each decision
//	              on a refund, and what is left of each entry, are those of the rules
//	terms         no account goes beyond its terms, and they move with it
//	verdicts      a shard gives one verdict on a transaction, with a reason that the version of
//	              the chain that takes it knows
//	deadline      a shard agrees to a transaction exactly if it executes it before its deadline
//	cancelling    a shard refuses a transaction as cancelled exactly if one of those who have to
//	              sign it cancelled it there before, and goes back on nothing that it agreed to
//	outcome       at rest, balances and records are those of the transactions that took effect
//	total order   two shards have the transactions that took effect in both in one order
//	relay         tram.Relay, run beside each chain, delivers the same and hands on the same
//	              entries with the same numbers
//	bounds        a member keeps, and a block takes, no more copies beside the order than there is
//	              room for; a copy concerns the shard, and one of its organisations moved
//	progress      the book comes to rest
//	contract      the ledger does not panic
//
// # How to use it
//
//	result, err := book.Run(book.Options{Seed: 42, Faults: book.FaultsAll})
//	for _, violation := range result.Violations {
//		fmt.Println(violation) // the property and the evidence
//	}
//
// Package sim/sweep runs many seeds. Shrink looks for a smaller run that breaks the same property.
// Options.Trace shows a run event by event, and Options.Plant plants a bug. `ledgerd sim book`
// offers all of this on the command line.
//
// # Invariants
//
// The same options give the same run on every machine; Result.Hash proves it. A run ends at the
// first broken property. A majority of a shard's disks never loses a durable block, because a
// member whose disk is lost counts again only once it has all durable blocks.
//
// # What is not judged here
//
// How a shard agrees on rounds and generations: package sim does. How streams use memory: package
// sim/multicast does, with tram/stream's machines. Streams go through no rings here: rings come and
// go with goroutines and a fabric, and the tests of node/crossing/streams judge that, with planted
// bugs (a ring that is let go before it is revoked, or given to a writer twice). How a shard
// changes over to other members: here it counts a new member from the moment when that has all
// durable blocks, and an old one until enough others have them.
//
// These decisions of production are made here once more, by the simulator itself, so a bug in them
// is not found here:
//
//	which entries of the parent's stream go into a batch, and the room that they share with
//	verdicts (mempool, node/crossing, tram/stream): carry. ledger/state decides which ones a
//	block takes, and in which order; that is production's.
//	which own verdicts and stream entries a store finds, also after a snapshot (ledger/store,
//	Verdict and Stream, with ledger.Outline): exchange.answers and exchange.streams
//	when members make arrivals and fetch them (ledger/store, node/crossing): departures
//	what a new member's snapshot has of the streams: the entries above what the fellow knows of
//	each child's position (ledger/store, Snapshot): exchange.note, member.passed. What it answers
//	from outlines is production's (state.AnswersAbsent)
//	how members fill blocks in, and that the last one with all blocks stays: member.fill,
//	member.isLastHolder
//	how a shard's members get known, and by what proof (node/crossing/shards): member.learn
//	certified proofs of verdicts that are not told (node/crossing/shards): missing
package book
