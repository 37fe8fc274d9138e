package ledger

import "github.com/ledgerd/ledgerd/clock"

// Package clock has the rules by which a block gets its time from the batches of its round.

// Milliseconds is a point in time: milliseconds since 1970-01-01 00:00 UTC.
type Milliseconds = clock.Milliseconds

// MemberClock is the clock of a member as the proposer of a batch knows it.
type MemberClock = clock.MemberClock

const (
	// ClockBound is how far a member's clock may be from one that it confirms.
	ClockBound = clock.Bound
	// MaxStep is how far a block's time may be beyond its parent's without a majority's clocks.
	MaxStep = clock.MaxStep
	// NoTime is the time of a batch whose proposer does not know the time.
	NoTime = clock.NoTime
)

// MemberClockSize is the most bytes that a member's clock adds to a batch.
const MemberClockSize = 5 + 3

// Indexes returns the indexes of the present members, ascending.
func (m *Membership) Indexes() []MemberIndex {
	indexes := make([]MemberIndex, len(m.Members))
	for i := range m.Members {
		indexes[i] = m.Members[i].Index
	}
	return indexes
}

// times returns the times of the round that follows.
func (p *Parent) times() clock.Round {
	times := clock.Round{Parent: p.Header.Time}
	if p.Members != nil {
		times.Members = func() []MemberIndex {
			members := p.Members()
			return members.Indexes()
		}
	}
	return times
}
