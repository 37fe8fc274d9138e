package multicast

import (
	"context"
	"os"
	"runtime/debug"
	"testing"

	"github.com/ledgerd/ledgerd/sim/sweep"
)

// TestMain makes the garbage collector run less often: a run leaves much garbage and holds little
// memory.
func TestMain(m *testing.M) {
	debug.SetGCPercent(1600)
	os.Exit(m.Run())
}

// share scales a number of seeds to the available time: all of them, or a part if tests are short
// or slowed by the race detector.
func share(seeds int) int {
	switch {
	case raceEnabled:
		seeds /= 50
	case testing.Short():
		seeds /= 10
	}
	return max(seeds, 2)
}

// totals are the summed results of the seeds of a sweep.
type totals struct {
	seeds, messages, deliveries, faults, crashed, overwhelmed int
}

// passSeeds runs seeds from 1 on, and fails the test at the first one that breaks a property.
func passSeeds(t *testing.T, options Options, count int) totals {
	t.Helper()
	var sum totals
	err := sweep.Seeds(context.Background(), 1, count, options.RunSeed, func(r Result) bool {
		sum.seeds++
		sum.messages += r.Messages
		sum.deliveries += r.Deliveries
		sum.faults += r.Faults
		sum.crashed += len(r.Crashed)
		if r.Overwhelmed {
			sum.overwhelmed++
		}
		if len(r.Violations) > 0 {
			t.Errorf("seed %d, %s:\n%v", r.Seed, r.Plan, r.Violations[0])
		}
		return len(r.Violations) == 0
	})
	if err != nil {
		t.Fatal(err)
	}
	return sum
}

// TestFormsConform is the conformance suite: thousands of seeds of each form, each with a
// deployment and faults of its own.
func TestFormsConform(t *testing.T) {
	t.Parallel()
	seeds := map[string]int{EngineSequencer: 500, EngineDARE: 2000}
	for _, engine := range Engines() {
		t.Run(engine.Name, func(t *testing.T) {
			t.Parallel()
			count := 5000
			if own := seeds[engine.Name]; own != 0 {
				count = own
			}
			sum := passSeeds(t, Options{Engine: engine.Name, Faults: FaultsAll}, share(count))
			t.Logf("%+v", sum)
			if count > 400 && !raceEnabled && !testing.Short() &&
				(sum.faults < sum.seeds/2 || sum.crashed < sum.seeds/8 || sum.overwhelmed == 0) {
				t.Errorf("the seeds are too kind: %+v", sum)
			}
		})
	}
}
