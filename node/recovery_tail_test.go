package node

import (
	"testing"

	"github.com/ledgerd/ledgerd/allconcur/generation"
)

// TestRecoveryTakesTheDecision: a value that was accepted in a lower ballot does not replace the
// one that was decided for its generation.
func TestRecoveryTakesTheDecision(t *testing.T) {
	t.Parallel()
	value := func(g generation.Generation, height uint64) *generation.Decision {
		return &generation.Decision{Generation: g, Base: generation.Head{Height: height}}
	}
	accepted := func(number uint64, d *generation.Decision) generation.State {
		return generation.State{Accepted: generation.Ballot{Number: number}, AcceptedValue: d}
	}
	decided := func(d *generation.Decision) generation.State { return generation.State{Decided: d} }
	for name, c := range map[string]struct {
		states []generation.State
		want   *generation.Decision
	}{
		"nothing": {[]generation.State{{}}, nil},
		"an older accepted value": {[]generation.State{decided(value(3, 9)),
			accepted(1, value(2, 8))}, value(3, 9)},
		"one of the same": {[]generation.State{accepted(1, value(3, 8)),
			decided(value(3, 9))}, value(3, 9)},
		"a later one": {[]generation.State{accepted(1, value(4, 8)),
			decided(value(3, 9))}, value(4, 8)},
		"the highest ballot": {[]generation.State{accepted(2, value(4, 8)),
			accepted(1, value(4, 9))}, value(4, 8)},
		"the highest ballot, later": {[]generation.State{accepted(1, value(4, 8)),
			accepted(2, value(4, 9))}, value(4, 9)},
		"the latest generation": {[]generation.State{accepted(1, value(5, 8)),
			accepted(2, value(4, 9))}, value(5, 8)},
	} {
		r := &Recovery{}
		for _, state := range c.states {
			r.Homes = append(r.Homes, RecoveryHome{Holdings: &Holdings{state: state}})
		}
		got := r.newestValue()
		if (got == nil) != (c.want == nil) || got != nil && !got.Equal(*c.want) {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}
