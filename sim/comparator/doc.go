// Package comparator holds the algorithms with which the dissertation compares AllConcur and
// AllConcur+ [Poke19, sections 5.7.4 and 6.5]. They are pure state machines behind
// order.Broadcaster, so the code that drives ledgerd's engines through a simulated network drives
// these too.
//
// They are for measurements in runs without failures, as in the paper's comparisons. Do not run a
// ledger on them: a server that fails stops the others, Suspect is only recorded, and no server is
// ever removed.
//
// # The four
//
//	allgather.go   NewAllGather: every server's message travels down a binomial tree of its own.
//	unreliable.go  NewUnreliable: MPI_Allgather as Open MPI runs it; schedule.go has its four
//	               algorithms.
//	lcr.go         NewLCR: messages and acknowledgements go round a ring, and vector clocks order
//	               them.
//	paxos.go       NewPaxos: one proposer orders, five acceptors accept, every server learns.
//
// This is what the paper says of each, and what had to be decided here:
//
// AllGather is "a round-based non-fault-tolerant distributed agreement algorithm where every server
// uses a binomial tree to A-broadcast its messages; AllConcur+ uses the same mechanism in the
// unreliable mode" [Poke19, section 6.5]. The trees are those of digraph.BinomialTree, so it is the
// same mechanism here too. A header has 16 bytes; AllConcur+ needs 32.
//
// Unreliable agreement: "we use MPI_Allgather to disseminate all messages to every server" with
// "Open MPI over TCP" [Poke19, section 5.7.4]. The paper does not say which algorithm Open MPI
// picks. This package uses the fixed decision of its tuned collectives at that time (1.x and 2.x).
// Below 50,000 bytes in all, it is recursive doubling if n is a power of two, and otherwise Bruck's
// algorithm. From there on, it is neighbour exchange for an even n and the ring for an odd one.
//
// LCR "is an atomic broadcast algorithm that is based on a ring topology and uses vector clocks for
// message ordering" [Poke19, section 6.5], by Guerraoui, Levy, Pochon and Quéma, "Throughput
// optimal total order broadcast for cluster environments" (2010). Every message carries a vector
// clock of n entries of 4 bytes. A message is stable once all servers have it, and is A-delivered
// when it and all messages before it are stable. The last server on its way announces this with an
// acknowledgement that goes round behind it. Here an acknowledgement names its message in 16 bytes
// instead of repeating the clock, which favours LCR. A message and its acknowledgement together
// have 24+4n bytes besides the payload. That is what a message of LCR's authors has, which carries
// the acknowledgement of another one [TRAINS, appendix B]. View changes are left out, and so is the
// fairness rule for forwarding, which has no effect while all servers have the same number of
// messages outstanding: one, or Config.Outstanding.
//
// Libpaxos "is an open-source implementation of Paxos"; the paper deploys it "over n servers with
// one proposer, five acceptors (sufficient for a reliability of 6-nines) and n learners" [Poke19,
// section 6.5]. The paper does not describe its messages. This package follows its source: values
// go to the proposer; phase 1 runs ahead, instance by instance, over a window of 128; every
// acceptor sends what it accepted, with the value, to every learner and the proposer; learners
// deliver by instance. Servers 0 to 4 are the acceptors and server 0 also proposes. Timers, retries
// and competing ballots are left out, because they do nothing in a run without failures. The
// acceptors' storage is left out too, because it keeps nothing on disk by default.
//
// # Rounds
//
// AllGather and unreliable agreement have rounds. LCR and Paxos have a sequence of messages:
// "before A-broadcasting another message, [a server] waits either for the round to complete or for
// the message to be A-delivered" [Poke19, section 6.5]. With these two, CanBroadcast therefore
// holds as soon as the server's own message has its place in the sequence. For order.Delivery,
// round r consists of the r-th message of every server, and is delivered when the last of them is.
// Sequencer exposes the sequence itself, for the latencies of messages and for judging the order.
// All epochs are 1.
//
// The loop is that of order.Broadcaster:
//
//	engine, err := comparator.NewLCR(comparator.Config{Self: self, Servers: n})
//	for { one input; engine.Broadcast where it is due; engine.Ready }
//
// # Invariants
//
// If lanes are reliable and FIFO and no server fails, all servers deliver the same rounds, and LCR
// and Paxos the same sequence. Memory is bounded, since no server is more than a few rounds ahead
// of another. Frames that no correct server sends return order.ErrFrame.
package comparator
