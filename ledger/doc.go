// Package ledger is the book as values: transactions, bundles, batches, blocks, accounts, members
// and the genesis, with their encodings, hashes, proofs and signatures. It is pure: it has no
// clock, no goroutine and no I/O, and the same inputs give the same bytes everywhere. A client, an
// auditor and a relay need this package only. Package ledger/state seals and executes what these
// values say.
//
// # The data's way
//
//	client:     bundle, err := ledger.NewBundle(ledger.Transaction{...}, ...)
//	            err = bundle.Sign("acme", privateKey)
//	admission:  bundle, err := ledger.DecodeBundle(bytes)
//	            err = ledger.VerifyBundle(bundle, genesis, book, authority)
//	proposal:   payload := ledger.EncodeBatch(ledger.BatchHeader{...}, bundles)
//	arrival:    batch, err := ledger.VerifyBatch(payload)
//	execution:  see package ledger/state, which makes a *ledger.Block of a round's payloads
//	proof:      proof := block.Proof(index)
//	            err := ledger.VerifyProof(proof)
//
// # What always holds
//
//   - A transaction's id is the SHA-256 of its body under a domain prefix. Encodings are canonical:
//     each value has one form, and decoders refuse all others. So an id cannot have two bodies, and
//     a body cannot have two ids.
//   - The id of a transfer in a packed bundle (PackBundle) is made of the bundle's root and the
//     transfer's place. So an id cannot have two transfers; the same transfer in another packed
//     bundle has another id, and its nonce keeps it from taking effect twice.
//   - Signatures cover the RFC 6962 Merkle root of a bundle's ids, or of the parts of a packed
//     bundle. The member that admits a bundle verifies them (VerifyBundle), and so does each node
//     before it makes a block of a round (VerifyBatch) or takes a block from a peer
//     (VerifySignatures): a member may lie. What a good signature is does not depend on the node,
//     or on the batch in which it is verified.
//   - A block's header commits to the previous block, the transactions, their results, the
//     signatures and the whole state.
//
// docs/encoding.md has every encoding, hash and signature byte by byte, with test vectors in
// testdata/vectors for other languages.
//
// # Certificates
//
// A member signs what it stored (Statement). The statements of a majority certify a block
// (Certificate), and an Auditor follows the members from the genesis by certificates, so a reader
// with the genesis alone can tell that a block is final (Finality, CertifiedProof). Two signed
// accounts of one height are Evidence.
//
// # Members
//
// The members of the chain change by transactions. An operator's transaction adds one node or
// removes one. The change is alone in its transaction, and the transaction is alone in its bundle.
// An index belongs to one member for ever, and a key serves one member. MembershipChangeIn reports,
// before anything is executed, that a round has a change.
//
// A member or an operator names the disk that counts for another member with a ChangeAdmit
// (NewAdmit makes it). It is a change of the membership, too, and takes effect only on the
// membership that its signer saw.
//
// The operators name the engine by which the members order with a ChangeEngine, from version 13 of
// a chain on. This package knows no engines: a name is a word, and what it means is for the nodes.
//
// # Keys
//
// An organisation begins with the keys of its registration, each of which may sign alone. A Policy
// gives it a threshold, limits by amount and roles of keys. A transaction replaces the policy
// (PolicyChange): so keys are rotated and revoked. It takes effect for the transactions after it.
//
// # Assets
//
// Any name of an asset may be used in postings. An organisation may register one (AssetChange): its
// decimals, a promise on its supply, and its issuers. The allowances of the issuers add up to the
// cap at most, so each issuer is judged in its own shard, and the supply never exceeds the cap. A
// chain keeps what each issuer issued and redeemed (Asset), which AssetProof proves, and SupplyOf
// adds up.
//
// # Terms of accounts
//
// An organisation sets the terms of an account (AccountChange): limits, a freeze, a guardian,
// metadata and an alias. What an account has of them (AccountStanding) is part of its entry, so an
// AccountProof proves it. KeepsTerms judges from outside whether an account keeps to them.
//
// # Shards
//
// A book that outgrows one group has several shards in a tree (ShardTree), each with members and a
// chain of its own. An organisation's accounts and records are at its home shard
// (Rendezvous). A transaction that concerns several shards enters at their lowest common ancestor
// and flows down the tree in numbered streams (Carried). Each destination gives a Verdict on its
// part. Before that, an organisation that signed the transaction may withdraw at that destination
// (Cancellation). The encodings of a book of one shard have none of this.
//
// A verdict has no signature, because members trust each other: they may crash, but they do not
// lie. Clients cannot submit a verdict.
//
// # Hashes
//
// Everything that a browser has to check is SHA-256: ids, block hashes and Merkle trees (RFC 6962,
// as in github.com/transparency-dev/merkle). The header's state digest is the SHA-256 of an LtHash;
// see package ledger/state.
package ledger
