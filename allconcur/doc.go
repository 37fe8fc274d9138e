// Package allconcur is the leaderless atomic broadcast within a shard: AllConcur and AllConcur+
// [Poke19, chapters 5 and 6], as one pure state machine.
//
// # The story
//
// Servers proceed in rounds. In every round every server A-broadcasts one message, which may be
// empty. They do so at once and without a leader. The round's messages are A-delivered together, in
// the order of their origins. A message travels over an overlay network: each server sends on what
// it receives.
//
// In a reliable round, written [[epoch, round]], the overlay is the reliable digraph G_R, whose
// connectivity exceeds the failures tolerated. A server that sees a predecessor fail sends a
// failure notification over G_R too. Messages and notifications keep their order on every edge, so
// a notification says: "I sent on everything that I ever had from it". From the notifications each
// server computes where a missing message can still be (tracking.go). It stops waiting when no
// working server has the message: early termination. The round is then complete and A-delivered,
// and servers without a message in it are removed.
//
// In an unreliable round, written [epoch, round], each message travels over a binomial tree of its
// origin, and each server receives it once. The round is complete when all messages have arrived.
// Any failure notification ends it: the servers go back to the first round that may not be
// A-delivered anywhere and rerun it reliably, with the same messages. AllConcur+ runs unreliable
// rounds as long as no server fails. AllConcur runs reliable rounds only.
//
// # The loop that drives it
//
// One Engine is one server. Its driver calls one method at a time:
//
//	engine, err := allconcur.New(allconcur.Config{
//		Engine: allconcur.EngineAllConcurPlus, Servers: n, Self: self, Reliable: g,
//	})
//	for {
//		select one input:
//			// A frame from a lane. order.ErrFrame: drop that peer.
//			err := engine.Receive(from, frame)
//			// The detector suspects a server, after the last frame of that server.
//			err := engine.Suspect(server)
//		if engine.CanBroadcast() &&
//			(there is a batch || engine.Solicited() || engine.Undelivered() for a linger) {
//			err := engine.Broadcast(batch or nil)
//		}
//		ready := engine.Ready()
//		hand ready.Sends to the lanes, in order; only then act on ready.Deliveries
//		if engine.Status().Ended {
//			make the next eon's engine, with its round and a larger Generation
//		}
//	}
//
// All frames from one server to another, messages and notifications alike, take one FIFO lane: a
// notification that overtook a message would prove it lost. The engine has no clock, goroutine,
// random source or I/O. Clone and AppendState let a search copy and compare servers.
//
// # Where to find what
//
//	config.go        what a group agrees on, and faults to plant
//	engine.go        the machine: its state, its inputs
//	unreliable.go    unreliable messages and rounds
//	                 [Poke19, Algorithm 6.2; Algorithm 6.5, lines 58-66]
//	reliable.go      reliable messages and rounds
//	                 [Poke19, Algorithm 6.3; Algorithm 6.5, lines 67-91; Algorithm 5.1]
//	notification.go  failure notifications [Poke19, Algorithm 6.4]
//	tracking.go      tracking digraphs, early termination
//	                 [Poke19, Algorithm 6.6; Algorithm 5.1, lines 19-38; section 5.5.1.2]
//	suspicion.go     suspicions that are withdrawn [Poke19, sections 5.2.1.2 and 6.3.3.1]
//	vote.go          votes: when a round may be A-delivered under ◇P
//	                 [Poke19, section 5.2.1.2, corrected]
//	ballot.go        the votes that a server knows
//	prompt.go        messages that are A-delivered before their round is closed
//	eon.go           the end of an eon [Poke19, section 6.3.3.2]
//	transition.go    the transitions between states [Poke19, section 6.2.2]
//	delivery.go      when rounds are A-delivered [Poke19, sections 6.2.3 and 6.4.2]
//	overlay.go       where each server sends its frames
//	wire.go          the frames, byte by byte
//	status.go        the state for people and for searches
//
// # What always holds
//
// Under ◇P, the default (Config.Detector), as long as no server forgets, the following holds
// whatever the detectors say, whatever the network delays or loses, and whichever servers crash:
//
//   - No two servers A-deliver different rounds. A server votes for at most one value of a round,
//     and never changes its vote. A value is A-delivered with the votes of at least a majority of
//     the shard. vote.go has the argument.
//   - The votes of any majority (Engine.Votes) show which values may have been A-delivered: at most
//     one for each round. A new generation of the group starts from that.
//   - Rounds are A-delivered in order, each once. A batch that a server A-broadcasts in a round is
//     A-delivered in that round, whatever is rolled back, unless the server is removed.
//
// With Config.Prompt, "A-deliver" means the messages that are not empty, which may come before the
// votes. Who is removed is told when the round is closed (order.Closing), by votes as above. Then
// the votes of any majority and what its servers hold (Engine.Held) show what may have been
// A-delivered. docs/design/prompt.md has the argument.
//
// If also lanes are reliable and FIFO, and suspicions either hit servers that failed, at most f of
// them (digraph.Tolerated(G_R)), or are few and withdrawn, then every server goes on, and
// AllConcur+ returns to unreliable rounds. If decisions have split, servers stand still, with
// Status().Decided. A server that cannot be in any majority stands still with OutsideMajority. A
// server halts if a majority went on without it. A new generation ends a standstill.
//
// Under P, with reliable FIFO lanes, at most f failures and a detector that does not err, these
// hold: validity, uniform agreement, uniform total order and integrity. Config.NonUniform drops
// "uniform" for unreliable rounds. If a crash loses frames that were handed to the lanes, "uniform"
// does not cover what the crashed server A-delivered last. The survivors agree all the same.
//
// Always:
//
//   - An engine sends nothing by itself except relays, votes, notifications and reruns of its own
//     message. An idle group is silent. It comes to rest with all non-empty messages A-delivered.
//   - Memory is bounded: two complete rounds that wait, the current round and one ahead, each of at
//     most n messages of at most MaxPayload bytes, including copies of others' messages; and under
//     ◇P, for each predecessor that this server suspects, at most four rounds of held messages. If
//     one more arrives, that predecessor is not trusted again.
//   - No frame and no suspicion makes it panic. A panic names a broken invariant and is a bug.
//
// # How ◇P is corrected
//
// The dissertation's ◇P (DetectorEventualPaper) forks in two ways. f servers' messages of round r+2
// A-deliver round r, which a majority behind a partition reruns (TestForkInPartition). And a server
// that decided one set counts the ⟨FWD⟩ and ⟨BWD⟩ of servers that decided another.
//
// So both thresholds are at least majorities of the shard. A vote names its set. A server that
// decided a set does not skip its round. A second phase, "a majority decided this", replaces the
// fast threshold where suspicions make it unreachable. Since sets are compared, the direction of a
// vote does not matter, and a single flood goes along G_R and against it.
//
// Votes report the consequences of a mistake. Therefore notifications are taken from suspected
// predecessors, as published, and a suspected predecessor's messages are held instead of lost. The
// tracking digraphs determine how soon the sets are equal, never whether it is safe to A-deliver.
//
// # Where ◇P stands still
//
// A vote is permanent. Votes can therefore split until no value of a round can have a majority, and
// nothing that is still to come changes that. It does not happen with no more crashes and false
// suspicions than the group tolerates; package sim/search proves this for three servers by
// examining every schedule. With more it can happen: of three servers one crashes, and another
// suspects the third for a moment. With one round of messages, 16 of 172 ends for AllConcur and 91
// of 498 for AllConcur+ stand still. Each of them is one of these:
//
//   - The two remaining servers voted differently. One of them decided while it wrongly suspected
//     the other, or before the crashed server's message reached it through the other; or it decided
//     a set of [[e+1,r]] that the other skipped, having voted for [e,r]. The detector withdraws its
//     suspicion too late for a vote. Both wait, with Status().Decided.
//   - The crashed server and another one voted alike, so the third halted. The one that remains is
//     a minority.
//
// Deciding later would make splits rarer but not impossible, and every crash slower. A new
// generation takes what may have been A-delivered and goes on.
//
// The engine does what it can without a new generation:
//
//   - A server that trusts a predecessor again while it is below a majority takes all the messages
//     that it holds from that predecessor before it decides. If it took them one by one, the first
//     that makes a majority would decide another set than the others'. It does so even if a
//     revocation is under way already.
//   - A server that decided a set and learns that a majority skipped it halts, so that the others
//     need not wait for it.
//   - A server that gives up a link while a revocation is under way suspects the predecessor anew
//     after the revocation.
//
// # Where P is wrong
//
// Under DetectorPerfect three rules keep a mistake from becoming a fork wherever a single server
// can detect it. That server halts: it A-delivers nothing more, every method returns
// order.ErrHalted, and Status gives the reason. Its driver has to stop its heartbeats, so that the
// others see it as failed, which is true by then.
//
//   - More servers are suspected or removed than the group tolerates, or fewer than a majority of
//     the initial group would be left: no minority goes on alone.
//   - A valid notification says that this very server failed. The others may go on without its
//     messages. By halting, the server makes the notification true: it looks as if it had crashed
//     with its last frames to that successor unsent. This requires the edge to be cut for good, so
//     a server ignores every frame from a predecessor that it suspects. (The paper excepts failure
//     notifications [Poke19, section 5.2.1.2]. But a notification that was sent after an ignored
//     message would prove that message lost.)
//   - A message arrives that the notifications had proven lost.
//
// These rules do not make P true. Suppose that all successors of a server suspect it at once while
// its frames to them are under way. The server can A-deliver a round with its own message, and the
// others the round without it, before it learns of the suspicion. Only ◇P closes this gap.
//
// # Beyond the pseudocode
//
//   - The driver decides when to A-broadcast. Where the paper A-broadcasts at once on the first
//     message of a round, Solicited reports that it is time.
//   - A relay leaves out one successor that has the message already: its origin, or else the server
//     that it came from.
//   - The propositions of section 6.2.4.2 say that certain frames cannot come from a correct
//     server. Such a frame is dropped, and asserted against only with Config.AssertPropositions,
//     since P may be wrong. Under ◇P not all propositions hold: a server that voted for [e,r] and
//     was left behind is in [[e+1,r+1]] when the others are in [e+1,r+1].
//   - Postponed reliable messages are kept as in Table 6.1, #6, although none arrives under P with
//     FIFO lanes. A predecessor sends on everything that let it complete a round before it sends
//     from the next.
package allconcur
