package book

import (
	"context"
	"testing"

	"github.com/ledgerd/ledgerd/sim/sweep"
)

// TestPlantedBugsAreCaught: the judge finds each planted bug within some seeds.
func TestPlantedBugsAreCaught(t *testing.T) {
	t.Parallel()
	plants := Plants()
	if raceEnabled {
		plants = []string{plantNotAsked} // the others take too long
	}
	for _, plant := range plants {
		t.Run(plant, func(t *testing.T) {
			t.Parallel()
			const seeds = 1000
			var found Result
			options := Options{Faults: FaultsAll, Plant: plant}
			if err := sweep.Seeds(context.Background(), 1, seeds, options.RunSeed,
				func(r Result) bool {
					found = r
					return len(r.Violations) == 0
				}); err != nil {
				t.Fatal(err)
			}
			if len(found.Violations) == 0 {
				t.Fatalf("not found within %d seeds", seeds)
			}
			t.Logf("seed %d: %v", found.Seed, found.Violations[0])
		})
	}
}
