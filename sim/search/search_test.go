package search

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/allconcur"
	"github.com/ledgerd/ledgerd/order"
)

var engines = []string{allconcur.EngineAllConcur, allconcur.EngineAllConcurPlus}

func run(t *testing.T, options Options) Result {
	t.Helper()
	started := time.Now()
	result, err := Run(t.Context(), options, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d states, %d transitions, depth %d, %d ends (%d stalled), %d server states, %d "+
		"engine steps, %d restarts, complete: %t, %v", result.States, result.Transitions,
		result.Depth, result.Ends, result.Stalled, result.ServerStates, result.EngineSteps,
		result.Restarts, result.Complete, time.Since(started).Round(time.Millisecond))
	return result
}

func perfect(engine string, servers, rounds, crashes int) Options {
	return Options{Engine: engine, Servers: servers, Rounds: rounds, Crashes: crashes,
		Detector: allconcur.DetectorPerfect}
}

// mustHold runs a search that must visit everything and find no violation.
func mustHold(t *testing.T, options Options) Result {
	t.Helper()
	result := run(t, options)
	for _, v := range result.Violations {
		t.Errorf("%s is broken: %s\n%s\n%s", v.Property, v.Schedule, strings.Join(v.Evidence, "\n"),
			strings.Join(v.Path, "\n"))
	}
	if !result.Complete && len(result.Violations) == 0 {
		t.Errorf("not complete: %s", result.Bound)
	}
	return result
}

// TestPerfectDetector visits everything that groups of up to three can do with every crash point
// under P, and with more crashes than they tolerate.
func TestPerfectDetector(t *testing.T) {
	t.Parallel()
	for _, engine := range engines {
		for servers := 1; servers <= 3; servers++ {
			for rounds := 1; rounds <= 2; rounds++ {
				for crashes := 0; crashes <= min(servers, 2); crashes++ {
					t.Run(fmt.Sprintf("%s/%d servers/%d rounds/%d crashes", engine, servers, rounds,
						crashes), func(t *testing.T) {
						t.Parallel()
						mustHold(t, perfect(engine, servers, rounds, crashes))
					})
				}
			}
		}
	}
}

func eventual(engine string, rounds, crashes, suspicions int) Options {
	return Options{Engine: engine, Servers: 3, Rounds: rounds, Crashes: crashes,
		Suspicions: suspicions, Detector: allconcur.DetectorEventual}
}

// TestEventualDetector visits everything that three servers can do under ◇P with every crash point
// and a false suspicion that is withdrawn.
func TestEventualDetector(t *testing.T) {
	t.Parallel()
	for _, engine := range engines {
		for rounds := 1; rounds <= 2; rounds++ {
			for _, faults := range [][2]int{{1, 0}, {0, 1}, {1, 1}} {
				if faults == [2]int{1, 1} && (testing.Short() || raceEnabled || rounds > 1) ||
					faults[1] > 0 && raceEnabled && rounds > 1 {
					continue
				}
				t.Run(fmt.Sprintf("%s/%d rounds/%d crashes/%d suspicions", engine, rounds,
					faults[0], faults[1]), func(t *testing.T) {
					t.Parallel()
					result := mustHold(t, eventual(engine, rounds, faults[0], faults[1]))
					if faults[0]+faults[1] < 2 && result.Stalled > 0 {
						t.Errorf("it stands still in %d ends", result.Stalled)
					}
				})
			}
		}
	}
}

// TestRecordedRounds visits everything that three and four servers can do with records of complete
// rounds.
func TestRecordedRounds(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ servers, rounds, crashes, suspicions int }{
		{3, 1, 1, 0}, {3, 2, 1, 0}, {3, 1, 0, 1}, {3, 2, 0, 1}, {3, 1, 1, 1}, {4, 1, 1, 0},
	} {
		if (c.servers > 3 || c.crashes+c.suspicions > 1) && (testing.Short() || raceEnabled) {
			continue
		}
		t.Run(fmt.Sprintf("%d servers/%d rounds/%d crashes/%d suspicions", c.servers, c.rounds,
			c.crashes, c.suspicions), func(t *testing.T) {
			t.Parallel()
			options := eventual(allconcur.EngineAllConcurPlus, c.rounds, c.crashes, c.suspicions)
			options.Servers, options.Records = c.servers, true
			mustHold(t, options)
		})
	}
}

// TestRecordsOfAnyGroup: in a group that removed a server, a round can be recorded twice.
func TestRecordsOfAnyGroup(t *testing.T) {
	t.Parallel()
	options := eventual(allconcur.EngineAllConcurPlus, 2, 1, 0)
	options.Records, options.RecordsAnyGroup = true, true
	mustBreak(t, options, RecordedRounds)
}

// TestIdleServers lets servers A-broadcast empty messages in place of payloads.
func TestIdleServers(t *testing.T) {
	t.Parallel()
	for _, engine := range engines {
		options := perfect(engine, 3, 1, 1)
		options.Idle = true
		mustHold(t, options)
	}
}

// TestReductionLosesNothing compares the search with one that takes every interleaving. The ends
// and the states of single servers are the same, so violations and A-deliveries are too.
func TestReductionLosesNothing(t *testing.T) {
	t.Parallel()
	for _, options := range []Options{
		perfect(allconcur.EngineAllConcur, 2, 2, 1), perfect(allconcur.EngineAllConcur, 3, 1, 1),
		perfect(allconcur.EngineAllConcur, 3, 1, 2),
		eventual(allconcur.EngineAllConcur, 1, 1, 0), eventual(allconcur.EngineAllConcurPlus,
			1, 1, 0), eventual(allconcur.EngineAllConcurPlus, 2, 1, 0),
		perfect(allconcur.EngineAllConcurPlus, 2, 2, 1),
		perfect(allconcur.EngineAllConcurPlus, 3, 1, 1),
		perfect(allconcur.EngineAllConcurPlus, 3, 2, 2),
	} {
		t.Run(fmt.Sprintf("%s/%d servers/%d rounds/%d crashes/%v", options.Engine, options.Servers,
			options.Rounds, options.Crashes, options.Detector), func(t *testing.T) {
			t.Parallel()
			compareUnreduced(t, options)
		})
	}
}

func compareUnreduced(t *testing.T, options Options) {
	t.Helper()
	reduced := mustHold(t, options)
	options.Unreduced = true
	all := mustHold(t, options)
	if reduced.Ends != all.Ends || reduced.Stalled != all.Stalled {
		t.Errorf("reduced %+v, all %+v", reduced, all)
	}
	if reduced.ServerStates != all.ServerStates {
		t.Errorf("%d states of single servers, and %d without the reduction", reduced.ServerStates,
			all.ServerStates)
	}
	if reduced.States >= all.States && options.Servers > 2 {
		t.Errorf("the reduction saves nothing: %d states of %d", reduced.States, all.States)
	}
}

// TestSymmetry searches each scenario by itself. Scenarios that differ only in names, by the
// symmetries, must have the same counts.
func TestSymmetry(t *testing.T) {
	t.Parallel()
	for _, engine := range engines {
		options := perfect(engine, 3, 1, 1)
		if raceEnabled {
			options.Crashes = 0
		}
		// Under P they may fork, which is not tested here. The reduction chooses between equals by
		// name, so it is off.
		options.Suspicions, options.Unreduced = 1, true
		compareSymmetric(t, options)
		compareSymmetric(t, eventual(engine, 1, 1, 0))
		if !testing.Short() && !raceEnabled {
			compareSymmetric(t, eventual(engine, 1, 0, 1))
		}
	}
}

func compareSymmetric(t *testing.T, options Options) {
	t.Helper()
	x, err := newExplorer(options)
	if err != nil {
		t.Fatal(err)
	}
	symmetries := x.symmetries()
	if len(symmetries) != 6 {
		t.Fatalf("%d symmetries of three servers", len(symmetries))
	}
	every := scenarios(x.model.watch, options.Crashes, options.Suspicions, nil)
	figures := map[string]Result{}
	for _, s := range every {
		figures[s.String()] = scenarioFigures(t, options, s)
	}
	for _, s := range every {
		for _, names := range symmetries {
			a, b := figures[s.String()], figures[s.renamed(names).String()]
			if a.ServerStates != b.ServerStates || a.Ends != b.Ends || options.Unreduced &&
				(a.States != b.States || a.Transitions != b.Transitions || a.Depth != b.Depth) {
				t.Errorf("%s: %q has %+v, and with the names %v %+v", options.Engine, s, a, names,
					b)
			}
		}
	}
	if len(x.first) >= len(every) {
		t.Errorf("%d scenarios of %d are left", len(x.first), len(every))
	}
}

// scenarioFigures searches one scenario to its end, whatever is broken.
func scenarioFigures(t *testing.T, options Options, s scenario) Result {
	t.Helper()
	x, err := newExplorer(options)
	if err != nil {
		t.Fatal(err)
	}
	x.first, x.judge.deaf = []scenario{s}, true
	result := x.run(t.Context(), nil)
	if !result.Complete {
		t.Fatalf("%q: %+v", s, result)
	}
	return result
}

// TestFourServers visits everything that four servers can do in a round with every crash point, and
// continues as far as a bound allows.
func TestFourServers(t *testing.T) {
	t.Parallel()
	mustHold(t, perfect(allconcur.EngineAllConcurPlus, 4, 1, 0))
	for _, engine := range engines {
		for _, detector := range []allconcur.Detector{allconcur.DetectorPerfect,
			allconcur.DetectorEventual} {
			t.Run(fmt.Sprintf("%s/%v", engine, detector), func(t *testing.T) {
				t.Parallel()
				options := perfect(engine, 4, 1, 1)
				options.Detector = detector
				if !testing.Short() && !raceEnabled {
					mustHold(t, options)
				}
				options.Suspicions, options.DepthFirst, options.StatesMax = 1, true, 20_000
				if detector == allconcur.DetectorPerfect {
					options.Suspicions = 0
				}
				result := run(t, options)
				if len(result.Violations) > 0 || result.Bound != BoundStates {
					t.Errorf("%+v", result)
				}
			})
		}
	}
}

// TestSearchCatches proves that the search can find violations.
func TestSearchCatches(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		options  Options
		property order.Property
	}{
		{"dropped forward", Options{Engine: allconcur.EngineAllConcur,
			Fault: allconcur.FaultDroppedForward}, order.SetAgreement},
		{"dropped forward over trees", Options{Engine: allconcur.EngineAllConcurPlus, Servers: 4,
			Fault: allconcur.FaultDroppedForward, DepthFirst: true}, order.Validity},
		{"early delivery", Options{Engine: allconcur.EngineAllConcurPlus,
			Fault: allconcur.FaultEarlyDelivery}, order.RoundForm},
		{"pruned too soon", Options{Engine: allconcur.EngineAllConcurPlus,
			Fault: allconcur.FaultPrunedTooSoon}, TrackingSpecifications},
		{"pruned too soon, looking at the group only",
			Options{Engine: allconcur.EngineAllConcur, Fault: allconcur.FaultPrunedTooSoon,
				WithoutTracking: true}, Survival},
		{"what is not uniform about non-uniform delivery",
			Options{Engine: allconcur.EngineAllConcurPlus, NonUniform: true, JudgeUniform: true},
			order.SetAgreement},
		{"where P is wrong", Options{Engine: allconcur.EngineAllConcur, Suspicions: 2},
			order.SetAgreement},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			o := c.options
			o.Detector, o.Rounds, o.Crashes, o.Servers = allconcur.DetectorPerfect,
				1, 1, max(o.Servers, 3)
			if o.Suspicions > 0 {
				o.Crashes = 0
			}
			mustBreak(t, o, c.property)
		})
	}
}

// TestSearchCatchesUnderEventualDetector removes the remedies of ◇P, one by one and all together:
// one false suspicion and one crash make a group of three fork.
func TestSearchCatchesUnderEventualDetector(t *testing.T) {
	t.Parallel()
	for _, engine := range engines {
		for name, change := range map[string]func(*Options){
			"no forward-backward mechanism": func(o *Options) {
				o.Fault = allconcur.FaultNoForwardBackward
			},
			"sets ignored": func(o *Options) {
				o.Fault = allconcur.FaultSetsIgnored
			},
			"the dissertation's, unmended": func(o *Options) {
				o.Detector = allconcur.DetectorEventualPaper
			},
			"unmended, two suspicions": func(o *Options) {
				o.Detector, o.Crashes, o.Suspicions = allconcur.DetectorEventualPaper, 0, 2
			},
		} {
			t.Run(engine+"/"+name, func(t *testing.T) {
				t.Parallel()
				options := eventual(engine, 1, 1, 1)
				change(&options)
				mustBreak(t, options, order.SetAgreement)
			})
		}
	}
}

// mustBreak runs a search that must find a violation, twice, and replays it.
func mustBreak(t *testing.T, options Options, property order.Property) Violation {
	t.Helper()
	result := run(t, options)
	if len(result.Violations) != 1 || result.Violations[0].Property != property ||
		result.Bound != BoundViolation {
		t.Fatalf("%+v, want a violation of %s", result, property)
	}
	v := result.Violations[0]
	t.Logf("%s, %s\n%s\n%s", v.Property, v.Schedule, strings.Join(v.Evidence, "\n"),
		strings.Join(v.Path, "\n"))
	again := run(t, options)
	if again.States != result.States || again.Violations[0].Schedule != v.Schedule {
		t.Errorf("the same search ends after %d and %d states, with %q and %q", result.States,
			again.States, v.Schedule, again.Violations[0].Schedule)
	}
	replayed, err := Replay(options, v.Schedule)
	if err != nil || replayed.Property != v.Property || !slices.Equal(replayed.Path, v.Path) ||
		!slices.Equal(replayed.Evidence, v.Evidence) {
		t.Errorf("replayed as %+v (%v)", replayed, err)
	}
	return v
}

func TestReplayRefusesWhatIsImpossible(t *testing.T) {
	t.Parallel()
	options := perfect(allconcur.EngineAllConcur, 3, 1, 1)
	for _, schedule := range []string{"c3:", "x:", "s1:", "s0-0:", ":0x", ":0b,0b", ":1r0",
		":0b,1r", ":0b,1r7", ":7b", ":0q", ":0", "c0:0bx0", "c0:0bx99", "c0:0bz", ":0s1", ":0t1"} {
		if _, err := Replay(options, schedule); !errors.Is(err, ErrOptions) {
			t.Errorf("%q: %v", schedule, err)
		}
	}
	v, err := Replay(options, "c0:0b,1r0,0x,1b,2r1x")
	if !errors.Is(err, ErrOptions) {
		t.Errorf("a crash of a server that does not crash: %+v, %v", v, err)
	}
	if v, err = Replay(options, "c0:0bx1,1r0"); err != nil || v.Property != "" || len(v.Path) != 3 {
		t.Errorf("%+v, %v", v, err)
	}
}

func TestOptionsAreRefused(t *testing.T) {
	t.Parallel()
	good := perfect(allconcur.EngineAllConcur, 3, 1, 1)
	for name, change := range map[string]func(*Options){
		"engine":     func(o *Options) { o.Engine = "raft" },
		"no servers": func(o *Options) { o.Servers = 0 },
		"servers":    func(o *Options) { o.Servers = ServersMax + 1 },
		"no rounds":  func(o *Options) { o.Rounds = 0 },
		"rounds":     func(o *Options) { o.Rounds = RoundsMax + 1 },
		"crashes":    func(o *Options) { o.Crashes = 4 },
		"suspicions": func(o *Options) { o.Suspicions = -1 },
		"states":     func(o *Options) { o.StatesMax = -1 },
	} {
		options := good
		change(&options)
		if _, err := Run(t.Context(), options, nil); !errors.Is(err, ErrOptions) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestBounds(t *testing.T) {
	t.Parallel()
	options := perfect(allconcur.EngineAllConcur, 4, 2, 1)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if result, err := Run(ended, options, nil); err != nil || result.Complete ||
		result.Bound != BoundInterrupt {
		t.Errorf("%+v, %v", result, err)
	}
	late, cancelLate := context.WithTimeout(t.Context(), time.Nanosecond)
	defer cancelLate()
	<-late.Done()
	if result, err := Run(late, options, nil); err != nil || result.Complete ||
		result.Bound != BoundTime {
		t.Errorf("%+v, %v", result, err)
	}
	options.StatesMax = 10_000
	calls := 0
	result, err := Run(t.Context(), options, func(p Reached) { calls++ })
	if err != nil || result.Complete || result.Bound != BoundStates ||
		result.States < options.StatesMax || result.States > options.StatesMax+100 || calls == 0 {
		t.Errorf("%+v, %v", result, err)
	}
}
