package multicast

import (
	"context"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/order"
)

// TestSearchOfTheSequencer searches every schedule of small deployments of the trivially correct
// form, once by copying it and once by running it again and again. Both must visit the same states.
func TestSearchOfTheSequencer(t *testing.T) {
	t.Parallel()
	cases := []SearchOptions{
		{Groups: 1, Replicas: 1, Messages: 1},
		{Groups: 2, Replicas: 1, Messages: 2, Ticks: 1},
		{Groups: 2, Replicas: 2, Messages: 2, Leads: 1},
		{Groups: 2, Replicas: 1, Messages: 2, Crashes: 1},
	}
	if raceEnabled {
		cases = cases[:2] // the search is not parallel
	}
	for _, options := range cases {
		options.Engine = EngineSequencer
		var results [2]SearchResult
		for i := range results {
			options.replay = i == 1
			result, err := Search(context.Background(), options)
			if err != nil || result.Violation != nil || !result.Complete || result.Ends == 0 {
				t.Fatalf("%+v: %+v, %v", options, result, err)
			}
			if result.Copied == options.replay {
				t.Errorf("copied: %v", result.Copied)
			}
			result.Copied = false
			results[i] = result
		}
		t.Logf("%+v: %d states, %d transitions, %d ends, depth %d", options, results[0].States,
			results[0].Transitions, results[0].Ends, results[0].Depth)
		if results[0].States != results[1].States ||
			results[0].Transitions != results[1].Transitions || results[0].Ends != results[1].Ends {
			t.Errorf("by copies %+v, by replays %+v", results[0], results[1])
		}
	}
}

// TestSearchFindsPlantedBugs checks that a search finds the sequencer's bugs and describes the path
// to them.
func TestSearchFindsPlantedBugs(t *testing.T) {
	t.Parallel()
	cases := []struct {
		options  SearchOptions
		property order.Property
		lines    int
	}{
		{SearchOptions{Groups: 2, Replicas: 1, Messages: 3, Plant: plantLostDelivery},
			order.Validity, 40},
		{SearchOptions{Groups: 2, Replicas: 1, Messages: 3, Plant: plantTwice}, order.Integrity,
			30},
		{SearchOptions{Groups: 2, Replicas: 1, Messages: 3, Plant: plantTornPayload},
			order.Integrity, 30},
		{SearchOptions{Groups: 2, Replicas: 1, Messages: 3, Plant: plantPanic}, Contract, 30},
		{SearchOptions{Groups: 1, Replicas: 2, Messages: 2, Plant: plantLoneLeader, Leads: 1},
			"", 40},
	}
	for _, c := range cases {
		c.options.Engine = EngineSequencer
		result, err := Search(context.Background(), c.options)
		if err != nil || result.Violation == nil || result.Complete ||
			result.Bound != BoundViolation {
			t.Errorf("%+v: %+v, %v", c.options, result, err)
			continue
		}
		if c.property != "" && result.Violation.Property != c.property {
			t.Errorf("%+v: %s is broken, want %s", c.options, result.Violation.Property, c.property)
		}
		if text := strings.Join(result.Path, "\n"); len(result.Path) > c.lines ||
			!strings.Contains(text, "submits c0.1") {
			t.Errorf("%+v: %d lines:\n%s\n%v", c.options, len(result.Path), text, result.Violation)
		}
		t.Logf("%+v: %d states\n%s\n%v", c.options, result.States, strings.Join(result.Path, "\n"),
			result.Violation)
	}
}

// TestSearchOfTheReplicas searches every schedule of the paper's form in small deployments,
// including two groups of two, and the first schedules with more faults. Reaching a bound is no
// failure there: it is the limit of the test's time.
func TestSearchOfTheReplicas(t *testing.T) {
	t.Parallel()
	cases := []struct {
		options  SearchOptions
		complete bool
	}{
		{SearchOptions{Groups: 1, Replicas: 1, Messages: 2}, true},
		{SearchOptions{Groups: 2, Replicas: 1, Messages: 1}, true},
		{SearchOptions{Groups: 2, Replicas: 1, Messages: 1, Crashes: 1}, true},
		{SearchOptions{Groups: 1, Replicas: 2, Messages: 1}, true},
		{SearchOptions{Groups: 2, Replicas: 2, Messages: 1}, true},
		{SearchOptions{Groups: 2, Replicas: 2, Messages: 1, Leads: 1, StatesMax: 800}, false},
		{SearchOptions{Groups: 2, Replicas: 2, Messages: 2, Crashes: 1, StatesMax: 800}, false},
	}
	if raceEnabled {
		cases = cases[:4]
	}
	for _, c := range cases {
		c.options.Engine = EngineTRAM
		result, err := Search(context.Background(), c.options)
		if err != nil || result.Violation != nil || !result.Copied || result.Ends == 0 ||
			result.Complete != c.complete || !c.complete && result.Bound != BoundStates {
			t.Errorf("%+v: %+v, %v", c.options, result, err)
		}
		t.Logf("%+v: %d states, %d transitions, %d ends, depth %d, complete: %v", c.options,
			result.States, result.Transitions, result.Ends, result.Depth, result.Complete)
	}
}

// TestReplicasAreCopied checks that a search that runs the paper's form again and again instead of
// copying it reaches the same states: copies share nothing.
func TestReplicasAreCopied(t *testing.T) {
	t.Parallel()
	cases := []SearchOptions{
		{Groups: 2, Replicas: 1, Messages: 1, Crashes: 1},
		{Groups: 1, Replicas: 2, Messages: 1},
	}
	if raceEnabled || testing.Short() {
		cases = cases[:1]
	}
	for _, options := range cases {
		options.Engine = EngineTRAM
		copied, err := Search(context.Background(), options)
		if err != nil {
			t.Fatal(err)
		}
		options.replay = true
		replayed, err := Search(context.Background(), options)
		if err != nil || replayed.States != copied.States ||
			replayed.Transitions != copied.Transitions || replayed.Ends != copied.Ends ||
			replayed.Copied || !copied.Copied {
			t.Errorf("%+v: by copies %+v, by replays %+v, %v", options, copied, replayed, err)
		}
	}
}

// TestSearchFindsPlantedBugsOfTheReplicas checks that the reduced search finds the bugs planted in
// the paper's form.
func TestSearchFindsPlantedBugsOfTheReplicas(t *testing.T) {
	t.Parallel()
	if raceEnabled || testing.Short() {
		t.Skip("it takes some seconds, and races with nobody")
	}
	result, err := Search(context.Background(), SearchOptions{Engine: EngineTRAM,
		Plant: "no-tree-catch-up", Groups: 2, Replicas: 2, Messages: 1, Leads: 1})
	if err != nil || result.Violation == nil || result.Violation.Property != order.Validity ||
		len(result.Path) > 80 {
		t.Fatalf("%+v, %v", result, err)
	}
	t.Logf("%d states\n%s\n%v", result.States, strings.Join(result.Path, "\n"), result.Violation)
}
