// Package verbs is the fabric over RDMA hardware. It uses libibverbs, RC queue pairs and registered
// memory. No program at the owner takes part in a write or a read.
//
// It is built with the tag verbs, cgo and libibverbs (Debian: libibverbs-dev). Without them Start
// returns ErrNotBuilt and the package is otherwise empty. It runs on any RC-capable device,
// including Soft-RoCE (rdma_rxe).
//
// # Two planes
//
// The control plane is a host of package p2p. It authenticates members, distinguishes incarnations
// and reports the events of peers. Its one lane to each peer, named "\x00verbs", carries requests
// and replies: queue-pair numbers, packet sequence numbers, addresses and keys of memory. A peer
// that is not a member never gets a key. The data plane is one RC queue pair for each attachment
// and for each lane.
//
// # Regions
//
// Each region has its own protection domain, in which its memory is registered. Each attachment has
// a queue pair in that domain at the owner. So a leaked key, or the key of one region used on the
// queue pair of another, reaches nothing. The owner's queue pair has the access flags that the
// permission allows.
//
// Grant and Revoke end attachments by one of three methods (Permissions). The method that always
// holds clears the access flags of the owner's queue pair and destroys the pair. The other two are
// faster and keep the pair to refuse late operations: clearing the flags only, or invalidating the
// type 2 memory window through which alone the peer reaches the region.
//
// A device may check and place a packet in two steps. Then a packet that passed the check can land
// after the flags or the window are gone. Destroying the queue pair waits for such packets.
// Soft-RoCE is such a device. There, flags held in nearly all trials but not in all. Windows, which
// it checks at the same place, held in all trials so far, but no number of trials proves that they
// always hold. So each faster method must pass trials at startup, with writes under way, and is
// never used on a device in software.
//
// The attaching host learns that its attachment ended from a notice on the control plane, or it
// asks when it gets no answer. Whatever the method, no queue pair is reused after an error or a
// revocation. A new attachment has a new pair on both sides, with a new packet sequence number, so
// no earlier operation can land later.
//
// A write completes when the responder's acknowledgement arrives. With RC this means that the bytes
// have been placed. On Soft-RoCE they are in memory. On a network card all later reads of that
// memory, by the processor or over the same card, see them. The order within an attachment is RC's
// order.
//
// Writes of up to rdmanet.InlineMax bytes are sent inside the request. Longer ones are sent without
// copying if their memory is in a region of this host. Otherwise they go through the attachment's
// own registered ring, in pieces. The last request of a batch and one of every signalEvery requests
// before it ask for a completion; the order implies the others. Ring uses immediate data, which
// consumes a receive at the owner. If the owner's process is stopped, receiveDepth writes with Ring
// still land and the next one waits. Writes without Ring continue to land.
//
// An operation that fails ends its attachment. A refusal is ErrAccess. If the owner's device stops
// answering, this host asks on the control plane for the state of the attachment. The error is
// ErrAccess if the grant changed, ErrReset if another incarnation answers, and ErrUnreachable if
// there is no path or no answer. Everything ends within the mend timeout: half of it for the
// device's own retries, then a deadline in software that destroys the queue pair.
//
// # Lanes
//
// A lane is a byte stream of batches through a ring in the receiver's memory. The sender copies
// frames into a registered mirror of the ring and writes that part to the ring. Then it writes the
// new end of the stream as a word with immediate data, which wakes the receiver. The receiver
// writes two words of the sender's: how much of the ring it has read, and how many frames its
// program has taken. Frames longer than the ring go through it in pieces. When the queue pair
// fails, the sender asks for another one on the control plane. The answer states where to continue.
// The control plane also handles liveness, restarts and goodbyes.
//
// # Waiting
//
// All queue pairs share completion queues (one, until it is full) and one completion channel. One
// goroutine, the poller, polls. After a short time without completions it arms the queues and parks
// in the netpoller, so an idle host uses no thread and no processor time. Callers of Queue.Wait
// also poll while they spin.
//
// For a lane with a prompt receiver (ReceivePrompt), the poller hands over the frames of all lanes
// that were written, then takes the receiver's turn, whose batches it posts at once if the device
// and the ring have room. So a round passes no other goroutine. The lane's own goroutine
// acknowledges, waits for a full receiver, and looks where another goroutine has polled
// (polledLane). A completion of the lane's own requests wakes it only if it waits for room.
package verbs
