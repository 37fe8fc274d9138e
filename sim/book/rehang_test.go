package book

import (
	"context"
	"testing"

	"github.com/ledgerd/ledgerd/sim/sweep"
)

// TestTreesChange judges books whose shards are hung elsewhere on the way.
func TestTreesChange(t *testing.T) {
	t.Parallel()
	rehung, added, count := 0, 0, share(100)
	if err := sweep.Seeds(context.Background(), 20_000, count, Options{Faults: FaultsAll}.RunSeed,
		func(r Result) bool {
			if rehung += r.Rehung; r.Rehung > 0 {
				added += r.Added
			}
			if len(r.Violations) > 0 {
				t.Errorf("seed %d, %s:\n%v", r.Seed, r.Plan, r.Violations[0])
			}
			return len(r.Violations) == 0
		}); err != nil {
		t.Fatal(err)
	}
	if !raceEnabled && !testing.Short() && (rehung < count/6 || added == 0) {
		t.Errorf("%d shards were hung elsewhere in %d books, and %d added there", rehung, count,
			added)
	}
	t.Logf("%d shards were hung elsewhere in %d books, and %d added there", rehung, count, added)
}
