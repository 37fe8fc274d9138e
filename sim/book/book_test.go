package book

import (
	"context"
	"errors"
	"io"
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
		seeds /= 3
	}
	return max(seeds, 2)
}

// TestBooks judges many seeds with all faults.
func TestBooks(t *testing.T) {
	t.Parallel()
	var sum Result
	count := share(100)
	if err := sweep.Seeds(context.Background(), 1, count, Options{Faults: FaultsAll}.RunSeed,
		func(r Result) bool {
			sum.Faults += r.Faults
			sum.Generations += r.Generations
			sum.Lost += r.Lost
			sum.Blocks += r.Blocks
			sum.Applied += r.Applied
			sum.Refused += r.Refused
			sum.Late += r.Late
			sum.Losses += r.Losses
			sum.Inherited += r.Inherited
			sum.Withdrawn += r.Withdrawn
			sum.Grouped += r.Grouped
			sum.Foreseen += r.Foreseen
			if len(r.Violations) > 0 {
				t.Errorf("seed %d, %s:\n%v", r.Seed, r.Plan, r.Violations[0])
			}
			return len(r.Violations) == 0
		}); err != nil {
		t.Fatal(err)
	}
	if !raceEnabled && (sum.Faults < count || sum.Lost < count/20 || sum.Applied < count*10 ||
		sum.Late < count/4 || sum.Losses < count/10 || sum.Inherited < count/40 ||
		sum.Withdrawn < count/10 || sum.Grouped < count*4 || sum.Foreseen < count) {
		t.Error("the seeds are too kind")
	}
	t.Logf("%d seeds: %d blocks, %d parts took effect, %d did not, %d of these for another shard "+
		"was late and %d for it was cancelled there, %d faults, %d new generations, %d blocks "+
		"lost, %d settlements with lost shards, %d testimonies that they agreed, %d verdicts "+
		"told in groups, %d failures foreseen",
		count, sum.Blocks, sum.Applied, sum.Refused, sum.Late, sum.Withdrawn, sum.Faults,
		sum.Generations, sum.Lost, sum.Losses, sum.Inherited, sum.Grouped, sum.Foreseen)
}

// TestRunsRepeat: the same options give the same run, with a trace or without.
func TestRunsRepeat(t *testing.T) {
	t.Parallel()
	for seed := range uint64(5) {
		options := Options{Seed: seed, Faults: FaultsAll}
		first, err := Run(options)
		if err != nil {
			t.Fatal(err)
		}
		options.Trace = io.Discard
		if again, err := Run(options); err != nil || again.Hash != first.Hash ||
			again.Turns != first.Turns {
			t.Errorf("seed %d: %x in %d turns, then %x in %d: %v", seed, first.Hash, first.Turns,
				again.Hash, again.Turns, err)
		}
	}
}

// TestShrink: a smaller run breaks the same property.
func TestShrink(t *testing.T) {
	t.Parallel()
	options := Options{Seed: 1, Submissions: 24, Faults: FaultsAll, Plant: plantRelayedForgotten}
	found, err := Run(options)
	if err != nil || len(found.Violations) == 0 {
		t.Fatalf("nothing is broken: %v", err)
	}
	smaller, result := Shrink(options, found)
	if result.broken() != found.broken() {
		t.Fatalf("%s is broken, then %s", found.broken(), result.broken())
	}
	if smaller.OnlySubmissions == nil || result.Submissions >= found.Submissions ||
		result.Faults > found.Faults {
		t.Errorf("%d bundles of %d and faults %v are left", result.Submissions, found.Submissions,
			smaller.OnlyFaults)
	}
	if again, err := Run(smaller); err != nil || again.Hash != result.Hash {
		t.Errorf("the smaller run does not repeat: %v", err)
	}
}

// TestOptions: options that describe no run are refused.
func TestOptions(t *testing.T) {
	t.Parallel()
	for _, options := range []Options{{Shards: 1}, {Shards: ShardsMax + 1},
		{Members: MembersMax + 1}, {Submissions: -1}, {Plant: "no such"}} {
		if _, err := Run(options); !errors.Is(err, ErrOptions) {
			t.Errorf("%+v: %v", options, err)
		}
	}
	if _, err := ParseFaults("crash,flood"); !errors.Is(err, ErrOptions) {
		t.Error(err)
	}
}
