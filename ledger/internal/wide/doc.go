// Package wide ends the use of the processor's wide vector registers.
//
// Code for 256 and 512 bits has to clear the upper parts of these registers before code for 128
// bits follows ("Intel 64 and IA-32 Architectures Optimization Reference Manual", section on mixing
// AVX with SSE code). Otherwise each instruction of the latter also carries the upper parts along,
// and waits for the one before. The instructions for SHA-256 are such code. The BLAKE3 of the state
// digest compresses with 512 bits and leaves the registers as they are. After it a hash took 4.6 µs
// instead of 78 ns, until other code of the same thread happened to clear the registers, and that
// was most of the time of blocks with transactions of several shards.
//
// No result depends on it.
package wide
