// Package multicast is the conformance frame of atomic multicast: it draws a deployment of several
// groups from a seed, has clients A-multicast messages to overlapping sets of groups, hurts the
// processes, and has package order judge what they A-deliver. What it runs are forms: ways to build
// TRAM [TRAM], each with a driver here that connects the very state machines that production runs
// to the frame.
//
// # A run
//
// A run has two phases. In the first, clients submit and faults happen. In the second there are no
// more of either, oracles no longer err, and all that is due has to be A-delivered within bounded
// virtual time; after that the run goes on for a while, in which nothing more may be A-delivered.
// If a fault took more of a group than it tolerates, only safety is judged.
//
// The frame owns all that a process does not: virtual time, memory (package sim/fabric), links, the
// logs that a form may take for granted, crashes, and when a process gets to work. A form is
// passive:
//
//	world := ...                        // drawn from the seed
//	form, err := maker(world)           // hosts, regions and machines of all processes
//	form.Lead(replica, leader)          // for each replica, and whenever its leader oracle changes its mind
//	form.Submit(client, message)        // when a client has one
//	form.Poll(process)                  // again and again, for each process that lives and does not hang
//
// and calls World.Deliver for each A-delivery. A crashed process is not polled any more, and that
// is all there is to it: its host has ended, of what it sent some gets lost. A process that hangs
// is not polled for a while, or never again, but its memory stays as it is, readable and writable
// (DARE's zombie).
//
// # What goes wrong
//
// A seed draws all of it before the run (plan.go, adversary.go), so that messages and faults have
// numbers and can be left out one by one.
//
//	crash      a replica ends, often the leader: at an instant, or once it took so many steps of the protocol or A-delivered so many messages
//	client     a client ends, of its writes under way some land and some do not
//	suspect    leader oracles err, each replica's by itself: several lead at once and take permissions from each other; what the leader before has on the way is held back and lands late
//	slow       wires hold what is on them for less than the operation timeout, so that completions of different peers come in any order
//	hang       a program stops, for a while or for good; its memory lives
//	partition  wires are cut for longer than the operation timeout: operations end with errors, and land afterwards
//	overwhelm  a group loses more than it tolerates
//
// Writes are torn, operations and letters take times of their own, and some processes are slow,
// whatever the faults.
//
// # Who judges
//
//	package order          integrity, total order, prefix order, acyclic order, validity, (uniform) agreement
//	simulation.go          that what is A-delivered has the payload and the destinations that it was submitted with; contract: a form does not panic; progress: a run comes to rest, or where everybody stands
//
// # How to use it
//
//	result, err := multicast.Run(multicast.Options{Engine: multicast.EngineTRAM, Seed: 42, Faults: multicast.FaultsAll})
//	for _, violation := range result.Violations {
//		fmt.Println(violation) // the property and the evidence
//	}
//
// Sweep runs many seeds on all processors. Shrink looks for a smaller run that breaks the same
// property: fewer and smaller groups, if need be with another seed, then without the messages and
// faults that it does not take. Options.Trace shows a run event by event. `ledgerd sim multicast`
// is all of this from the command line, and prints the command that replays what it finds. Engine
// "sequencer" is a form of the frame's own, one log for all groups, which is trivially right; with
// bugs planted in it the tests show that the frame finds what is wrong.
//
// # Every schedule
//
// Search has nothing to do with chance: it visits every state that a small deployment can get to,
// whatever letter arrives, operation takes place or process works next, and takes each fault at any
// moment. A form that is a Copier is copied for that, process by process, any other is run from its
// beginning again and again. Of a form that is a Completer, schedules are left out that come to the
// same as others: reduction.go says which, and why nothing is lost; SearchOptions.Unreduced keeps
// them all. Two states are one if memory, links, logs, what was A-delivered and Form.AppendState
// are the same; who comes back to a state by another run and finds it different is told so
// (ErrNotRepeatable). Safety is judged at every A-delivery; where nothing is under way and no
// choice leads anywhere new, a fair run follows, in which time passes and liveness is judged.
// Operations take place as a whole there (runs tear them), letters and entries of logs are worked
// on as they arrive, and the clock stands still but for SearchOptions.Ticks.
//
// # What always holds
//
// The same options give the same run, event for event, on every machine: Result.Hash proves it.
// Where liveness is judged, no group has lost more than a minority. Links and logs lose nothing but
// the tail of what a process sent before it crashed.
//
// # How to write a driver
//
// Write a Maker and give it a row in Engines. What must hold:
//
//   - All that happens at a process happens in its Poll, or in Submit and Lead, which come between
//     its Polls. Nothing is shared between processes but through regions of World.Host, letters of
//     World.Send and logs of World.NewLog.
//   - Poll never waits, and does a bounded amount of work. Time is World.Now, read in Poll and fed
//     into the machines; there are no timers.
//   - No map order, clock, goroutine or random source: the same choices of the frame give the same
//     run.
//   - World.Note tells of the protocol's steps. It makes the trace readable, and the adversary
//     crashes processes right after steps of which it is told: note what matters, such as "asked
//     for permission", "entry 7 ordered".
//   - AppendState gives all that a process will ever act on, so that the exhaustive search knows
//     states that it has seen.
package multicast
