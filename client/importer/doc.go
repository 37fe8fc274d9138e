// Package importer imports a file of journal entries into a ledger, each exactly once, as fast as
// the ledger takes them.
//
//	source, err := importer.OpenFile("entries.jsonl.gz")            // or importer.Stream(os.Stdin)
//	result, err := importer.Run(ctx, nodes, source, importer.Options{Key: key, Issuers: []string{"coinbase"}})
//
// # The file
//
// JSON lines, plain or gzip: {"postings":[{"account":NAME,"amount":INTEGER,"asset":NAME},...],
// ...}. The postings of a line add up to zero for each asset. An amount is a JSON integer or a
// string with one. The default asset is "unit". All other fields of a line become the entry's note.
// A blank line is skipped. A name becomes the account ORGANISATION:NAME (see AccountPath) with NAME
// as its alias, so exports use the same name as the file.
//
// # Journals
//
// OpenJournals reads journals of whole chains as such lines (journals.go): an account has the name
// that it had in its own ledger, and all lines are signed anew.
//
// # Exactly once
//
// A transaction is a function of the organisation, its issuers, the ledger, the file's first line,
// the line itself and its number, or of its group of lines if it is packed. (For deadlines, see
// below.) A second import of the
// file therefore makes the same transactions with the same ids, and the ledger executes an id once.
// The nonce's stream is a hash of organisation and first line; its sequence is the line's number.
// Every transaction opens the accounts that it names, unless it is packed. Opening an open account
// again changes nothing. So no line depends on the success of another for its accounts, and the
// importer need not remember accounts.
//
// A progress file lets the next run skip lines that are known to be in the ledger. It is used only
// if the skipped part of the file still has the same hash, and the ledger knows its last
// transactions. Otherwise the import begins with line 1, which costs time and changes nothing.
//
// # Packed lines
//
// In an import of one organisation, plain lines go in packed bundles if the chain takes these
// (packing.go): transfers of one asset between two accounts, without a note. A packed transfer
// takes a fraction of the bytes and of the nodes' work. Its id follows from its whole bundle and
// its place, so the bundles must be the same in every run. Therefore they follow from the file
// alone: lines are in groups of 250, and 8 or more plain lines one after the other in a group are a
// bundle. Their accounts are opened before, in transactions of their own. Everything else is a
// transaction for each line, as above, and so is a group that is not complete.
//
// The same line may still be submitted in both forms. An older program may have begun the import,
// or a chain that did not take packed bundles yet, and the last group of a file may have grown.
//
//   - Both forms of a line have the same nonce, and an applied transaction takes its nonce. So the
//     ledger applies at most one of them.
//   - Before it packs a group, the importer asks for the whole transaction of its first packed
//     line. If that is known, the whole group goes as whole transactions, with the ids that it
//     had.
//   - Otherwise the other form is at most in a pool. Each form is submitted in the order of the
//     file. So the first copy of a line is before the first copy of the next line, whichever forms
//     these have.
//   - If a line's nonce was taken, the importer asks for the other form, whose outcome is that of
//     the line.
//   - A failed transaction takes no nonce. If the other form was in the pool of another node when
//     the importer asked, a line that failed as overdrawn may still take effect later, once, at
//     the place of that copy.
//
// # Order
//
// A line may spend an amount that an earlier line credited, and a transaction that is executed too
// early fails for good. If all lines go to one shard:
//
//   - Bundles go to one node at a time, in order, and each request has the id of the transaction
//     before. A node that does not know that transaction, in its pool or in a block, refuses the
//     request. The first bundle refused makes all later ones refused (SubmitInOrder). Several
//     bundles are under way, and the importer waits for each by its ids.
//   - A node orders bundles in the order of their admission. If bundle k+1 is in the pool of a
//     node, k is before it there or in the chain.
//   - When the node fails, its successor gets the bundles again from the first one that is not
//     acknowledged. The old node orders the rest of its bundles in the order of the file, and so
//     does the new one. The first copy of k is before the first copy of k+1 in every merge of the
//     two.
//   - There are never more lines under way than a nonce stream's window remembers
//     (ledger.WindowSize).
//
// # Several organisations
//
// Options.Organisations spreads the accounts over several organisations, which live in the shards
// of the book in turn (spread.go). A name's organisation is a hash of the name. A line is signed by
// the organisation of the first account that it debits, and by the owners of its other accounts. If
// it crosses shards, only the owners of debited accounts sign. There are three kinds of lanes
// (lanes.go):
//
//   - Lines of one shard alone go to it in their order, as above.
//   - Lines that cross shards go to the lowest common ancestor of these shards, in no order.
//   - The accounts of crossing lines are opened before them, each in a transaction of its own
//     organisation, since a transaction that crosses shards may not open any (openings.go).
//
// What must hold, and why it does:
//
//   - The outcome of a line is the same as if the lines were executed one after the other, so the
//     balances are the plain sums. Two lines conflict if they share an account that may not fall
//     below zero and at least one of them debits it. The order of two credits, or of changes of an
//     issuer only, does not matter (short of 2^127 and of ledger.MaxAssets). Of two lines that
//     conflict, the later one is not submitted before the earlier one is over, settled or refused,
//     in all shards that it concerns. There is one exception: if both are of one shard alone, it is
//     enough that the later one is behind the other in their lane (conflicts.go). No other lines
//     wait.
//   - It is not enough that a line is settled in the shard of its signer. The others learn of it a
//     moment later, and until then its credits cannot be spent. Therefore the importer asks for
//     each place.
//   - The same line gives the same transaction in every run. The number of organisations is
//     therefore fixed by the first import. The progress file and the ledger refuse another number:
//     organisation 0 is registered last, and so shows how many there are. The home of an
//     organisation cannot change.
//   - No line falls out of its stream's window: an organisation's lines take turns in several
//     streams, and the lines under way are fewer than these streams remember together.
//
// Failures:
//
//   - The importer stops in the middle. The progress file counts a line as done if it and all lines
//     before it are over in all shards. None of the other submitted lines conflicts with an earlier
//     one that was not over, except in a lane, whose order the next run keeps. If such a line is
//     still in a pool, it does no harm, whether it is ordered before or after the next run's copy.
//   - A shard is down. Lines that concern it wait, and so do lines that conflict with them. When so
//     many later lines are over that a line would fall out of a stream's window, all lines wait,
//     until Options.Patience is over. The same import continues later.
//   - A bundle's entry shard depends on its lines and on the organisations' homes only, and these
//     do not change.
//   - An opening fails because the account exists with other properties: its line fails, with that
//     reason. Other lines that waited for the same opening submit their own.
//   - An opening's nonce comes too late: an earlier run continued without it, since it remembered
//     the account as open. The opening gets another nonce, as opening again changes nothing.
//   - A line that crosses shards has a deadline where the chain asks for one (deadlines.go), so its
//     transaction also depends on when it is submitted. Deadlines are multiples of five days. The
//     first run notes in a record, once, when the import began. A later run asks for a line with
//     each deadline since then before it gives it another, and takes the one that the ledger knows.
//     All forms of a line have one nonce, so at most one takes effect. If a shard executes a line
//     after its deadline, the line fails.
//   - A node does not know a newly registered organisation yet: for a short time after a
//     registration no refusal is final.
//
// Memory is bounded by the lines under way, and by a fixed number of accounts that are remembered
// as open. A line that fails in the ledger (an overdraft) is recorded with its reason, and the
// import continues.
package importer
