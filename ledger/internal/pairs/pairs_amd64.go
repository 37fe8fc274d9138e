package pairs

import "crypto/sha256"

// supported reports whether the processor has the instructions of hashPair.
var supported = hasInstructions()

// hasInstructions reports whether the processor has SHA, SSSE3 and SSE4.1.
func hasInstructions() bool {
	const (
		ssse3, sse41 = 1 << 9, 1 << 19 // of leaf 1 in register ecx
		sha          = 1 << 29         // of leaf 7 in register ebx
	)
	if leaves, _, _ := identify(0); leaves < 7 {
		return false
	}
	_, _, basic := identify(1)
	_, extended, _ := identify(7)
	return basic&ssse3 != 0 && basic&sse41 != 0 && extended&sha != 0
}

// identify executes the instruction CPUID for a leaf, and subleaf 0.
func identify(leaf uint32) (eax, ebx, ecx uint32)

// hashPair sets hashes to the SHA-256 of two messages that are padded to this number of blocks, 1
// or more.
//
//go:noescape
func hashPair(hashes *[2][sha256.Size]byte, a, b *byte, blocks int)
