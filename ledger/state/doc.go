// Package state is what executes the book: it seals ordered round messages into blocks and executes
// them on the State, which is everything that execution depends on. The values are those of package
// ledger. Package state is pure: it has no clock, no goroutine and no I/O, and the same payloads
// give the same blocks everywhere.
//
// # The data's way
//
//	genesis:    s := state.New(genesis) // state.Begin for a shard that was added to the book
//	delivery:   draft := state.Seal(parent, epoch, round, verified, seen)
//	            // nil if the round has nothing new; s.Seal in a book of several shards
//	prefetch:   for _, path := range s.Wanted(draft) { err := s.Admit(path, entry of path) }
//	execution:  block, changes := s.Execute(draft)
//	eviction:   s.Evict(stored, limit)
//	store:      see package ledger/store, which makes the block and its changes durable together
//	start:      err := s.Restore(key, value) // of each entry, or RestoreLeaves of accounts, or
//	            err := s.RestoreTree(...)    // of all accounts, with hashes that were kept
//	            err := s.Complete(divide)    // s.Digest() then checks them
//
// # What always holds
//
//   - A block is never older than its parent. Its time is more than MaxStep beyond its parent's
//     only if a batch of its round shows the clocks of a majority of the members.
//   - A transaction is executed once. Sealing drops ids that were seen before, and a nonce that was
//     applied or is too far below the highest one is refused (window.go).
//   - Each organisation whose consent is needed has signed with a key that is registered at that
//     moment. Sealing drops bundles with a wrong signature, whichever member proposed them.
//   - An organisation with a policy has signed with as many distinct keys as the policy asks for at
//     that moment. A change of a policy takes effect for the transactions after it, and execution
//     verifies its signatures again.
//   - The postings of an applied transaction add up to zero for each asset. An account's balance,
//     less the amounts set aside, is never below zero unless the account is an issuer.
//   - A transaction that an organisation has cancelled whose consent it needs is not executed after
//     the cancellation (cancelled.go).
//   - No transaction makes an organisation keep more than the quotas of the charter allow
//     (quota.go). The counts follow from the entries, so they are no entries themselves.
//   - An account goes further below zero in a registered asset only as far as the asset's terms
//     allow its organisation (assets.go).
//   - What a hold sets aside of an account is spent by nothing else until the hold ends, which it
//     does once: it is posted or voided, or expires (holds.go).
//   - No account goes beyond its terms, counting what is set aside and what is on its way, and no
//     two accounts with terms of one organisation have one alias (terms.go).
//   - A failed transaction is kept in its block with the reason. It changes nothing: no balance, no
//     nonce, no record.
//
// # Accounts that are not in memory
//
// A book may have more accounts than fit into memory. From version 2 on, the state has the hash of
// each account, and only some accounts as a whole: those are resident, the others cold. The caller
// reads the cold accounts that a draft needs before it is executed (resident.go), so execution
// itself never waits for a disk. No result depends on which accounts are resident. An entry that
// the caller admits must be the one whose hash the state has, and a cold account is never taken for
// one that is not open. The caller may also make accounts resident before they are needed (Warm). A
// chain of version 1 keeps all accounts resident: an upgrade needs them.
//
// # Members
//
// The members of the chain and the charter, which names the operators, are part of the state.
// Execution verifies the signature of a change of the membership again. Two changes are at least
// ChangeRounds rounds apart, which gives ordering the time to change over to the new group.
// Membership and MembershipAt return the present and past members.
//
// The state also has the disk map: for each member the disk that counts, if one was named. An
// admission takes effect only on the membership that its signer saw. Therefore it needs no place in
// a nonce window, and a late one does no harm.
//
// # Shards
//
// A transaction that concerns several shards enters at their lowest common ancestor in the tree of
// shards and is ordered there. From there it flows down the tree in numbered streams (stream.go),
// as in TRAM: any two shards that execute the same two transactions execute them in the same order.
// A book of one shard has none of the following, and its bytes, hashes and cost are unaffected by
// it.
//
//	any node:    shard := s.BundleEntry(bundle)   // the members of this shard accept it
//	proposal:    batch := &ledger.Batch{Header: ..., Bundles: ..., Carried: ..., Verdicts: ...}
//	             payload := batch.Encode()
//	delivery:    draft := s.Seal(parent, epoch, round, verified, seen)
//	execution:   block, changes := s.Execute(draft)
//	to children: for each of changes.Forwards, entry Number of the stream to Child is
//	             block.CarriedBundle(Bundle)
//	to others:   for each of changes.Verdicts, the Verdict goes to the members of the shards To
//	on request:  verdict, made := ledger.VerdictOf(entry, shard) // a waiting shard asks for it
//
// Each destination executes its part of a transaction at the transaction's place in its own chain
// (crossing.go). It sets aside the amounts that the part takes and reserves room for the amounts
// that it brings. The result, SetAside or the reason for a refusal, is the shard's verdict. The
// other destinations put the verdict into their chains. When a chain has good verdicts from all
// others, the transaction takes effect there, at the place of the last verdict. The first bad
// verdict releases it (settle.go). A shard whose own verdict is bad is done at once.
//
// What always holds:
//
//   - Conservation: take any cut of the chains that includes the sending of each message that it
//     includes. There the amounts of an asset in all accounts of all shards, set aside or not, add
//     up to zero, if each transaction that took effect in one shard and still waits in another is
//     counted as having taken effect in both.
//   - One outcome: a transaction takes effect in all of its destinations or in none. It takes
//     effect exactly if all verdicts are good. A shard's verdict, once in its chain, is final.
//   - Settling cannot fail. Setting aside checks funds, room and the number of assets, against
//     everything that is already set aside or may still come in.
//   - A chain can be replayed by itself: its blocks hold the streams and verdicts, and its state
//     holds the stream positions and the waiting transactions.
//   - No wait is circular, because no transaction waits for another. Later transactions use the
//     amounts that are not set aside, and fail if those are not enough. A record has the value with
//     the greatest place among the transactions that took effect, whenever they did. So records
//     follow the order of the transactions.
//   - A stopped shard holds up only the amounts of transactions that concern it, and, for the
//     shards below it, all entries that would pass through it.
//
// Failures, and how they are handled:
//
//   - Streams and verdicts arrive late, twice, in any order, or from several members: Seal takes
//     exactly the next entry, and exactly the verdicts that a transaction waits for.
//   - A verdict arrives before its transaction: Seal leaves it out. Its sender keeps it, or is
//     asked again.
//   - A verdict is lost: it follows from its shard's chain, so any member of the shard can make it
//     again. The shard that waits must ask for it.
//   - A whole shard loses power, and with it blocks that were ordered but not durable: stream
//     entries and verdicts are handed to other shards only once their block is on the disks of a
//     majority. The component that carries them must ensure this.
//   - A transaction arrives by two ways, at its entry and from above: each shard takes the first
//     copy, and the shards below follow its order.
//   - The entry and destinations of a transaction depend on the directory, so a transaction that
//     failed may be submitted again after a registration changed them. Therefore a transaction
//     fails, in all destinations alike, if any organisation in it is not registered, and no chain
//     holds one before the registration of its signer. So if any chain has it before a registration
//     that it needs, the home shard of the signer also has it before that registration and has
//     refused it for ever. The home shard is always a destination, so each shard that set the
//     transaction aside asks there.
//   - A shard stops for long: the transactions that wait for it are bounded, and further ones are
//     refused (MaxWaiting).
//   - A transaction is too late: from version ledger.DeadlineVersion on it names a deadline. Each
//     destination compares it with the time of its own block that executes the part. Its verdict is
//     DeadlinePassed if that time is the deadline or later, so no clock is read, and the decision
//     is as final as any other. A shard that set its part aside in time keeps it until all verdicts
//     are there, also after the deadline: the others may have done so in time, and the verdicts
//     that say so may be on their way. So the deadline bounds when shards decide, not when they
//     learn of each other's decisions.
//   - A transaction is cancelled: from version ledger.CancelVersion on, a destination takes a
//     cancellation as a transaction of its own shard, by a way of its own (cancelled.go). If it
//     comes before the transaction, the shard remembers it until the deadline, and its verdict on
//     the transaction is Cancelled. That is a verdict like any other: each shard decides at its own
//     place in its own chain, once. If the transaction is first, the shard has given its verdict,
//     and the cancellation changes nothing. So some destinations may have agreed when another one
//     refuses; they release as they do on any bad verdict.
//   - A stranger cancels, or cancels much: a cancellation is remembered together with its signer,
//     and counts only if the transaction needs that organisation's consent. No organisation has
//     more than MaxCancelled of them in a shard, and all together no more than MaxAllCancelled,
//     not counting the first SureCancelled of each.
//   - An organisation moves to another shard: from version ledger.GrowthVersion on (move.go). Its
//     entries are frozen at the old home, and the new one takes them over as arrivals
//     (departure.go, arrival.go). Old verdicts do not decide copies that come after the move. A
//     copy that never reaches a shard is refused there once its deadline is over (late.go).
//   - Members whose program does not know deadlines or cancellations cannot decode a bundle with
//     one. So Seal leaves such bundles out until the version before the block takes them. A stream
//     does not skip one: it waits for the next block.
//   - A shard that has raised its version says Cancelled to one that has not: that does not happen.
//     The raise and the transaction go down the tree, and both shards execute them in the same
//     order. A shard that awaits the verdict has executed the transaction, and so the raise, if the
//     shard that gives it had.
//   - A shard is lost for good: from version ledger.GrowthVersion on the operators may settle with
//     it (loss.go). All others do so at one place of their order, and decide what waits for it by
//     what they had of its verdicts before that place.
//   - Heights differ between chains: LastValid is a height of the home shard of the signer. Only
//     that shard checks it, and only that shard checks the nonce. A transaction that was set aside
//     takes its nonce even if it is released later.
//   - A value that differs between shards must not decide a result that must be the same in all of
//     them. Therefore a registration has no nonce, no last valid block and nothing beside it, and
//     accounts are opened only in transactions that concern their shard alone.
//
// # Growth
//
// From version ledger.GrowthVersion on, the operators may change the shards of a book (growth.go).
// Such a change concerns all shards, so all make it at the same place of their common order, and
// decide alike: the decision depends only on the genesis of the book, the directory, the charter
// and the changes before. A block takes nothing after it, so sealing reads the book as it is before
// the draft.
//
// An added shard (addition.go) is in the tree from the next block on. Homes by rendezvous are
// chosen among the shards of the genesis for ever, so an addition changes no home. The stream to
// the new shard begins with the first entry after the addition that concerns it. The chain of the
// new shard begins with the directory as it is right after the addition, whose hash all chains
// compute and its genesis names (Begin). So it is as if it had executed everything before that
// concerns all shards, and nothing else concerned it.
//
// # The digest
//
// In chains of version 1 the state digest is LtHash: BLAKE3 expands each entry of the state to
// 1,024 16-bit lanes, and the digest is their sum modulo 2^16, lane by lane ("Securing Update
// Propagation with Homomorphic Hashing", Lewi, Kim, Maykov, Weis, 2019). Adding, changing or
// removing an entry costs one or two expansions, whatever the size of the state, and reads no other
// entry. So the digest needs no tree on disk, and adding up the entries of a snapshot checks it.
//
// With many accounts that cost a fifth of a node's time. So from version 2 on the accounts are in a
// Merkle tree by their numbers (accounttree.go), and only the other entries, of which a block
// changes few, in the LtHash. The digest is a hash of both (docs/encoding.md has the bytes). An
// account takes one to five hashes of SHA-256 a block instead of two expansions to 2 KiB. The tree,
// too, depends only on the entries, so a snapshot is checked as before, and any account can be
// proven against the header of any block. Its hashes take some 43 bytes an account in memory.
// They need none on disk, because Complete computes them. A caller that keeps those of the leaves
// spares itself to read all accounts (RestoreTree).
//
// A transaction that waits for other shards is an entry for some blocks, so it took two expansions,
// a third of the time to execute it. From version 7 on these entries are in a tree by their slots
// (slottree.go).
//
// From version 8 on the registered assets, with what was issued of each, have a tree like that of
// the accounts (assets.go). So the supply of an asset is proven against the header of a block
// (ProveAsset).
//
// The operators raise the version of a chain with a change of the charter. The block with this
// change is the first one of the new version. Nothing in the entries changes, so the state before
// needs no conversion, and blocks of both versions are verified by executing them.
package state
