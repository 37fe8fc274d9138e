// Package book checks the chains of all shards of a book against each other. Each chain can be
// checked by itself (store.Verify), but only together do they show that nothing came into being or
// was lost between them.
//
// Check takes one store of each shard. Their heads are the cut:
//
//	report, err := book.Check(ctx, stores, progress)
//
// What Check finds out, besides what store.Verify finds out about each chain:
//
//   - Each entry of a parent's stream in a chain is the one that the parent's chain has under this
//     number.
//   - Each verdict of another shard in a chain is the one that follows from that shard's chain.
//     With the rules of execution, which store.Verify checks, a transaction then took effect in all
//     of its shards or in none.
//   - Conservation: the amounts of each asset in all accounts of all shards add up to zero, if each
//     transaction that took effect in one shard and still waits in another one is counted as having
//     taken effect in both (package state, "Shards").
//
// The last holds only for a consistent cut: one that has, with each message that it includes, also
// the sending of that message. The stores of nodes that were stopped one after the other make one,
// since only durable blocks are told to other shards, unless a store is an old copy, or its node
// had not yet received what other members had sent. Check then returns ErrCut and says which
// shard's store has to be newer.
//
// A wrong chain is a *Contradiction. Blocks are compared by their ids, so store.Verify has to find
// that their bytes are the right ones.
//
// # Cuts
//
// Cut finds a consistent cut of a book: a place in the chain of each shard at which every
// transaction is in all of its shards or in none. Find answers the questions that it asks, from one
// store, and store.AccountsAt reads balances at a place. docs/design/cuts.md has the argument.
package book
