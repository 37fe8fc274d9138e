package p2p

import (
	"testing"
	"time"
)

// TestAckPace checks how long acknowledgements wait: briefly on a quiet lane, longer and longer
// while frames keep coming, and briefly again after a pause.
func TestAckPace(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	pace := ackPace{max: ackDelayMax}
	now := time.Unix(1000, 0)
	for i, step := range []struct{ pause, want time.Duration }{
		{0, 5 * ms},
		{1 * ms, 10 * ms}, {0, 20 * ms}, {19 * ms, 40 * ms}, {39 * ms, 80 * ms}, {1 * ms, 80 * ms},
		{80 * ms, 5 * ms}, // the lane was quiet for as long as it waited
		{5 * ms, 5 * ms}, {4 * ms, 10 * ms}, {time.Hour, 5 * ms},
	} {
		now = now.Add(step.pause)
		got := pace.next(now)
		if got != step.want {
			t.Errorf("step %d: after a pause of %v it waits for %v, want %v", i, step.pause, got,
				step.want)
		}
		now = now.Add(got)
		pace.sent = now
	}
	short := ackPace{max: 2 * ms}
	for range 3 {
		if got := short.next(now); got != 2*ms {
			t.Errorf("it waits for %v, at most %v are allowed", got, 2*ms)
		}
		short.sent = now
	}
}
