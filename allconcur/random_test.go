package allconcur

import (
	"flag"
	"fmt"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/digraph"
	"github.com/ledgerd/ledgerd/order"
)

var (
	seedsFlag = flag.Int("allconcur.seeds", seedsDefault,
		"random schedules for each group in TestRandomSchedules")
	firstSeed = flag.Uint64("allconcur.seed", 1, "the first seed in TestRandomSchedules")
)

// overlays lists reliable digraphs to run over.
func overlays(tb testing.TB, n int) []*digraph.Digraph {
	tb.Helper()
	if n > 10 {
		gs, err := digraph.GS(n, 5)
		if err != nil {
			tb.Fatal(err)
		}
		return []*digraph.Digraph{gs}
	}
	complete, err := digraph.Complete(n)
	if err != nil {
		tb.Fatal(err)
	}
	list := []*digraph.Digraph{complete}
	if n >= 6 {
		gs, err := digraph.GS(n, 3)
		if err != nil {
			tb.Fatal(err)
		}
		list = append(list, gs)
	}
	return list
}

// schedule is one random run.
type schedule struct {
	seed      uint64
	config    Config
	losesTail bool
	lies      bool
	lends     bool
	hasty     order.Round
	j         judgement
}

// run runs the schedule and judges it, with a trace if one is given.
func (s schedule) run(trace *strings.Builder) error {
	w, err := newNetwork(s.seed, s.config)
	if err != nil {
		return err
	}
	w.losesTail, w.trace, w.hasty = s.losesTail, trace, s.hasty
	if s.lends {
		w.lendsAll()
	}
	f := w.engines[0].tolerated
	crashes := w.rng.IntN(f + 1)
	if s.lies {
		w.lies = f - min(crashes, f-1)
		crashes = f - w.lies
	}
	if err := w.run(20+w.rng.IntN(60*s.config.Servers), crashes); err != nil {
		return err
	}
	return w.judge(s.j)
}

// check runs a number of schedules, starting with that seed, and reports the first that fails, with
// its trace.
func (s schedule) check(t *testing.T, seeds int) {
	t.Helper()
	for range seeds {
		if err := s.run(nil); err != nil {
			trace := &strings.Builder{}
			again := s.run(trace)
			t.Fatalf("-allconcur.seed %d: %v (again: %v)\n%s", s.seed, err,
				again, tail(trace.String()))
		}
		s.seed++
	}
}

// caught reports whether one of a number of schedules fails.
func (s schedule) caught(seeds int) bool {
	for range seeds {
		if s.run(nil) != nil {
			return true
		}
		s.seed++
	}
	return false
}

func tail(text string) string {
	lines := strings.Split(text, "\n")
	return strings.Join(lines[max(0, len(lines)-120):], "\n")
}

// TestRandomSchedules judges thousands of random schedules of groups of 1 to 16 servers.
func TestRandomSchedules(t *testing.T) {
	t.Parallel()
	for _, engine := range []string{EngineAllConcur, EngineAllConcurPlus} {
		for _, n := range []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 16} {
			for _, g := range overlays(t, n) {
				for _, losesTail := range []bool{false, true} {
					t.Run(fmt.Sprintf("%s/%d/%s/losesTail=%t", engine, n, g.Kind(),
						losesTail), func(t *testing.T) {
						t.Parallel()
						// A crash that loses frames already handed over breaks the model's
						// channels. Then what the crashed server A-delivered last may be known to
						// it alone.
						schedule{
							seed: *firstSeed, config: Config{Detector: DetectorPerfect,
								Engine: engine, Servers: n, Reliable: g, Generation: 7,
								AssertPropositions: !losesTail}, losesTail: losesTail,
							j: judgement{uniform: !losesTail},
						}.check(t, seedsFor(n))
					})
				}
			}
		}
	}
}

// seedsFor returns the number of schedules to run, fewer for larger groups.
func seedsFor(n int) int { return max(1, seeds()*3/(3+max(0, n-6))) }

// seeds and states return the flags' values, or less with -short.
func seeds() int {
	if testing.Short() {
		return *seedsFlag / 40
	}
	return *seedsFlag
}

func states() int {
	if testing.Short() {
		return *searchFlag / 40
	}
	return *searchFlag
}

// skipIfShort skips tests that test the judges: they prove nothing about the engine.
func skipIfShort(t *testing.T) {
	if testing.Short() {
		t.Skip("it judges the test, not what is tested")
	}
}

// TestLentFrames takes back each frame once the engine's horizon is A-delivered, and overwrites it.
// If it is taken back two rounds before, some server A-delivers something else. TestStorms does the
// same with detectors that err.
func TestLentFrames(t *testing.T) {
	t.Parallel()
	for _, engine := range []string{EngineAllConcur, EngineAllConcurPlus} {
		for _, n := range []int{3, 4, 5, 8} {
			t.Run(fmt.Sprintf("%s/%d", engine, n), func(t *testing.T) {
				t.Parallel()
				list := overlays(t, n)
				s := schedule{seed: *firstSeed, config: Config{Detector: DetectorPerfect,
					Engine: engine, Servers: n, Reliable: list[len(list)-1],
					AssertPropositions: true}, lends: true, j: judgement{uniform: true}}
				s.check(t, seedsFor(n))
				s.hasty = 2
				if !s.caught(100) {
					t.Error("frames that are taken back too soon go unnoticed in 100 schedules")
				}
			})
		}
	}
}

// TestPlantedBugsAreCaught proves that the judge of TestRandomSchedules can fail, for each fault
// that can be planted.
func TestPlantedBugsAreCaught(t *testing.T) {
	t.Parallel()
	both := []string{EngineAllConcur, EngineAllConcurPlus}
	for _, plant := range []struct {
		fault   Fault
		engines []string
	}{
		{FaultDroppedForward, both},
		{FaultEarlyDelivery, []string{EngineAllConcurPlus}}, // AllConcur has no unreliable rounds
		{FaultPrunedTooSoon, both},
	} {
		for _, engine := range plant.engines {
			for _, n := range []int{3, 5, 8} {
				if n == 3 && engine == EngineAllConcurPlus && plant.fault != FaultEarlyDelivery {
					// f is 1: only the failed server is missing, so no server fails in a reliable
					// round.
					continue
				}
				t.Run(fmt.Sprintf("%s/%s/%d", plant.fault, engine, n), func(t *testing.T) {
					t.Parallel()
					list := overlays(t, n)
					config := Config{Detector: DetectorPerfect, Engine: engine, Servers: n,
						Reliable: list[len(list)-1], Fault: plant.fault}
					if !(schedule{seed: 1, config: config, j: judgement{uniform: true}}).caught(
						400) {
						t.Fatal("the planted bug goes unnoticed in 400 schedules")
					}
				})
			}
		}
	}
}

// TestNonUniformDelivery shows the cost of the option: survivors agree, but a crashed server may
// have A-delivered what they do not [Poke19, section 6.4.2].
func TestNonUniformDelivery(t *testing.T) {
	t.Parallel()
	config := Config{Detector: DetectorPerfect, Engine: EngineAllConcurPlus, Servers: 5,
		Reliable: overlays(t, 5)[0], NonUniform: true}
	const most = 1500
	schedule{seed: 1, config: config}.check(t, min(most, seeds()*10))
	skipIfShort(t)
	if !(schedule{seed: 1, config: config, j: judgement{uniform: true}}).caught(most) {
		t.Fatal("no schedule breaks uniformity, so that the judge of uniformity proves nothing")
	}
}

// TestFalseSuspicions accuses servers that work, each by one of its successors, within what the
// group tolerates together with crashes. An accused server stops when it learns of it. It then
// looks as if it had crashed with its last frames to that successor unsent, so nothing may break.
func TestFalseSuspicions(t *testing.T) {
	t.Parallel()
	for _, engine := range []string{EngineAllConcur, EngineAllConcurPlus} {
		for _, n := range []int{3, 5, 8, 9} {
			for _, g := range overlays(t, n) {
				t.Run(fmt.Sprintf("%s/%d/%s", engine, n, g.Kind()), func(t *testing.T) {
					t.Parallel()
					schedule{
						seed: *firstSeed, config: Config{Detector: DetectorPerfect, Engine: engine,
							Servers: n, Reliable: g}, lies: true, j: judgement{uniform: true},
					}.check(t, seeds())
				})
			}
		}
	}
}
