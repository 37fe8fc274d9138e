package clock

import (
	"fmt"
	"slices"
	"time"
)

// HeardLasts is the time for which an announced time of day counts.
const HeardLasts = 5 * time.Second

// latest is the latest accepted time of day, in the year 9999. The sum of two such times is far
// from overflow.
const latest Milliseconds = 253_402_300_799_999

// sample is a member's announced clock: its lead over this node's monotonic clock on arrival.
type sample struct {
	at    time.Duration
	ahead Milliseconds
}

// Clocks holds the members' announced clocks. It is not safe for concurrent use.
type Clocks struct {
	self    MemberIndex
	fault   Fault
	members []MemberIndex // in ascending order
	// heard maps each member to the samples that are, or may still become, the furthest ahead of
	// those that count. They are ordered oldest first, each further ahead than those after it.
	heard map[MemberIndex][]sample
}

// New returns Clocks without members or samples for the node self. The fault is a planted bug.
func New(self MemberIndex, fault Fault) *Clocks {
	return &Clocks{self: self, fault: fault, heard: map[MemberIndex][]sample{}}
}

// SetMembers sets the members of the shard. It drops the samples of all other nodes.
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

// Heard records the time of day that a member announced, and this node's monotonic time on arrival.
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

// recent drops the samples that no longer count.
func recent(samples []sample, now time.Duration) []sample {
	for len(samples) > 0 && now-samples[0].at > HeardLasts {
		samples = samples[1:]
	}
	return samples
}

func milliseconds(d time.Duration) Milliseconds { return Milliseconds(d.Milliseconds()) }

// View is this node's clock compared with the members' clocks at one moment.
type View struct {
	// Time is the time that this node may propose: its time of day, or NoTime.
	Time Milliseconds
	// Near holds the clocks within Bound of this node's clock, including its own, by member index.
	// If Time is set, they are those of a majority.
	Near []MemberClock
	// Heard is the number of known clocks, including this node's. Members is the number of members.
	Heard, Members int
	// Offset is the lead of this node's clock over the lower median of the known clocks. It is
	// meaningful only if Known is set: the clocks of a majority are known.
	Offset Milliseconds
	Known  bool
}

// View compares this node's time of day with the members' clocks at a reading of its monotonic
// clock.
func (c *Clocks) View(own Milliseconds, now time.Duration) View {
	if !c.member(c.self) {
		return View{} // a node that is not a member proposes no time
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

// Far reports whether the clocks of a majority are known but this node may not propose its own.
func (v *View) Far() bool { return v.Known && v.Time == NoTime }

// Warning returns why this node proposes no time and what to do about it. It returns "" if the node
// proposes one.
func (v *View) Warning() string {
	const consequence = "it proposes no time for blocks"
	switch {
	case v.Members == 0 || v.Time != NoTime:
		return ""
	case !v.Known:
		return fmt.Sprintf("it hears the clocks of %d of %d members, fewer than a majority: %s",
			v.Heard, v.Members, consequence)
	case max(v.Offset, -v.Offset) > Bound:
		return fmt.Sprintf("its clock is %s the members' median: %s; set it, and check its "+
			"time service", aheadOf(v.Offset), consequence)
	}
	return fmt.Sprintf("the members' clocks differ, and those of only %d of %d are within %s of "+
		"its own: %s; set them, and check their time services",
		len(v.Near), v.Members, period(Bound), consequence)
}

// ChainWarning warns that the chain's last block is dated ahead of the clocks of a majority. It
// returns "" if the block is not, or if no majority's clocks are known to be near this node's.
func (v *View) ChainWarning(last Milliseconds) string {
	if v.Time == NoTime || last-Bound <= v.Time {
		return ""
	}
	return fmt.Sprintf("the last block is dated %s the clocks of a majority: blocks keep its "+
		"time until the clocks reach it", aheadOf(last-v.Time))
}

func aheadOf(offset Milliseconds) string {
	if offset < 0 {
		return period(-offset) + " behind"
	}
	return period(offset) + " ahead of"
}

// period formats a duration in a suitable unit.
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
