// Package rdmanet is the fabric: what the processes of a ledger send each other with, whatever wire
// carries it.
//
// One small interface, a room per provider behind it (memory: hosts in one process; p2p:
// authenticated and encrypted streams between machines; verbs: RDMA hardware), and fabrictest, the
// suite that every provider passes. A user of the fabric imports this package and is handed a Host;
// only whoever starts a process chooses the provider.
//
// # Hosts, peers, incarnations
//
// A Host is one process on the fabric. Its PeerID is its identity and outlives restarts; its
// Incarnation is chosen anew each time it starts, and increases. A Peer is the pair of both. A
// process that restarted has lost what it held in memory, even if nobody noticed that it was gone,
// so the fabric never passes the new incarnation off as the old one: it shows as another Peer value
// in Receive, as a PeerRestarted event, and as ErrReset on every Lane that led to the old one.
//
// # Lanes
//
// A lane is a directed, named channel of frames to a peer. What always holds:
//
//  1. Within one lane the receiver gets the frames in the order in which they were sent, each once,
//     none left out: what it has got is a prefix of what was sent. Connections may break and come
//     back in between: frames are numbered, kept by the sender until the receiver's program has
//     taken them, and sent again.
//  2. There is no silent gap. A lane breaks for good, and visibly, in three cases: the peer shows
//     up as a new incarnation, or lost the lane's state (ErrReset); the lane could not be mended
//     within the mend timeout, or the peer said that it closes (ErrUnreachable, with a
//     PeerUnreachable event); somebody closed it here (ErrClosed). Frames that were not yet
//     acknowledged when it broke may or may not have arrived, and the fabric does not send them
//     again: the caller decides.
//  3. A broken lane stays broken. Host.Lane called again gives a fresh one, to whichever
//     incarnation answers. If an earlier lane of that name lost frames on its way to the same
//     incarnation, then the receiver is told before the fresh lane's first frame, by a LaneReset
//     event: the prefix rule of 1 ends there and starts anew.
//  4. Memory is bounded. The sender holds at most a window of unacknowledged frames, in bytes and
//     in number; a receive function that blocks keeps frames from being acknowledged, closes the
//     window and in the end blocks Send. Lanes of different names do not wait for each other, so a
//     small control lane is not stuck behind a full bulk lane.
//  5. Nothing hangs. Send ends with the frames queued, its context's error, or the lane's error
//     within the mend timeout of the peer's disappearance.
//
// The loop of a user:
//
//	host.Watch(func(event rdmanet.PeerEvent) { detector.Note(event) })
//	host.Receive("rounds", func(from rdmanet.Peer, frames [][]byte) {
//		inbox.Put(from, slices.Clone(frames)) // the frames are ours to keep, the slice that lists them is not
//	})
//	lane, err := host.Lane(peer, "rounds") // connects in the background
//	for frame := range outbox {
//		err := lane.Send(ctx, frame)
//		switch {
//		case errors.Is(err, rdmanet.ErrReset), errors.Is(err, rdmanet.ErrUnreachable):
//			// The peer restarted or is gone. What it did not take is lost: say so to the detector, open a new lane if the
//			// peer is still wanted.
//		}
//	}
//	err = host.Close(ctx) // waits for what was sent to be taken, as long as ctx lets it
//
// # Ownership of bytes
//
// A frame is immutable from the moment it is given to Send, for ever: providers hand it over or
// send it again without copying. A frame that Receive hands out is immutable too, and belongs to
// the receiver, which may keep it and relay the very same bytes to further lanes. A small frame may
// be a part of a larger buffer (up to 256 KiB) that stays in memory as long as any frame in it is
// kept, so keep long what is large and copy what is small. The outer slice, in Send's arguments and
// in Receive's frames alike, is only lent for the duration of the call.
//
// # Regions: the memory contract
//
// The second half of the fabric is one-sided memory, for engines that share it (TRAM, DARE). A host
// that has it implements RegionHost. A Region is named memory of fixed size that its owner reads
// and writes locally and that peers write and read without the owner's program taking part. What
// always holds:
//
//  1. Atomicity. A word, 8 bytes at an offset that 8 divides, is never torn: whoever reads it, here
//     or from afar, sees what it was before a write or after it, in whole. Larger things are not
//     atomic. A write touches no byte outside of its bounds.
//  2. Order of bytes. A write lands from its first byte to its last: who sees a word of it sees all
//     that it wrote below. So a mark in the last word, a canary, shows a complete entry. The words
//     of one read from afar are not all of one moment, but its last word is taken first: a read
//     that ends with the mark and finds it has the entry complete.
//  3. Order of operations. Operations of one attachment take place in the order of posting: a write
//     has landed before the next begins to, and a read sees the writes before it. Between
//     attachments, regions and peers there is no order but by completions: what is posted after a
//     completion takes place after it. Two writers to one location are in no order, so a location
//     has one writer at a time.
//  4. Completions. Every operation completes exactly once, in the order of posting for each peer,
//     and within a bounded time. The completion of a write says that it has landed at the owner, in
//     its memory and not only on its way: every later read sees it, whoever's. It does not say that
//     the owner's program has looked. The bound is one on silence: a peer that answers nothing for
//     the mend timeout is unreachable, and while it answers, what is under way to it takes as long
//     as the wire needs. As the order is the peer's and not the attachment's, a small operation
//     completes after the bulk that was posted to its peer before it, and no provider may let it
//     pass; who wants small ones to be quick keeps little bulk outstanding to that peer, or sends
//     it in lanes, which do not wait for each other.
//  5. Permissions. Access is granted for a region to a Peer, so to an incarnation and not to an
//     identity, and only its owner changes it. After Grant or Revoke has returned, no byte of an
//     attachment made before lands, and its pending and later operations complete with ErrAccess,
//     also those still on their way when the peer is granted access again: an attachment is bound
//     to the grant that it was made under. Who is granted anew attaches anew.
//  6. Gaps. An attachment ends with its first operation that fails. What was posted behind that
//     completes with the same error, and takes place only where the failed one did, in whole; what
//     is posted once the completion was given has no effect. So there is never a later write
//     without an earlier one.
//  7. The dead and the hanging. The memory of a host that is gone is unreachable (ErrUnreachable;
//     ErrReset where another incarnation is there). The memory of a host whose program hangs stays
//     readable and writable as long as the provider can do that: memory and verbs as long as the
//     process lives, p2p as long as its agent runs.
//  8. Waiting. Reading a word in a loop is how shared memory is watched; Region.Await and
//     Queue.Wait do so for a moment and park then, woken by writes with Ring, so that an idle host
//     uses no processor.
//
// The loop of a writer, and of the owner:
//
//	log, err := host.Attach(ctx, owner, "log")     // the owner granted it
//	queue, err := host.Queue(64)
//	err = queue.Post(rdmanet.Operation{To: log, Kind: rdmanet.OperationWrite, Offset: at, Bytes: entry, Ring: true}, ...) // to many owners at once
//	for done := 0; done < majority; {
//		n, err := queue.Wait(ctx, completions[:])
//		... // Err of each: nil, or the attachment is over
//	}
//
//	region, err := host.Expose("log", size)
//	err = region.Grant(writer, rdmanet.PermissionReadWrite)
//	err = region.Await(ctx, func() bool { return region.Load(canary) == wanted })
//	entry := region.Bytes()[at:canary]
//
// Lanes and regions share hosts, identities, incarnations, events and errors, and nothing else: a
// provider over RDMA hardware builds its lanes from regions (a ring written one-sided), the p2p
// provider builds its regions from streams and an agent at the owner. Order holds within a lane and
// within an attachment, never between the two.
package rdmanet
