// Package pipeline brings A-delivered rounds to the ledger. It seals and executes each round, has
// it stored, and notifies the waiters. Rounds drive the ledger as a machine.StateMachine, as in any
// program that embeds the engines. Blocks from peers go to its store.
//
//	driver ──Deliver──> queue ──> execute (machine.Apply) ──> ordered
//	       ──> sync (machine.Sync) ──> stored ──peers' heights──> durable
//
// Two goroutines work beside the engine, which never waits for the disk. One executes. The other
// syncs the disk for all blocks that came since the last sync. The queue between driver and
// execution is bounded. When it is full the driver waits. The mempool then fills, and the node
// refuses clients.
//
// What always holds:
//
//   - A block can be read in the store before any of its transactions is reported as ordered.
//   - Rounds are executed in the order of their delivery, each exactly once. The same holds for the
//     marks in them, which say which nodes want to be in the next run.
//   - "Stored" is reported only for blocks on this disk. "Durable" is reported only for blocks that
//     a majority of the chain's members (those at the beginning of the run) reported as stored in
//     that run, or that a peer reported as durable.
//   - The fork alarm: if a batch names another block than ours at a height that we hold, the node
//     stops before anything more is executed.
//   - In a book of several shards, a transaction that crosses shards is executed or failed once the
//     verdict that ends its wait is in a block here. Its level is that of this block, and its
//     waiters are notified then. Before that, it is waiting. A transaction that this shard only
//     passes on stays relayed.
//   - Transactions per second counts each transaction once, in the shard that decides it. Verdicts
//     count only in the blocks' transactions and in the chain's total.
//   - A full disk loses nothing: the round waits until there is space, and the node takes no writes
//     meanwhile.
package pipeline
