package generation

import (
	"cmp"
	"slices"

	"github.com/ledgerd/ledgerd/order"
)

// tailMax is how many rounds a server may have voted for without having A-delivered them.
const tailMax = 2

// Promised is one server's report, as a proposer has it.
type Promised struct {
	Server order.ServerID
	Report Report
}

// choose says from where a shard goes on: after which block, and with which rounds after that, so that nothing that may have been A-delivered is lost. It is a pure function of the
// reports of those who promised, which are frozen since, and of the decision that is followed, nil for none.
//
// # The voting rules that it builds upon
//
// In the last run of a group, N servers are the shard, c = ⌊N/2⌋+1 its majority, q the smallest integer above N - c/2, m ≥ c the servers of the group that were not
// removed yet, which alone vote, and t = max(c, min(q, m)).
//
//	(V1) A server votes for at most one value of a round.
//	(V2) A value of round r is A-delivered anywhere only if (a) t servers voted for it, or (b) it is a decided set, and c servers that voted for it said that c did (they confirmed it), or
//	     (c) it is a complete unreliable round, and a decided set of the round r+1 that follows it in the same lineage is A-delivered by (a) or (b).
//	(V3) Who votes for a round r has A-delivered round r-2, and r-1 unless it voted for it; then r-1 is unreliable, and r a decided set.
//	(V4) Rounds are A-delivered in order.
//	(V5) A new run begins where the last one ended, and votes in it are those of servers that have A-delivered all rounds of the run before, and have them on disk.
//
// # What is asked for
//
// K, the reports that count, are those of servers that have not forgotten the newest run R that any report shows. K holds a majority of R's shard: the proposer sees to it (enough). Let d be the
// furthest round that any report shows as A-delivered in R's generation.
//
// Lemma 1: nothing later than d+2 was A-delivered anywhere, and nothing in a later run. An A-delivered round has c voters by (V2), so one of them is in K. By (V3) it
// A-delivered all but the last two rounds up to there, so that r-2 ≤ d. A vote in a later run would make that run the newest in K.
//
// Lemma 2: what was A-delivered for d+1 passes. A value passes if K knows a confirmation for it; or of a set that follows it (c); or if its votes in K, plus the u voters that are not
// in K, are t. (a): its t voters are in K or among the u. (b): c confirmed, so one of these is in K. (c): by (a) or (b) for the set that follows, whose voters have all voted for this value by (V3).
//
// Lemma 3: at most one value is proposed that another could contradict. A confirmation proves c votes, so that any other value has at most N-c < c ≤ t votes: it
// was not A-delivered, whatever the counts allow. So confirmations are looked at first, those of the round, then those of the set that follows (there are not both for different
// values: that is 2c > N votes). Without one, let A and B both pass by counting, with a and b known votes, k of the m voters in K, u = m-k; a+b ≤ k.
//
//	t = m: a+u ≥ m says a = k, and b = k; so k = 0. But m ≥ c and K holds c of N, so that they meet.
//	t = q: 2q ≤ a+b+2u ≤ 2m-k. K holds c of N, so k ≥ c-(N-m), and 2q ≤ m+N-c ≤ 2N-c. But 2q > 2N-c.
//	t = c > min(q, m) is m < c: nobody A-delivers anything then, c voters being too many.
//
// The same says that a value without any known vote (a = 0) does not pass: t = m asks for k = 0; t = q for q ≤ u ≤ N-c, but q > N - c/2.
//
// Theorem: whatever was A-delivered for d+1 is the one that choose takes (2 and 3), then the same holds for d+2; and where none passes for d+1 none was A-delivered, so nothing was
// for d+2 (V4). What it takes beyond that was not A-delivered anywhere, but nothing else was either, and it was A-broadcast by those in Origins: it does no harm.
//
// # When too many forgot
//
// The proposer may count forgetful servers if it has to (State's doc: more servers than tolerated failed at once). Then they are among the u, more than one value may pass, and the one with the
// most known votes is taken: a best effort, about what was only ordered. Blocks on the disks of a majority are safe even so, since heads are what disks hold.
func choose(promises []Promised, follows *Decision, fault Fault) (Head, []TailRound) {
	var base Head
	var run Run
	for i, p := range promises {
		if i == 0 || base.Before(p.Report.Head) {
			base = p.Report.Head
		}
	}
	// The group of the generation that was decided last never worked, as far as is known: what that went on from is gone on from again.
	if follows != nil && base.Generation < follows.Generation {
		return follows.Base, slices.Clone(follows.Tail)
	}
	run, shard := newestRun(promises)
	if run.Generation() != base.Generation || fault == FaultTailForgotten {
		return base, nil
	}
	e := election{shard: shard}
	for _, p := range promises {
		if p.Report.Run == run && p.Report.Forgot {
			continue
		}
		e.known = append(e.known, p.Server)
		if p.Report.Run == run {
			e.votes = append(e.votes, p.Report.Votes)
		}
	}
	slices.Sort(e.known)
	var tail []TailRound
	for len(tail) < tailMax {
		next, found := e.elect(base.Round + order.Round(len(tail)) + 1)
		if !found {
			break
		}
		tail = append(tail, next)
	}
	return base, tail
}

// newestRun is the newest run that any report shows, and the membership that counted in it.
func newestRun(promises []Promised) (Run, Membership) {
	var run Run
	var shard Membership
	for _, p := range promises {
		if run < p.Report.Run || run == p.Report.Run && shard.Number < p.Report.Shard.Number || shard.Members == nil {
			run, shard = p.Report.Run, p.Report.Shard
		}
	}
	return run, shard
}

// election counts the votes of one run.
type election struct {
	shard Membership
	known []order.ServerID // those whose votes are known, voters or not; ascending
	votes [][]Vote         // of each known server that took part in the run
}

// candidate is a value of a round with what is known for it.
type candidate struct {
	vote      Vote
	votes     int
	confirmed bool // a majority voted for it, by its own confirmation or by that of the set that follows
}

// elect gives the value of a round that may have been A-delivered, if there is one.
func (e *election) elect(round order.Round) (TailRound, bool) {
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
		follows := !vote.Reliable && slices.ContainsFunc(votes, func(v Vote) bool { return v.Round == round+1 && v.Reliable && v.Confirmed })
		c.confirmed = c.confirmed || vote.Confirmed || follows
	}
	candidates = slices.DeleteFunc(candidates, func(c candidate) bool { return !c.confirmed && !e.reaches(c) })
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

// reaches tells whether a value has the votes that A-deliver it, if all voters that are not known voted for it.
func (e *election) reaches(c candidate) bool {
	unknown := 0
	for _, voter := range c.vote.Voters {
		if _, known := slices.BinarySearch(e.known, voter); !known {
			unknown++
		}
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
