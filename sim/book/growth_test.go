package book

import (
	"context"
	"testing"

	"github.com/ledgerd/ledgerd/sim/sweep"
)

// TestBooksGrow judges books to which shards are added on the way.
func TestBooksGrow(t *testing.T) {
	t.Parallel()
	added, count := 0, share(100)
	if err := sweep.Seeds(context.Background(), 10_000, count, Options{Faults: FaultsAll}.RunSeed,
		func(r Result) bool {
			added += r.Added
			if len(r.Violations) > 0 {
				t.Errorf("seed %d, %s:\n%v", r.Seed, r.Plan, r.Violations[0])
			}
			return len(r.Violations) == 0
		}); err != nil {
		t.Fatal(err)
	}
	if !raceEnabled && added < count/6 {
		t.Errorf("%d shards were added in %d books", added, count)
	}
	t.Logf("%d shards were added in %d books", added, count)
}
