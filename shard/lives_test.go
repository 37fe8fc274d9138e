package shard_test

import (
	"fmt"
	"testing"

	"github.com/ledgerd/ledgerd/allconcur"
	"github.com/ledgerd/ledgerd/sim"
)

// TestLives runs whole shards of this machine in the simulator, whose oracles judge them. Package
// sim runs many more. These runs make a mistake in this package fail its own tests, and soon.
func TestLives(t *testing.T) {
	t.Parallel()
	for servers, seeds := range map[int]uint64{1: 10, 2: 20, 3: 60, 4: 30, 5: 20} {
		for _, engine := range []string{allconcur.EngineAllConcurPlus} {
			t.Run(fmt.Sprintf("%s of %d", engine, servers), func(t *testing.T) {
				t.Parallel()
				options, err := sim.Group{Engine: engine, Servers: servers,
					Faults: sim.FaultsAll}.Options()
				if err != nil {
					t.Fatal(err)
				}
				for options.Seed = 1; options.Seed <= seeds; options.Seed++ {
					result, err := sim.Check(options)
					if err != nil {
						t.Fatal(err)
					}
					if len(result.Violations) > 0 {
						t.Fatalf("seed %d: %v", options.Seed, result.Violations[0])
					}
				}
			})
		}
	}
}
