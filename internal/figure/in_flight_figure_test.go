package figure

import "testing"

// TestSeveralInFlight: where links are busy, rounds take long if one is in flight, since a message
// that is sent in one piece waits for itself. Where messages are bounded, each round in flight adds
// its messages.
func TestSeveralInFlight(t *testing.T) {
	t.Parallel()
	f := mustMake(t, "in-flight", Options{Quick: true})
	for _, panel := range []string{"1ms-latency", "10ms-latency", "40ms-latency", "80ms-latency"} {
		if _, most := f.find(panel).ratios("1 in flight", "4 in flight"); most < 2 {
			t.Errorf("%s: one in flight takes %.2f times as long as four", panel, most)
		}
	}
	if _, most := f.find("mdc-latency").ratios("1 in flight", "4 in flight"); most < 1.1 {
		t.Errorf("five datacentres: one in flight takes %.2f times as long as four", most)
	}
	if _, most := f.find("bounded").ratios("4 in flight", "1 in flight"); most < 3.5 || most > 4.5 {
		t.Errorf("four in flight have %.2f times the throughput of one", most)
	}
}
