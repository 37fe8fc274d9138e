// Package ledger is the book: what a transaction, an account and a block are, how a block is sealed from what was ordered, and how it is
// executed. It is pure: no clock, no goroutine, no I/O, and the same inputs give the same bytes everywhere.
//
// # The data's way
//
//	client:     tx := ledger.Transaction{...}; bundle, err := ledger.NewBundle(tx, ...); bundle.Sign("acme", privateKey)
//	admission:  bundle, err := ledger.DecodeBundle(bytes); err = ledger.VerifyBundle(bundle, genesis, directory)
//	proposal:   payload := ledger.EncodeBatch(ledger.BatchHeader{...}, bundles)
//	delivery:   draft := ledger.Seal(parent, epoch, round, payloads, seen)   // nil where the round has nothing new
//	execution:  block, changes := state.Execute(draft)
//	store:      see package ledger/store, which does the last two and makes them durable
//
// # What always holds
//
//   - A transaction's id is the SHA-256 of its body under a domain prefix. An encoding is canonical: one value, one form; decoders refuse
//     every other, so an id cannot have two bodies and a body cannot have two ids.
//   - Signatures are made over the RFC 6962 Merkle root of a bundle's ids. They are checked once, at admission (VerifyBundle); execution only
//     checks that each organisation whose consent is needed has signed with a key that is registered at that moment.
//   - Postings of an applied transaction add up to zero for each asset. A balance is never below zero unless its account is an issuer.
//   - A failed transaction is kept in its block with its reason and changes nothing: no balance, no nonce, no record.
//   - A block's header commits to the block before it, the transactions, their results, the signatures and the whole state.
//
// # Members
//
// Who keeps the chain is a part of the state. An operator's transaction lets one node in, or lets one go; nothing else is in it, it is alone in its bundle, and
// execution checks its signature again. An index, once given, is that member's for ever, and a key serves one member. Between two changes lie
// ChangeRounds rounds, in which ordering changes over to the new group; MembershipChangeIn tells it, before anything is executed, that a round has a change.
// Membership and MembershipAt say who the members are, and were.
//
// # Hashes
//
// Everything that a browser has to check is SHA-256: ids, Merkle trees (RFC 6962, as github.com/transparency-dev/merkle has them) and block
// hashes. The state digest is LtHash: the sum of 1,024 16-bit lanes that BLAKE3 expands from each entry of the state, taken modulo 2^16 lane by
// lane ("Securing Update Propagation with Homomorphic Hashing", Lewi, Kim, Maykov, Weis, 2019). Adding, changing or
// removing an entry costs one or two expansions whatever the size of the state, and needs nothing of the other entries, so that the digest
// needs no tree on disk; a snapshot is checked by adding up its entries.
package ledger
