// Package rounds notes what passes at one node while its group orders: messages that come and go,
// the servers that the node waits for, runs that begin and end. People then look at it, live or
// step by step.
//
//	recorder := rounds.New()
//	...                              // the driver and the pipeline Note events
//	release := recorder.Watch()      // a client looks
//	defer release()
//	window := recorder.Last(1, 1000) // the newest events, and how many were lost
//
// # What it costs
//
// A recorder notes nothing unless a client watches. The driver asks Watched once in a turn, which
// reads one number, and then has one branch where something happens. While a client watches, an
// event costs a reading of the clock, a lock and a place in the ring: no allocation. Only runs, of
// which there are few, are always noted, so that the first look already shows the eons and
// generations before it.
//
// # What is bounded
//
//   - The ring holds [Capacity] events and [ServersCapacity] server numbers in their lists. The
//     newest events replace the oldest. A reader that is too slow learns how many it lost. The
//     memory, some five megabytes, is taken when a client watches first, and kept.
//   - The last [RunsMax] runs are kept.
//
// # What it does not show
//
// A recorder has the view of one node. It knows when this node handed a frame to its lane, not when
// the frame arrived, and nothing of frames between two other nodes. It has no payloads.
package rounds
