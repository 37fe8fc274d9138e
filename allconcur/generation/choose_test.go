package generation

import (
	"testing"

	"github.com/ledgerd/ledgerd/order"
)

// ballotPaper is what one voter did, in the exhaustive test of choose. A shard of N servers has a
// group of n, of which m are left to vote. Rounds 1 and 2 were not A-delivered when the group
// froze. By the voting rules, each voter is in one of these states:
type ballotPaper uint8

const (
	blank       ballotPaper = iota // voted for nothing
	voteU                          // U for 1
	voteR1                         // R(e,S) for 1
	voteR1other                    // R(e,S') for 1
	voteUR                         // U for 1, and R(e,S) for 2
	voteURother                    // U for 1, and R(e,S') for 2
	confirmR1                      // R(e,S) for 1, confirmed
	confirmUR                      // U for 1, and R(e,S) for 2, confirmed
	papers
)

// votes returns the value that the voter voted for in each round. 0 is none, 1 is U, 2 and 3 are
// two sets.
func (p ballotPaper) votes() (first, second int, confirmed bool) {
	switch p {
	case voteU:
		return 1, 0, false
	case voteR1:
		return 2, 0, false
	case voteR1other:
		return 3, 0, false
	case voteUR:
		return 1, 2, false
	case voteURother:
		return 1, 3, false
	case confirmR1:
		return 2, 0, true
	case confirmUR:
		return 1, 2, true
	}
	return 0, 0, false
}

func testRound(round order.Round, value int) TailRound {
	r := TailRound{Round: round, Epoch: 1, Content: [32]byte{byte(round), byte(value)}}
	if value > 1 {
		r.Epoch, r.Reliable = 2, true
	}
	return r
}

// oracle returns the values of rounds 1 and 2 (0: none) that may have been A-delivered by the rules
// of delivery. It counts all votes as they are, whereas choose sees only some of them.
func oracle(all []ballotPaper, shard int) (delivered [2]int) {
	c := shard/2 + 1
	q := 0
	for 2*q <= 2*shard-c { // the smallest integer > N - c/2
		q++
	}
	m := len(all)
	t := max(c, min(q, m))
	var votes, confirms [2][4]int
	for _, paper := range all {
		first, second, confirmed := paper.votes()
		votes[0][first]++
		votes[1][second]++
		if confirmed && second != 0 {
			confirms[1][second]++
		} else if confirmed {
			confirms[0][first]++
		}
	}
	for value := 1; value <= 3; value++ {
		for round := range 2 {
			if m >= c && (votes[round][value] >= t || confirms[round][value] >= c) {
				delivered[round] = value
			}
		}
	}
	if delivered[1] != 0 && delivered[0] == 0 {
		delivered[0] = 1 // rule V2c: together with, and just before, the set that follows
	}
	if delivered[0] == 0 {
		delivered[1] = 0
	}
	return delivered
}

// possible reports whether the voting rules allow these votes: a voter that confirms has seen c
// votes.
func possible(all []ballotPaper, shard int) bool {
	var votes [papers]int
	for _, paper := range all {
		votes[paper]++
	}
	c := shard/2 + 1
	return (votes[confirmR1] == 0 || votes[confirmR1]+votes[voteR1] >= c) &&
		(votes[confirmUR] == 0 || votes[confirmUR]+votes[voteUR] >= c)
}

func reportOf(paper ballotPaper, shard Membership, voters []order.ServerID) Report {
	report := Report{Head: Head{Generation: 1}, Original: true, Run: NewRun(1, 0), Shard: shard,
		Membership: shard}
	first, second, confirmed := paper.votes()
	if first != 0 {
		report.Votes = append(report.Votes, Vote{TailRound: testRound(1, first), Voters: voters,
			Confirmed: confirmed && second == 0})
	}
	if second != 0 {
		report.Votes = append(report.Votes, Vote{TailRound: testRound(2, second), Voters: voters,
			Confirmed: confirmed})
	}
	return report
}

// sweep tries all votes of all groups of a shard, with all sets of servers that promise and
// remember. Forgetful servers are as if they had not been asked, except for their head. It returns
// the first case in which an A-delivered value is not chosen, or more than one value passes without
// a confirmation; nil if there is none. It also returns the number of cases.
func sweep(shardSize int, fault Fault) (broken func(t *testing.T), cases int) {
	shard := Membership{Members: make([]order.ServerID, shardSize)}
	for i := range shard.Members {
		shard.Members[i] = order.ServerID(i)
	}
	c := shard.Quorum()
	for m := c; m <= shardSize; m++ {
		voters := shard.Members[:m]
		all := make([]ballotPaper, m)
		reports := make([][papers]Report, shardSize)
		for i := range reports {
			for paper := range papers {
				reports[i][paper] = reportOf(paper, shard, voters)
				if i >= m {
					reports[i][paper].Run = 0
				}
			}
		}
		for {
			if possible(all, shardSize) {
				want := oracle(all, shardSize)
				for remember := range 1 << shardSize {
					if ones(remember) < c {
						continue
					}
					// Servers that do not remember promise all the same in every second case.
					for _, forgetfulToo := range []bool{false, true} {
						var promises []Promised
						for i := range shardSize {
							paper := blank
							if i < m {
								paper = all[i]
							}
							switch {
							case remember>>i&1 != 0:
								promises = append(promises, Promised{order.ServerID(i),
									reports[i][paper]})
							case forgetfulToo && i < m:
								forgot := reports[i][blank]
								forgot.Restarted = true
								promises = append(promises, Promised{order.ServerID(i), forgot})
							}
						}
						cases++
						_, tail := choose(promises, nil, fault)
						if !covers(tail, want) || passing(promises, shard) > 1 {
							votes := append([]ballotPaper(nil), all...)
							return func(t *testing.T) {
								t.Errorf("N=%d m=%d votes %v remember %b: A-delivered %v, "+
									"chosen %v, %d pass", shardSize, m, votes, remember, want, tail,
									passing(promises, shard))
							}, cases
						}
						if !forgetfulToo && remember == 1<<shardSize-1 {
							break
						}
					}
				}
			}
			i := 0
			for i < m && all[i] == papers-1 {
				all[i] = blank
				i++
			}
			if i == m {
				break
			}
			all[i]++
		}
	}
	return nil, cases
}

func covers(tail []TailRound, want [2]int) bool {
	for i, value := range want {
		if value != 0 && (len(tail) <= i || !tail[i].Equal(testRound(order.Round(i+1), value))) {
			return false
		}
	}
	return true
}

// passing returns how many values of round 1 pass by counting, or how many are confirmed if any is.
func passing(promises []Promised, shard Membership) int {
	e := election{shard: shard}
	for _, p := range promises {
		if !p.Report.Restarted {
			e.known = append(e.known, p.Server)
			e.votes = append(e.votes, p.Report.Votes)
		}
	}
	confirmed, counted := 0, 0
	for value := 1; value <= 3; value++ {
		wanted := candidate{}
		for _, votes := range e.votes {
			if len(votes) == 0 || !votes[0].Equal(testRound(1, value)) {
				continue
			}
			wanted.vote = votes[0]
			wanted.votes++
			wanted.confirmed = wanted.confirmed || votes[0].Confirmed || len(votes) > 1 &&
				votes[1].Confirmed
		}
		if wanted.votes == 0 {
			continue
		}
		if wanted.confirmed {
			confirmed++
		}
		if e.reaches(wanted) {
			counted++
		}
	}
	if confirmed > 0 {
		return confirmed
	}
	return counted
}

func ones(set int) (count int) {
	for ; set > 0; set &= set - 1 {
		count++
	}
	return count
}

func TestChooseTakesWhatMayHaveBeenDelivered(t *testing.T) {
	t.Parallel()
	largest := 5
	if testing.Short() {
		largest = 4
	}
	for shard := 1; shard <= largest; shard++ {
		broken, cases := sweep(shard, FaultNone)
		if broken != nil {
			broken(t)
		}
		t.Logf("N=%d: %d cases", shard, cases)
	}
}

// The sweep can fail: it does without the votes.
func TestChooseWithoutVotesIsFound(t *testing.T) {
	t.Parallel()
	for _, shard := range []int{3, 4, 5} {
		if broken, _ := sweep(shard, FaultTailForgotten); broken == nil {
			t.Errorf("not found with %d servers", shard)
		}
	}
}

// The fast threshold follows its definition, and no smaller one would do.
func TestThreshold(t *testing.T) {
	t.Parallel()
	for n, q := range map[int]int{1: 1, 2: 2, 3: 3, 4: 3, 5: 4, 6: 5, 7: 6, 8: 6, 9: 7} {
		if got := threshold(n, n); got != q {
			t.Errorf("threshold of %d is %d, want %d", n, got, q)
		}
	}
}
