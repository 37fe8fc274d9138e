package clock

import "slices"

// Milliseconds is a point in time: milliseconds since 1970-01-01 00:00 UTC.
type Milliseconds int64

const (
	// Bound is how far a member's clock may be from one that it confirms.
	Bound Milliseconds = 10_000
	// MaxStep is how far a block's time may be beyond its parent's without a majority's clocks.
	MaxStep Milliseconds = 10_000
)

// NoTime is the time of a batch whose proposer does not know the time.
const NoTime Milliseconds = 0

// MemberIndex numbers the members of a shard. It is the member's for ever.
type MemberIndex uint32

// MemberClock is the clock of a member as the proposer of a batch knows it.
type MemberClock struct {
	Member MemberIndex
	// Offset is how far it is ahead of the batch's time; at most Bound in either direction.
	Offset Milliseconds
}

// Majority returns how many members are more than half of them.
func Majority(members int) int { return members/2 + 1 }

// Proven reports whether the clocks are those of a majority of the members. Both are ascending.
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

// Stamp returns the time of a batch that follows a block, and the clocks that the batch has to show
// for it. The clocks are needed only if the time is far beyond the block's, as after a quiet spell.
// If there is no room for them, the time goes as far as it may without them.
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
	// Parent is the time of the block before.
	Parent Milliseconds
	// Members returns the members after that block, ascending. Add calls it only for a time that is
	// more than MaxStep beyond Parent. If it is nil, no such time counts.
	Members func() []MemberIndex
	// Fault is a planted bug.
	Fault Fault

	times []Milliseconds
}

// Add takes the time of a batch, and the clocks that it shows. A time that goes too far without a
// majority's clocks does not count at all: as a bounded step it would move the chain with each of
// its batches.
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

// Block returns the block's time: the lower median of those that count, or the parent's if that is
// later or none counts.
func (r *Round) Block() Milliseconds {
	if len(r.times) == 0 {
		return r.Parent
	}
	slices.Sort(r.times)
	return max(r.times[(len(r.times)-1)/2], r.Parent)
}
