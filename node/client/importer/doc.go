// Package importer brings a file of journal entries into a ledger, each exactly once, as fast as the ledger takes them.
//
//	source, err := importer.OpenFile("entries.jsonl.gz")            // or importer.Stream(os.Stdin)
//	result, err := importer.Run(ctx, nodes, source, importer.Options{Key: key, Issuers: []string{"coinbase"}})
//
// # The file
//
// JSON lines, plain or gzip: {"postings":[{"account":NAME,"amount":INTEGER,"asset":NAME},...], ...}. The postings of a line add up to zero for each
// asset; an amount is a JSON integer or a string of one; without an asset it is "unit". What else a line has becomes the entry's note. A blank
// line is skipped. A name becomes the account ORGANISATION:NAME (see AccountPath) with NAME as its alias, so that exports name it as the file did.
//
// # Exactly once
//
// A transaction is a function of the organisation, its issuers, the ledger, the file's first line, the line itself and its number. So whoever
// imports the file again makes the same transactions with the same ids, and the ledger executes an id once. The nonce's stream is a hash of
// organisation and first line, its sequence the line's number. Every transaction opens the accounts it names; opening an open account again
// changes nothing, so that no line depends on another one's success for its accounts, and the importer remembers no accounts.
//
// A progress file lets the next run skip what is known to be in the ledger. It is only believed when the skipped part of the file has the hash
// that it had, and the ledger knows the last transaction of it; else the import begins with line 1, which costs time and changes nothing.
//
// # Order
//
// A line may spend what an earlier one brought, and a transaction that is executed too early fails for good. So:
//
//   - Bundles are given to one node at a time, in order, each request with the id of the transaction before: a node that does not know it, in its
//     pool or in a block, refuses, and the first bundle refused takes all after it along (SubmitInOrder).
//   - A node orders what it admitted in the order of admission. If bundle k+1 is in the pool of a node, k is before it there or in the chain.
//   - When the node fails, its successor gets the bundles again from the first one that is not acknowledged. Whatever the old node still orders, it
//     orders in the order of the file, and so does the new one; the first copy of k is before the first copy of k+1 in every merge of the two.
//   - No more lines are under way than a nonce stream's window remembers (ledger.WindowSize).
//
// Memory is bounded by what is under way. A line that the ledger fails (an overdraft) is noted with its reason, and the import goes on.
package importer
