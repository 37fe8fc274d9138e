// Package mempool holds the bundles that this node admitted until they are in a block.
//
// What always holds:
//
//   - Order is kept: bundles leave for rounds in the order of their admission, and after the group
//     started anew what was under way leaves first, in its old order.
//   - Nothing admitted is dropped before it is in a block, unless all of its transactions have
//     expired, by this chain's heights.
//   - Memory is bounded: bytes of bundles, waiting and under way together, stay below the limit;
//     past it bundles are refused with ErrFull.
//   - A transaction is in the pool once: a bundle whose transactions are all here or in the chain
//     is known, and adds nothing.
//   - In a book of several shards, neither clients' bundles nor what other shards have for this one
//     keep the other out of the rounds: see Beside. A bundle that has to enter elsewhere by the
//     time of its round leaves the pool, and Config.Misplaced gets it.
//
// The pool is the Source of package driver: a batch goes out as one round's payload. A payload is a
// ledger batch and a few bytes of marks behind it, so that the batch is encoded in place.
package mempool
