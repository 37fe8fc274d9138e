package multicast

import (
	"testing"
)

// TestPlantedBugsOfTRAMAreCaught checks that each bug that can be planted in the paper's form
// breaks a property within some seeds, in deployments in which it can show.
func TestPlantedBugsOfTRAMAreCaught(t *testing.T) {
	t.Parallel()
	if raceEnabled || testing.Short() {
		t.Skip("the seeds take some seconds, and race with nobody")
	}
	where := map[string]Options{
		"no-permission-check": {Groups: 1, Replicas: 5, Messages: 30,
			Faults: FaultSuspect | FaultHang | FaultSlow},
		"slot-reused-early":   {Groups: 1, Replicas: 3, Messages: 40, Faults: FaultSlow},
		"decided-early":       {Groups: 1, Replicas: 3, Messages: 20, Faults: FaultsAll},
		"no-group-catch-up":   {Groups: 1, Replicas: 3, Messages: 20, Faults: FaultsAll},
		"no-tree-catch-up":    {Groups: 2, Replicas: 3, Messages: 20, Faults: FaultsAll},
		"buffer-reused-early": {Groups: 2, Replicas: 1, Messages: 40, Faults: FaultSlow},
	}
	for _, plant := range tramPlants() {
		t.Run(plant, func(t *testing.T) {
			t.Parallel()
			options, known := where[plant]
			if !known {
				t.Fatal("there is no row that says where it shows")
			}
			options.Engine, options.Plant = EngineTRAM, plant
			_, result := firstFailure(t, options, "", 800)
			t.Logf("seed %d breaks %s", result.Seed, result.Violations[0].Property)
		})
	}
}
