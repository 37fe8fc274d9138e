// Package verification verifies the signatures of batches while they travel, so that a round's
// block does not wait for it.
//
//	fabric ──Arrived(message)──> queues ──> workers, one per processor ──> results
//	pipeline, store ──Batches(round's batches)──> results, or verified now
//
// A member may be lying: it may propose bundles that no client signed. So every node verifies every
// signature before it executes a bundle, whichever member admitted it. The messages of a round
// arrive some time before the round is A-delivered. Workers use that time.
//
// What always holds:
//
//   - Batches returns the same as ledger.VerifyBatches for the same bytes. What arrived before, in
//     which order and how often, changes only how long it takes.
//   - A result belongs to the very memory that was verified, not to bytes that claim to be the
//     same. A message that arrives again, or in another copy, is verified again or not at all.
//   - The memory is bounded: results of messages that no round takes make way for newer ones, and a
//     message that finds its queue full is verified when its round needs it.
//   - A sender cannot take the processors. What a round needs comes first, then the sender that
//     wasted least. A sender wastes what is verified of its messages and no round takes: at most 2
//     s at once, and then a tenth of a processor. A sender that forged wastes nothing.
package verification
