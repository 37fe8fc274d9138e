package generation

import (
	"cmp"
	"slices"

	"github.com/ledgerd/ledgerd/order"
)

// tailMax is how many rounds a server may have voted for without having A-delivered them.
const tailMax = 2

// choose says from where a shard goes on: after which block, and with which rounds after that, so
// that nothing that may have been A-delivered is lost. It is a pure function of the reports of the
// servers that promised, which are frozen since, and of the decision that is followed, nil for none.
//
// # The voting rules that it builds upon
//
// In the last run of a group, N servers are the shard, c = ⌊N/2⌋+1 its majority, q the smallest
// integer above N - c/2, m ≥ c the servers of the group that were not removed yet, which alone vote,
// and t = max(c, min(q, m)).
//
//	(V1) A server votes for at most one value of a round.
//	(V2) A value of round r is A-delivered anywhere only if (a) t servers voted for it, or (b) it is a
//	     decided set, and c servers that voted for it said that c did (they confirmed it), or (c) it
//	     is a complete unreliable round, and a decided set of the round r+1 that follows it in the
//	     same lineage is A-delivered by (a) or (b).
//	(V3) A server that votes for a round r has A-delivered round r-2, and r-1 unless it voted for it;
//	     then r-1 is unreliable, and r a decided set.
//	(V4) Rounds are A-delivered in order.
//	(V5) A new run begins where the last one ended, and votes in it are those of servers that have
//	     A-delivered all rounds of the run before, and have them on disk.
//
// # What is asked for
//
// K, the servers whose reports count, are those that remember the newest run R that any report
// shows, and whose disks count under R's shard. K holds a majority of that shard: the proposer sees
// to it (survey.enough). A server with another disk is neither a voter nor a non-voter: its disk
// knows nothing of the votes that it gave before. The same holds for a server that restarted. Let d
// be the furthest round that any report shows as A-delivered in R's generation.
//
// A vote is known if its voter is in K, or if a server in K saw it (Report.Known). Messages and
// votes are never forged, so that all known votes were given, and by (V1) a voter whose vote for one
// value of a round is known gave none for another. Let u be the number of voters that are not in K
// and none of whose votes for the round is known.
//
// Lemma 1: nothing later than d+2 was A-delivered anywhere, and nothing in a later run. An
// A-delivered round has c voters by (V2), so one of them is in K. By (V3) it A-delivered all but the
// last two rounds up to there, so that r-2 ≤ d. A vote in a later run would make that run the newest
// in K.
//
// Lemma 2: what was A-delivered for d+1 passes. A value passes if a confirmation for it is known; or
// of a set that follows it (c); or if its known votes and the u unknown voters are t. (a): each of
// its t voters is known as such or among the u: no other vote of it for the round can be known. (b):
// c confirmed, so one of these is in K. (c): by (a) or (b) for the set that follows, whose voters
// have all voted for this value by (V3). And a value that was A-delivered is one that a server in K
// voted for, c servers having done so: so values that only others are known to have voted for, whose
// contents nobody here may hold, need not be looked at.
//
// Lemma 3: at most one value is proposed that another could contradict. A confirmation proves c
// votes, so that any other value has at most N-c < c ≤ t votes: it was not A-delivered, whatever the
// counts allow. So confirmations are looked at first, those of the round, then those of the set that
// follows (there are not both for different values: that is 2c > N votes). Without one, let A and B
// both pass by counting, with a and b known votes. Let k of the m voters be known, by their own
// report or another's, u = m-k; a+b ≤ k.
//
//	t = m: a+u ≥ m says a = k, and b = k; so k = 0. But m ≥ c and K holds c of N, so that they meet.
//	t = q: 2q ≤ a+b+2u ≤ 2m-k. K holds c of N, so k ≥ c-(N-m), and 2q ≤ m+N-c ≤ 2N-c. But 2q > 2N-c.
//	t = c > min(q, m) is m < c: nobody A-delivers anything then, c voters being too many.
//
// The same says that a value without any known vote (a = 0) does not pass: t = m asks for k = 0; t =
// q for q ≤ u ≤ N-c, but q > N - c/2.
//
// Theorem: whatever was A-delivered for d+1 is the one that choose takes (2 and 3), then the same
// holds for d+2; and where none passes for d+1 none was A-delivered, so nothing was for d+2 (V4).
// What it takes beyond that was not A-delivered anywhere, but nothing else was either, and it was
// A-broadcast by the servers in Origins: it does no harm.
//
// A head that is further than those in K, a learner's, is that much more of what was A-delivered:
// the same holds for the rounds behind it.
//
// # When too many restarted
//
// The proposer counts servers that restarted if it has to (mayPropose). Then they are among the u,
// more than one value may pass, and the one with the most known votes is taken: a best effort, about
// what was only ordered. Blocks on the disks of a majority are safe even so, since heads are what
// disks hold.
func choose(promises []Promised, follows *Decision, fault Fault) (Head, []TailRound) {
	v := furthestSurvey(promises, follows, fault)
	return v.choose(follows)
}

func (v *survey) choose(follows *Decision) (Head, []TailRound) {
	// The group of the generation that was decided last never worked, as far as is known: the base
	// and the tail of that decision are gone on from again.
	if follows != nil && v.head.Generation < follows.Generation {
		return follows.Base, slices.Clone(follows.Tail)
	}
	if v.run.Generation() != v.head.Generation || v.fault == FaultTailForgotten {
		return v.head, nil
	}
	e := election{shard: v.shard}
	for _, p := range v.promises {
		if !v.remembers(p) || v.shard.Includes(p.Server) && !v.counts(v.shard, p) {
			continue
		}
		e.known = append(e.known, p.Server)
		if p.Report.Run == v.run {
			e.votes = append(e.votes, p.Report.Votes)
			e.seen = append(e.seen, p.Report.Known...)
		}
	}
	slices.Sort(e.known)
	e.seen = slices.DeleteFunc(e.seen, func(k KnownVote) bool {
		_, tells := slices.BinarySearch(e.known, k.Voter) // by itself
		return tells
	})
	var tail []TailRound
	for len(tail) < tailMax {
		next, found := e.elect(v.head.Round + order.Round(len(tail)) + 1)
		if !found {
			break
		}
		tail = append(tail, next)
	}
	return v.head, tail
}

// election counts the votes of one run.
type election struct {
	shard Membership
	known []order.ServerID // those that tell their votes themselves, voters or not; ascending
	votes [][]Vote         // of each known server that took part in the run
	seen  []KnownVote      // those of others
}

// candidate is a value of a round with what is known for it.
type candidate struct {
	vote  Vote
	votes int
	// confirmed reports that a majority voted for it, by its own confirmation or by that of the set
	// that follows.
	confirmed bool
}

// elect gives the value of a round that may have been A-delivered, if there is one.
func (e *election) elect(round order.Round) (TailRound, bool) {
	candidates := e.candidates(round)
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

// candidates lists the values of a round that known servers voted for, with all votes for them.
func (e *election) candidates(round order.Round) []candidate {
	var candidates []candidate
	for _, votes := range e.votes {
		i := slices.IndexFunc(votes, func(v Vote) bool { return v.Round == round })
		if i < 0 {
			continue
		}
		vote := votes[i]
		at := slices.IndexFunc(candidates, func(c candidate) bool { return c.vote.Equal(vote.TailRound) })
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

// addSeen adds the votes of servers that do not tell them themselves, each server's once.
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

// reaches reports whether a value has the votes that A-deliver it, if all voters of which nothing is
// known voted for it.
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

// threshold is t, how many votes A-deliver a round at once in a shard of n members, of whom m may vote.
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
