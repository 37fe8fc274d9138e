package generation

import (
	"cmp"
	"slices"

	"github.com/ledgerd/ledgerd/order"
)

// choose determines the point from which a shard goes on: after which block, and with which rounds
// after that block, so that nothing that may have been A-delivered is lost. It is a pure function
// of the reports of the servers that promised, which are frozen since, and of the decision that is
// followed, nil for none.
//
// # The voting rules that it builds upon
//
// Consider the last run of a group. N is the number of servers of the shard, and c = ⌊N/2⌋+1 its
// majority. q is the smallest integer above N - c/2. m ≥ c is the number of servers of the group
// that were not removed yet; only these vote. t = max(c, min(q, m)).
//
//	(V1) A server votes for at most one value of a round.
//	(V2) A value of round r is A-delivered anywhere only if
//	     (a) t servers voted for it, or
//	     (b) it is a decided set, and c servers that voted for it said that c did (they
//	         confirmed it), or
//	     (c) it is a complete unreliable round, and a decided set of the round r+1 that follows
//	         it in the same lineage is A-delivered by (a) or (b).
//	(V3) A server that votes for round r has A-delivered round r-T. It has also A-delivered each
//	     round after that one unless it voted for it.
//	(V4) Rounds are A-delivered in order.
//	(V5) A new run begins where the last one ended. Votes in it come only from servers that have
//	     A-delivered all rounds of the run before, and have them on disk.
//
// T is the bound of the run's kind of engine (Bound). These are the kinds:
//
//   - AllConcur and AllConcur+: T = 2. If a server votes for rounds r-1 and r, then r-1 is
//     unreliable, and r a decided set.
//   - TRAINS: T is the number of trains. No member is removed, so m is the size of the group. A
//     server votes for r when it has the wagons of all members: there is one value of r, and (V1)
//     holds. A server A-delivers r when the train of r has been at all servers once more, so all m
//     voted for it. m ≥ c, so m ≥ t, and (V2a) holds. Its train came to a voter for the second
//     time, as did those of the rounds before r. A server A-delivers the rounds of which the train
//     comes for the third time. The trains come in turns. So of the rounds up to r, only the last T
//     have not come for the third time, which is (V3). There are no confirmations.
//   - Engines that order by a log have other rules: see choose_log.go.
//
// # What is required
//
// K is the set of servers whose reports count. They remember the newest run R that any report
// shows, and their disks count under R's shard. K holds a majority of that shard: the proposer
// ensures this (survey.enough). A server with another disk is neither a voter nor a non-voter: its
// disk knows nothing of the votes that the server gave before. The same holds for a server that
// restarted. Let d be the furthest round that any report shows as A-delivered in R's generation.
//
// A vote is known if its voter is in K, or if a server in K saw it (Report.Known). Messages and
// votes are never forged, so all known votes were given. By (V1), a voter whose vote for one value
// of a round is known gave none for another. Let u be the number of voters that are not in K and
// have no known vote for the round.
//
// Lemma 1: nothing later than d+T was A-delivered anywhere, and nothing in a later run. An
// A-delivered round r has c voters by (V2), so one of them is in K. By (V3), that voter A-delivered
// all rounds up to r except the last T, so r-T ≤ d. A vote in a later run would make that run the
// newest in K. T is in the reports of all servers in K that voted in the run (Report.Bound).
//
// Lemma 2: a value that was A-delivered for d+1 passes. A value passes if a confirmation for it is
// known, or a confirmation for a set that follows it as in (c), or if its known votes and the u
// unknown voters add up to t. The cases of (V2):
//
//   - (a) Each of its t voters is known as such or is among the u, because no other vote of that
//     voter for the round can be known.
//   - (b) c servers confirmed it, so one of them is in K.
//   - (c) This is AllConcur+'s alone. Case (a) or (b) holds for the set that follows, and all
//     voters of that set have voted for this value by (V3).
//
// Moreover, c servers voted for a value that was A-delivered, so a server in K did. Values for
// which only servers outside of K are known to have voted therefore need not be considered.
// Possibly no server here holds their contents.
//
// Lemma 3: at most one value is proposed that another could contradict. A confirmation proves c
// votes. Any other value then has at most N-c < c ≤ t votes, so it was not A-delivered, whatever
// the counts allow. Confirmations are therefore considered first: those of the round, then those of
// the set that follows. (Both cannot exist for different values: that would take 2c > N votes.)
// Without a confirmation, let values A and B both pass by counting, with a and b known votes. Let k
// of the m voters be known, by their own report or another's. Then u = m-k and a+b ≤ k.
//
//	t = m: a+u ≥ m implies a = k, and likewise b = k, so k = 0. But m ≥ c and K holds c of N,
//	       so the two intersect.
//	t = q: 2q ≤ a+b+2u ≤ 2m-k. K holds c of N, so k ≥ c-(N-m), and 2q ≤ m+N-c ≤ 2N-c. But
//	       2q > 2N-c.
//	t = c > min(q, m) means m < c. Then no server A-delivers anything, since only m can vote.
//
// The same argument shows that a value without any known vote (a = 0) does not pass: t = m would
// require k = 0, and t = q would require q ≤ u ≤ N-c, but q > N - c/2.
//
// Theorem: if a value was A-delivered for d+1, choose takes it (Lemmas 2 and 3), and then the same
// holds for d+2, and so on up to d+T. If no value passes for a round, none was A-delivered, so none
// was for later rounds (V4). Values that choose takes beyond that were not A-delivered anywhere,
// but neither was any other value, and the servers in Origins A-broadcast them. Taking them does no
// harm.
//
// A learner's head may be further than the heads in K. It then shows that much more of what was
// A-delivered, and the same holds for the rounds after it.
//
// # When too many restarted
//
// The proposer counts servers that restarted if it has to (mayPropose). They are then among the u,
// more than one value may pass, and choose takes the value with the most known votes. That is a
// best effort, and concerns only what was ordered but not durable. Blocks on the disks of a
// majority are safe even so, since heads are what disks hold.
//
// So are blocks whose rounds a majority of the disks recorded. If the promises that remember their
// votes are no majority, choose takes a recorded value of a round before it counts votes, unless
// another value is confirmed: then no recorded one was A-delivered. docs/design/rounds.md has the
// proof that all records of a round have one value.
//
// # Prompt delivery
//
// With prompt delivery, the messages of a round may be A-delivered before any server votes for it.
// If no value of a round passes, choose takes what the server in K held that A-broadcast in this
// round in the last state. docs/design/prompt.md has the proof that this is what was A-delivered
// promptly, if anything was, and that a value that passes has the same messages. A server in K has
// perhaps not A-delivered the last two rounds before one that was A-delivered promptly. So tails
// have up to three rounds after a run of AllConcur+ (Bound.Tail).
func choose(promises []Promised, follows *Decision, fault Fault) (Head, []TailRound) {
	v := furthestSurvey(promises, follows, fault)
	return v.choose(follows)
}

func (v *survey) choose(follows *Decision) (Head, []TailRound) {
	// As far as is known, the group of the last decided generation never worked. Go on from the
	// base and the tail of that decision again.
	if follows != nil && v.head.Generation < follows.Generation {
		return follows.Base, slices.Clone(follows.Tail)
	}
	if v.run.Generation() != v.head.Generation || v.fault == FaultTailForgotten {
		return v.head, nil
	}
	bound := v.bound(follows)
	if bound.Log() {
		return v.head, v.tailOfLog(bound)
	}
	e := election{shard: v.shard}
	for _, p := range v.promises {
		if !v.votes(p) {
			continue
		}
		e.known = append(e.known, p.Server)
		if p.Report.Run == v.run {
			e.votes = append(e.votes, p.Report.Votes)
			e.seen = append(e.seen, p.Report.Known...)
			e.vouched = append(e.vouched, p.Report.Vouched...)
		}
	}
	slices.Sort(e.known)
	e.records = v.records()
	e.seen = slices.DeleteFunc(e.seen, func(k KnownVote) bool {
		_, tells := slices.BinarySearch(e.known, k.Voter) // the voter reports its votes itself
		return tells
	})
	var tail []TailRound
	for len(tail) < v.longest(bound) {
		round := v.head.Round + order.Round(len(tail)) + 1
		next, found := e.elect(round, tail)
		if !found && v.fault != FaultVouchedIgnored {
			next, found = e.lastVouched(round, v.fault)
		}
		if !found {
			break
		}
		tail = append(tail, next)
	}
	return v.head, tail
}

// votes reports whether the votes of a server count, or that it has none.
func (v *survey) votes(p Promised) bool {
	return v.remembers(p) && (!v.shard.Includes(p.Server) || v.counts(v.shard, p))
}

// bound returns the bound of the run that choose goes on from. All servers of a run report the same
// one, or 0 if they have no votes.
func (v *survey) bound(follows *Decision) (bound Bound) {
	if follows != nil && v.head.Generation < follows.Generation {
		return follows.Bound
	}
	for _, p := range v.promises {
		if p.Report.Run == v.run && v.votes(p) && bound.Votes() < p.Report.Bound.Votes() {
			bound = p.Report.Bound
		}
	}
	return bound
}

// longest returns how many rounds a tail may have.
func (v *survey) longest(bound Bound) int {
	switch v.fault {
	case FaultTailShort:
		return bound.Votes() - 1
	case FaultTailOfAllConcur:
		return Bound(0).Tail()
	default:
		return bound.Tail()
	}
}

// records lists the rounds that the disks recorded in the newest run, if they matter: the promises
// that remember their votes are no majority.
func (v *survey) records() (all [][]TailRound) {
	votesDecide := v.count(v.shard, true) >= quorum(v.shard, v.fault) &&
		v.fault != FaultRecordsFirst
	if votesDecide || v.fault == FaultRecordsIgnored {
		return nil
	}
	for _, p := range v.promises {
		if p.Report.Run == v.run && v.counts(v.shard, p) {
			all = append(all, p.Report.Recorded)
		}
	}
	return all
}

// election counts the votes of one run.
type election struct {
	shard Membership
	// known are the servers that report their votes themselves, voters or not; ascending.
	known []order.ServerID
	// votes are those of each known server that took part in the run.
	votes [][]Vote
	// seen are the votes of other servers.
	seen []KnownVote
	// records are the rounds that each disk recorded, if they matter.
	records [][]TailRound
	// vouched are the rounds whose content the known servers held.
	vouched []TailRound
}

// lastVouched returns the content of a round that the server held that A-broadcast in the round in
// the last state, of all known ones. Of two states of one epoch, the unreliable one is the last.
func (e *election) lastVouched(round order.Round, fault Fault) (last TailRound, found bool) {
	for _, r := range e.vouched {
		later := r.Epoch > last.Epoch || r.Epoch == last.Epoch && last.Reliable && !r.Reliable
		if fault == FaultVouchedEarliest {
			later = r.Epoch < last.Epoch
		}
		if r.Round == round && (!found || later) {
			last, found = r, true
		}
	}
	return last, found
}

// candidate is a value of a round, with what is known of the votes for it.
type candidate struct {
	vote  Vote
	votes int
	// confirmed says that a majority voted for it, according to a confirmation of this value or of
	// the set that follows.
	confirmed bool
}

// elect returns the value of a round that may have been A-delivered, if there is one. The tail has
// the values of the rounds before it.
func (e *election) elect(round order.Round, tail []TailRound) (TailRound, bool) {
	candidates := e.candidates(round)
	confirmed := slices.ContainsFunc(candidates, func(c candidate) bool { return c.confirmed })
	if recorded, found := e.recorded(round, tail); found && !confirmed {
		return recorded, true
	}
	candidates = slices.DeleteFunc(candidates, func(c candidate) bool {
		return !c.confirmed && !e.reaches(c)
	})
	if len(candidates) == 0 {
		return TailRound{}, false
	}
	best := slices.MaxFunc(candidates, func(a, b candidate) int {
		if a.confirmed != b.confirmed {
			return cmp.Compare(truth(a.confirmed), truth(b.confirmed))
		}
		return cmp.Compare(a.votes, b.votes)
	})
	return best.vote.TailRound, true
}

// recorded returns the recorded value of a round, if there is one in line with the tail. A record
// of two rounds counts for the second one only if the first has the value that was taken for it.
func (e *election) recorded(round order.Round, tail []TailRound) (TailRound, bool) {
	for _, rounds := range e.records {
		at := slices.IndexFunc(rounds, func(r TailRound) bool { return r.Round == round })
		if at < 0 || at > 0 && len(tail) > 0 && !rounds[at-1].Equal(tail[len(tail)-1]) {
			continue
		}
		return rounds[at], true
	}
	return TailRound{}, false
}

// candidates lists the values of a round that known servers voted for, with all votes for them.
func (e *election) candidates(round order.Round) []candidate {
	var candidates []candidate
	for _, votes := range e.votes {
		i := slices.IndexFunc(votes, func(v Vote) bool { return v.Round == round })
		if i < 0 {
			continue
		}
		vote := votes[i]
		at := slices.IndexFunc(candidates, func(c candidate) bool {
			return c.vote.Equal(vote.TailRound)
		})
		if at < 0 {
			at = len(candidates)
			candidates = append(candidates, candidate{vote: vote})
		}
		c := &candidates[at]
		c.votes++
		follows := !vote.Reliable && slices.ContainsFunc(votes, func(v Vote) bool {
			return v.Round == round+1 && v.Reliable && v.Confirmed
		})
		c.confirmed = c.confirmed || vote.Confirmed || follows
	}
	for i := range candidates {
		e.addSeen(&candidates[i])
	}
	return candidates
}

// addSeen adds the votes of servers that do not report them themselves, once for each server.
func (e *election) addSeen(c *candidate) {
	var voters []order.ServerID
	for _, k := range e.seen {
		if !k.isFor(c.vote.TailRound) {
			continue
		}
		c.confirmed = c.confirmed || k.Confirmed
		if !slices.Contains(voters, k.Voter) {
			voters = append(voters, k.Voter)
			c.votes++
		}
	}
}

// reaches reports whether a value would have the votes to be A-delivered if all voters of which
// nothing is known had voted for it.
func (e *election) reaches(c candidate) bool {
	unknown := 0
	for _, voter := range c.vote.Voters {
		_, known := slices.BinarySearch(e.known, voter)
		known = known || slices.ContainsFunc(e.seen, func(k KnownVote) bool {
			return k.Voter == voter && k.Round == c.vote.Round
		})
		unknown += truth(!known)
	}
	return c.votes+unknown >= threshold(len(e.shard.Members), len(c.vote.Voters))
}

// threshold returns t, the number of votes that A-deliver a round at once in a shard of n members
// if m of them may vote.
func threshold(n, m int) int {
	c := n/2 + 1
	return max(c, min(n-(c-1)/2, m))
}

func truth(b bool) int {
	if b {
		return 1
	}
	return 0
}
