// Package mempool holds the bundles that this node admitted until they are in a block.
//
// What always holds:
//
//   - Order is kept: bundles leave for rounds in the order of their admission. After the group
//     restarted, bundles that were under way leave first, in their old order.
//   - No admitted bundle is dropped before it is in a block, unless all of its transactions have
//     expired, by this chain's heights.
//   - Memory is bounded: the bytes of bundles, waiting and under way together, stay below the
//     limit. Above it bundles are refused with ErrFull.
//   - A transaction is in the pool once. A bundle whose transactions are all in the pool or in the
//     chain adds nothing.
//   - In a book of several shards, clients' bundles and the input from other shards cannot keep
//     each other out of the rounds: see Beside. If a bundle has to enter at another shard by the
//     time of its round, it leaves the pool and goes to Config.Misplaced.
//
// The pool is the Source of package driver: a batch is one round's payload. A payload is a ledger
// batch followed by a few bytes of marks, so the batch is encoded in place.
package mempool
