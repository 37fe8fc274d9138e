package multicast

import (
	"context"
	"errors"
	"testing"
)

// TestPlantedBugsOfDAREAreCaught checks that each bug that can be planted in DARE breaks a property
// within some seeds. `ledgerd sim multicast --engine dare --plant NAME --seeds 1000` finds the
// same.
func TestPlantedBugsOfDAREAreCaught(t *testing.T) {
	t.Parallel()
	if raceEnabled || testing.Short() {
		t.Skip("the seeds take some seconds, and race with nobody")
	}
	for _, plant := range darePlants() {
		t.Run(plant, func(t *testing.T) {
			t.Parallel()
			_, result := firstFailure(t, Options{Engine: EngineDARE, Plant: plant,
				Faults: FaultsAll}, "", 1000)
			t.Logf("seed %d breaks %s", result.Seed, result.Violations[0].Property)
		})
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
