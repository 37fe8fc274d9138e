// Package sim is the deterministic simulator. It runs a whole shard of the machines that production
// runs, in virtual time and in one goroutine, hurts them in ways that a seed decides, and lets
// named oracles judge what came of it.
//
// # A run of the engines
//
// Under a perfect failure detector (P) a run is one run of the engines of package allconcur. In the
// safety phase users submit payloads in bursts, and servers crash: by themselves, several at once,
// in the middle of sending to several successors, right after a delivery, or one after another
// along a path of the reliable digraph so that a message survives by a thread (adversary.go).
// Frames take as long as the run's weather has it, in order on each link and in any order on
// different links (network.go). Detectors are quick, slow or both (detector.go); drivers linger and
// let inputs gather (server.go). In the liveness phase there are no more faults and submissions,
// and the group must come to rest: within bounded virtual time, everything that a correct server
// was asked to broadcast has been A-delivered by every survivor. If more servers crash than the
// group tolerates, it may stand still, but never fork.
//
// # The life of a shard
//
// Under an eventually perfect detector (◇P, the default of Group) a run is the life of a shard:
// many runs of the engines, in eons and generations. Each server has a disk (disk.go), and
// processes that come and go (process.go). A process runs shard.Member, the machine that a node
// runs, with production's timing and a tick of a tenth of a second; what is here is the driver
// around it:
//
//	process.go         the loop: inputs in, effects out
//	process_engine.go  the engine of the run at hand, driven by package shard/turn
//	process_chain.go   what changes the chain: rounds, fetched blocks, replays
//	process_fetch.go   questions to peers, and their answers
//	process_clock.go   what the process knows of the time
//	process_disk.go    what the disk is asked for, and which heights are durable
//	process_links.go   which servers the fabric reaches
//	chain.go           a chain as production has it: blocks without generations, the map of disks
//	payload.go         entries and marks
//
// A chain's blocks know nothing of runs; a round without entries makes no block. Changes of the
// membership are entries, and so is the admission of a disk. Besides crashing, servers are
// suspected falsely, cut off one way or both, lose frames with their connection, paused, taken into
// the membership and out of it (disturbance.go, life_faults.go). They lose their power, one, some
// or all, with the last group of the log zeroed, torn or damaged. Their disks are full for a while;
// data, promises or both are lost; old disks and older copies come back (life_disks.go). Of every
// map of disks that may count, a majority remembers and comes back (budget.go). Clocks are moved by
// up to decades, drift and jump back and forth, while their server runs or is down (wall_clock.go).
// Blocks get their times from package clock, as in production.
//
// In the liveness phase every member that has not crashed for good is to be back in the group, with
// a disk that counts, with unreliable rounds again, and with everything that was submitted stored
// and durable.
//
// # Who judges
//
// A single run of engines:
//
//	package order          integrity, total order, prefix order, acyclic order, set agreement, round form,
//	                       validity, (uniform) agreement
//	oracle_accuracy.go     only servers that have failed are removed
//	oracle_tolerance.go    no delivery once more have failed than the group tolerates
//	oracle_progress.go     rest within bounded time, with nothing left to do
//	oracle_contract.go     what order.Broadcaster asks of an engine: no panic, no refusal of what is right,
//	                       frames that never change
//
// The life of a shard:
//
//	oracle_runs.go         runs begin alike, and deliver alike; the form of rounds; integrity; majorities; a
//	                       server that promised a generation is frozen
//	oracle_ordered.go      a block that was A-delivered is given up only where restarts took the votes along
//	oracle_stored.go       what a server says that it stored, or promised, is on its disk, and stays there
//	oracle_durable.go      what is durable is in every later generation, and never set aside
//	oracle_time.go         time never goes back, goes on in proven steps, is the same everywhere, and
//	                       right while most clocks are
//	oracle_reason.go       a server that does not order says why
//	oracle_claim.go        and what it says is so, as soon as it can know
//	oracle_rest.go         everybody is back, everything is A-delivered, nothing is left to do
//	oracle_turn.go         a turn gives frames before opinions, sends before it delivers, and never
//	                       trusts a server again to which frames are lost
//	oracle_contract.go     as above
//
// # How to use it
//
//	options, err := sim.Group{Engine: "allconcur+", Servers: 5, Faults: sim.FaultsAll}.Options()
//	options.Seed = 42
//	result, err := sim.Check(options)
//	for _, violation := range result.Violations {
//		fmt.Println(violation) // the property and the evidence
//	}
//
// Sweep runs many seeds on all processors, Shrink looks for a smaller run that breaks the same
// property, and Options.Trace shows a run event by event. Another engine is run by setting
// Options.New. `ledgerd sim check` is all of this from the command line.
//
// # Several groups
//
// Messages to several groups, and the forms of TRAM that order them, have a frame of their own in
// the same manner, package sim/multicast: a seed draws groups, their tree, clients with messages to
// overlapping sets of groups, and faults; one-sided memory is that of package sim/fabric; package
// order judges; a failing run is shrunk and replayed (`ledgerd sim multicast`); and small
// deployments are searched whole (`ledgerd sim multicast search`).
//
// # What always holds
//
// The same options give the same run, event for event, on every machine: time is virtual, all
// chance comes from the seed's streams (math/rand/v2 PCG), events at one instant are taken in the
// order in which they were scheduled, and nothing ranges over a map. Result.Hash proves it. A
// seed's network, workload, adversary, detector, drivers and disks draw from streams of their own.
//
// # The model
//
// It is that of [Poke19, section 2.1]: links are reliable and FIFO, so what a server has put on a
// link arrives, even if the server crashes afterwards; in the middle of a send, each receiver's
// link has got a prefix of what was meant for it. (Options.LoseTails is harder, and under P less is
// asked then.) A link that is cut holds the frames that it carries until it heals, and loses all
// other messages. A process that begins has its disk, and gets nothing that was sent to the one
// before. P suspects nobody that has not crashed, each successor in the reliable digraph suspects
// in the end, and only after the last frame on that link. ◇P suspects servers that crashed or left
// the run, that are cut off or pause, and those that the seed slanders, each after a while, and
// trusts again a while after that has ended. The idea of the two phases and of oracles by name is
// TigerBeetle's.
package sim
