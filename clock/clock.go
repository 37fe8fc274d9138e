package clock

import (
	"fmt"
	"slices"
	"time"
)

// HeardLasts is how long what a member said of its clock counts.
const HeardLasts = 5 * time.Second

// latest bounds the times of day that are taken: the year 9999. Sums of two stay far from overflow.
const latest Milliseconds = 253_402_300_799_999

// sample is how far a member's clock was ahead of this node's monotonic one when it was heard.
type sample struct {
	at    time.Duration
	ahead Milliseconds
}

// Clocks holds what the members said. It is not safe for concurrent use.
type Clocks struct {
	self    MemberIndex
	fault   Fault
	members []MemberIndex // ascending
	// heard has, by member, the samples that may still become the furthest ahead of those that
	// count: the oldest first, each further ahead than those behind it.
	heard map[MemberIndex][]sample
}

// New returns the clocks of a shard of which nothing is known. The fault is a planted bug.
func New(self MemberIndex, fault Fault) *Clocks {
	return &Clocks{self: self, fault: fault, heard: map[MemberIndex][]sample{}}
}

// SetMembers says who the members are. What others said is dropped.
func (c *Clocks) SetMembers(members []MemberIndex) {
	c.members = slices.Sorted(slices.Values(members))
	for member := range c.heard {
		if !c.member(member) {
			delete(c.heard, member)
		}
	}
}

func (c *Clocks) member(index MemberIndex) bool {
	_, found := slices.BinarySearch(c.members, index)
	return found
}

// Heard takes what a member says that its time of day is, at a reading of the monotonic clock.
func (c *Clocks) Heard(member MemberIndex, theirs Milliseconds, now time.Duration) {
	if !c.member(member) || member == c.self || theirs <= NoTime || theirs > latest {
		return
	}
	fresh := sample{at: now, ahead: theirs - milliseconds(now)}
	kept := recent(c.heard[member], now)
	for len(kept) > 0 && kept[len(kept)-1].ahead <= fresh.ahead {
		kept = kept[:len(kept)-1]
	}
	c.heard[member] = append(kept, fresh)
}

// recent drops the samples that do not count any more.
func recent(samples []sample, now time.Duration) []sample {
	for len(samples) > 0 && now-samples[0].at > HeardLasts {
		samples = samples[1:]
	}
	return samples
}

func milliseconds(d time.Duration) Milliseconds { return Milliseconds(d.Milliseconds()) }

// View is how this node's clock stands among the members' at one moment.
type View struct {
	// Time is what this node may propose: its time of day, or NoTime.
	Time Milliseconds
	// Near are the clocks within Bound of this node's, its own among them, by index. They
	// are a majority's where there is a Time.
	Near []MemberClock
	// Heard is how many of the Members' clocks are known, this node's among them.
	Heard, Members int
	// Offset is how far this node's clock is ahead of the lower median of those heard; it means
	// something only where Known, when a majority's are heard.
	Offset Milliseconds
	Known  bool
}

// View judges this node's time of day at a reading of its monotonic clock.
func (c *Clocks) View(own Milliseconds, now time.Duration) View {
	if !c.member(c.self) {
		return View{} // it has no say, and proposes nothing
	}
	v := View{Members: len(c.members)}
	own = min(max(own, NoTime), latest)
	offsets := make([]Milliseconds, 0, len(c.members))
	v.Near = make([]MemberClock, 0, len(c.members))
	for _, member := range c.members {
		offset := Milliseconds(0)
		if member != c.self {
			samples := recent(c.heard[member], now)
			if len(samples) == 0 {
				continue
			}
			offset = samples[0].ahead + milliseconds(now) - own
		}
		offsets = append(offsets, offset)
		if max(offset, -offset) <= Bound {
			v.Near = append(v.Near, MemberClock{Member: member, Offset: offset})
		}
	}
	majority := Majority(len(c.members))
	v.Heard, v.Known = len(offsets), len(offsets) >= majority
	slices.Sort(offsets)
	v.Offset = -offsets[(len(offsets)-1)/2]
	if len(v.Near) >= majority || c.fault == FaultOwnMedian || c.fault == FaultOwnClockCounts {
		v.Time = own
	}
	return v
}

// Far reports whether a majority's clocks are heard, and this node's is not near those of one.
func (v *View) Far() bool { return v.Known && v.Time == NoTime }

// Warning says why this node proposes no time, and what to do; "" where it does.
func (v *View) Warning() string {
	const consequence = "it proposes no time for blocks"
	switch {
	case v.Members == 0 || v.Time != NoTime:
		return ""
	case !v.Known:
		return fmt.Sprintf("it hears the clocks of %d of %d members, fewer than a majority: %s",
			v.Heard, v.Members, consequence)
	case max(v.Offset, -v.Offset) > Bound:
		return fmt.Sprintf("its clock is %s the members' median: %s; set it, and check its time "+
			"service",
			aheadOf(v.Offset), consequence)
	}
	return fmt.Sprintf("the members' clocks differ, and those of only %d of %d are within %s of "+
		"its own: %s; "+
		"set them, and check their time services", len(v.Near), v.Members, period(Bound),
		consequence)
}

// ChainWarning says that a chain is dated ahead of a majority's clocks, given its last block's
// time; "" where it is not, or where no majority's clocks are known to be near.
func (v *View) ChainWarning(last Milliseconds) string {
	if v.Time == NoTime || last-Bound <= v.Time {
		return ""
	}
	return fmt.Sprintf("the last block is dated %s the clocks of a majority: blocks keep its "+
		"time until "+
		"the clocks reach it", aheadOf(last-v.Time))
}

func aheadOf(offset Milliseconds) string {
	if offset < 0 {
		return period(-offset) + " behind"
	}
	return period(offset) + " ahead of"
}

// period says how long something is, in a unit that fits.
func period(p Milliseconds) string {
	d := time.Duration(min(p, latest/100)) * time.Millisecond
	const day = 24 * time.Hour
	const year = Milliseconds(365 * day / time.Millisecond)
	switch {
	case p > 10*year:
		return fmt.Sprintf("%d years", (p+year/2)/year)
	case d > 3*day:
		return fmt.Sprintf("%d days", d/day)
	case d > time.Minute:
		return d.Round(time.Second).String()
	}
	return d.String()
}
