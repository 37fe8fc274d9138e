package p2p

import (
	"testing"
	"time"
)

const ms = time.Millisecond

// TestAckPace checks how long acknowledgements wait: briefly on a quiet lane, longer and longer
// while frames keep coming, and briefly again after a pause.
func TestAckPace(t *testing.T) {
	t.Parallel()
	pace := ackPace{max: 200 * ms}
	now := time.Unix(1000, 0)
	for i, step := range []struct{ pause, want time.Duration }{
		{0, 5 * ms},
		{1 * ms, 10 * ms}, {0, 20 * ms}, {19 * ms, 40 * ms}, {39 * ms, 80 * ms}, {1 * ms, 160 * ms},
		{1 * ms, 200 * ms}, {1 * ms, 200 * ms},
		{200 * ms, 5 * ms}, // the lane was quiet for as long as it waited
		{5 * ms, 5 * ms}, {4 * ms, 10 * ms}, {time.Hour, 5 * ms},
	} {
		now = now.Add(step.pause)
		got := waited(&pace, now, func(time.Duration) int64 { return -1 })
		if got != step.want {
			t.Errorf("step %d: after a pause of %v it waits for %v, want %v", i, step.pause, got,
				step.want)
		}
		now = now.Add(got)
		pace.sent = now
	}
	short := ackPace{max: 2 * ms}
	for range 3 {
		if got := waited(&short, now, func(time.Duration) int64 { return -1 }); got != 2*ms {
			t.Errorf("it waits for %v, at most %v are allowed", got, 2*ms)
		}
		short.sent = now
	}
}

// TestAckPaceOfALaneThatFallsSilent checks that the last frames are acknowledged soon after no more
// have come, although the acknowledgement might wait for longer, and the next lone frame at once.
func TestAckPaceOfALaneThatFallsSilent(t *testing.T) {
	t.Parallel()
	pace := ackPace{max: time.Second, delay: time.Second, sent: time.Unix(999, 500e6)}
	last := 230 * ms
	got := waited(&pace, time.Unix(1000, 0), func(passed time.Duration) int64 {
		return int64(min(passed, last) / ms)
	})
	if got < last+ackQuiet || got > last+2*ackQuiet {
		t.Errorf("it waits for %v, the last frame came after %v", got, last)
	}
	pace.sent = time.Unix(1000, 0).Add(got)
	if got := pace.begin(pace.sent.Add(ackDelayMin), 1); got != ackDelayMin {
		t.Errorf("the next one waits for %v", got)
	}
}

// TestAckPaceOfLoneFrames checks that frames that come one by one, as heartbeats do, share
// acknowledgements, and that a frame that comes after them alone is acknowledged soon again.
func TestAckPaceOfLoneFrames(t *testing.T) {
	t.Parallel()
	const frames, period = 100, 100 * ms
	pace := ackPace{max: 1250 * ms}
	begin := time.Unix(1000, 0)
	came := func(at time.Time) int64 { return min(frames, 1+int64(at.Sub(begin)/period)) }
	acknowledged, acks := int64(0), 0
	var longest time.Duration
	for acknowledged < frames {
		next := begin.Add(time.Duration(acknowledged) * period) // it finds the lane quiet
		wait := waited(&pace, next, func(passed time.Duration) int64 {
			return came(next.Add(passed)) - acknowledged
		})
		pace.sent = next.Add(wait)
		acknowledged = came(pace.sent)
		longest = max(longest, wait)
		acks++
	}
	// Four in five after the first ones, since the frames come at the waits' ends.
	if acks > ackLone+2+frames/5 || longest != ackSteady {
		t.Errorf("%d frames took %d acknowledgements, one waited for %v", frames, acks, longest)
	}
	pace.lone = ackLone
	one := func(time.Duration) int64 { return 1 }
	for i, want := range []time.Duration{ackSteady, ackDelayMin, ackDelayMin} {
		now := pace.sent.Add(period)
		if got := waited(&pace, now, one); got != want {
			t.Errorf("frame %d after the last acknowledgement waits for %v, want %v", i, got, want)
		}
		pace.sent = now.Add(want)
	}
}

// waited returns how long an acknowledgement waits that begins at now. owed returns how many frames
// wait for it after a time, or -1 for more and more.
func waited(pace *ackPace, now time.Time, owed func(time.Duration) int64) time.Duration {
	passed := time.Duration(0)
	count := func() int64 {
		if n := owed(passed); n >= 0 {
			return n
		}
		return int64(passed)
	}
	for wait := pace.begin(now, count()); wait > 0; wait = pace.look(now.Add(passed), count()) {
		passed += wait
	}
	return passed
}
