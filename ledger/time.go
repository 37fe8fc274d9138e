package ledger

import "slices"

// A block's time comes from the clocks of the batches in its round. Members do not lie, but their
// clocks may: one that is 30 years ahead must not date the chain, not even when its node is the
// only one that proposes anything. Three rules keep it from that:
//
//   - A node proposes its clock only while the clocks of a majority of the members, its own among
//     them, are within ClockBound of it (see package node/clock). Otherwise its batch has no time.
//     Two majorities share a member, so two clocks that count are within twice the bound of each
//     other. A majority has a member that is right while fewer than a majority are wrong, so a
//     clock that counts is within the bound of a right one.
//   - A batch takes its block further than MaxStep beyond the block before only if it shows the
//     clocks of such a majority. Every node checks that against the membership that the chain has,
//     so the step of a block is bounded by what the round itself proves.
//   - A block is never older than the block before.
//
// A ledger that was idle for a week goes on with the right time in its first block, because the
// clocks of a majority prove the week. Where nothing in a round has a time that counts, the block
// has the time of the block before.
const (
	// ClockBound is how far a member's clock may be from one that it confirms.
	ClockBound Milliseconds = 10_000
	// MaxStep is how far a block's time may be beyond its parent's without a majority's clocks.
	MaxStep Milliseconds = 10_000
)

// NoTime is the time of a batch whose proposer does not know the time.
const NoTime Milliseconds = 0

// MemberClock is the clock of a member as the proposer of a batch knows it.
type MemberClock struct {
	Member MemberIndex
	// Offset is how far it is ahead of the batch's time; at most ClockBound in either direction.
	Offset Milliseconds
}

// MemberClockSize is the most bytes that a member's clock adds to a batch.
const MemberClockSize = 5 + 3

// ProvenByMajority reports whether the clocks are those of a majority of the members.
func (m *Membership) ProvenByMajority(clocks []MemberClock) bool {
	known := 0
	for i, clock := range clocks {
		_, present := m.Find(clock.Member)
		again := i > 0 && clock.Member <= clocks[i-1].Member
		if present && !again && max(clock.Offset, -clock.Offset) <= ClockBound {
			known++
		}
	}
	return known >= m.Majority()
}

// roundTimes are the times in a round that count.
type roundTimes struct {
	parent *Parent
	times  []Milliseconds
}

// add looks at a batch's time. One that goes too far without a majority's clocks does not count at
// all: as a bounded step it would move the chain with each of its batches.
func (r *roundTimes) add(batch *Batch) {
	time := batch.Header.Time
	switch {
	case time <= NoTime:
		return
	case time-MaxStep > r.parent.Header.Time:
		if r.parent.Members == nil {
			return
		}
		if members := r.parent.Members(); !members.ProvenByMajority(batch.Clocks) {
			return
		}
	}
	r.times = append(r.times, time)
}

// block returns the block's time: the lower median of those that count, or the parent's if that is
// later or none counts.
func (r *roundTimes) block() Milliseconds {
	if len(r.times) == 0 {
		return r.parent.Header.Time
	}
	slices.Sort(r.times)
	return max(r.times[(len(r.times)-1)/2], r.parent.Header.Time)
}
