// Package ledger is the book: what a transaction, an account and a block are, how a block is sealed
// from what was ordered, and how it is executed. It is pure: no clock, no goroutine, no I/O, and
// the same inputs give the same bytes everywhere.
//
// # The data's way
//
//	client:     tx := ledger.Transaction{...}; bundle, err := ledger.NewBundle(tx, ...); bundle.Sign("acme", privateKey)
//	admission:  bundle, err := ledger.DecodeBundle(bytes)
//	            err = ledger.VerifyBundle(bundle, genesis, book, authority)
//	proposal:   payload := ledger.EncodeBatch(ledger.BatchHeader{...}, bundles)
//	delivery:   draft := ledger.Seal(parent, epoch, round, payloads, seen)   // nil where the round has nothing new
//	execution:  block, changes := state.Execute(draft)
//	store:      see package ledger/store, which does the last two and makes them durable
//
// # What always holds
//
//   - A block is never older than its parent, and more than MaxStep younger only if a batch of its
//     round shows the clocks of a majority of the members.
//   - A transaction's id is the SHA-256 of its body under a domain prefix. An encoding is
//     canonical: one value, one form; decoders refuse every other, so an id cannot have two bodies
//     and a body cannot have two ids.
//   - Signatures are made over the RFC 6962 Merkle root of a bundle's ids. They are checked once,
//     at admission (VerifyBundle); execution only checks that each organisation whose consent is
//     needed has signed with a key that is registered at that moment.
//   - Postings of an applied transaction add up to zero for each asset. A balance, without what is
//     set aside, is never below zero unless its account is an issuer.
//   - A failed transaction is kept in its block with its reason and changes nothing: no balance, no
//     nonce, no record.
//   - A block's header commits to the block before it, the transactions, their results, the
//     signatures and the whole state.
//
// # Members
//
// Who keeps the chain is a part of the state. An operator's transaction lets one node in, or lets
// one go; nothing else is in it, it is alone in its bundle, and execution checks its signature
// again. An index, once given, is that member's for ever, and a key serves one member. Between two
// changes lie ChangeRounds rounds, in which ordering changes over to the new group;
// MembershipChangeIn tells it, before anything is executed, that a round has a change. Membership
// and MembershipAt say who the members are, and were.
//
// The state also has the disk map: for each member the disk that counts, where one was named. A
// member, or an operator, names a disk of another member with a ChangeAdmit (NewAdmit makes it),
// which is a change of the membership as a join and a leave are. It takes effect on the one
// membership that its signer saw, so that it needs no place in a nonce window, and one that comes
// late is harmless.
//
// # Shards
//
// A book that outgrows one group has several shards, each with members and a chain of its own, in a
// static tree (shards.go). An organisation's accounts and records are at its home shard (home.go).
// A transaction that concerns several shards enters at their lowest common ancestor, is ordered
// there, and flows down the tree in numbered streams (stream.go), as TRAM has it: two shards that
// execute two transactions execute them in one order. What follows is empty in a book of one shard,
// whose bytes, hashes and cost are what they were.
//
//	any node:    shard := state.BundleEntry(bundle)                   // whose members take it
//	proposal:    payload := (&ledger.Batch{Header: ..., Bundles: ..., Carried: ..., Verdicts: ...}).Encode()
//	delivery:    draft := state.Seal(parent, epoch, round, payloads, seen)
//	execution:   block, changes := state.Execute(draft)
//	to children: for each of changes.Forwards: entry Number of the stream to Child is block.CarriedBundle(Bundle)
//	to others:   for each of changes.Verdicts: the Verdict goes to the members of the shards To
//	asked:       verdict, made := ledger.VerdictOf(entry, shard)      // by a shard that waits for it
//
// Each destination executes its part of a transaction at its place in its own chain (crossing.go):
// what the part takes is set aside, what it brings has its room reserved. Its result, SetAside or
// the reason against it, is the shard's verdict (verdict.go), which the other destinations put into
// their chains. Where a chain has the good verdicts of all others, the transaction takes effect
// there, at the place of the last of them; with the first bad one it is released (settle.go). A
// shard whose own verdict is bad is done at once.
//
// What always holds:
//
//   - Conservation: at every cut of the chains that holds with each message also its sending, what
//     all accounts of all shards have of an asset, set aside or not, adds up to zero, when
//     transactions that took effect in one shard and wait in another are counted as having taken
//     effect there too.
//   - One outcome: a transaction takes effect in all of its destinations or in none. It does
//     exactly where all verdicts are good, and a shard's verdict, once in its chain, is for ever.
//   - Settling cannot fail. Setting aside is what checks funds, room and the number of assets,
//     against all that is set aside or may come in already.
//   - A chain replays alone: streams and verdicts are in its blocks, positions of streams and
//     transactions that wait are entries of its state.
//   - Nothing waits in a cycle, for no transaction waits for another: later ones go on with what is
//     not set aside, and fail where that is not enough. A record has the value of the greatest
//     place among the transactions that took effect, whenever they did, and so as in their order.
//   - A shard that stopped holds up only the amounts of transactions that concern it, and those
//     below it whatever would pass through it.
//
// What can go wrong, and what is done:
//
//   - Streams and verdicts come late, twice, in any order, from several members: Seal takes exactly
//     the next entry, and exactly the verdicts that are waited for.
//   - A verdict comes before its transaction: it is left out, and its sender keeps it or is asked
//     again.
//   - A verdict is lost: it follows from its shard's chain, and any member can make it again. A
//     shard that waits has to ask.
//   - A shard loses power as a whole, and with it blocks that were ordered but not durable: what
//     goes to other shards, entries of streams and verdicts, is only handed on once its block is on
//     the disks of a majority. That is up to who carries it.
//   - A transaction comes by two ways, at its entry and from above: each shard takes the first
//     copy, and what lies below follows its order.
//   - Where a transaction belongs depends on the directory, and it may be submitted again after a
//     registration changed that. Therefore it counts against every transaction that an organisation
//     in it is not registered, in all destinations alike, and none is in a chain before its
//     signer's registration. So where any chain has it before a registration that it needs, the
//     signer's home shard, which is a destination for ever, has it so too and refused it for ever:
//     whoever set it aside asks there.
//   - A shard stops for long: what waits for it is bounded, and more is refused (MaxWaiting).
//   - Chains have heights of their own: the last valid block is one of the signer's home shard,
//     which alone checks it, as it does the nonce. The nonce of a transaction that was set aside is
//     taken, also when it is released.
//   - What differs between shards must not decide what is to be the same in all: a registration has
//     no nonce, no last valid block and nothing beside it; accounts are opened in transactions of
//     their shard alone.
//
// A verdict is believed: it bears no signature, as members trust each other (crashes, not lies).
// Clients cannot submit one.
//
// # Hashes
//
// Everything that a browser has to check is SHA-256: ids, Merkle trees (RFC 6962, as
// github.com/transparency-dev/merkle has them) and block hashes. The state digest is LtHash: the
// sum of 1,024 16-bit lanes that BLAKE3 expands from each entry of the state, taken modulo 2^16
// lane by lane ("Securing Update Propagation with Homomorphic Hashing", Lewi, Kim, Maykov, Weis,
// 2019). Adding, changing or removing an entry costs one or two expansions whatever the size of the
// state, and needs nothing of the other entries, so that the digest needs no tree on disk; a
// snapshot is checked by adding up its entries.
package ledger
