package book

import (
	"context"
	"testing"

	"github.com/ledgerd/ledgerd/sim/sweep"
)

// TestBooksChange judges books to which shards are added, in which organisations and shards move,
// and which lose shards, all in one run.
func TestBooksChange(t *testing.T) {
	t.Parallel()
	var handedOver, mixed, moved, added, losses, inherited, stranded, rehung int
	count := share(150)
	if err := sweep.Seeds(context.Background(), 30_000, count, Options{Faults: FaultsAll}.RunSeed,
		func(r Result) bool {
			if r.Mixed {
				mixed++
				handedOver += r.HandedOver
				moved, added, losses = moved+r.Moved, added+r.Added, losses+r.Losses
				inherited, stranded = inherited+r.Inherited, stranded+r.Stranded
				rehung += r.Rehung
			}
			if len(r.Violations) > 0 {
				t.Errorf("seed %d, %s:\n%v", r.Seed, r.Plan, r.Violations[0])
			}
			return len(r.Violations) == 0
		}); err != nil {
		t.Fatal(err)
	}
	if !raceEnabled && !testing.Short() && (moved < mixed || added < mixed || losses < mixed ||
		stranded < mixed/30 || inherited < mixed/10 || rehung < mixed/3) {
		t.Error("the seeds are too kind")
	}
	t.Logf("%d books: %d organisations arrived, %d never did, %d shards were added, "+
		"%d settlements with lost shards, %d testimonies that they agreed, %d shards were hung "+
		"elsewhere, %d copies were handed over", mixed, moved, stranded, added, losses, inherited,
		rehung, handedOver)
}
