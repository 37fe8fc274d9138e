// Package pipeline takes A-delivered rounds to the ledger: it seals and executes each, has it
// stored, and tells whoever waits.
//
//	driver ──Deliver──> queue ──> execute (store.Apply) ──> ordered ──> sync (store.Sync) ──> stored ──peers' heights──> durable
//
// Two goroutines work beside the engine, which never waits for the disk: one executes, one has the
// disk synced, as many blocks at a time as came since the last sync. The queue between driver and
// execution is bounded; when it is full the driver waits, and in the end the clients.
//
// What always holds:
//
//   - A block can be read in the store before any of its transactions is reported as ordered.
//   - Rounds are executed in the order of their delivery, each once, and so are the marks in them,
//     which say who wants to be in the next run.
//   - Stored is said only of what the disk holds, durable only of what a majority of the chain's
//     members, as they were when the run began, said they stored in it, or what a peer said is
//     durable.
//   - The fork alarm: a batch that names a block other than ours at a height that we hold stops the
//     node before anything more is executed.
//   - In a book of several shards, a transaction that crosses them is executed or has failed once
//     the verdict that ends its wait is in a block here, and its level is of that block. Who waits
//     for it is told then; before, it is waiting, and one that this shard only passes on stays
//     relayed. Transactions per second count each transaction once, where it is decided here;
//     verdicts count in the blocks' transactions and in the chain's total only.
//   - A full disk loses nothing: the round waits until there is space, and the node takes no writes
//     meanwhile.
package pipeline
