// Package importer brings a file of journal entries into a ledger, each exactly once, as fast as
// the ledger takes them.
//
//	source, err := importer.OpenFile("entries.jsonl.gz")            // or importer.Stream(os.Stdin)
//	result, err := importer.Run(ctx, nodes, source, importer.Options{Key: key, Issuers: []string{"coinbase"}})
//
// # The file
//
// JSON lines, plain or gzip: {"postings":[{"account":NAME,"amount":INTEGER,"asset":NAME},...],
// ...}. The postings of a line add up to zero for each asset; an amount is a JSON integer or a
// string of one; without an asset it is "unit". What else a line has becomes the entry's note. A
// blank line is skipped. A name becomes the account ORGANISATION:NAME (see AccountPath) with NAME
// as its alias, so that exports name it as the file did.
//
// # Exactly once
//
// A transaction is a function of the organisation, its issuers, the ledger, the file's first line,
// the line itself and its number. So whoever imports the file again makes the same transactions
// with the same ids, and the ledger executes an id once. The nonce's stream is a hash of
// organisation and first line, its sequence the line's number. Every transaction opens the accounts
// it names; opening an open account again changes nothing, so that no line depends on another one's
// success for its accounts, and the importer need not remember accounts.
//
// A progress file lets the next run skip what is known to be in the ledger. It is only believed
// when the skipped part of the file has the hash that it had, and the ledger knows the last
// transactions of it; else the import begins with line 1, which costs time and changes nothing.
//
// # Order
//
// A line may spend what an earlier one brought, and a transaction that is executed too early fails
// for good. Where all lines go to one shard:
//
//   - Bundles are given to one node at a time, in order, each request with the id of the
//     transaction before: a node that does not know it, in its pool or in a block, refuses, and the
//     first bundle refused takes all after it along (SubmitInOrder).
//   - A node orders what it admitted in the order of admission. If bundle k+1 is in the pool of a
//     node, k is before it there or in the chain.
//   - When the node fails, its successor gets the bundles again from the first one that is not
//     acknowledged. Whatever the old node still orders, it orders in the order of the file, and so
//     does the new one; the first copy of k is before the first copy of k+1 in every merge of the
//     two.
//   - No more lines are under way than a nonce stream's window remembers (ledger.WindowSize).
//
// # Several organisations
//
// Options.Organisations spreads the accounts over several organisations, which live in the shards
// of the book in turn (spread.go). A name's organisation is a hash of the name. A line is signed by
// the organisation of the first account that it debits, and by those of the others. Then there are
// three kinds of lanes (lanes.go): lines of one shard alone go to it in their order, as above;
// lines that cross shards go to where these have their lowest common ancestor, in no order; and the
// accounts of those are opened before them, each in a transaction of its own organisation, since a
// transaction that crosses shards may not open any (openings.go).
//
// What must hold, and why it does:
//
//   - What becomes of a line is what becomes of it where the lines are executed one after the
//     other, so that balances are the plain sums. Lines conflict that share an account that may not
//     fall below zero and that one of them debits; of two credits, or of what touches an issuer
//     only, the order does not matter (short of 2^127 and of ledger.MaxAssets). The later one of
//     two that conflict is not given away before the earlier one is over in all shards that it
//     concerns, settled or refused; but where both are of one shard alone, it is enough that it
//     stands behind the other one in their lane (conflicts.go). Nothing else waits.
//   - That a line is settled in the shard of its signer does not do: the others learn of it a
//     moment later, and until then what it brings cannot be spent. Therefore each place is asked
//     for.
//   - The same line gives the same transaction in every run. So the number of organisations is
//     fixed by the first import: another one is refused, by the progress file and by the ledger,
//     where organisation 0 is registered last and so tells how many there are. Where an
//     organisation lives cannot change.
//   - No stream's window is left: an organisation's lines take turns in several streams, and the
//     lines under way are fewer than these remember together.
//
// What can go wrong:
//
//   - The importer dies in the middle. Those lines count as done, in the progress file, that are
//     over in all shards, and all before them. Of the others none conflicts with an earlier one
//     that was not over, but in a lane, whose order the next run keeps; so that whatever of them is
//     still in a pool does no harm when it comes before the next run's copy, or after.
//   - A shard is down. Lines that concern it wait, those that conflict with them too, and when so
//     many lines after them are over that a stream's window would be left, all do, until
//     Options.Patience is over. The same import goes on later.
//   - A bundle's entry shard depends on its lines and on the organisations' homes only, and these
//     do not change.
//   - An opening fails since the account is there in another way: its line fails, with that reason.
//     Others that hoped for the same opening submit their own.
//   - An opening's nonce comes too late: an earlier run went on without it, since it remembered the
//     account to be open. It gets another nonce, as opening again changes nothing.
//   - A node does not know an organisation yet that was registered just now: for a moment nothing
//     is refused for good.
//
// Memory is bounded by what is under way, and by a fixed number of accounts that are remembered to
// be open. A line that the ledger fails (an overdraft) is noted with its reason, and the import
// goes on.
package importer
