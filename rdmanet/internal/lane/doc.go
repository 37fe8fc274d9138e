// Package lane is the protocol of a reliable FIFO lane over something that moves bytes and may
// break, whatever moves them: openings, incarnations, resumption, numbering, acknowledgements,
// windows, batches, goodbye. A provider supplies connections and how to make them; the two ends of
// each lane are here.
//
// # Who does what
//
//	the provider                              this package
//	Config.Dial: says hello, is answered,     Sender: one goroutine a lane connects, writes batches, mends
//	  makes a connection (Outlet)
//	an Outlet writes batches, waits, and      window.Window: what was sent and is not acknowledged
//	  tells what is acknowledged
//	who is called tells of the hello          Lanes.Greet: judges it, and says where to go on
//	an Inlet is what comes in and owes        Inbound.Feed: reads batches, calls the receive function
//	  acknowledgements
//
// A Lanes is one host's: all lanes to its peers and from them. Names, members, liveness on the
// wire, what an acknowledgement looks like and how a goodbye travels are the provider's.
//
// # What always holds
//
// Numbers. An opening is one Lane of the sender's program, counted for each peer and name from 1.
// The frames of an opening are numbered from 0. The receiver remembers, for the newest opening of
// the sender's newest incarnation, next, the first frame that its program has not been given, and
// delivered, up to where its receive function has returned: delivered <= next <= what was ever on
// the wire.
//
// FIFO, exactly once. Between the same two incarnations, the receive function gets the frames of
// one opening in the order of their numbers, each once: a batch has to begin with next, next moves
// before the function is called, and one call runs at a time, over all connections. An answer to a
// hello carries next and delivered, and the sender goes on there; so a reconnect, also in the
// middle of a call, neither repeats nor skips.
//
// One connection feeds a lane: the newest that was welcomed. Who greets with an older incarnation
// or opening is refused, and what fed the lane before is stopped.
//
// No silent gap. An opening that ends for the sender with frames unacknowledged leaves their number
// to the next one's hello, and the receiver's host is told (LaneReset) before that one's first
// frame. A lane that leads to an incarnation leads to no other: another one's answer breaks it
// (ErrReset).
//
// Bounds. The sender holds at most a window of frames, in bytes and in number, until they are
// acknowledged. The receiver holds a batch of each lane, at most BatchBytesMax bytes unless it is
// one frame, and takes the next when the function has returned. Nothing is retried longer than the
// mend timeout since the peer's last sign of life.
//
// Bytes. A frame belongs to the fabric from Send on and is never changed; the Outlet may use it
// until it was acknowledged, and nothing here copies it. What the receive function is given belongs
// to the program and is never written again, unless its receiver was registered as one that keeps
// nothing: then a batch is valid until the function returns, and the next one is read into the same
// memory.
//
// Close. After Flush no frame is accepted, and what was sent has been taken, or its lane is broken,
// or ctx has ended. After Settle no receive call of this host begins; those that ran have returned
// unless time ran out, so that what is acknowledged in the goodbye is exactly what the program was
// given. A hello that comes late is refused with the same number. After End nothing is left but
// goroutines on their way out, for which Wait waits.
//
// # The loop of a provider
//
//	lanes := lane.New(lane.Config{...})
//	// For each stream that comes in:
//	inbound, answer := lanes.Greet(from, hello, inlet)
//	... // write the answer; if inbound is nil that was it
//	defer inbound.End()
//	err := inbound.Feed(stream) // while another goroutine acknowledges what inlet owes, with inbound.Acknowledging
//
//	// To close:
//	err := lanes.Flush(ctx)
//	lanes.Settle(ctx)
//	... // the goodbye
//	lanes.End()
//	lanes.Wait()
package lane
