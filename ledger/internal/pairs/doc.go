// Package pairs computes the SHA-256 of two short messages at once.
//
//	var pair pairs.Pair
//	first, second := pair.Sum(a, b)
//
// Processors have instructions for SHA-256 whose results take longer than the next instruction
// waits, and each needs the result of the one before. So one message leaves half of the time
// unused, and a second one takes it: two hashes take little longer than one. A block of transfers
// hashes thousands of accounts and nodes of their tree, which do not depend on each other.
//
// The hashes are always those of crypto/sha256. Sum calls it where the processor has no such
// instructions, and for messages that are long or that differ in their number of blocks.
package pairs
