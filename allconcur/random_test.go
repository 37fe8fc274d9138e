package allconcur

import (
	"flag"
	"fmt"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/digraph"
)

var (
	seedsFlag = flag.Int("allconcur.seeds", 100, "random schedules for each group in TestRandomSchedules")
	firstSeed = flag.Uint64("allconcur.seed", 1, "the first seed in TestRandomSchedules")
)

// overlays lists reliable digraphs to run over.
func overlays(tb testing.TB, n int) []*digraph.Digraph {
	tb.Helper()
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

// runSeed runs one random schedule and judges it.
func runSeed(seed uint64, config Config, losesTail bool, j judgement) (*network, error) {
	w, err := newNetwork(seed, config)
	if err != nil {
		return nil, err
	}
	w.losesTail = losesTail
	crashes := 0
	if f := w.engines[0].tolerated; f > 0 {
		crashes = w.rng.IntN(f + 1)
	}
	steps := 20 + w.rng.IntN(60*config.Servers)
	if err := w.run(steps, crashes); err != nil {
		return w, err
	}
	return w, w.judge(j)
}

func tail(text string) string {
	lines := strings.Split(text, "\n")
	return strings.Join(lines[max(0, len(lines)-120):], "\n")
}

// TestRandomSchedules judges thousands of random schedules of groups of 1 to 9 servers.
func TestRandomSchedules(t *testing.T) {
	t.Parallel()
	for _, engine := range []string{EngineAllConcur, EngineAllConcurPlus} {
		for n := 1; n <= 9; n++ {
			for _, g := range overlays(t, n) {
				for _, losesTail := range []bool{false, true} {
					t.Run(fmt.Sprintf("%s/%d/%s/losesTail=%t", engine, n, g.Kind(), losesTail), func(t *testing.T) {
						t.Parallel()
						config := Config{Engine: engine, Servers: n, Reliable: g, Generation: 7}
						for i := range *seedsFlag {
							seed := *firstSeed + uint64(i)
							// A crash that loses frames already handed over breaks the model's channels; what the crashed server
							// A-delivered last is its own then.
							if w, err := runSeed(seed, config, losesTail, judgement{uniform: !losesTail}); err != nil {
								t.Fatalf("seed %d: %v\n%s", seed, err, tail(w.trace.String()))
							}
						}
					})
				}
			}
		}
	}
}

// caught counts in how many of the seeds the judge says no.
func caught(config Config, seeds int, j judgement) int {
	count := 0
	for seed := range seeds {
		if _, err := runSeed(uint64(seed+1), config, false, j); err != nil {
			count++
		}
	}
	return count
}

// TestPlantedBugsAreCaught proves that the judge of TestRandomSchedules can say no, for each fault that can be planted.
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
					continue // f is 1: only the server that failed is not there, so that nobody fails in a reliable round
				}
				t.Run(fmt.Sprintf("%s/%s/%d", plant.fault, engine, n), func(t *testing.T) {
					t.Parallel()
					list := overlays(t, n)
					config := Config{Engine: engine, Servers: n, Reliable: list[len(list)-1], Fault: plant.fault}
					if caught(config, 400, judgement{uniform: true}) == 0 {
						t.Fatal("the planted bug goes unnoticed in 400 schedules")
					}
				})
			}
		}
	}
}

// TestNonUniformDelivery shows what the option costs: survivors agree, but a crashed server may have A-delivered what they do not [Poke19, section 6.4.2].
func TestNonUniformDelivery(t *testing.T) {
	t.Parallel()
	config := Config{Engine: EngineAllConcurPlus, Servers: 5, Reliable: overlays(t, 5)[0], NonUniform: true}
	const seeds = 1500
	for seed := range seeds {
		if w, err := runSeed(uint64(seed+1), config, false, judgement{}); err != nil {
			t.Fatalf("seed %d: %v\n%s", seed+1, err, tail(w.trace.String()))
		}
	}
	if caught(config, seeds, judgement{uniform: true}) == 0 {
		t.Fatal("no schedule breaks uniformity, so that the judge of uniformity proves nothing")
	}
}

// TestFalseSuspicions accuses servers that are fine, each by one of its successors, within what the group tolerates together with crashes. The accused
// stops when it hears of it, so that all looks as if it had crashed, its last frames to that successor unsent: nothing may break.
func TestFalseSuspicions(t *testing.T) {
	t.Parallel()
	for _, engine := range []string{EngineAllConcur, EngineAllConcurPlus} {
		for _, n := range []int{3, 5, 8, 9} {
			for _, g := range overlays(t, n) {
				t.Run(fmt.Sprintf("%s/%d/%s", engine, n, g.Kind()), func(t *testing.T) {
					t.Parallel()
					config := Config{Engine: engine, Servers: n, Reliable: g}
					for i := range *seedsFlag {
						seed := *firstSeed + uint64(i)
						w, err := newNetwork(seed, config)
						if err != nil {
							t.Fatal(err)
						}
						f := w.engines[0].tolerated
						w.lies = 1 + w.rng.IntN(f)
						if err = w.run(20+w.rng.IntN(40*n), f-w.lies); err == nil {
							err = w.judge(judgement{uniform: true})
						}
						if err != nil {
							t.Fatalf("seed %d: %v\n%s", seed, err, tail(w.trace.String()))
						}
					}
				})
			}
		}
	}
}
