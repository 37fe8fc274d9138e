package network

import (
	"math"
	"testing"
	"time"
)

// TestSwitched: long messages come at the 94 Mbit/s that the authors of TRAINS measured from point
// to point, and a message on an idle network takes as long as its closed form says.
func TestSwitched(t *testing.T) {
	t.Parallel()
	model := Switched(5)
	if got := model.Stream() / 1e6; math.Abs(got-94.15) > 0.005 {
		t.Errorf("%v Mbit/s, want 94.15", got)
	}
	const frames, size = 1000, 11 * 1448
	n := start(t, model)
	for range frames {
		n.Send(0, to(1), make([]byte, size))
	}
	all(n)
	got := frames * size * 8 / n.Now().Seconds()
	if math.Abs(got-model.Stream()) > 0.002*model.Stream() {
		t.Errorf("a stream of %.3f Mbit/s, want %.3f", got/1e6, model.Stream()/1e6)
	}
	for _, size := range []int{1, 1448, 4096, 40_058} {
		n := start(t, model)
		n.Send(0, to(4), make([]byte, size))
		events := all(n)
		want := model.Unloaded(0, 4, size)
		if len(events) != 1 || events[0].At-want > time.Microsecond ||
			want-events[0].At > time.Microsecond {
			t.Errorf("%d bytes: %v, want %v", size, events, want)
		}
	}
	plain := Model{Servers: 2, HostRate: Gigabit}
	if got := plain.Stream(); got != float64(Gigabit) {
		t.Errorf("without segments: %v", got)
	}
}
