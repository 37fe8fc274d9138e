package beat

import (
	"testing"
	"time"
)

// Next follows a clock that is set, and never waits for longer than a period.
func TestNextAfterTheClockIsSet(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ now, want time.Duration }{
		{0, 100}, {1, 99}, {99, 1}, {100, 100}, {-1, 1}, {-100, 100}, {-30, 30},
		{1_700_000_000_030, 70},
	} {
		now := time.UnixMilli(int64(test.now))
		if got := Until(now, 100*time.Millisecond); got != test.want*time.Millisecond {
			t.Errorf("%d ms after 1970: in %v, want %v ms", test.now, got, int64(test.want))
		}
		if got := Next(now, 100*time.Millisecond).Sub(now); got != test.want*time.Millisecond {
			t.Errorf("%d ms after 1970: next in %v, want %v ms", test.now, got, int64(test.want))
		}
	}
}
