package multicast

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"
)

// TestTabulatedLeavesOutNothing checks that tabulated searches with and without rules reach the
// same states at rest, with and without faults. The errors that a crash brings are among them.
func TestTabulatedLeavesOutNothing(t *testing.T) {
	t.Parallel()
	if raceEnabled {
		t.Skip("the search is not parallel")
	}
	cases := []struct {
		options              SearchOptions
		reduced, whole, rest int // states
	}{
		{SearchOptions{Replicas: 2, Messages: 1}, 310, 2253, 4},
		{SearchOptions{Replicas: 2, Messages: 1, Crashes: 1}, 1268, 9089, 148},
		{SearchOptions{Replicas: 2, Messages: 1, Leads: 1}, 3197, 39598, 39},
	}
	if testing.Short() {
		cases = cases[:2]
	}
	for _, c := range cases {
		c.options.Engine, c.options.Groups, c.options.Tabulated = EngineDARE, 1, true
		var rests [2]map[fingerprint]bool
		for i, states := range []int{c.reduced, c.whole} {
			c.options.Unreduced, c.options.rests = i == 1, map[fingerprint]bool{}
			result, err := Search(context.Background(), c.options)
			if err != nil || !result.Complete || result.States != states {
				t.Errorf("%+v, want %d states, %v", result, states, err)
			}
			rests[i] = c.options.rests
			t.Logf("unreduced %v: %d states, %d transitions, %d ends, depth %d",
				c.options.Unreduced, result.States, result.Transitions, result.Ends, result.Depth)
		}
		if len(rests[0]) != c.rest || !maps.Equal(rests[0], rests[1]) {
			t.Errorf("%d states at rest, without rules %d, want %d", len(rests[0]), len(rests[1]),
				c.rest)
		}
	}
}

// TestTabulatedFindsPlantedBugsOfDARE checks that a tabulated search finds bugs of elections and of
// logs, and describes the path.
func TestTabulatedFindsPlantedBugsOfDARE(t *testing.T) {
	t.Parallel()
	if raceEnabled {
		t.Skip("the search is not parallel")
	}
	for _, c := range []struct {
		plant, evidence string
		leads           int
	}{
		{"tail-before-entries", "I5", 0},
		{"zombie-counted-as-vote", "I1", 1},
	} {
		result, err := Search(context.Background(), SearchOptions{Engine: EngineDARE,
			Plant: c.plant, Groups: 1, Replicas: 2, Messages: 1, Leads: c.leads, Tabulated: true})
		if err != nil || result.Violation == nil || result.Violation.Property != Invariant ||
			!strings.HasPrefix(result.Violation.Evidence[0], c.evidence) {
			t.Fatalf("%s: %+v, %v", c.plant, result, err)
		}
		t.Logf("%s: %d states\n%s\n%v", c.plant, result.States, strings.Join(result.Path, "\n"),
			result.Violation)
	}
}

// TestTabulatedRefuses checks that a search which cannot be tabulated says so.
func TestTabulatedRefuses(t *testing.T) {
	t.Parallel()
	for _, options := range []SearchOptions{
		{Engine: EngineSequencer, Groups: 1, Replicas: 1, Messages: 1},
		{Engine: EngineDARE, Groups: 1, Replicas: 2, Messages: 1, Ticks: 1},
	} {
		options.Tabulated = true
		if _, err := Search(context.Background(), options); !errors.Is(err, ErrOptions) {
			t.Errorf("%+v: %v", options, err)
		}
	}
}
