// Package journal writes a chain as a journal: every block with all of its transactions, what
// became of each, who signed, and which certificates make the blocks final.
//
//	format, err := journal.FormatOf("jsonl")
//	written, err := journal.ExportFile(ctx, "chain.jsonl", source, format, journal.Options{To: head})
//	found, err := journal.Verify(ctx, file, genesis, nil)
//
// # What always holds
//
//   - A journal is a function of the chain up to a block. It says of each entry what its own block
//     says. An entry that waits for other shards is waiting there, and the verdict that ends the
//     wait is a later entry. So no line changes when the chain goes on.
//   - Bytes are deterministic: two nodes write the same, except that each has its own certificates
//     (any majority of the members makes one).
//   - Memory is bounded by the largest block, whatever the length of the chain.
//   - Each block begins with a line that no other line can look like, whatever clients put into
//     notes, names and records. An export that was interrupted keeps the blocks before the last one
//     in its file and writes the others again (Resume).
//
// # Formats
//
// The format jsonl has everything, byte by byte, and can be verified alone with Verify: it has each
// block in its canonical encoding, and beside it the same in words. A verifier makes the words
// again from the encoding and compares all bytes. So nothing in the file is believed.
//
// The format csv is a table of the words. The formats hledger and beancount are for programs of
// plain text accounting (accounts.go). They have what changes balances, at the place where it does:
// an entry that crosses shards is there once it takes effect. The amounts that other shards give
// and take are in an account for crossings, which adds up to zero over the journals of all shards
// once nothing is on its way.
package journal
