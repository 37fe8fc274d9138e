// Package multicast is the conformance frame of atomic multicast. It draws a deployment of several
// groups from a seed, makes clients A-multicast messages to overlapping sets of groups, injects
// faults into the processes, and lets package order judge what they A-deliver. It runs forms: ways
// to build TRAM [TRAM]. Each form has a driver here that connects the state machines that
// production runs to the frame.
//
// # A run
//
// A run has two phases. In the first, clients submit messages and faults happen. In the second
// there are no more of either, oracles no longer err, and all due messages must be A-delivered
// within bounded virtual time. After that the run continues for a while, in which nothing more may
// be A-delivered. If a fault took more of a group than it tolerates, only safety is judged.
//
// The frame owns everything outside of the processes: virtual time, memory (package sim/fabric),
// links, the logs that a form may assume, crashes, and the schedule of the processes. A form is
// passive:
//
//	world := ...                        // drawn from the seed
//	form, err := maker(world)           // hosts, regions and machines of all processes
//	form.Lead(replica, leader)          // first, and when the replica's oracle changes
//	form.Submit(client, message)        // when a client has one
//	form.Poll(process)                  // again and again, unless the process crashed or hangs
//
// A form calls World.Deliver for each A-delivery. A crashed process is not polled any more. Its
// host has ended, and some of what it sent gets lost. A process that hangs is not polled for a
// while, or never again, but its memory stays as it is, readable and writable (DARE's zombie).
//
// # Faults
//
// A seed draws all faults before the run (plan.go, adversary.go), so messages and faults have
// numbers and can be left out one by one.
//
//	crash      a replica ends, often the leader: at an instant, or once it took a number of steps
//	           of the protocol or A-delivered a number of messages
//	client     a client ends; of its writes under way some land and some do not
//	suspect    leader oracles err, each replica's on its own: several replicas lead at once and
//	           take permissions from each other; the previous leader's operations under way are
//	           held back and land late
//	slow       wires hold operations for less than the operation timeout, so that completions of
//	           different peers come in any order
//	hang       a program stops, for a while or for good; its memory stays
//	partition  wires are cut for longer than the operation timeout: operations end with errors,
//	           and land afterwards
//	overwhelm  a group loses more replicas than it tolerates
//
// Two more kinds are for engines whose groups change (Changer):
//
//	restart      a replica ends, and starts again as its next incarnation with empty memory
//	reconfigure  a group's last replica leaves it, for good or until it starts again and joins
//
// Whatever the faults, writes are torn, operations and letters take times of their own, and some
// processes are slow.
//
// # What is judged
//
//	package order   integrity, total order, prefix order, acyclic order, validity, (uniform)
//	                agreement
//	invariant       what a form promises of its memory: package dare looks into all logs
//	simulation.go   that each A-delivered message has the payload and the destinations of its
//	                submission; contract: a form does not panic; progress: a run comes to rest,
//	                or else the state of each process
//
// # How to use it
//
//	result, err := multicast.Run(multicast.Options{Engine: multicast.EngineTRAM, Seed: 42,
//		Faults: multicast.FaultsAll})
//	for _, violation := range result.Violations {
//		fmt.Println(violation) // the property and the evidence
//	}
//
// Package sim/sweep runs many seeds on all processors. Shrink looks for a smaller run that breaks
// the same property: fewer and smaller groups, if necessary with another seed, and then without the
// messages and faults that it does not need. Options.Trace shows a run event by event. `ledgerd sim
// multicast` offers all of this on the command line, and prints the command that replays what it
// finds. Engine "sequencer" is a form that belongs to the frame: one log for all groups, which is
// trivially correct. With bugs planted in it, the tests show that the frame finds errors.
//
// # Every schedule
//
// Search does not depend on chance. It visits every state that a small deployment can reach,
// whichever letter arrives, operation takes place or process works next, and takes each fault at
// any moment. If a form is a Copier, the search copies it, process by process. Any other form is
// run from its beginning again and again. If a form is a Completer, schedules that are equivalent
// to others are left out: reduction.go describes them, and why nothing is missed.
// SearchOptions.Unreduced keeps them all. Two states are equal if memory, links, logs, the
// A-delivered messages and Form.AppendState are equal. If another run of the same choices leads to
// a different state, the search returns ErrNotRepeatable. Safety is judged at every A-delivery. If
// nothing is under way and no choice leads to a new state, a fair run follows, in which time passes
// and liveness is judged. Operations take place as a whole in a search (runs tear them), letters
// and log entries are processed as they arrive, and the clock stands still except for
// SearchOptions.Ticks.
//
// With SearchOptions.Tabulated, the search of a form that is Tabled computes the effect of an event
// once for each local state of a process, and looks it up from then on (table.go). It leaves out
// more schedules, by rules that tabulated.go describes, with the reason why they are right. These
// are its states for two servers of DARE and one message. Each search is complete.
//
//	                              tabulated   by tables without rules
//	no fault                            310      2,253
//	a crash                             483      9,089
//	a change of leaders               2,293     39,598
//	a change and a crash              3,943
//	two changes                       4,958
//	two changes and a crash           9,369
//
// With SearchOptions.Begin, a search begins later, and looks at everything that may follow from
// there. So three servers can be searched with two changes and a crash. The first leader is server
// 0. Any server may crash, or hear of any leader, at any moment. A search from BeginElected begins
// when the leader works and nothing was submitted. One from BeginOffered begins when, besides, all
// servers have the message, the leader has ordered it, and nothing of it has come to the logs of
// the others. Such searches leave out faults during the first election, and from BeginOffered also
// faults while the servers hand the message to each other. They are complete for three servers and
// one message:
//
//	from BeginOffered             tabulated   by tables without rules
//	no fault                             24
//	a crash                              42        604
//	a change of leaders                 204     10,251
//	a change and a crash                730     73,196
//	two changes                      25,937    728,429
//	two changes and a crash          52,387  5,099,842
//
//	from BeginElected
//	no fault                          1,106     30,825
//	a crash                           3,037    183,440
//	a change of leaders              13,398
//	a change and a crash             73,241
//	two changes                   3,805,174
//
// Wherever both numbers are given, the two searches found the same states at rest. The tests
// compare those that are short.
//
// Three servers from the very beginning, and two changes and a crash from BeginElected, have been
// searched only in part.
//
// SearchOptions.Hears is a list of changes that happen in this order. It follows longer stories
// than all changes would allow. From BeginDivided on, two of them lead to the error of the paper's
// rule for commit, an entry of an earlier term that is committed by counting its copies: the search
// finds it after 1,307,982 states. SearchOptions.Shuffle takes the moves of each state in another
// order, and one such order finds it after 5,014.
//
// # Invariants
//
// The same options give the same run, event for event, on every machine; Result.Hash proves it. If
// liveness is judged, no group has lost more than a minority. Links and logs lose nothing but the
// tail of what a process sent before it crashed.
//
// # How to write a driver
//
// Write a Maker and give it a row in Engines. It must obey these rules:
//
//   - Everything that happens at a process happens in its Poll, or in Submit and Lead, which come
//     between its Polls. Processes share nothing but regions of World.Host, letters of World.Send
//     and logs of World.NewLog.
//   - Poll never waits, and does a bounded amount of work. Time is World.Now, read in Poll and fed
//     into the machines. There are no timers.
//   - There is no map order, clock, goroutine or random source: the same choices of the frame give
//     the same run.
//   - World.Note reports the protocol's steps. It makes the trace readable, and the adversary
//     crashes processes right after reported steps. Note the steps that matter, such as "asked for
//     permission" or "entry 7 ordered".
//   - AppendState appends everything that a process will ever act on, so that the exhaustive search
//     recognises states that it has seen.
package multicast
