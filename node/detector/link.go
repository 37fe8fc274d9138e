package detector

import "time"

// link is the knowledge of heartbeats from one predecessor: how late they come, and how much
// patience past mistakes require. It outlives runs.
//
// The next heartbeat is expected when the period that the last one named has passed since that,
// and as much as the last ones were late on average. It is missed when a safety margin has passed
// on top [Chen, Toueg and Aguilera, "On the quality of service of failure detectors", IEEE
// Transactions on Computers 51(5), 2002, section 5: NFD-E]. Average and spread are smoothed like
// round-trip times in TCP [Jacobson, "Congestion avoidance and control", SIGCOMM 1988; for failure
// detectors: Bertier, Marin and Sens, DSN 2002].
//
// The margin doubles with each mistake [Chandra and Toueg, "Unreliable failure detectors for
// reliable distributed systems", JACM 43(2), 1996, theorem 21], up to a bound. It halves in long
// times without one. So mistakes become rare if delays are bounded at all, and a machine that
// vanishes is noticed within TimeoutMax.
type link struct {
	last   time.Time     // time of the last heartbeat; zero if the next gap must not count
	period time.Duration // until the next heartbeat at most, as the last one says
	late   time.Duration // average time by which gaps exceed the period
	spread time.Duration // average deviation from late
	margin time.Duration
	grace  time.Duration // for a connection that is down
	calm   int           // heartbeats since the last mistake, or since the margin was halved
}

// spreads is how many average deviations a gap may exceed the average before the margin begins.
const spreads = 4

// calmBeats is how many heartbeats without a mistake halve the margin: ten minutes of them by
// default.
const calmBeats = 1200

func newLink(timing Timing) link {
	return link{period: timing.Heartbeat, margin: timing.Timeout - timing.Heartbeat,
		grace: timing.Grace}
}

// timeout returns the silence after which the predecessor is suspected.
func (l *link) timeout(timing Timing) time.Duration {
	return min(max(l.period+l.late+spreads*l.spread+l.margin, timing.Timeout), timing.TimeoutMax)
}

// heard adds the gap before a heartbeat to the averages. The period is the one that the heartbeat
// names. A server that has something to do again names a shorter one, and sends that heartbeat
// before it said, so the gap does not count.
func (l *link) heard(timing Timing, period time.Duration, now time.Time) {
	if !l.last.IsZero() && period >= l.period {
		deviation := min(now.Sub(l.last), timing.TimeoutMax) - l.period - l.late
		l.late += deviation / 8
		l.spread += (max(deviation, -deviation) - l.spread) / 4
	}
	l.last, l.period = now, period
	if l.calm++; l.calm == calmBeats {
		l.calm = 0
		l.margin = max(l.margin/2, timing.Timeout-timing.Heartbeat)
		l.grace = max(l.grace/2, timing.Grace)
	}
}

// mistake learns from a suspicion that a heartbeat proved wrong.
func (l *link) mistake(timing Timing, wrong opinion, period time.Duration, now time.Time) {
	switch wrong {
	case silent:
		l.margin = min(2*l.margin, timing.TimeoutMax)
	case disconnected:
		l.grace = min(2*l.grace, timing.Timeout)
	}
	l.last, l.period, l.calm = now, period, 0
}
