package multicast

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/order"
)

// TestLeaderlessPlants checks that each bug of the leaderless form breaks the expected property.
func TestLeaderlessPlants(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		options  Options
		property order.Property
		evidence string
	}{
		{Options{Plant: plantLoneWriter}, order.Validity, "never A-delivers it"},
		{Options{Plant: plantEarlyReuse, Messages: MessagesMax, Groups: 2, Replicas: 2}, Contract,
			"bad record in a ring"},
		{Options{Plant: plantOutOfTurn}, order.Integrity, "again"},
		{Options{Plant: plantEnteredTwice}, order.Integrity, "again"},
		{Options{Plant: plantWrongAncestor, Groups: 2, Replicas: 1}, order.Validity,
			"never A-delivers it"},
	} {
		t.Run(fmt.Sprintf("%s breaks %s", c.options.Plant, c.property), func(t *testing.T) {
			t.Parallel()
			c.options.Engine, c.options.Faults = EngineLeaderless, FaultsAll
			_, result := firstFailure(t, c.options, c.property, 300)
			if text := result.Violations[0].Error(); !strings.Contains(text, c.evidence) {
				t.Errorf("the evidence does not say %q:\n%s", c.evidence, text)
			}
		})
	}
}

// TestLeaderlessTree carries one message to all groups over every shape of tree.
func TestLeaderlessTree(t *testing.T) {
	t.Parallel()
	for seed := range uint64(40) {
		result, err := Run(Options{Engine: EngineLeaderless, Seed: seed, Groups: GroupsMax,
			Replicas: 3, Messages: 2})
		if err != nil {
			t.Fatal(err)
		}
		if len(result.Violations) > 0 {
			t.Fatalf("seed %d, %s:\n%v", seed, result.Plan, result.Violations[0])
		}
	}
}

// TestSearchOfTheLeaderless searches every schedule of small deployments.
func TestSearchOfTheLeaderless(t *testing.T) {
	t.Parallel()
	cases := []SearchOptions{
		{Groups: 2, Replicas: 1, Messages: 1, Ticks: 1},
		{Groups: 2, Replicas: 1, Messages: 1, Crashes: 1},
		{Groups: 2, Replicas: 1, Messages: 2},
	}
	if !testing.Short() && !raceEnabled {
		cases = append(cases, SearchOptions{Groups: 2, Replicas: 2, Messages: 1})
	}
	for _, options := range cases {
		options.Engine = EngineLeaderless
		result, err := Search(context.Background(), options)
		if err != nil || result.Violation != nil || !result.Complete || !result.Copied ||
			result.Ends == 0 {
			t.Errorf("%+v: %+v, %v", options, result, err)
		}
		t.Logf("%+v: %d states, %d transitions, %d ends, depth %d", options, result.States,
			result.Transitions, result.Ends, result.Depth)
	}
	// A search that runs the form again and again instead of copying it reaches the same states.
	options := SearchOptions{Engine: EngineLeaderless, Groups: 2, Replicas: 1, Messages: 1,
		Ticks: 1}
	copied, _ := Search(context.Background(), options)
	options.replay = true
	replayed, err := Search(context.Background(), options)
	if err != nil || replayed.States != copied.States ||
		replayed.Transitions != copied.Transitions {
		t.Errorf("by copies %+v, by replays %+v, %v", copied, replayed, err)
	}
	planted, err := Search(context.Background(), SearchOptions{Engine: EngineLeaderless,
		Plant: plantEnteredTwice, Groups: 1, Replicas: 3, Messages: 1})
	if err != nil || planted.Violation == nil || planted.Violation.Property != order.Integrity {
		t.Errorf("%+v, %v", planted, err)
	}
}
