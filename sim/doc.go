// Package sim is the deterministic simulator. It runs a whole shard of the machines that production
// runs, in virtual time and in one goroutine. A seed decides the faults, and named oracles judge
// the results.
//
// # A run of the engines
//
// Under a perfect failure detector (P), a run is one run of the engines of package allconcur. In
// the safety phase users submit payloads in bursts, and servers crash: alone, several at once, in
// the middle of sending to several successors, right after a delivery, or one after another along a
// path of the reliable digraph, so that a message barely survives (adversary.go). The run's weather
// decides how long frames take, in order on each link and in any order on different links
// (network.go). Detectors are fast, slow or both (detector.go). Drivers linger and let inputs
// gather (server.go). In the liveness phase there are no more faults and submissions, and the group
// must come to rest: within bounded virtual time, every survivor has A-delivered everything that a
// correct server was asked to broadcast. If more servers crash than the group tolerates, it may
// stand still, but never fork.
//
// # The life of a shard
//
// Under an eventually perfect detector (◇P, the default of Group), a run is the life of a shard:
// many runs of the engines, in eons and generations. (Rings of package trains stand still with each
// crash, and generations go on from their votes.) Each server has a disk (disk.go), and
// processes that come and go (process.go). A process runs shard.Member, the machine that a node
// runs, with production's timing and a tick of a tenth of a second. The files here are the driver
// around it:
//
//	process.go         the loop: inputs in, effects out
//	process_engine.go  the engine of the current run, driven by package shard/turn
//	process_memory.go  the same for engines that work on one-sided memory (package dare)
//	process_chain.go   changes of the chain: rounds, fetched blocks, replays
//	process_fetch.go   questions to peers, and their answers
//	process_clock.go   what the process knows about the time
//	process_disk.go    writes to the disk, and which heights are durable
//	process_record.go  records of complete rounds
//	process_links.go   which servers the fabric reaches
//	chain.go           a chain as in production: blocks without generations, the map of disks
//	payload.go         entries and marks
//
// A chain's blocks do not contain runs, and a round without entries makes no block. Changes of the
// membership are entries, and so is the admission of a disk. Besides crashing, servers are
// suspected falsely, cut off one way or both ways, lose frames with their connection, pause, and
// join and leave the membership (disturbance.go, life_faults.go). One, some or all of them lose
// their power, with the last group of the log zeroed, torn or damaged. Their disks are full for a
// while; data, promises or both are lost; old disks and older copies come back (life_disks.go). Of
// every map of disks that may count, a majority remembers and comes back (budget.go). Clocks are
// moved by up to decades, drift and jump back and forth, while their server runs or is down
// (wall_clock.go). Blocks get their times from package clock, as in production. With
// Group.EngineChanges, the operator changes the engine of the shard, again and again.
//
// In the liveness phase, every member that has not crashed for good must be back in the group, with
// a disk that counts, with unreliable rounds again, and with everything that was submitted stored
// and durable.
//
// Servers of package dare order in one-sided memory (memory.go), which package sim/fabric
// simulates. Each process is an incarnation of its server's host. The memory has a timeline of its
// own, which a run moves on together with its events. Cut links hold operations back, a broken
// connection makes those under way fail, and a process that pauses has memory that others still
// write. A leader that is gone is replaced within a run. A run ends with a change, or with a server
// that is taken out, or its servers freeze their logs and report them. Some partitions follow a
// leader's steps (life_leads.go), so that only some of these logs have what was A-delivered.
//
// # The oracles
//
// A single run of engines:
//
//	package order          integrity, total order, prefix order, acyclic order, set agreement,
//	                       round form, validity, (uniform) agreement
//	oracle_accuracy.go     only servers that have failed are removed
//	oracle_tolerance.go    no delivery once more have failed than the group tolerates
//	oracle_progress.go     rest within bounded time, with nothing left to do
//	oracle_contract.go     the contract of order.Broadcaster: no panic, no refusal of valid input,
//	                       frames that never change
//
// The life of a shard:
//
//	oracle_runs.go         runs begin alike, with the engine that the chain names, and deliver
//	                       alike; the form of rounds; integrity; majorities; a server that promised
//	                       a generation is frozen
//	oracle_ordered.go      an A-delivered block is given up only if restarts lost the votes
//	oracle_stored.go       everything that a server claims to have stored or promised is on its
//	                       disk, and stays there
//	oracle_durable.go      durable blocks are in every later generation, and never set aside
//	oracle_time.go         time never goes back, advances in proven steps, is the same everywhere,
//	                       and is right while most clocks are
//	oracle_reason.go       a server that does not order gives a reason
//	oracle_claim.go        the reason is true as soon as the server can know it
//	oracle_rest.go         all members are back, everything is A-delivered, nothing is left to do
//	oracle_turn.go         a turn gives frames before opinions, sends before it delivers, and
//	                       never trusts a server again to which frames are lost
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
// Package sim/sweep runs many seeds on all processors, Shrink looks for a smaller run that breaks
// the same property, and Options.Trace shows a run event by event. Set Options.New to run another
// engine. `ledgerd sim check` offers all of this on the command line.
//
// # Several groups
//
// Package sim/multicast is a similar frame for messages to several groups and the forms of TRAM
// that order them. A seed draws groups, their tree, clients with messages to overlapping sets of
// groups, and faults. One-sided memory comes from package sim/fabric, and package order judges. A
// failing run is shrunk and replayed (`ledgerd sim multicast`). Small deployments are searched
// exhaustively (`ledgerd sim multicast search`).
//
// # Invariants
//
// The same options give the same run, event for event, on every machine: time is virtual, all
// chance comes from the seed's streams (math/rand/v2 PCG), events at one instant are taken in the
// order in which they were scheduled, and nothing ranges over a map. Result.Hash proves it. A
// seed's network, workload, adversary, detector, drivers and disks draw from streams of their own.
//
// # The model
//
// The model is that of [Poke19, section 2.1]. Links are reliable and FIFO, so a frame on a link
// arrives even if its sender crashes afterwards. After a crash in the middle of a send, each
// receiver's link has a prefix of the frames meant for it. (Options.LoseTails is harder, and under
// P less is required then.) A cut link holds the frames that it carries until it heals, and loses
// all other messages. A process that starts has its disk, and receives nothing that was sent to the
// process before it. P suspects no server that has not crashed. Each successor in the reliable
// digraph eventually suspects a crashed server, and only after the last frame on that link. ◇P
// suspects servers that crashed or left the run, that are cut off or pause, and those that the seed
// slanders, each after a while. It trusts them again a while after that has ended. The idea of the
// two phases and of named oracles is TigerBeetle's.
package sim
