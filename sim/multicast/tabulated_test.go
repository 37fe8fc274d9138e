package multicast

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"
)

// TestTabulatedLeavesOutNothing checks that tabulated searches with and without rules reach the
// same states at rest, with and without faults. The errors that a crash brings are among them.
func TestTabulatedLeavesOutNothing(t *testing.T) {
	t.Parallel()
	if raceEnabled {
		t.Skip("the search is not parallel")
	}
	cases := []struct {
		options              SearchOptions
		reduced, whole, rest int // states
	}{
		{SearchOptions{Replicas: 2, Messages: 1}, 310, 2253, 4},
		{SearchOptions{Replicas: 2, Messages: 1, Crashes: 1}, 1268, 9089, 148},
		{SearchOptions{Replicas: 2, Messages: 1, Leads: 1}, 3197, 39598, 39},
	}
	if testing.Short() {
		cases = cases[:2]
	}
	for _, c := range cases {
		c.options.Engine, c.options.Groups, c.options.Tabulated = EngineDARE, 1, true
		var rests [2]map[fingerprint]bool
		for i, states := range []int{c.reduced, c.whole} {
			c.options.Unreduced, c.options.rests = i == 1, map[fingerprint]bool{}
			result, err := Search(context.Background(), c.options)
			if err != nil || !result.Complete || result.States != states {
				t.Errorf("%+v, want %d states, %v", result, states, err)
			}
			rests[i] = c.options.rests
			t.Logf("unreduced %v: %d states, %d transitions, %d ends, depth %d",
				c.options.Unreduced, result.States, result.Transitions, result.Ends, result.Depth)
		}
		if len(rests[0]) != c.rest || !maps.Equal(rests[0], rests[1]) {
			t.Errorf("%d states at rest, without rules %d, want %d", len(rests[0]), len(rests[1]),
				c.rest)
		}
	}
}

// TestOneOrderSettles checks that the search may let everything come in one order: with two
// servers, two operations that come last lead to the same state in both orders, in all states.
func TestOneOrderSettles(t *testing.T) {
	t.Parallel()
	if raceEnabled {
		t.Skip("the search is not parallel")
	}
	for _, options := range []SearchOptions{
		{Replicas: 2, Messages: 1, Crashes: 1},
		{Replicas: 2, Messages: 1, Leads: 1},
	} {
		options.Engine, options.Groups, options.Tabulated = EngineDARE, 1, true
		options.StatesMax, options.DepthMax = StatesMaxDefault, DepthMaxDefault
		x := &explorer{ctx: t.Context(), options: options}
		var err error
		if x.play, err = newPlay(options, nil); err != nil {
			t.Fatal(err)
		}
		s, err := newTabulation(x)
		if err != nil {
			t.Fatal(err)
		}
		s.explore(s.table.first(), 0)
		pairs := 0
		for g := range s.seen {
			pairs += s.orders(t, g)
		}
		if x.result.Bound != "" || pairs == 0 {
			t.Errorf("%+v: %d pairs of operations, %+v", options, pairs, x.result)
		}
	}
}

// orders lets everything come from a state, as settle does, and compares both orders of each two
// operations that come next. It returns their number.
func (s *tabulation) orders(t *testing.T, g tabled) (pairs int) {
	for more := true; more; more = s.unsettled(&g, new([]step)) {
		var all []step
		for holder := range s.play.standings {
			l := s.table.local(&g, holder)
			for i := range l.ways {
				if !l.crashed {
					all = append(all, l.ways[i].step(holder, choiceLand))
				}
			}
		}
		for i, one := range all {
			for _, other := range all[:i] {
				pairs++
				if s.table.take(s.table.take(g, one), other) !=
					s.table.take(s.table.take(g, other), one) {
					t.Fatalf("the order of %+v and %+v matters", one, other)
				}
			}
		}
	}
	for _, one := range s.strays(&g) {
		pairs += s.orders(t, s.table.take(g, one))
	}
	return pairs
}

// TestTabulatedFindsPlantedBugsOfDARE checks that a tabulated search finds bugs of elections and of
// logs, and describes the path.
func TestTabulatedFindsPlantedBugsOfDARE(t *testing.T) {
	t.Parallel()
	if raceEnabled {
		t.Skip("the search is not parallel")
	}
	for _, c := range []struct {
		plant, evidence string
		leads           int
	}{
		{"tail-before-entries", "I5", 0},
		{"zombie-counted-as-vote", "I1", 1},
	} {
		result, err := Search(context.Background(), SearchOptions{Engine: EngineDARE,
			Plant: c.plant, Groups: 1, Replicas: 2, Messages: 1, Leads: c.leads, Tabulated: true})
		if err != nil || result.Violation == nil || result.Violation.Property != Invariant ||
			!strings.HasPrefix(result.Violation.Evidence[0], c.evidence) {
			t.Fatalf("%s: %+v, %v", c.plant, result, err)
		}
		t.Logf("%s: %d states\n%s\n%v", c.plant, result.States, strings.Join(result.Path, "\n"),
			result.Violation)
	}
}

// TestTabulatedRefuses checks that a search which cannot be tabulated says so.
func TestTabulatedRefuses(t *testing.T) {
	t.Parallel()
	for _, options := range []SearchOptions{
		{Engine: EngineSequencer, Groups: 1, Replicas: 1, Messages: 1},
		{Engine: EngineDARE, Groups: 1, Replicas: 2, Messages: 1, Ticks: 1},
	} {
		options.Tabulated = true
		if _, err := Search(context.Background(), options); !errors.Is(err, ErrOptions) {
			t.Errorf("%+v: %v", options, err)
		}
	}
}
