package sim

import (
	"context"
	"fmt"
	"os"
	"runtime/debug"
	"testing"

	"github.com/ledgerd/ledgerd/allconcur"
	"github.com/ledgerd/ledgerd/digraph"
)

// TestMain has garbage collected less often: a run leaves much behind and holds little.
func TestMain(m *testing.M) {
	debug.SetGCPercent(400)
	os.Exit(m.Run())
}

var engines = []string{allconcur.EngineAllConcur, allconcur.EngineAllConcurPlus}

// perfectly is the detector of runs that are one run of the engines.
const perfectly = allconcur.DetectorPerfect

// sweep runs seeds of a group and fails the test with the first that breaks a property.
func sweep(t *testing.T, options Options, first uint64, count int) (rounds, crashes int) {
	t.Helper()
	err := Sweep(context.Background(), options, first, count, func(r Result) bool {
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

// share scales a number of seeds to what the run of the tests has time for: all, or a part where
// they are short or slowed by the race detector.
func share(seeds int) int {
	switch {
	case raceEnabled:
		seeds /= 15
	case testing.Short():
		seeds /= 8
	}
	return max(seeds, 2)
}

// options returns those of a group that the test takes for granted.
func (g Group) options(t *testing.T) Options {
	t.Helper()
	options, err := g.Options()
	if err != nil {
		t.Fatal(err)
	}
	return options
}

// TestEnginesConform is the conformance suite: groups of 1 to 32 servers with up to f crashes, more
// seeds for the small ones, which are quick and have more to lose.
func TestEnginesConform(t *testing.T) {
	t.Parallel()
	for _, engine := range engines {
		for servers := 1; servers <= 32; servers++ {
			t.Run(fmt.Sprintf("%s of %d", engine, servers), func(t *testing.T) {
				t.Parallel()
				rounds, crashes := sweep(t, Group{Detector: perfectly, Faults: FaultCrash,
					Engine: engine, Servers: servers}.options(t), 1, share(900/servers))
				t.Logf("%d rounds, %d crashes", rounds, crashes)
			})
		}
	}
}

// TestNonUniformEnginesConform is the same for what non-uniform broadcast promises, which is less.
func TestNonUniformEnginesConform(t *testing.T) {
	t.Parallel()
	for _, servers := range []int{3, 5, 8, 16} {
		t.Run(fmt.Sprint(servers), func(t *testing.T) {
			t.Parallel()
			sweep(t, Group{Detector: perfectly, Faults: FaultCrash,
				Engine: allconcur.EngineAllConcurPlus, Servers: servers,
				NonUniform: true}.options(t), 1, share(600/servers))
		})
	}
}

// TestNonUniformEnginesAreNotUniform shows that uniformity is asked for and that the schedules put
// it to the test: what a server A-delivers without waiting for the others can be wrong, if it then
// fails.
func TestNonUniformEnginesAreNotUniform(t *testing.T) {
	t.Parallel()
	options := Group{Detector: perfectly, Faults: FaultCrash, Engine: allconcur.EngineAllConcurPlus,
		Servers: 5, NonUniform: true}.options(t)
	options.NonUniform = false // the oracles ask for more than the engines promise
	if seeds := seedsUntilCaught(t, options, 400); seeds == 0 {
		t.Error("400 seeds did not show that non-uniform broadcast is not uniform")
	}
}

// TestSurvivorsAgreeWhereTailsAreLost has crashes that lose frames under way, as a killed process
// does: the survivors agree all the same.
func TestSurvivorsAgreeWhereTailsAreLost(t *testing.T) {
	t.Parallel()
	for _, engine := range engines {
		for _, servers := range []int{3, 4, 5, 6, 7, 8, 9, 16} {
			t.Run(fmt.Sprintf("%s of %d", engine, servers), func(t *testing.T) {
				t.Parallel()
				options := Group{Detector: perfectly, Faults: FaultCrash, Engine: engine,
					Servers: servers}.options(t)
				options.LoseTails = true
				sweep(t, options, 1, share(300/servers))
			})
		}
	}
}

// TestTooManyFailuresNeverFork asks for safety only, where more servers crash than the group
// tolerates.
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
				err := Sweep(context.Background(), options,
					1, share(600/servers), func(r Result) bool {
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
			rounds, _ := sweep(t, options, 7, 2)
			if rounds < options.Rounds {
				t.Errorf("%d rounds for %d submissions a server", rounds, options.Rounds)
			}
		})
	}
}

// TestLargeGroup is one run of a group as large as an overlay is useful for.
func TestLargeGroup(t *testing.T) {
	if testing.Short() || raceEnabled {
		t.Skip("a large group takes seconds")
	}
	t.Parallel()
	options := Group{Detector: perfectly, Faults: FaultCrash, Engine: allconcur.EngineAllConcurPlus,
		Servers: 128}.options(t)
	options.Rounds = 1
	sweep(t, options, 3, 1)
}
