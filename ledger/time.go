package ledger

import "github.com/ledgerd/ledgerd/clock"

// Package clock has the rules that determine a block's time from the batches of its round.

// Milliseconds is a point in time: milliseconds since 1970-01-01 00:00 UTC.
type Milliseconds = clock.Milliseconds

// MemberClock is the clock of a member as the proposer of a batch knows it.
type MemberClock = clock.MemberClock

const (
	// ClockBound is the furthest that a member's clock may be from a clock that it confirms.
	ClockBound = clock.Bound
	// MaxStep is the furthest that a block's time may be beyond its parent's without the clocks of
	// a majority.
	MaxStep = clock.MaxStep
	// NoTime is the time of a batch whose proposer does not know the time.
	NoTime = clock.NoTime
)

// MaxDeadline is the furthest that the deadline of a transaction that concerns several shards may
// be beyond the time of the block that executes it: seven days. So what a shard must remember of
// such a transaction until its deadline is bounded.
const MaxDeadline Milliseconds = 7 * 24 * 3600 * 1000

// MemberClockSize is the most bytes that a member's clock adds to a batch.
const MemberClockSize = 5 + 3

// Indexes returns the indexes of the present members, in ascending order.
func (m *Membership) Indexes() []MemberIndex {
	indexes := make([]MemberIndex, len(m.Members))
	for i := range m.Members {
		indexes[i] = m.Members[i].Index
	}
	return indexes
}
