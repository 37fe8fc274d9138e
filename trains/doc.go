// Package trains is TRAINS, a uniform atomic broadcast for a ring of servers [TRAINS], as one pure
// state machine. It is made for throughput among few servers that are near to each other.
//
// # The story
//
// The servers form a virtual ring, in the order of their numbers. A fixed number of trains goes
// round at the same time, in a fixed order. Each server that a train passes attaches one wagon with
// all that it has to say, which may be nothing, and sends the train on to its successor, without
// the wagons that the successor made itself. So every wagon goes round once, in one write with the
// wagons of all others, to one neighbour at a time: few system calls, long writes, and links that
// are always busy. Small wagons are copied into the train's frame. A large one has a frame of its
// own, right before the train's, which all servers pass on as it is (wire.go).
//
// Train id in rotation k carries the wagons of one round, Config.FirstRound + (k-1)·Trains + id.
// All servers see the trains in this order. When a train comes for round r + 2·Trains it went round
// twice since round r, so every server has all wagons of round r, and a server A-delivers them
// [TRAINS, section III-C]. A message takes about two and a half rotations.
//
// # The loop that drives it
//
// One Engine is one server. Its driver calls one method at a time:
//
//	engine, err := trains.New(trains.Config{Self: self, Servers: n})
//	for {
//		select one input:
//			// A frame from a lane. order.ErrFrame: drop that peer.
//			err := engine.Receive(from, frame)
//			// The detector suspects a server, after the last frame of that server.
//			err := engine.Suspect(server)
//		if engine.CanBroadcast() && (there is a batch || engine.Solicited()) {
//			err := engine.Broadcast(a batch of up to engine.BatchMax() bytes, or nil)
//		}
//		ready := engine.Ready()
//		hand ready.Sends to the lanes, in order; then act on ready.Deliveries
//		if engine.Status().Ended {
//			make the next eon's engine, with its round and a larger Generation
//		}
//	}
//
// A driver asks for a batch only when CanBroadcast holds, so that a wagon is loaded just in time.
// All frames from one server to another take one FIFO lane. The engine has no clock, goroutine,
// random source or I/O. Clone and AppendState let a search copy and compare servers.
//
// # Where to find what
//
//	config.go    what a group agrees on
//	fault.go     errors to plant
//	engine.go    the machine: its state, its inputs
//	train.go     a train comes and leaves [TRAINS, Algorithm 3]
//	ring.go      the ring goes on without a member [TRAINS, Algorithm 4]
//	delivery.go  when rounds are A-delivered
//	rest.go      trains that rest while nobody has anything to say
//	eon.go       the end of an eon
//	flow.go      flow control [TRAINS, Algorithms 5 and 6]
//	wire.go      the frames, byte by byte, in the house's layout and the paper's
//	check.go     what holds in every state, for searches
//	status.go    the state for people, for searches, and for a new generation
//	inspect.go   frames for people
//
// # What always holds
//
// Under P (DetectorPerfect), with reliable FIFO lanes, and whatever number of servers crash:
// validity, uniform agreement, total order, integrity. If a crash loses frames that were handed to
// the lanes, "uniform" does not cover what the crashed server A-delivered last. In particular:
//
//   - A server holds at most one wagon of an origin for a round, the one that the origin attached.
//   - A server that A-delivers a round has all wagons of it that any server has. So it needs no
//     agreement on who failed: a member without a wagon leaves the group with that round.
//   - The last trains that a server sent have every wagon that it passed on and that may not have
//     been everywhere.
//   - There is at most one copy of each train that a server takes.
//   - A train is taken with all wagons that it lists, or not at all.
//
// Under ◇P (DetectorEventual) no member is removed in a run. If one fails, the ring stands still. A
// suspicion makes resting trains go round, so that a ring at rest shows it, too (rest.go).
// What was A-delivered anywhere is held by every member, so the votes of any of them (Engine.Votes)
// show what a new generation of the group has to begin with. Suspicions change nothing else, so no
// mistake of a detector does harm.
//
// Always: an idle group is silent (rest.go). Memory is bounded: the wagons of 2·Trains rounds, the
// frames of one train for each id, and those of one train that is still to come for each sender. No
// frame and no suspicion makes the engine panic. A panic names a broken invariant and is a bug.
//
// # Where the paper is wrong
//
// The published algorithm errs in these ways. The tests plant the ones with a fault's name and find
// them.
//
//   - E1, filter-by-view: a train's wagons are filtered by the view in which the receiver last sent
//     the train, which a resend sets to the newest one. So a wagon of a crashed server is lost at
//     some survivors and A-delivered at others. Here a wagon is named by its origin and its round.
//     A server that has it drops it and does not pass it on, which also ends a wagon whose origin
//     left.
//   - E2, stale-answered: a train that is refused is answered with the last train all the same, so
//     trains multiply. Here it is ignored.
//   - E3, clock-not-strict and dead-heard: a train is taken if its clock is not less than that of
//     the last one, so the very train that a resend replaced is taken again. Here it has to be
//     greater, and a server takes no frame of a server that left its ring. Without the second rule
//     alone, a train with a greater clock comes a second time on the way over two failed servers.
//   - E4, joiner-delivers: a server that joins passes its first trains on without taking their
//     wagons, and A-delivers the rest of that rotation. Here members join between eons.
//   - E5, one-maker: the first server has no last trains, so nobody has trains to send again until
//     they went round once. Here every server starts with trains that it can send again.
//   - E6: Algorithm 6 divides by the number of greedy servers, which is 0 in a ring of one. A ring
//     of one has no trains here.
//   - E7: a server that joins and loses its successor leaves again and waits for a random time, and
//     two of them can do so for ever. With eons nobody does.
//   - E8: nothing says in which order frames of a removed member and the view are handled. Here
//     each server learns of a removal by itself, from its detector or from the train of a server
//     that skipped another one (ring.go).
//   - E9: the greatest gain over LCR is not the 250 % at 10 bytes. It grows for smaller messages.
//   - E10: nothing is said of an idle group (rest.go).
//   - E11, empty-unmarked: the authors' code leaves empty wagons out. Then a receiver cannot tell a
//     member with nothing to say from one that failed before it could say anything, and servers
//     that learn of the failure at different times A-deliver a round with and without its removal.
//     Here an empty wagon is a wagon header of 7 bytes.
//   - E12: Algorithm 6 counts a server as greedy whose wagon is not smaller than its last one; the
//     text says larger. By the algorithm a server that always says the same little, or nothing,
//     keeps a full share of the train to itself. Here it has to be larger.
//
// # Beyond the paper
//
//   - Trains rest where they are (rest.go), and a server that needs one wakes all.
//   - A train of a server before the predecessor proves that the servers in between failed.
//   - Rotations are numbers that never wrap, so rounds are numbered as everywhere in the project.
//   - An eon ends with a round that all servers know before they attach anything to a later one
//     (eon.go).
//   - A round that removes members begins a new epoch, and so does the last round of an eon.
package trains
