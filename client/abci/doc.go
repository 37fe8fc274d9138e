// Package abci runs an unchanged application of CometBFT on a ledger's order. It is the side of
// ABCI 2.0 that CometBFT itself has: it connects to the application's socket and feeds it the
// blocks of one shard's chain.
//
//	err = abci.Run(ctx, abci.Options{Config: config, Nodes: nodes, Keys: keys})
//
// An application's transaction is the value of a record ORGANISATION:abci/CHAIN/NUMBER, from any
// organisation, in a ledger transaction that was applied. Everything else in a block is none of the
// application's business. Each block of the chain becomes one block of the application, with the
// same height, hash and time. An empty one is a block, too. A ledger transaction that crosses
// shards is in the block in which it takes effect in the application's shard.
//
//	follower   chain -> ProcessProposal, FinalizeBlock, Commit -> results
//	pool       clients -> CheckTx, PrepareProposal -> ledger transactions
//	server     the part of CometBFT's RPC that clients post and query with
//
// # What always holds
//
//   - The application's height says where to go on. A block goes to the application once, whatever
//     crashes: the adapter asks for the height (Info) on each new connection, and sends what comes
//     after it. This is as good as the application's word: Info must name what was committed.
//   - The blocks that the application gets depend on the chain, on the configuration that all
//     adapters share, and on the application's own deterministic answers. So all of its replicas
//     have the same state, and the same hash of it.
//   - Nothing is asked on a connection before Info. An application behind a new connection may have
//     begun anew, with an earlier height.
//   - Only durable blocks are fed, and each must name the hash of the one before it.
//   - The last height and application hash are kept in a file. An application that answers another
//     hash at that height, now or when it replays, is refused.
//   - Everything is bounded: messages, blocks, the pool, the results that are kept, the calls under
//     way, and what an organisation that floods a block costs. A slow application slows its own
//     feed and nothing else, and the adapter says what it waits for.
package abci
