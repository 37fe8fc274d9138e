package multicast

import (
	"context"
	"maps"
	"testing"
)

// TestReductionLeavesOutNothing has searches that leave out schedules and searches that do not come to the same states at rest, and to the same verdict.
func TestReductionLeavesOutNothing(t *testing.T) {
	t.Parallel()
	cases := []SearchOptions{
		{Engine: EngineTRAM, Groups: 2, Replicas: 1, Messages: 1},
		{Engine: EngineTRAM, Groups: 2, Replicas: 1, Messages: 1, Crashes: 1},
		{Engine: EngineTRAM, Groups: 2, Replicas: 1, Messages: 2},
		{Engine: EngineTRAM, Groups: 1, Replicas: 2, Messages: 1},
	}
	if raceEnabled || testing.Short() {
		cases = cases[:2]
	}
	for _, options := range cases {
		var results [2]SearchResult
		var rests [2]map[fingerprint]bool
		for i := range results {
			options.Unreduced, options.rests = i == 1, map[fingerprint]bool{}
			result, err := Search(context.Background(), options)
			if err != nil || !result.Complete && result.Violation == nil {
				t.Fatalf("%+v: %+v, %v", options, result, err)
			}
			results[i], rests[i] = result, options.rests
		}
		options.rests = nil
		reduced, whole := results[0], results[1]
		t.Logf("%+v: %d states of %d, %d transitions of %d, %d at rest", options, reduced.States, whole.States, reduced.Transitions, whole.Transitions, len(rests[1]))
		switch {
		case (reduced.Violation == nil) != (whole.Violation == nil):
			t.Errorf("%+v: reduced %v, whole %v", options, reduced.Violation, whole.Violation)
		case whole.Violation == nil && (len(rests[1]) == 0 || !maps.Equal(rests[0], rests[1])):
			t.Errorf("%+v: %d states at rest, without reduction %d", options, len(rests[0]), len(rests[1]))
		}
	}
}
