// Package segment provides the parts from which the providers build regions: memory outside Go's
// heap with copies that keep the memory contract of package rdmanet, a doorbell that wakes waiters,
// grants that control access, and a queue of completions. A provider adds the wire.
//
// # Invariants
//
//   - Memory (Segment). A word is never torn, even if a copy covers only part of it. CopyIn writes
//     from the first byte to the last. CopyOut reads from the last word to the first, so a reader
//     that got a new word also got the new words below it. Neither touches a byte outside its
//     bounds. The memory is aligned to a page and never moved. It stays mapped, as zeros after
//     Free, until the Segment is unreachable: a late Load does not crash the process.
//   - Doorbell. A Ring after Await has checked is never lost. A waiter spins for some microseconds,
//     then parks.
//   - Grants. After Set has returned, no operation is under way or begins under an admission that
//     it ended. For that, an operation pays one lock: its own admission's, which only the end of
//     the admission contends for. An ended admission stays ended, with its first error, whatever is
//     granted later.
//   - Completions. Room is reserved before an operation begins, so no completion is lost for lack
//     of room.
//
// Region combines the four into an rdmanet.Region, for providers whose wire ends in a program at
// the owner:
//
//	region, err := segment.NewRegion(name, size, check, forget) // the owner exposes it
//	admission, err := region.Admit(peer)                        // a peer attaches
//	err = region.Write(admission, offset, bytes, ring)          // a write arrived
//	err = region.Read(admission, offset, into)                  // a read arrived
//	admission.End(rdmanet.ErrClosed)                            // the peer detached or disconnected
//	region.End(rdmanet.ErrUnreachable)                          // the host ends
//
// # The order of copies
//
// On amd64 the copies are written in assembly, because the order of their accesses matters and a
// compiler could change it. The processor keeps the order of plain stores, and that of plain loads
// (Intel SDM volume 3A, Memory Ordering; AMD APM volume 2, Memory Access Ordering). It does not
// keep the order within string instructions, whose stores become visible in any order (SDM,
// Fast-String Operation and Out-of-Order Stores), nor that of non-temporal stores. memmove uses
// both, and also copies backward. Aligned accesses of 16 bytes are atomic on processors with AVX
// (SDM, Guaranteed Atomic Operations; APM, Access Atomicity), so the copies move two words at a
// time. There is no such guarantee for 32 bytes. Holding back only the last word behind a memmove
// would keep a canary correct but still break the contract, which covers every word. On other
// architectures each word is an atomic store or load.
//
// When a copy returns, its stores may still be in the processor's store buffer. The first locked
// instruction drains it, and every path from here to a completion has one (Admission.Leave).
//
// The race detector does not watch memory outside Go's heap: it sees the accesses to the callers'
// buffers, not those to the region.
package segment
