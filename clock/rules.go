package clock

import "slices"

// Milliseconds is a point in time: milliseconds since 1970-01-01 00:00 UTC.
type Milliseconds int64

const (
	// Bound is the furthest that a member's clock may be from a clock that it confirms.
	Bound Milliseconds = 10_000
	// MaxStep is the furthest that a block's time may be beyond its parent's without the clocks of
	// a majority.
	MaxStep Milliseconds = 10_000
)

// NoTime is the time of a batch whose proposer does not know the time.
const NoTime Milliseconds = 0

// MemberIndex identifies a member of a shard. An index is never used again for another member.
type MemberIndex uint32

// MemberClock is the clock of a member as the proposer of a batch knows it.
type MemberClock struct {
	Member MemberIndex
	// Offset is the lead of the member's clock over the batch's time. It is between -Bound and
	// Bound.
	Offset Milliseconds
}

// Majority returns the smallest number that is more than half of members.
func Majority(members int) int { return members/2 + 1 }

// Proven reports whether clocks holds the clocks of a majority of the members, each with an offset
// within Bound. Both slices must be in ascending order.
func Proven(members []MemberIndex, clocks []MemberClock) bool {
	known := 0
	for i, clock := range clocks {
		_, present := slices.BinarySearch(members, clock.Member)
		again := i > 0 && clock.Member <= clocks[i-1].Member
		if present && !again && max(clock.Offset, -clock.Offset) <= Bound {
			known++
		}
	}
	return known >= Majority(len(members))
}

// Stamp returns the time for a batch that follows a block, and the clocks that the batch must show
// for it. It returns clocks only if the time is more than MaxStep beyond the last block's, as after
// an idle period. If the batch has no room for the clocks, Stamp returns the latest time allowed
// without them.
func Stamp(
	v *View, last Milliseconds, fits func(clocks int) bool, fault Fault,
) (Milliseconds, []MemberClock) {
	switch {
	case v.Time-MaxStep <= last || fault == FaultUnboundedStep:
		return v.Time, nil
	case !fits(len(v.Near)):
		return last + MaxStep, nil
	}
	return v.Time, v.Near
}

// Round computes the time of a block from the batches of its round.
type Round struct {
	// Parent is the time of the previous block.
	Parent Milliseconds
	// Members returns the members after the previous block, in ascending order. Add calls it only
	// for a time that is more than MaxStep beyond Parent. If it is nil, no such time counts.
	Members func() []MemberIndex
	// Fault is a planted bug.
	Fault Fault

	times []Milliseconds
}

// Add records the time of a batch, given the clocks that the batch shows. A time that is too far
// ahead without the clocks of a majority does not count at all. If it counted as a bounded step,
// each such batch would move the chain.
func (r *Round) Add(time Milliseconds, clocks []MemberClock) {
	if time <= NoTime || time-MaxStep > r.Parent && !r.proven(clocks) {
		return
	}
	r.times = append(r.times, time)
}

func (r *Round) proven(clocks []MemberClock) bool {
	if r.Fault == FaultOwnMedian || r.Fault == FaultUnboundedStep {
		return true
	}
	return r.Members != nil && Proven(r.Members(), clocks)
}

// Block returns the block's time: the lower median of the times that count. It returns the parent's
// time if that is later or if no time counts.
func (r *Round) Block() Milliseconds {
	if len(r.times) == 0 {
		return r.Parent
	}
	slices.Sort(r.times)
	return max(r.times[(len(r.times)-1)/2], r.Parent)
}
