package book

import (
	"context"
	"slices"
	"testing"

	"github.com/ledgerd/ledgerd/sim/sweep"
)

// caughtBy names, for bugs that few seeds show, one that did. It is tried first, which spares the
// search. A change of the runs may make it wrong, which costs time and nothing else.
var caughtBy = map[string]uint64{
	"answered-to-strangers": 531, "directory-short": 48, "homes-grow": 29,
	"lost-verdict-taken": 101, "never-told": 38, "released-unasked": 91,
	"restored-not-counted": 24, "stranded-lives": 45, plantEarlyVerdict: 436,
	"late-not-handed-over": 341, plantHeightsKept: 241, plantLateUnchecked: 146,
	plantOutlineUnread: 1181, plantGroupOfOne: 10, "groups-apart": 79, plantLateKept: 192,
	"late-unbounded": 145, "hold-not-wanted": 461, "hold-exceeded": 97,
	"hold-by-anyone": 46, "hold-thaws": 12,
	"floor-of-all": 231, "keys-left": 17, "details-not-resumed": 12, "foreseen-early": 721,
	"foreseen-after-move": 12,
}

// TestPlantedBugsAreCaught: the judge finds each planted bug within some seeds.
func TestPlantedBugsAreCaught(t *testing.T) {
	t.Parallel()
	plants := Plants()
	for plant := range caughtBy {
		if !slices.Contains(plants, plant) {
			t.Errorf("caughtBy names %q, which is no bug", plant)
		}
	}
	if raceEnabled {
		plants = []string{plantNotAsked} // the others take too long
	}
	for _, plant := range plants {
		t.Run(plant, func(t *testing.T) {
			t.Parallel()
			const seeds = 1000
			var found Result
			options := Options{Faults: FaultsAll, Plant: plant}
			if seed := caughtBy[plant]; seed > 0 {
				var err error
				if found, err = options.RunSeed(seed); err != nil {
					t.Fatal(err)
				}
			}
			if len(found.Violations) == 0 {
				if err := sweep.Seeds(context.Background(), 1, seeds, options.RunSeed,
					func(r Result) bool {
						found = r
						return len(r.Violations) == 0
					}); err != nil {
					t.Fatal(err)
				}
			}
			if len(found.Violations) == 0 {
				t.Fatalf("not found within %d seeds", seeds)
			}
			t.Logf("seed %d: %v", found.Seed, found.Violations[0])
		})
	}
}
