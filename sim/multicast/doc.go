// Package multicast is the conformance frame of atomic multicast: it draws a deployment of several groups from a seed, has clients A-multicast messages to overlapping sets of groups, hurts the
// processes, and has package order judge what they A-deliver. What it runs are forms: ways to build TRAM [TRAM], each with a driver here that connects the very state machines that production runs
// to the frame.
//
// # A run
//
// A run has two phases. In the first, clients submit and faults happen. In the second there are no more of either, oracles no longer err, and all that is due has to be A-delivered within bounded virtual
// time; after that the run goes on for a while, in which nothing more may be A-delivered. If a fault took more of a group than it tolerates, only safety is judged.
//
// The frame owns all that a process does not: virtual time, memory (package sim/fabric), links, the logs that a form may take for granted, crashes, and when a process gets to work. A form is passive:
//
//	world := ...                        // drawn from the seed
//	form, err := maker(world)           // hosts, regions and machines of all processes
//	form.Lead(replica, leader)          // for each replica, and whenever its leader oracle changes its mind
//	form.Submit(client, message)        // when a client has one
//	form.Poll(process)                  // again and again, for each process that lives and does not hang
//
// and calls World.Deliver for each A-delivery. A crashed process is not polled any more, and that is all there is to it: its host has ended, of what it sent some gets lost. A process that hangs is not polled
// for a while, or never again, but its memory stays as it is, readable and writable (DARE's zombie).
//
// # How to write a driver
//
// Write a Maker and give it a row in Engines. What must hold:
//
//   - All that happens at a process happens in its Poll, or in Submit and Lead, which come between its Polls. Nothing is shared between processes but through regions of World.Host, letters of World.Send
//     and logs of World.NewLog.
//   - Poll never waits, and does a bounded amount of work. Time is World.Now, read in Poll and fed into the machines; there are no timers.
//   - No map order, clock, goroutine or random source: the same choices of the frame give the same run.
//   - World.Note tells of the protocol's steps. It makes the trace readable, and the adversary crashes processes right after steps of which it is told: note what matters, such as "asked for permission", "entry 7 ordered".
//   - AppendState gives all that a process will ever act on, so that the exhaustive search knows states that it has seen.
package multicast
