package sim

import (
	"context"
	"fmt"
	"os"
	"runtime/debug"
	"testing"

	"github.com/ledgerd/ledgerd/allconcur"
	"github.com/ledgerd/ledgerd/digraph"
	"github.com/ledgerd/ledgerd/sim/sweep"
)

// TestMain makes the garbage collector run less often: a run leaves much garbage and holds little
// memory.
func TestMain(m *testing.M) {
	debug.SetGCPercent(1600)
	os.Exit(m.Run())
}

var engines = []string{allconcur.EngineAllConcur, allconcur.EngineAllConcurPlus}

// perfectly is the detector of runs that are one run of the engines.
const perfectly = allconcur.DetectorPerfect

// passSeeds runs seeds of a group and fails the test at the first one that breaks a property.
func passSeeds(t *testing.T, options Options, first uint64, count int) (rounds, crashes int) {
	t.Helper()
	err := sweep.Seeds(context.Background(), first, count, options.RunSeed, func(r Result) bool {
		rounds += r.Rounds
		crashes += len(r.Crashed)
		if len(r.Violations) > 0 {
			t.Errorf("seed %d, %s:\n%v", r.Seed, r.Schedule, r.Violations[0])
		}
		return len(r.Violations) == 0
	})
	if err != nil {
		t.Fatal(err)
	}
	return rounds, crashes
}

// share scales a number of seeds to the available time: all of them, or a part if tests are short
// or slowed by the race detector.
func share(seeds int) int {
	switch {
	case raceEnabled:
		seeds /= 15
	case testing.Short():
		seeds /= 8
	}
	return max(seeds, 2)
}

// options returns the options of a valid group.
func (g Group) options(t *testing.T) Options {
	t.Helper()
	options, err := g.Options()
	if err != nil {
		t.Fatal(err)
	}
	return options
}

// TestEnginesConform is the conformance suite: groups of 1 to 32 servers with up to f crashes.
// Small groups get more seeds, because they are fast and break more easily.
func TestEnginesConform(t *testing.T) {
	t.Parallel()
	for _, engine := range engines {
		for servers := 1; servers <= 32; servers++ {
			t.Run(fmt.Sprintf("%s of %d", engine, servers), func(t *testing.T) {
				t.Parallel()
				rounds, crashes := passSeeds(t, Group{Detector: perfectly, Faults: FaultCrash,
					Engine: engine, Servers: servers}.options(t), 1, share(900/servers))
				t.Logf("%d rounds, %d crashes", rounds, crashes)
			})
		}
	}
}

// TestNonUniformEnginesConform is the same for the weaker promises of non-uniform broadcast.
func TestNonUniformEnginesConform(t *testing.T) {
	t.Parallel()
	for _, servers := range []int{3, 5, 8, 16} {
		t.Run(fmt.Sprint(servers), func(t *testing.T) {
			t.Parallel()
			passSeeds(t, Group{Detector: perfectly, Faults: FaultCrash,
				Engine: allconcur.EngineAllConcurPlus, Servers: servers,
				NonUniform: true}.options(t), 1, share(600/servers))
		})
	}
}

// TestNonUniformEnginesAreNotUniform shows that uniformity is required and that the schedules test
// it: rounds that a server A-delivers without waiting for the others can be wrong, if the server
// then fails.
func TestNonUniformEnginesAreNotUniform(t *testing.T) {
	t.Parallel()
	options := Group{Detector: perfectly, Faults: FaultCrash, Engine: allconcur.EngineAllConcurPlus,
		Servers: 5, NonUniform: true}.options(t)
	options.NonUniform = false // the oracles require more than the engines promise
	if seeds := seedsUntilCaught(t, options, 400); seeds == 0 {
		t.Error("400 seeds did not show that non-uniform broadcast is not uniform")
	}
}

// TestSurvivorsAgreeWhereTailsAreLost makes crashes lose frames under way, like a killed process.
// The survivors agree all the same.
func TestSurvivorsAgreeWhereTailsAreLost(t *testing.T) {
	t.Parallel()
	for _, engine := range engines {
		for _, servers := range []int{3, 4, 5, 6, 7, 8, 9, 16} {
			t.Run(fmt.Sprintf("%s of %d", engine, servers), func(t *testing.T) {
				t.Parallel()
				options := Group{Detector: perfectly, Faults: FaultCrash, Engine: engine,
					Servers: servers}.options(t)
				options.LoseTails = true
				passSeeds(t, options, 1, share(300/servers))
			})
		}
	}
}

// TestTooManyFailuresNeverFork requires safety only, with more crashes than the group tolerates.
func TestTooManyFailuresNeverFork(t *testing.T) {
	t.Parallel()
	for _, engine := range engines {
		for _, servers := range []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16} {
			t.Run(fmt.Sprintf("%s of %d", engine, servers), func(t *testing.T) {
				t.Parallel()
				options := Group{Detector: perfectly, Faults: FaultCrash, Engine: engine,
					Servers: servers}.options(t)
				tolerated := digraph.Tolerated(options.Reliable)
				options.Crashes = min(servers, tolerated+2)
				beyond := 0
				err := sweep.Seeds(context.Background(), 1, share(600/servers), options.RunSeed,
					func(r Result) bool {
						if len(r.Crashed) > tolerated {
							beyond++
						}
						if len(r.Violations) > 0 {
							t.Errorf("seed %d, %s:\n%v", r.Seed, r.Schedule, r.Violations[0])
						}
						return len(r.Violations) == 0
					})
				if err != nil {
					t.Fatal(err)
				}
				if beyond == 0 && !testing.Short() && !raceEnabled {
					t.Error("no seed crashed more servers than the group tolerates")
				}
			})
		}
	}
}

// TestLongRuns has thousands of rounds instead of thousands of seeds.
func TestLongRuns(t *testing.T) {
	t.Parallel()
	for _, engine := range engines {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			options := Group{Detector: perfectly, Faults: FaultCrash, Engine: engine,
				Servers: 5}.options(t)
			options.Rounds = max(share(2000), 100)
			rounds, _ := passSeeds(t, options, 7, 2)
			if rounds < options.Rounds {
				t.Errorf("%d rounds for %d submissions a server", rounds, options.Rounds)
			}
		})
	}
}

// TestLargeGroup is one run of a group of the largest useful size of an overlay.
func TestLargeGroup(t *testing.T) {
	if testing.Short() || raceEnabled {
		t.Skip("a large group takes seconds")
	}
	t.Parallel()
	options := Group{Detector: perfectly, Faults: FaultCrash, Engine: allconcur.EngineAllConcurPlus,
		Servers: 128}.options(t)
	options.Rounds = 1
	passSeeds(t, options, 3, 1)
}
