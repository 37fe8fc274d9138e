package allconcur

import (
	"math/bits"

	"github.com/ledgerd/ledgerd/order"
)

// votePhase is what a vote says about its set.
type votePhase uint8

const (
	// phaseDecided says: this is the set that I decided.
	phaseDecided votePhase = 1
	// phaseConfirmed says: a majority decided this set, and so did I.
	phaseConfirmed votePhase = 2
)

// ballotsAhead is how many rounds' votes are kept at a time: those of the three rounds after the
// last A-delivered one. Votes for later rounds come from servers that go on without this one. It
// learns of that by the votes for these three rounds. ballotsKept is the size of the ring of
// ballots.
const (
	ballotsKept  = 4
	ballotsAhead = 3
)

// ballot holds the votes for one reliable state that a server knows. At most one reliable state of
// a round gets votes: a set has a majority of messages, and a server runs a round reliably once.
type ballot struct {
	filled bool
	epoch  order.Epoch
	round  order.Round
	// seen has, by direction and phase, the servers whose frames arrived and were relayed.
	seen [2][2]serverSet
	// voters are the servers that voted, for any set.
	voters serverSet
	// sets are the different sets with votes. Those from index used on are spare.
	sets []*votedSet
	used int
}

// votedSet is a set, by its origins, with its voters. A server that confirmed it also voted for it.
type votedSet struct {
	origins    serverSet
	voters     serverSet
	confirmers serverSet
	votes      int
	confirms   int
}

func newBallot(n int) *ballot {
	b := &ballot{voters: newServerSet(n)}
	for direction := range b.seen {
		for phase := range b.seen[direction] {
			b.seen[direction][phase] = newServerSet(n)
		}
	}
	return b
}

func (b *ballot) begin(epoch order.Epoch, round order.Round) {
	b.reset()
	b.filled, b.epoch, b.round = true, epoch, round
}

func (b *ballot) reset() {
	if !b.filled {
		return
	}
	for direction := range b.seen {
		for phase := range b.seen[direction] {
			b.seen[direction][phase].clear()
		}
	}
	b.voters.clear()
	for _, s := range b.sets[:b.used] {
		s.origins.clear()
		s.voters.clear()
		s.confirmers.clear()
		s.votes, s.confirms = 0, 0
	}
	b.filled, b.epoch, b.round, b.used = false, 0, 0, 0
}

// see records that a frame came in that direction, and reports whether it is the first of its kind.
func (b *ballot) see(kind frameKind, phase votePhase, origin order.ServerID) bool {
	seen := b.seen[kind-kindForward][phase-phaseDecided]
	if seen.has(origin) {
		return false
	}
	seen.add(origin)
	return true
}

// ofOrigin returns the set that a server voted for, nil if it has not voted.
func (b *ballot) ofOrigin(origin order.ServerID) *votedSet {
	if !b.voters.has(origin) {
		return nil
	}
	for _, s := range b.sets[:b.used] {
		if s.voters.has(origin) {
			return s
		}
	}
	return nil
}

// ofSet returns the entry of a set, nil if it has no votes.
func (b *ballot) ofSet(origins serverSet) *votedSet {
	for _, s := range b.sets[:b.used] {
		if s.origins.equal(origins) {
			return s
		}
	}
	return nil
}

// grow adds an entry whose set is still empty.
func (b *ballot) grow() *votedSet {
	if b.used == len(b.sets) {
		n := len(b.voters) * wordBits
		b.sets = append(b.sets, &votedSet{origins: newServerSet(n), voters: newServerSet(n),
			confirmers: newServerSet(n)})
	}
	b.used++
	return b.sets[b.used-1]
}

// count counts a server's vote for a set.
func (b *ballot) count(s *votedSet, origin order.ServerID, phase votePhase) {
	if !s.voters.has(origin) {
		s.voters.add(origin)
		s.votes++
		b.voters.add(origin)
	}
	if phase == phaseConfirmed && !s.confirmers.has(origin) {
		s.confirmers.add(origin)
		s.confirms++
	}
}

// take counts the vote of a frame. It does not count a second vote of the same server for another
// set, which no correct server sends.
func (b *ballot) take(header frameHeader, frame []byte) *votedSet {
	s := b.ofOrigin(header.origin)
	if s != nil {
		if !sameSet(frame, s.origins) {
			return nil
		}
	} else {
		for _, known := range b.sets[:b.used] {
			if sameSet(frame, known.origins) {
				s = known
				break
			}
		}
		if s == nil {
			s = b.grow()
			copySet(s.origins, frame)
		}
	}
	b.count(s, header.origin, header.phase)
	return s
}

// reachable returns the number of servers that voted for the set or still may: its members that
// have not voted and are not suspected.
func (b *ballot) reachable(s *votedSet, suspected serverSet) int {
	count := 0
	for i, word := range s.origins {
		count += bits.OnesCount64(s.voters[i] | word&^b.voters[i]&^suspected[i])
	}
	return count
}

// totals returns all votes as if they were for one set, for FaultSetsIgnored.
func (b *ballot) totals() (votes, confirms int) {
	for _, s := range b.sets[:b.used] {
		votes += s.votes
		confirms += s.confirms
	}
	return votes, confirms
}

// clone copies the ballot.
func (b *ballot) clone() *ballot {
	c := *b
	for direction := range b.seen {
		for phase := range b.seen[direction] {
			c.seen[direction][phase] = b.seen[direction][phase].clone()
		}
	}
	c.voters = b.voters.clone()
	c.sets = make([]*votedSet, b.used)
	for i, s := range b.sets[:b.used] {
		c.sets[i] = &votedSet{origins: s.origins.clone(), voters: s.voters.clone(),
			confirmers: s.confirmers.clone(), votes: s.votes, confirms: s.confirms}
	}
	return &c
}

// appendState appends the ballot in a form that does not depend on the order in which the votes
// arrived.
func (b *ballot) appendState(state []byte) []byte {
	state = appendFlag(state, b.filled)
	if !b.filled {
		return state
	}
	state = appendNumber(state, uint64(b.epoch), uint64(b.round))
	for direction := range b.seen {
		for phase := range b.seen[direction] {
			state = appendNumber(state, b.seen[direction][phase]...)
		}
	}
	state = appendNumber(state, b.voters...)
	for p, more := b.voters.next(0); more; p, more = b.voters.next(p + 1) {
		s := b.ofOrigin(p)
		state = appendFlag(appendNumber(state, s.origins...), s.confirmers.has(p))
	}
	return state
}
