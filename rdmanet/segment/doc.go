// Package segment is what the providers' regions are made of: memory outside of Go's heap with the
// copies that keep the memory contract of package rdmanet, the doorbell that wakes who waits for
// it, the grants that say who may touch it, and the queue of completions. A provider adds the wire.
//
// # What always holds
//
//   - Memory (Segment). A word is never torn, also where a copy covers a part of it. CopyIn lands
//     from the first byte to the last, CopyOut takes from the last word to the first, so that who
//     took a word new took all below it new. Neither touches a byte outside of its bounds. The
//     memory is aligned to a page, is never moved, and stays mapped, as zeros, until nobody can
//     reach the Segment any more: a late Load does not crash the process.
//   - Doorbell. A Ring that happens after Await has looked is never lost. Who waits spins for some
//     microseconds, then parks.
//   - Grants. After Set has returned, nothing is under way any more under an admission that it
//     ended, and nothing begins. An operation pays one lock for that, its own admission's, which
//     nobody else takes but who ends the admission. An admission that is over stays over, with its
//     first error, whatever is granted later.
//   - Completions. Room is reserved before an operation begins, so a completion is never lost for
//     want of it.
//
// Region puts the four together as an rdmanet.Region, for providers whose wire ends in a program at
// the owner:
//
//	region, err := segment.NewRegion(name, size, isMember, forget) // the owner exposes it
//	admission, err := region.Admit(peer)                           // a peer attaches
//	err = region.Write(admission, offset, bytes, ring)             // a write of that attachment came in
//	err = region.Read(admission, offset, into)
//	admission.End(rdmanet.ErrClosed)                               // the peer detached, or its connection broke
//	region.End(rdmanet.ErrUnreachable)                             // the host ends
//
// # The order of copies
//
// On amd64 the copies are assembly, because the order of their accesses is the whole point and no
// compiler shall have a say in it. The processor keeps the order of plain stores, and that of plain
// loads (Intel SDM volume 3A, Memory Ordering; AMD APM volume 2, Memory Access Ordering), but not
// within string instructions, whose stores become visible in any order (SDM, Fast-String Operation
// and Out-of-Order Stores), nor with non-temporal stores; memmove uses both, and copies backward
// too. Aligned accesses of 16 bytes are atomic where AVX is there (SDM, Guaranteed Atomic
// Operations; APM, Access Atomicity), so the copies move two words at a time; 32 bytes are not
// promised to be. Holding back only the last word behind a memmove would keep a canary, and break
// the contract all the same: it speaks of every word. Elsewhere each word is an atomic store or
// load.
//
// What a copy has stored may still be in its processor's store buffer when it returns; the first
// locked instruction drains that, and every path from here to a completion has one
// (Admission.Leave).
//
// The race detector does not watch memory outside of Go's heap: it sees what goes in and out of the
// callers' buffers, not the region.
package segment
