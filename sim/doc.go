// Package sim is the deterministic simulator: it runs a whole group of the very engines that production runs, in virtual time and in one goroutine, hurts
// them in ways that a seed decides, and lets named oracles judge what came of it.
//
// # A run
//
// A run has two phases. In the safety phase users submit payloads, in bursts with quiet spells between them, and servers crash: by themselves, several at once, in
// the middle of sending to several successors, right after a delivery, or one after another along a path of the reliable digraph so that a
// message survives by a thread (adversary.go). Frames take as long as the run's weather has it, in order on each link and in any order on different links
// (network.go); detectors are quick, slow or both (detector.go); drivers linger and let inputs gather (server.go). In the liveness phase there are no more
// faults and submissions, and the group must come to rest: within bounded virtual time, everything that a correct server was asked to broadcast
// has been A-delivered by every survivor. If more servers crash than the group tolerates, it may stand still, but never fork.
//
// # A shard that lives on
//
// Under an eventually perfect detector (◇P, the default of Group) a run is the life of a shard over many runs of its engines. Each server then has
// processes (member.go), which do what a node's supervisor does, as a pure state machine: the engine of the present eon; the synod that decides the next generation; a chain of all
// rounds (chain.go); catching up by messages (member_follow.go). Besides crashing, servers are suspected falsely, cut off one way or both, paused, taken into the
// membership and out of it, and come back as new incarnations (disturbance.go). Never are so many gone or forgetful at once that no majority remembers its votes, unless
// Options.Crashes asks for it; then only safety is judged. In the liveness phase every server that has not crashed for good or left is to be back in the group, with unreliable
// rounds again. A payload is A-delivered at most once, ever: a process A-broadcasts it in one round, and anew only when that round's block, in whatever run and generation it
// came to be, turned out not to hold it. One that was submitted to a process that has not failed is A-delivered.
//
// A process that hears that a group works in the generation that it knows leaves the synod alone: its own promise for the next generation would bar it from entering this one. If it
// has promised all the same, it asks for the generation to end in order (payloadRegroup).
//
// # Who judges
//
// A single run of engines:
//
//	package order          integrity, total order, prefix order, acyclic order, set agreement, round form, validity, (uniform) agreement
//	oracle_accuracy.go     only servers that have failed are removed
//	oracle_tolerance.go    no delivery once more have failed than the group tolerates
//	oracle_progress.go     rest within bounded time, with nothing left to do
//	oracle_contract.go     what order.Broadcaster asks of an engine: no panic, no refusal of what is right, frames that never change
//
// A shard that lives on:
//
//	oracle_chain.go        one block a round at all servers for ever, also those cut off later; the form of rounds; integrity; majorities; who promised is frozen
//	oracle_rest.go         everybody is back, everything is A-delivered, nothing is left to do
//	oracle_contract.go     as above
//
// # How to use it
//
//	options, err := sim.Group{Engine: "allconcur+", Servers: 8, Faults: sim.FaultsAll}.Options()
//	options.Seed = 42
//	result, err := sim.Check(options)
//	for _, violation := range result.Violations {
//		fmt.Println(violation) // the property and the evidence
//	}
//
// Sweep runs many seeds on all processors, Shrink looks for a smaller run that breaks the same property, and Options.Trace shows a run event by event.
// Another engine is run by setting Options.New. `ledgerd sim check` is all of this from the command line.
//
// # Several groups
//
// What is here is for one group. Messages to several groups, and the forms of TRAM that order them, have a frame of their own in the same manner, package sim/multicast: a seed draws groups, their tree, clients with messages
// to overlapping sets of groups, and faults; one-sided memory is that of package sim/fabric; package order judges; what fails is shrunk and replayed (`ledgerd sim multicast`); and small deployments are searched whole
// (`ledgerd sim multicast search`).
//
// # What always holds
//
// The same options give the same run, event for event, on every machine: time is virtual, all chance comes from the seed's streams (math/rand/v2 PCG), events at one
// instant are taken in the order in which they were scheduled, and nothing ranges over a map. Result.Hash proves it. A seed's network, workload, adversary,
// detector and drivers draw from streams of their own.
//
// # The model
//
// It is that of [Poke19, section 2.1]: links are reliable and FIFO, so what a server has put on a link arrives, even if the server crashes afterwards; in the
// middle of a send, each receiver's link has got a prefix of what was meant for it. (Options.LoseTails is harder, and under P less is asked then.) A link that is cut holds what it carries
// until it heals. A process that comes back has its disk, but for the last blocks, and gets nothing that was sent to the one before. P suspects nobody who has not crashed, each successor in the
// reliable digraph suspects in the end, and only after the last frame on that link. ◇P suspects who crashed or left the run, who is cut off or pauses, and whom the seed slanders, each after a while, and
// trusts again a while after that has ended. The idea of the two phases and of oracles by
// name is TigerBeetle's.
package sim
