// Package lane implements the protocol of a reliable FIFO lane over any connection that moves bytes
// and may break: openings, incarnations, resumption, numbering, acknowledgements, windows, batches,
// goodbye. A provider supplies the connections and the way to make them. The two ends of each lane
// are in this package.
//
// # Division of work
//
//	the provider                              this package
//	Config.Dial: sends the hello, gets the    Sender: one goroutine a lane connects,
//	  answer, makes a connection (Outlet)       writes batches, mends
//	an Outlet writes batches, waits, and      window.Window: the frames sent and
//	  reports acknowledgements                  not yet acknowledged
//	a PromptOutlet writes what fits, too      Sender.TrySend: writes batches on an idle
//	                                            lane without a switch of goroutines
//	the called side passes on the hello       Lanes.Greet: judges it, returns where to continue
//	an Inlet is the incoming connection       Inbound.Feed: reads batches, calls the
//	  and owes acknowledgements                 receive function
//	a stream that does not wait               Feeder: the same without waiting, for a
//	                                            prompt receiver
//
// A Lanes holds all lanes of one host, to its peers and from them. Names, members, liveness on the
// wire, the format of an acknowledgement and the transport of a goodbye are up to the provider.
//
// # Invariants
//
// Numbers. An opening is one Lane of the sender's program, counted for each peer and name from 1.
// The frames of an opening are numbered from 0. For the newest opening of the sender's newest
// incarnation the receiver remembers two numbers. next is the first frame that its program has not
// been given. delivered is the first frame for which its receive function has not returned.
// delivered <= next <= the frames ever put on the wire.
//
// FIFO, exactly once. Between the same two incarnations, the receive function gets the frames of
// one opening in the order of their numbers, each once. A batch must begin with next, next advances
// before the function is called, and one call runs at a time over all connections. The answer to a
// hello carries next and delivered, and the sender continues from there. So a reconnect neither
// repeats nor skips frames, even in the middle of a call.
//
// One connection feeds a lane: the newest that was welcomed. A hello with an older incarnation or
// opening is refused. The connection that fed the lane before is stopped.
//
// No silent gap. An opening that ends at the sender with unacknowledged frames passes their number
// to the next opening's hello. The receiver's host is told (LaneReset) before the first frame of
// the next opening. A lane that leads to one incarnation leads to no other: an answer from another
// one breaks it (ErrReset).
//
// Bounds. The sender holds at most a window of frames, in bytes and in number, until they are
// acknowledged. The receiver holds one batch of each lane, at most BatchBytesMax bytes unless it is
// a single frame, and takes the next when the function has returned. Nothing is retried longer than
// the mend timeout after the peer's last sign of life.
//
// Bytes. A frame belongs to the fabric from Send on and is never changed. The Outlet may use it
// until it is acknowledged, and nothing in this package copies it. Frames given to the receive
// function belong to the program and are never written again. There are two exceptions. For a
// receiver registered with lent frames a batch is valid until the function returns, and the next
// batch is read into the same memory. The frames that a prompt receiver gets with a loan
// (TryReceiveLent) are valid while anyone holds the loan. Then their slab is used again, for any
// lane of the host.
//
// Close. After Flush no frame is accepted, and either the sent frames have been taken, or their
// lanes are broken, or ctx has ended. After Settle no receive call of this host begins. Running
// calls have returned unless time ran out, so the goodbye acknowledges exactly the frames that the
// program was given. A late hello is refused with the same number. After End only goroutines on
// their way out are left; Wait waits for them.
//
// # The loop of a provider
//
//	lanes := lane.New(lane.Config{...})
//	// For each stream that comes in:
//	inbound, answer := lanes.Greet(from, hello, inlet)
//	... // write the answer; stop here if inbound is nil
//	defer inbound.End()
//	// Meanwhile another goroutine sends the acknowledgements that inlet owes, with
//	// inbound.Acknowledging.
//	err := inbound.Feed(stream)
//
//	// To close:
//	err := lanes.Flush(ctx)
//	lanes.Settle(ctx)
//	... // the goodbye
//	lanes.End()
//	lanes.Wait()
package lane
