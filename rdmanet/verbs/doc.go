// Package verbs is the fabric over RDMA hardware: libibverbs, RC queue pairs, registered memory,
// and no program at the owner's side of a write or a read.
//
// It is built with the tag verbs, cgo and libibverbs (Debian: libibverbs-dev); without them Start
// says ErrNotBuilt and the package is otherwise empty. It runs on any RC-capable device, Soft-RoCE
// (rdma_rxe) included.
//
// # Two planes
//
// The control plane is a host of package p2p: members authenticate there, incarnations are told
// apart there, and the peers' events come from there. Its one lane to each peer, named "verbs",
// carries requests and replies: queue-pair numbers, packet sequence numbers, addresses and keys of
// memory. Who is no member never gets a key. The data plane is one RC queue pair for each
// attachment and for each lane.
//
// # Regions
//
// Each region has a protection domain of its own, in which its memory is registered, and each
// attachment a queue pair in it at the owner: a key that leaked, or a peer that uses the key of one
// region on the queue pair of another, reaches nothing. The owner's queue pair has the access flags
// that the permission allows.
//
// Grant and Revoke end attachments by one of three methods (Permissions). The one that always holds
// takes the access flags off the owner's queue pair and destroys it. The two others are quicker and
// leave it standing to refuse what comes: taking the flags off, and invalidating the memory window
// of type 2 by which alone the peer reaches the region. A device may check whether a packet may be
// placed, and place it, in two steps; then a packet that was let in before lands after the flags or
// the window are gone. Destroying the queue pair waits for that. Soft-RoCE is such a device: flags
// held there in nearly all trials and not in all, and windows, which it checks at the same place,
// in all that were made; no number of trials proves either. So a method has to pass trials at the
// start, writes under way, and is not taken on a device in software at all. The attaching side
// hears of its end by a notice on the control plane, or asks when nobody answers. No queue pair is
// ever used again after an error or a revocation, whatever the method: a new attachment has a new
// one on both sides, with a new packet sequence number, so no operation of before can land later.
//
// A write completes when the responder's acknowledgement came. For RC that says that the bytes have
// been placed: on Soft-RoCE they are in memory, on a network card all later reads of that memory,
// by the processor or over the same card, see them. Order within an attachment is RC's order.
//
// Writes of up to rdmanet.InlineMax bytes go inside of the request. Longer ones go from where they
// are if that is in a region of this host, or else through the attachment's own registered ring, in
// pieces. A completion is asked of the last request of a batch and of every so many before; the
// others are known by order. Ring is immediate data, which takes a receive at the owner: a write
// with Ring to an owner whose process is stopped waits once receiveDepth of them did, while writes
// without Ring go on landing.
//
// An operation that fails ends its attachment. A refusal is ErrAccess; where the owner fell silent,
// it is asked on the control plane what became of the attachment: ErrAccess if the grant changed,
// ErrReset if another incarnation answers, ErrUnreachable if there is no path or nobody. Everything
// ends within the mend timeout: half of it for the device's own retries, then a deadline in
// software which destroys the queue pair.
//
// # Lanes
//
// A lane is a byte stream of batches through a ring in the receiver's memory. The sender copies
// frames into a registered mirror of the ring, writes the part, then the new end of the stream as a
// word with immediate data, which wakes the receiver. The receiver writes back, into two words of
// the sender's, how much of the ring it has read and how many frames its program has taken. Frames
// longer than the ring go through it in pieces. When the queue pair fails, the sender asks on the
// control plane for another one, and the answer says where to go on; liveness, restarts and
// goodbyes are the control plane's.
//
// # Waiting
//
// All queue pairs share completion queues (one, until it is full) and one completion channel. One
// goroutine polls: after a moment without completions it arms the queues and parks in the
// netpoller, so an idle host holds no thread and no processor. Who waits in Queue.Wait polls too
// while it spins.
package verbs
