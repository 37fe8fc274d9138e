package node

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/ledgerd/ledgerd/order"
)

// TestForgerIsDistrusted: a member that forges again is distrusted for longer each time.
func TestForgerIsDistrusted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newForgeries(nil)
		const forger order.ServerID = 2
		for _, want := range []time.Duration{2 * time.Second, 4 * time.Second, 8 * time.Second} {
			until := f.punish(forger, 3)
			if kept := time.Until(until); kept != want {
				t.Errorf("distrusted for %s, want %s", kept, want)
			}
		}
		for range 100 {
			f.punish(forger, 1)
		}
		if kept := time.Until(f.punish(forger, 1)); kept != penanceMax || f.of(forger) != 110 {
			t.Errorf("distrusted for %s after %d bundles", kept, f.of(forger))
		}
	})
}
