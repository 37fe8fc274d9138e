// Package allconcur is the leaderless atomic broadcast within a shard: AllConcur and AllConcur+ [Poke19, chapters 5 and 6], as one pure state machine.
//
// # The story
//
// Servers proceed in rounds. In every round every server A-broadcasts one message, which may be empty, all at once and with no leader; the round's messages are
// A-delivered together, in the order of their origins. A message travels over an overlay network, each server sending on what it receives.
//
// In a reliable round, written [[epoch, round]], the overlay is the reliable digraph G_R, whose connectivity exceeds the failures tolerated. A server that sees a
// predecessor fail sends a failure notification the same way. Messages and notifications keep their order on every edge, so a notification says: "I sent on
// all that I ever had from it". From the notifications each server works out where a missing message can still be (tracking.go), and stops waiting when no server that
// works has it: early termination. Then the round is complete, A-delivered, and servers without a message in it are removed.
//
// In an unreliable round, written [epoch, round], each message travels over a binomial tree of its origin, and each server receives it once. The round
// is complete when all messages are here. Any failure notification ends it: the servers go back to the first round that may not be A-delivered anywhere and
// rerun it reliably, with the same messages. AllConcur+ runs unreliable rounds for as long as nobody fails; AllConcur runs reliable rounds only.
//
// # The loop that drives it
//
// One Engine is one server. Its driver calls one method at a time:
//
//	engine, err := allconcur.New(allconcur.Config{Engine: allconcur.EngineAllConcurPlus, Servers: n, Self: self, Reliable: g})
//	for {
//		select one input:
//			a frame from a lane       -> err := engine.Receive(from, frame) // order.ErrFrame: drop that peer
//			the detector suspects one -> err := engine.Suspect(server)      // after the last frame of that server
//		if engine.CanBroadcast() && (there is a batch || engine.Solicited() || engine.Undelivered() for a linger) {
//			err := engine.Broadcast(batch or nil)
//		}
//		ready := engine.Ready()
//		hand ready.Sends to the lanes, in order; only then act on ready.Deliveries
//		if engine.Status().Ended { make the next eon's engine, with its round and a larger Generation }
//	}
//
// All frames from one server to another, messages and notifications alike, take one FIFO lane: a notification that overtakes a message proves it lost. It has no clock, goroutine, random source or I/O. Clone and AppendState let a search copy and compare servers.
//
// # Where to find what
//
//	config.go        what a group agrees on, and faults to plant
//	engine.go        the machine: its state, its inputs
//	unreliable.go    unreliable messages and rounds       [Poke19, Algorithm 6.2; Algorithm 6.5, lines 58-66]
//	reliable.go      reliable messages and rounds         [Poke19, Algorithm 6.3; Algorithm 6.5, lines 67-91; Algorithm 5.1]
//	notification.go  failure notifications                [Poke19, Algorithm 6.4]
//	tracking.go      tracking digraphs, early termination [Poke19, Algorithm 6.6; Algorithm 5.1, lines 19-38; section 5.5.1.2]
//	suspicion.go     suspicions that are taken back       [Poke19, sections 5.2.1.2 and 6.3.3.1]
//	vote.go          votes: when a round may be A-delivered under ◇P [Poke19, section 5.2.1.2, mended]
//	ballot.go        the votes that a server knows
//	eon.go           the end of an eon                    [Poke19, section 6.3.3.2]
//	transition.go    the transitions between states       [Poke19, section 6.2.2]
//	delivery.go      what is A-delivered when             [Poke19, sections 6.2.3 and 6.4.2]
//	overlay.go       whom to send what
//	wire.go          the frames, byte by byte
//	status.go        the state for people and for searches
//
// # What always holds
//
// Under ◇P, the default (Config.Detector), whatever the detectors say and the network delays or loses, and whoever crashes, as long as no server forgets:
//
//   - No two servers A-deliver different rounds. A server votes for at most one value of a round, for good, and a value is A-delivered with the votes of a majority of the
//     shard at least; vote.go has the argument.
//   - The votes of any majority (Engine.Votes) tell which values may have been A-delivered: for each round at most one. A new generation of the group starts from that.
//   - Rounds are A-delivered in order, each once. A batch that a server A-broadcasts in a round is A-delivered in that round, whatever is rolled back, unless the server is removed.
//
// And while lanes are reliable and FIFO, suspicions hit servers that failed, at most f of them (digraph.Tolerated(G_R)), or are few and taken back: every server goes on, and AllConcur+
// is in unreliable rounds again. Where decisions have split, servers stand still, with Status().Decided; where a server cannot be of any majority, it stands still with
// OutsideMajority; where a majority went on without it, it halts. What ends a standstill is a new generation.
//
// Under P, with reliable FIFO lanes, at most f failures and a detector that does not err: validity, uniform agreement, uniform total order and integrity. Config.NonUniform drops
// "uniform" for unreliable rounds. Where a crash loses frames that were handed to the lanes, "uniform" does not cover what the crashed server
// A-delivered last; the survivors agree all the same.
//
// Always:
//
//   - An engine sends nothing by itself but relays, votes, notifications and reruns of its own message. An idle group is silent, and comes to rest with all
//     messages A-delivered that are not empty.
//   - Memory is bounded: two complete rounds that wait, the current one and one ahead, each of at most n messages of at most MaxPayload bytes; and for each predecessor that
//     this server suspects under ◇P at most four rounds' messages that are held. One more, and that predecessor is not trusted again.
//   - No frame and no suspicion makes it panic. A panic names a broken invariant and is a bug.
//
// # How ◇P is mended
//
// The dissertation's ◇P (DetectorEventualPaper) forks: f servers' messages of round r+2 A-deliver round r, which a majority behind a partition reruns (TestForkInPartition); and who decided
// one set counts the ⟨FWD⟩ and ⟨BWD⟩ of servers that decided another. So both thresholds are majorities of the shard and more; a vote names its set; whoever decided a
// set does not skip its round; a second phase, "a majority decided this", replaces the fast threshold where suspicions put it out of reach. Since sets are compared, it does not
// matter which way a vote comes, and one flood goes along G_R and against it. What follows from a mistake is told by votes, so that notifications are taken from suspected
// predecessors, as published, and a suspected predecessor's messages are not lost but held: the tracking digraphs decide how soon the sets are equal, never whether it is safe to A-deliver.
//
// # Where ◇P stands still
//
// A vote is for good, so that votes can split until no value of a round can have a majority, and nothing that is yet to come changes it. With no more crashes and false suspicions than
// the group tolerates that does not happen, which package sim/search proves for three servers by looking at every schedule. With more it can: of three servers one crashes, another one suspects the
// third for a moment. In the ends where they stand still, 16 of 172 for AllConcur and 91 of 498 for AllConcur+ with one round of messages, it is always one of these:
//
//   - The two that are left voted differently. One of them decided while it mistook the other, or before the crashed server's message came to it by the other; or it decided
//     a set of [[e+1,r]] that the other skipped, having voted for [e,r]. The detector's change of mind comes too late for a vote. They wait, with Status().Decided.
//   - The crashed server and another one voted alike, so that the third halted. The one that is left is a minority.
//
// Deciding later would make splits rarer, not impossible, and every crash slower. A new generation takes what may have been A-delivered and goes on.
//
// What could be done without a new generation is done. Who trusts a predecessor again while it is below a majority takes all messages that it holds of it before it decides: one by one,
// the first that makes a majority would decide another set than the others'. It does so even where a revocation is under way already. Who decided a set and hears that a majority
// skipped it halts, so that the others need not wait for it. Who gives a link up while a revocation is under way suspects the predecessor anew behind it.
//
// # Where P is wrong
//
// Under DetectorPerfect three rules keep a mistake from becoming a fork wherever one server can tell; then that server halts: it A-delivers no more, every method returns
// order.ErrHalted and Status says why. Its driver is to stop its heartbeats, so that the others see it as failed, which by now it is.
//
//   - More servers are suspected or removed than the group tolerates, or less than a majority of the initial group would be left: no minority goes on alone.
//   - A valid notification says that this very server failed. The others may go on without its messages. Stopping makes the lie come true: all looks as
//     if it had crashed with its last frames to that successor unsent. This needs the edge to be cut for good, so a server ignores every frame from a
//     predecessor that it suspects. (The paper excepts failure notifications [Poke19, section 5.2.1.2]; but one that was sent behind an ignored message
//     would prove that message lost.)
//   - A message is here that the notifications had proven lost.
//
// They do not make P true. A server that all its successors suspect at once, while its frames to them are under way, can A-deliver a round with its own message and the
// others one without it, before it hears of it. Only ◇P closes this.
//
// # Beyond the pseudocode
//
// The driver decides when to A-broadcast; where the paper does so at once on the first message of a round, Solicited says that it is time. A relay leaves out one successor
// that has the message already, its origin or else whom it came from. Where the propositions of section 6.2.4.2 say that a frame cannot come from a correct
// server, it is dropped, and asserted against only with Config.AssertPropositions, since P may be wrong; under ◇P they do not all hold: whoever voted for [e,r] and was left behind is in
// [[e+1,r+1]] when the others are in [e+1,r+1]. Postponed reliable messages are kept as Table 6.1, #6, has it, though under P and with FIFO lanes none
// arrives: whatever let a predecessor complete a round, it sent on before it sent from the next.
package allconcur
