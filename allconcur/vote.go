package allconcur

import (
	"encoding/binary"
	"fmt"

	"github.com/ledgerd/ledgerd/order"
)

// Votes under ◇P. The forward-backward mechanism [Poke19, section 5.2.1.2] lets a server A-deliver
// a reliable round when it learns that enough others decided it too. Here it is corrected, so that
// no schedule of false suspicions makes two servers A-deliver different rounds.
//
// N is the size of the shard, c its majority ⌊N/2⌋+1, q the smallest integer above N - c/2, m the
// number of members not removed, and t = max(c, min(q, m)). There is one value for each state that
// may become round r: the complete set of [e,r], or a set of origins in [[e,r]]. A server votes for
// at most one value of a round, for good:
//
//   - It votes for [e,r] by entering [e,r+2] or [[e+1,r+1]], having completed [e,r]. It does so by
//     T_UR, or by a skip from a [[e+1,r]] that it has not decided.
//   - It votes for a set in [[e,r]] by deciding it: tracking is complete, and the set is a
//     majority. It leaves [[e,r]] only by A-delivering that set.
//
// A value is A-delivered with t votes. A set is also A-delivered with c confirmations: votes that
// say "a majority voted for this". A server that votes for a set in [[e+1,r+1]] voted for [e,r] if
// any server could. So a confirmation of the set also confirms [e,r], which is A-delivered at the
// latest with the set. Each way needs c votes, so two values of one round are never both
// A-delivered.
//
// The votes of any c servers that remember show what may have been A-delivered: a value that some
// server confirmed, or a value that has t votes if all servers that were not asked voted for it
// too. Two values never pass. Suppose that c servers were asked and N - c were not, and count those
// N - c for both values in turn. Then 2t ≤ c + 2(N - c), so t ≤ N - c/2; and t = m votes for one
// value leave none for another. A change of the generation builds on that.

// votesMax is how many rounds a server may have voted for without having A-delivered them: the
// current one, and the unreliable one before it.
const votesMax = 2

// VotesMax returns the maximum number of votes that Votes returns.
func (e *Engine) VotesMax() int { return votesMax }

// Votes lists this server's votes for rounds that it has not A-delivered, at most two, by ascending
// round. It allocates.
func (e *Engine) Votes() []order.Vote {
	var votes []order.Vote
	if e.older.filled {
		votes = append(votes, e.voteFor(e.older))
	}
	if e.decided {
		votes = append(votes, e.voteFor(e.current))
	}
	return votes
}

func (e *Engine) voteFor(set *roundSet) order.Vote {
	members := e.members.appendTo(nil)
	vote := order.Vote{Round: set.round, Epoch: set.epoch, Reliable: set.reliable,
		Confirmed: e.confirmed,
		Members:   members}
	vote.Origins = set.present.appendTo(nil)
	if e.config.Prompt {
		vote.Delivery = deliveryOf(set.round, set.appendContents(nil))
		return vote
	}
	vote.Delivery = order.Delivery{Epoch: set.epoch, Round: set.round}
	for _, p := range members {
		if set.present.has(p) {
			vote.Delivery.Messages = append(vote.Delivery.Messages,
				order.Message{Origin: p, Payload: payloadOf(set.frames[p])})
		} else {
			vote.Delivery.Removed = append(vote.Delivery.Removed, p)
		}
	}
	return vote
}

// KnownVotes lists the votes of other servers that this server knows, for rounds that it has not
// A-delivered, by ascending round, then voter. It is for a server that stopped: it allocates, and
// nothing is kept for it while the engine runs. There are none under P, and none for unreliable
// rounds without uniform delivery.
//
// A server whose message of the current state arrived voted for the unreliable round that waits for
// its majority, since it entered that state (deliverStable counts the same). So did a server that
// voted for a set in the current state. Its confirmation of the set confirms that round, too.
func (e *Engine) KnownVotes() []order.KnownVote {
	var known []order.KnownVote
	if e.ballots == nil {
		return nil
	}
	if e.older.filled {
		known = e.knownUnreliable()
	}
	for round := e.delivered + 1; round <= e.delivered+ballotsAhead; round++ {
		b := e.ballots[round%ballotsKept]
		if !b.filled || b.round != round {
			continue
		}
		for p, more := b.voters.next(0); more; p, more = b.voters.next(p + 1) {
			s := b.ofOrigin(p)
			if p == e.self {
				continue
			}
			known = append(known, order.KnownVote{Voter: p, Round: b.round, Epoch: b.epoch,
				Reliable:  true,
				Confirmed: s.confirmers.has(p), Origins: s.origins.appendTo(nil)})
		}
	}
	return known
}

// knownUnreliable lists the votes of others for the unreliable round that waits for its majority.
func (e *Engine) knownUnreliable() (known []order.KnownVote) {
	b := e.ballots[e.round%ballotsKept]
	following := e.reliable && b.filled && b.epoch == e.epoch && b.round == e.round
	origins := e.older.present.appendTo(nil)
	for _, p := range e.overlay.members {
		voted, confirmed := e.current.present.has(p), false
		if following && b.voters.has(p) {
			voted, confirmed = true, b.ofOrigin(p).confirmers.has(p)
		}
		if voted && p != e.self {
			known = append(known, order.KnownVote{Voter: p, Round: e.older.round,
				Epoch:     e.older.epoch,
				Confirmed: confirmed, Origins: origins})
		}
	}
	return known
}

// Complete lists the unreliable rounds that are complete at this server and not yet A-delivered, at
// most two, by ascending round. It also reports whether the group is whole: under ◇P, all members
// of the shard are in it, none was removed, and none of the rounds, nor any before them, changes
// the group. In a whole group the messages of a complete round are those of all members, and no
// other complete round ever has its number in this run (docs/design/rounds.md). A server may write
// such rounds to its disk and say so. Complete returns nothing if no complete round comes after the
// given one. It allocates only if one does.
func (e *Engine) Complete(after order.Round) (rounds []order.Delivery, whole bool) {
	sets := [...]*roundSet{e.older, e.newer}
	news := false
	for _, set := range sets {
		news = news || e.isComplete(set) && set.round > after
	}
	if !news {
		return nil, false
	}
	whole = e.config.Detector == DetectorEventual && e.n == e.config.Shard &&
		e.removedCount == 0 && e.last == 0
	for _, set := range sets {
		if e.isComplete(set) {
			d := e.voteFor(set).Delivery
			rounds = append(rounds, d)
			whole = whole && (e.config.Change == nil || !e.config.Change(d))
		}
	}
	return rounds, whole
}

// isComplete reports whether a set is that of a complete unreliable round that is not A-delivered.
func (e *Engine) isComplete(set *roundSet) bool {
	return set.filled && !set.reliable && set.round > e.delivered
}

// setThresholds computes the thresholds that depend on the number of remaining members.
func (e *Engine) setThresholds() {
	e.fast = max(e.majority, min(e.config.Shard-(e.majority-1)/2, len(e.overlay.members)))
	e.stable = e.fast
	switch {
	case e.config.Fault == FaultToleratedNotMajority:
		e.majority, e.fast, e.stable = e.tolerated+1, e.tolerated+1, e.tolerated+1
	case e.config.Detector == DetectorPerfect:
		e.stable = e.majority
	case e.config.Detector == DetectorEventualPaper:
		// The paper needs f others [Poke19, section 6.4.2], but fewer servers may be left.
		e.stable = min(e.tolerated+1, len(e.overlay.members))
	}
}

// undecidable reports whether tracking is complete with fewer messages than a majority. This server
// is outside of a majority, and waits.
func (e *Engine) undecidable() bool {
	return e.config.Detector == DetectorEventual && e.reliable && !e.decided &&
		e.tracking.awaitedCount == 0 && e.current.present.has(e.self) &&
		e.current.count < e.majority
}

// OutsideMajority reports whether this server knows that it can hear fewer servers than a majority
// of the shard. It A-delivers nothing until it can hear more.
func (e *Engine) OutsideMajority() bool { return e.halted == "" && !e.ended && e.undecidable() }

// ballotOf returns the ballot of a reliable state that another server is in, nil if none is kept.
func (e *Engine) ballotOf(epoch order.Epoch, round order.Round) *ballot {
	if round <= e.delivered || round > e.delivered+ballotsAhead {
		return nil
	}
	b := e.ballots[round%ballotsKept]
	switch {
	case b.filled && b.epoch == epoch && b.round == round:
	case b.filled && b.round == round && (b.epoch > epoch || e.decided && b.epoch == e.epoch &&
		round == e.round):
		return nil // not of the state that gets votes
	default:
		b.begin(epoch, round)
	}
	return b
}

// ownBallot returns the ballot of the current reliable state.
func (e *Engine) ownBallot() *ballot {
	b := e.ballots[e.round%ballotsKept]
	if !b.filled || b.epoch != e.epoch || b.round != e.round {
		b.begin(e.epoch, e.round)
	}
	return b
}

// decide votes for the set of the current state, whose tracking is complete.
func (e *Engine) decide() {
	e.decided = true
	e.vote(phaseDecided)
	b := e.ownBallot()
	for _, s := range b.sets[:b.used] {
		e.haltIfOutvoted(b, s)
	}
}

// vote counts this server's own vote for the current set, and floods it. In the dissertation ⟨FWD,
// p_i⟩ goes over G_R and ⟨BWD, p_i⟩ over its transpose, and both have to arrive. Here sets are
// compared, so a vote counts in whichever direction it came. One flood along all edges and against
// them replaces both. A server has sent on to all its neighbours every vote that it counted, so a
// server that is behind lacks none of the votes by which another one A-delivered.
func (e *Engine) vote(phase votePhase) {
	b := e.ownBallot()
	s := b.ofSet(e.current.present)
	if s == nil {
		s = b.grow()
		copy(s.origins, e.current.present)
	}
	b.count(s, e.self, phase)
	for _, kind := range []frameKind{kindForward, kindBackward} {
		b.see(kind, phase, e.self)
		if fan := e.overlay.fanOf(kind); fan != nil {
			e.send(fan.successors, encodeVote(kind, phase, e.config.Generation, e.epoch, e.round,
				e.self, e.current.present))
		}
	}
}

// receiveVote takes ⟨FWD, p_j⟩ or ⟨BWD, p_j⟩, also from suspected predecessors: a vote says nothing
// about what came before it on the same edge.
func (e *Engine) receiveVote(from order.ServerID, header frameHeader, frame []byte) error {
	to := e.overlay.fanOf(header.kind)
	switch {
	case e.perfect || to == nil:
		return fmt.Errorf("%w: a vote of kind %d from server %d, there is none under this detector",
			order.ErrFrame, header.kind, from)
	case !e.votesCome(header.kind, from):
		return fmt.Errorf("%w: a vote from server %d on no edge of the reliable digraph to "+
			"server %d", order.ErrFrame, from, e.self)
	case !e.isVote(header, frame):
		return fmt.Errorf("%w: a vote of server %d for a set that cannot be one in a group "+
			"of %d", order.ErrFrame, header.origin, e.n)
	case header.origin == e.self || !e.members.has(from) || !e.members.has(header.origin):
		return nil
	}
	b := e.ballotOf(header.epoch, header.round)
	if b == nil || !b.see(header.kind, header.phase, header.origin) {
		return nil
	}
	e.send(to.relays(header.origin, from), frame)
	if s := b.take(header, frame); s != nil {
		e.haltIfOutvoted(b, s)
	}
	e.tryToComplete()
	return nil
}

// votesCome reports whether a server may send this one votes of a kind.
func (e *Engine) votesCome(kind frameKind, from order.ServerID) bool {
	if e.config.Detector == DetectorEventual && e.overlay.fanOf(kind).place[from] != 0 {
		return true // a member; a removed server may still be heard
	}
	along := e.config.Reliable.HasEdge(int(from), int(e.self))
	against := e.config.Reliable.HasEdge(int(e.self), int(from))
	switch {
	case e.config.Detector == DetectorEventual:
		return along || against
	case kind == kindForward:
		return along
	default:
		return against
	}
}

// isVote reports whether the frame's set contains only servers of the group, and the voter.
func (e *Engine) isVote(header frameHeader, frame []byte) bool {
	if uint64(header.origin) >= uint64(e.n) || len(frame) != messageHeaderSize+8*words(e.n) {
		return false
	}
	if e.n%wordBits != 0 && binary.LittleEndian.Uint64(frame[len(frame)-8:])>>(e.n%wordBits) != 0 {
		return false
	}
	return frame[messageHeaderSize+header.origin/8]>>(header.origin%8)&1 != 0
}

// haltIfOutvoted halts this server if a majority voted for a value of a round that it cannot vote
// for: the group goes on without it. Either it voted for another set, or the majority's set does
// not contain it, or it skipped the round that the majority decided.
func (e *Engine) haltIfOutvoted(b *ballot, s *votedSet) {
	if e.config.Detector != DetectorEventual || e.halted != "" || s.votes < e.majority {
		return
	}
	here := e.reliable && e.epoch == b.epoch && e.round == b.round
	skipped := e.older.filled && b.round <= e.older.round &&
		e.config.Fault != FaultOutvotedSkipperGoesOn
	if !s.origins.has(e.self) || here && e.decided && !s.origins.equal(e.current.present) ||
		skipped {
		e.halt(
			"the group continues without this server: a majority decided another set of round %d",
			b.round)
	}
}

// haltIfSkipped records a server that skipped the round that this one reruns, and thereby voted for
// the unreliable round. If a majority did, the set that this server decided never gets a majority.
// This server can neither withdraw its vote nor go on: the group goes on without it.
func (e *Engine) haltIfSkipped(server order.ServerID) {
	if e.config.Detector != DetectorEventual || !e.decided {
		return
	}
	e.skippers.add(server)
	if e.skippers.count() >= e.majority {
		e.halt("the group continues without this server: a majority skipped its set of round %d",
			e.round)
	}
}

// maySkip reports whether this server may still vote for the unreliable round that it reruns, and
// leave the rerun.
func (e *Engine) maySkip() bool {
	switch {
	case e.perfect, e.config.Detector == DetectorEventualPaper,
		e.config.Fault == FaultSkipAfterDecided:
		return true
	case e.decided:
		return false
	}
	b := e.ownBallot()
	for _, s := range b.sets[:b.used] {
		if s.votes >= e.majority {
			return false // the set wins, and this server has to decide it too
		}
	}
	return true
}

// agreed reports whether the current reliable round, whose tracking is complete, may be
// A-delivered. Before that it decides and confirms as far as it can.
func (e *Engine) agreed() bool {
	if e.perfect {
		return true
	}
	if !e.decided {
		if !e.current.present.has(e.self) || e.config.Detector == DetectorEventual &&
			e.current.count < e.majority {
			return false
		}
		if e.releasedGrows() {
			return false
		}
		e.decide()
	}
	if e.halted != "" {
		return false
	}
	b := e.ownBallot()
	if e.config.Detector == DetectorEventualPaper {
		return b.seen[0][0].count() >= e.majority && b.seen[1][0].count() >= e.majority
	}
	s := b.ofSet(e.current.present)
	votes, confirms := s.votes, s.confirms
	switch e.config.Fault {
	case FaultNoForwardBackward:
		return true
	case FaultSetsIgnored:
		votes, confirms = b.totals()
	}
	if votes >= e.fast {
		return true
	}
	if votes >= e.majority && !e.confirmed && (confirms > 0 ||
		b.reachable(s, e.failures.targets) < e.fast) {
		e.confirmed = true
		e.vote(phaseConfirmed)
		confirms++
	}
	return confirms >= e.majority
}
