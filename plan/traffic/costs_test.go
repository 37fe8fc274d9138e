package traffic

import (
	"errors"
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/ledgerd/ledgerd/tram"
)

// measure returns what the model says that a load takes.
func measure(t *rapid.T, tree *tram.Tree, costs Costs, crossing int) MeasuredLoad {
	even, homes, err := Uniform(tree.Groups(), crossing)
	if err != nil {
		t.Fatal(err)
	}
	e, err := EstimateOf(Book{tree, even, homes, costs})
	if err != nil {
		t.Fatal(err)
	}
	load := MeasuredLoad{Crossing: e.CrossingShare()}
	for _, each := range e.Loads {
		load.Work = append(load.Work, each.Work/float64(e.Transactions))
	}
	return load
}

// Costs that made the loads are found again, if they have the proportions.
func TestFitCosts(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		shards := rapid.IntRange(2, 9).Draw(t, "shards")
		tree := rapid.SampledFrom([]*tram.Tree{tram.Breadth(shards), tram.Binary(shards),
			tram.Chain(shards)}).Draw(t, "tree")
		times := rapid.Float64Range(0.1, 10).Draw(t, "times")
		cost := rapid.Float64Range(0.5, 30)
		want := Costs{cost.Draw(t, "single"), cost.Draw(t, "plain"), times * MeasuredCosts.Crossing,
			times * MeasuredCosts.Relay, times * MeasuredCosts.Verdict}
		loads := []MeasuredLoad{measure(t, tree, want, 0)}
		for _, crossing := range rapid.SliceOfN(rapid.IntRange(1, 100), 1, 3).Draw(t, "crossing") {
			loads = append(loads, measure(t, tree, want, crossing))
		}
		got, err := FitCosts(tree, want.Single, rapid.Permutation(loads).Draw(t, "loads"))
		if err != nil {
			t.Fatal(err)
		}
		for i, pair := range [][2]float64{{got.Single, want.Single}, {got.Plain, want.Plain},
			{got.Crossing, want.Crossing}, {got.Relay, want.Relay}, {got.Verdict, want.Verdict}} {
			if math.Abs(pair[0]-pair[1]) > 1e-9*pair[1] {
				t.Fatalf("cost %d is %v, want %v", i, pair[0], pair[1])
			}
		}
	})
}

func TestFitCostsRefuses(t *testing.T) {
	t.Parallel()
	for name, loads := range map[string][]MeasuredLoad{
		"nothing":              nil,
		"no crossings":         {{0, []float64{1, 1}}},
		"crossings only":       {{1, []float64{1, 1}}},
		"another tree":         {{0, []float64{1, 1}}, {1, []float64{1}}},
		"no share":             {{0, []float64{1, 1}}, {2, []float64{1, 1}}},
		"crossings for free":   {{0, []float64{1, 1}}, {1, []float64{0, 0}}},
		"less than for free":   {{0, []float64{1, 1}}, {0.5, []float64{0.1, 0.1}}},
		"no number":            {{0, []float64{1, math.NaN()}}, {1, []float64{2, 2}}},
		"more than any number": {{0, []float64{1, 1}}, {1, []float64{math.Inf(1), 1}}},
	} {
		if got, err := FitCosts(tram.Breadth(2), 1, loads); !errors.Is(err, ErrBook) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	good := []MeasuredLoad{{0, []float64{1, 1}}, {1, []float64{2, 2}}}
	if _, err := FitCosts(tram.Breadth(2), 0, good); !errors.Is(err, ErrBook) {
		t.Error(err)
	}
	if _, err := FitCosts(nil, 1, good); !errors.Is(err, ErrBook) {
		t.Error(err)
	}
	if _, err := FitCosts(tram.Breadth(1), 1, nil); !errors.Is(err, ErrBook) {
		t.Error(err)
	}
	if _, err := FitCosts(tram.Breadth(2), 1, good); err != nil {
		t.Error(err)
	}
}
