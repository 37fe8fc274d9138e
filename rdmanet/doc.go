// Package rdmanet is the fabric: the interface through which the processes of a ledger send each
// other data, whatever network carries it.
//
// The package defines one small interface. Each provider implements it in a package of its own:
// memory (hosts in one process), p2p (authenticated and encrypted streams between machines) and
// verbs (RDMA hardware). Package fabrictest is the test suite that every provider passes. Users of
// the fabric import this package and are given a Host. Only the code that starts a process chooses
// the provider.
//
// # Hosts, peers, incarnations
//
// A Host is one process on the fabric. Its PeerID is its identity and survives restarts. Its
// Incarnation is chosen anew at each start, and increases. A Peer is the pair of both. A process
// that restarted has lost its memory, even if no peer noticed that it was gone. So the fabric never
// presents a new incarnation as the old one: it appears as a different Peer value in Receive, as a
// PeerRestarted event, and as ErrReset on every Lane that led to the old incarnation.
//
// # Lanes
//
// A lane is a directed, named channel of frames to a peer. It guarantees:
//
//  1. Within one lane the receiver gets the frames in the order in which they were sent, each once,
//     without omissions: the received frames are a prefix of the sent frames. Connections may break
//     and come back in between. Frames are numbered, kept by the sender until the receiver's
//     program has taken them, and sent again.
//  2. There is no silent gap. A lane breaks permanently and visibly, in three cases: the peer
//     appears as a new incarnation or has lost the lane's state (ErrReset); the lane could not be
//     mended within the mend timeout, or the peer announced that it closes (ErrUnreachable, with a
//     PeerUnreachable event); this host closed it (ErrClosed). Frames that were not acknowledged
//     when it broke may or may not have arrived. The fabric does not send them again: the caller
//     decides.
//  3. A broken lane stays broken. Calling Host.Lane again returns a new one, to the incarnation
//     that answers. If an earlier lane of that name lost frames on its way to the same incarnation,
//     the receiver gets a LaneReset event before the first frame of the new lane. The prefix
//     guarantee of 1 ends there and starts anew.
//  4. Memory is bounded. The sender holds at most a window of unacknowledged frames, in bytes and
//     in number. A receive function that blocks delays acknowledgements, which closes the window
//     and finally blocks Send. Lanes with different names do not wait for each other, so a full
//     bulk lane does not block a small control lane.
//  5. Nothing hangs. Send ends when the frames are queued, with its context's error, or with the
//     lane's error within the mend timeout after the peer disappears.
//
// Typical use:
//
//	host.Watch(func(event rdmanet.PeerEvent) { detector.Note(event) })
//	host.Receive("rounds", func(from rdmanet.Peer, frames [][]byte) {
//		inbox.Put(from, slices.Clone(frames)) // the frames are ours to keep, their slice is not
//	})
//	lane, err := host.Lane(peer, "rounds") // connects in the background
//	for frame := range outbox {
//		err := lane.Send(ctx, frame)
//		switch {
//		case errors.Is(err, rdmanet.ErrReset), errors.Is(err, rdmanet.ErrUnreachable):
//			// The peer restarted or is gone. Frames that it did not take are lost.
//			// Notify the detector. Open a new lane if the peer is still wanted.
//		}
//	}
//	err = host.Close(ctx) // waits until the sent frames are taken, as long as ctx allows
//
// # Strangers
//
// A host has lanes and regions with its members only. A host that implements IntroductionHost also
// takes introductions: one bounded message of a peer that is no member, with one short answer. A
// program that knows how strangers prove themselves can admit them that way.
//
// # Ownership of bytes
//
// A frame is immutable from the moment it is given to Send. Providers hand it over or send it again
// without copying. A frame that Receive hands out is immutable too. It belongs to the receiver,
// which may keep it and relay the same bytes to further lanes. A frame may be part of a larger
// buffer (up to 1 MiB) that stays in memory while any frame in it is kept. So copy frames that you
// keep for long. The outer slice, both in Send's arguments and in Receive's frames, is only lent
// for the duration of the call. Frames that come with a Loan belong to the receiver until it
// releases them.
//
// # Regions: the memory contract
//
// The second half of the fabric is one-sided memory, for engines that share memory (TRAM, DARE). A
// host that supports it implements RegionHost. A Region is named memory of fixed size. Its owner
// reads and writes it locally. Peers read and write it without involving the owner's program. The
// contract:
//
//  1. Atomicity. A word, 8 bytes at an offset that 8 divides, is never torn: every reader, local or
//     remote, sees its value before or after a write, in whole. Larger data is not atomic. A write
//     touches no byte outside its bounds.
//  2. Order of bytes. A write lands from its first byte to its last: a reader that sees one of its
//     words sees everything that it wrote below. So a mark in the last word, a canary, shows that
//     an entry is complete. The words of a remote read are not all read at the same moment, but its
//     last word is read first: a read that ends with the mark and finds it has the complete entry.
//  3. Order of operations. The operations of one attachment take place in the order of posting: a
//     write has landed before the next one starts to land, and a read sees the writes before it.
//     Between attachments, regions and peers there is no order except through completions: an
//     operation posted after a completion takes place after it. Two writers to one location are not
//     ordered, so a location must have one writer at a time.
//  4. Completions. Every operation completes exactly once, in the order of posting for each peer,
//     and within a bounded time. The completion of a write means that it has landed in the owner's
//     memory and is not merely on its way: every later read by any process sees it. It does not
//     mean that the owner's program has looked. The bound is on silence: a peer that answers
//     nothing for the mend timeout is unreachable. While it answers, operations take as long as the
//     network needs. The order is per peer, not per attachment, and no provider may relax it. So a
//     small operation completes after the bulk operations posted to the same peer before it. To
//     keep small operations fast, keep little bulk outstanding to that peer, or send the bulk in
//     lanes, which do not wait for each other.
//  5. Permissions. Access to a region is granted to a Peer, that is, to an incarnation and not to
//     an identity. Only the owner changes it. After Grant or Revoke has returned, no byte of an
//     earlier attachment lands. Its pending and later operations complete with ErrAccess, even
//     those still on their way when the peer is granted access again: an attachment is bound to the
//     grant under which it was made. A peer must attach again to use a new grant.
//  6. Gaps. An attachment ends with its first operation that fails. Operations posted behind it
//     complete with the same error, and take place only if the failed one took place in whole.
//     Operations posted after the failed one's completion was delivered have no effect. So a later
//     write never takes place without an earlier one.
//  7. Crashes and hangs. The memory of a host that is gone is unreachable (ErrUnreachable, or
//     ErrReset if another incarnation is there). The memory of a host whose program hangs stays
//     readable and writable as long as the provider can do that: with memory and verbs while the
//     process lives, with p2p while its agent runs.
//  8. Waiting. Shared memory is watched by reading a word in a loop. Region.Await and Queue.Wait do
//     so briefly and then park until a write with Ring wakes them, so an idle host uses no
//     processor time.
//
// Typical use, for a writer and for the owner:
//
//	log, err := host.Attach(ctx, owner, "log")     // the owner granted it
//	queue, err := host.Queue(64)
//	err = queue.Post(rdmanet.Operation{ // to many owners at once
//		To: log, Kind: rdmanet.OperationWrite, Offset: at, Bytes: entry, Ring: true}, ...)
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
// Lanes and regions share hosts, identities, incarnations, events and errors, and nothing else. A
// provider over RDMA hardware builds its lanes from regions (a ring written one-sided). The p2p
// provider builds its regions from streams and an agent at the owner. Order holds within a lane and
// within an attachment, never between the two.
package rdmanet
