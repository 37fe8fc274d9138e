// Package comparator holds the algorithms beside which the dissertation measures AllConcur and
// AllConcur+ [Poke19, sections 5.7.4 and 6.5], as pure state machines behind order.Broadcaster, so
// that whoever drives the house's engines through a simulated network drives these in the same way.
//
// They are for measurements in runs without failures, as in the paper's comparisons. None of them
// is an engine to run a ledger on: a server that fails stops the others, Suspect is only noted, and
// nothing is ever removed.
//
// # The four
//
//	allgather.go   NewAllGather: every server's message travels down a binomial tree of its own.
//	unreliable.go  NewUnreliable: MPI_Allgather as Open MPI runs it; schedule.go has its four algorithms.
//	lcr.go         NewLCR: messages and acknowledgements go round a ring, vector clocks order them.
//	paxos.go       NewPaxos: one proposer orders, five acceptors accept, every server learns.
//
// What the paper says of each, and what had to be chosen here:
//
// AllGather is "a round-based non-fault-tolerant distributed agreement algorithm where every server
// uses a binomial tree to A-broadcast its messages; AllConcur+ uses the same mechanism in the
// unreliable mode" [Poke19, section 6.5]. The trees are those of digraph.BinomialTree, so it is the
// same mechanism here too. A header has 16 bytes where AllConcur+ needs 32.
//
// Unreliable agreement: "we use MPI_Allgather to disseminate all messages to every server" with
// "Open MPI over TCP" [Poke19, section 5.7.4]. The paper does not say which algorithm Open MPI
// picks. Chosen: the fixed decision of its tuned collectives at that time (1.x and 2.x): below
// 50,000 bytes in all, recursive doubling where n is a power of two and else Bruck's algorithm;
// from there on neighbour exchange for an even n and the ring for an odd one.
//
// LCR "is an atomic broadcast algorithm that is based on a ring topology and uses vector clocks for
// message ordering" [Poke19, section 6.5], by Guerraoui, Levy, Pochon and Quéma, "Throughput
// optimal total order broadcast for cluster environments" (2010). Every message carries a vector
// clock of n entries of 4 bytes. A message is stable, and A-delivered when all before it are, once
// it has been everywhere; the last one on its way says so with an acknowledgement that goes round
// behind it. Chosen: an acknowledgement names its message in 16 bytes instead of repeating the
// clock, which favours LCR. Left out: view changes, and the fairness rule for forwarding, which has
// no say while each server has one message outstanding.
//
// Libpaxos "is an open-source implementation of Paxos"; the paper deploys it "over n servers with
// one proposer, five acceptors (sufficient for a reliability of 6-nines) and n learners" [Poke19,
// section 6.5]. The paper does not describe its messages. Chosen, after its source: values go to
// the proposer; phase 1 runs ahead, instance by instance, over a window of 128; every acceptor
// sends what it accepted, with the value, to every learner and the proposer; learners deliver by
// instance. Servers 0 to 4 are the acceptors and server 0 also proposes. Left out: timers, retries
// and competing ballots, which do nothing in a run without failures, and the acceptors' storage,
// which keeps nothing on disk by default.
//
// # Rounds
//
// AllGather and unreliable agreement have rounds. LCR and Paxos have a sequence of messages:
// "before A-broadcasting another message, [a server] waits either for the round to complete or for
// the message to be A-delivered" [Poke19, section 6.5]. So with these two CanBroadcast holds as
// soon as the own message has its place in the sequence, and round r, for order.Delivery, is made
// of everybody's r-th messages and is delivered when the last of them is. The sequence itself is
// seen through Sequencer, for latencies by message and for whoever judges the order. All epochs are
// 1.
//
// The loop is that of order.Broadcaster:
//
//	engine, err := comparator.NewLCR(comparator.Config{Self: self, Servers: n})
//	for { one input; engine.Broadcast where it is due; engine.Ready }
//
// # What always holds
//
// Lanes are reliable and FIFO and nobody fails: then all servers deliver the same rounds, and LCR
// and Paxos the same sequence. Memory is bounded, since nobody is more than a few rounds ahead of
// anybody. Frames that no correct server sends get order.ErrFrame.
package comparator
