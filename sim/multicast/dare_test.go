package multicast

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/dare"
)

// TestPlantedBugsOfDAREAreCaught checks that each bug that can be planted in DARE breaks a property
// within some seeds. `ledgerd sim multicast --engine dare --plant NAME --seeds 1000` finds the
// same.
func TestPlantedBugsOfDAREAreCaught(t *testing.T) {
	t.Parallel()
	if raceEnabled || testing.Short() {
		t.Skip("the seeds take some seconds, and race with nobody")
	}
	// Some show sooner if fewer kinds of fault happen.
	kinds := map[string]Faults{
		dare.FaultCommitsOldTerms.String():  FaultsAll &^ faultsOfChange,
		dare.FaultReadWithoutCheck.String(): FaultPartition,
	}
	for _, plant := range darePlants() {
		t.Run(plant, func(t *testing.T) {
			t.Parallel()
			options := Options{Engine: EngineDARE, Plant: plant, Faults: FaultsAll}
			if faults := kinds[plant]; faults != 0 {
				options.Faults = faults
			}
			_, result := firstFailure(t, options, "", 1000)
			t.Logf("seed %d breaks %s", result.Seed, result.Violations[0].Property)
		})
	}
}

// TestReplicasOfDAREStartAgain checks that replicas that start again, and those that leave and come
// back, A-deliver everything, and that their leaders answer read requests.
func TestReplicasOfDAREStartAgain(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		faults Faults
		event  string
	}{{FaultRestart, "starts again"}, {FaultReconfigure, "takes over"}} {
		took, seeds := 0, share(300)
		for seed := range uint64(seeds) {
			var text strings.Builder
			result, err := Run(Options{Engine: EngineDARE, Replicas: 5, Seed: seed,
				Faults: c.faults, Trace: &text})
			if err != nil || len(result.Violations) > 0 {
				t.Fatalf("seed %d: %v, %v", seed, result.Violations, err)
			}
			if strings.Contains(text.String(), c.event) &&
				strings.Contains(text.String(), "recovered, with entries") {
				took++
			}
		}
		if took < seeds/10 {
			t.Errorf("faults %v: %d of %d seeds have a replica that recovers", c.faults, took,
				seeds)
		}
		t.Logf("faults %v: %d of %d seeds", c.faults, took, seeds)
	}
	_, err := Run(Options{Engine: EngineTRAM, Faults: FaultRestart | FaultCrash})
	if !errors.Is(err, ErrOptions) {
		t.Errorf("replicas of an engine whose groups do not change start again: %v", err)
	}
}

// TestDAREHasOneGroup checks that no run or search of it has several.
func TestDAREHasOneGroup(t *testing.T) {
	t.Parallel()
	run := Options{Engine: EngineDARE, Groups: 2, Seed: 1}
	if _, err := Run(run); !errors.Is(err, ErrOptions) {
		t.Errorf("a run: %v", err)
	}
	_, err := Search(context.Background(), SearchOptions{Engine: EngineDARE, Groups: 2,
		Replicas: 1, Messages: 1})
	if !errors.Is(err, ErrOptions) {
		t.Errorf("a search: %v", err)
	}
	sizes := map[int]int{}
	for seed := range uint64(200) {
		run.Groups, run.Seed = 0, seed
		p := draw(run)
		if p.deployment.Groups() != 1 {
			t.Fatalf("seed %d: %v", seed, &p)
		}
		sizes[p.deployment.Sizes[0]]++
	}
	for size := 1; size <= oneGroupMax; size++ {
		if sizes[size] == 0 {
			t.Errorf("no group has %d servers: %v", size, sizes)
		}
	}
}

// TestSearchOfDARE searches every schedule of small groups, or as many as fit. Tabulated searches
// get further.
func TestSearchOfDARE(t *testing.T) {
	t.Parallel()
	if raceEnabled {
		t.Skip("the search is not parallel")
	}
	cases := []struct {
		options             SearchOptions
		states, transitions int
		complete            bool
	}{
		{SearchOptions{Replicas: 1, Messages: 2, Crashes: 1}, 0, 0, true},
		{SearchOptions{Replicas: 2, Messages: 1}, 3122, 11311, true},
		{SearchOptions{Replicas: 2, Messages: 1, Leads: 1, Crashes: 1, Tabulated: true}, 3943,
			54053, true},
		{SearchOptions{Replicas: 2, Messages: 1, Leads: 2, Crashes: 1, StatesMax: 4000}, 0, 0,
			false},
		{SearchOptions{Replicas: 3, Messages: 2, Leads: 4, Crashes: 1, StatesMax: 6000}, 0, 0,
			false},
	}
	for _, c := range cases {
		c.options.Engine, c.options.Groups = EngineDARE, 1
		result, err := Search(context.Background(), c.options)
		if err != nil || result.Violation != nil || !result.Copied ||
			result.Complete != c.complete || !c.complete && result.Bound != BoundStates ||
			c.states != 0 && (result.States != c.states || result.Transitions != c.transitions) {
			t.Errorf("%+v: %+v, %v", c.options, result, err)
		}
		t.Logf("%+v: %d states, %d transitions, %d ends, depth %d, complete: %v", c.options,
			result.States, result.Transitions, result.Ends, result.Depth, result.Complete)
	}
}

// TestDAREIsCopied checks that a search that runs DARE again and again instead of copying it
// reaches the same states: copies share nothing.
func TestDAREIsCopied(t *testing.T) {
	t.Parallel()
	if raceEnabled {
		t.Skip("the search is not parallel")
	}
	options := SearchOptions{Engine: EngineDARE, Groups: 1, Replicas: 2, Messages: 1,
		StatesMax: 600}
	copied, err := Search(context.Background(), options)
	if err != nil {
		t.Fatal(err)
	}
	options.replay = true
	replayed, err := Search(context.Background(), options)
	if err != nil || replayed.States != copied.States ||
		replayed.Transitions != copied.Transitions || replayed.Ends != copied.Ends {
		t.Errorf("by copies %+v, by replays %+v, %v", copied, replayed, err)
	}
}

// TestSearchFindsAPlantedBugOfDARE checks that a search looks into the logs. Bugs of elections show
// only behind more states than a test can visit; seeds find them.
func TestSearchFindsAPlantedBugOfDARE(t *testing.T) {
	t.Parallel()
	result, err := Search(context.Background(), SearchOptions{Engine: EngineDARE,
		Plant: "tail-before-entries", Groups: 1, Replicas: 2, Messages: 1})
	if err != nil || result.Violation == nil || result.Violation.Property != Invariant {
		t.Fatalf("%+v, %v", result, err)
	}
	t.Logf("%d states, a path of %d lines, %v", result.States, len(result.Path), result.Violation)
}
