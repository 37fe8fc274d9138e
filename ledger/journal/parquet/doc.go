// Package parquet writes a chain as a folder of Parquet files, each with the rows of some blocks
// (journal.Rows).
//
//	written, err := parquet.ExportFolder(ctx, "chain.parquet", source, journal.Options{To: head})
//
// A Parquet file ends with an index of itself, so it cannot go on after an interruption. Therefore
// the chain is in several files of whole blocks. A file is whole, or it is not there: it has
// another name while it is written. Where a file ends follows from the rows alone, so an export
// that went on makes the same files, with the same bytes, as one without interruption. Only the
// last file may be small. It is written again when the chain has more blocks.
//
// The package is apart from ledger/journal because of the module that it needs, so that what reads
// journals does not need it.
package parquet
