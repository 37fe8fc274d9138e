package digraph

import (
	"errors"
	"math"
	"math/bits"
	"testing"

	"pgregory.net/rapid"
)

// faultDiameter computes the fault diameter by its definition: the largest diameter after removing
// any f vertices. f must be below the connectivity.
func faultDiameter(g *Digraph, f int) int {
	largest := 0
	for removed := range uint(1) << g.Order() {
		if bits.OnesCount(removed) == f {
			for s := range g.Order() {
				if removed>>s&1 == 0 {
					largest = max(largest, eccentricity(g, s, removed))
				}
			}
		}
	}
	return largest
}

// eccentricity returns the largest distance from s without the removed vertices.
func eccentricity(g *Digraph, s int, removed uint) int {
	seen, layer := removed|1<<s, []int{s}
	for distance := 0; ; distance++ {
		var next []int
		for _, u := range layer {
			for _, v := range g.Successors(u) {
				if seen>>v&1 == 0 {
					seen |= 1 << v
					next = append(next, v)
				}
			}
		}
		if len(next) == 0 {
			return distance
		}
		layer = next
	}
}

// minimalSumByEnumeration tries every choice of count disjoint paths from s to t and returns the
// smallest sum of lengths.
func minimalSumByEnumeration(g *Digraph, s, t, count int) int {
	type path struct {
		interior uint
		length   int
	}
	var paths []path
	var walk func(u int, interior uint, length int)
	walk = func(u int, interior uint, length int) {
		for _, v := range g.Successors(u) {
			switch {
			case v == t:
				paths = append(paths, path{interior, length + 1})
			case v != s && interior>>v&1 == 0:
				walk(v, interior|1<<v, length+1)
			}
		}
	}
	walk(s, 0, 0)
	best := math.MaxInt
	var choose func(from int, used uint, direct bool, left, sum int)
	choose = func(from int, used uint, direct bool, left, sum int) {
		if sum+left >= best && left > 0 {
			return
		}
		if left == 0 {
			best = min(best, sum)
			return
		}
		for i := from; i < len(paths); i++ {
			if p := paths[i]; used&p.interior == 0 {
				choose(i+1, used|p.interior, direct || p.length == 1, left-1, sum+p.length)
			}
		}
	}
	choose(0, 0, false, count, 0)
	return best
}

// sumOfFlow counts the edges that the paths of the last search use.
func sumOfFlow(d *disjointSearch) int {
	sum := 0
	for a := range d.arcs {
		if arc := int32(a); d.isReal(arc) && !d.free[arc] && d.arcs[arc].length == 1 {
			sum++
		}
	}
	return sum
}

func TestFaultDiameterBoundHolds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		g := anyDigraph(8).Draw(t, "digraph")
		if g.Connectivity() == 0 {
			return
		}
		f := rapid.IntRange(0, g.Connectivity()-1).Draw(t, "f")
		bound, err := g.FaultDiameterBound(f)
		if err != nil {
			t.Fatal(err)
		}
		if exact := faultDiameter(g, f); bound < exact {
			t.Fatalf("bound %d, but the fault diameter is %d: %v", bound, exact, g.Edges())
		}
		if diameter, _ := g.Diameter(); f == 0 && bound != diameter {
			t.Fatalf("bound %d without failures, diameter %d", bound, diameter)
		}
	})
}

func TestDisjointPathsHaveTheSmallestSum(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		g := anyDigraph(7).Draw(t, "digraph")
		if g.Connectivity() == 0 {
			return
		}
		count := rapid.IntRange(1, g.Connectivity()).Draw(t, "count")
		search := newDisjointSearch(g)
		for target := range g.Order() {
			search.aimAt(target)
			for source := range g.Order() {
				if source == target {
					continue
				}
				longest := search.longestFrom(source, count)
				sum, want := sumOfFlow(search), minimalSumByEnumeration(g, source, target, count)
				if sum != want || longest*count < sum || longest > sum {
					t.Fatalf("%d paths from %d to %d: sum %d, longest %d, want sum %d: %v", count,
						source, target, sum, longest, want, g.Edges())
				}
			}
		}
	})
}

// TestPairsAlikeHaveEqualSums checks the property that lets pairs share a result: the smallest sums
// of alike pairs are equal, unless an edge joins them.
func TestPairsAlikeHaveEqualSums(t *testing.T) {
	t.Parallel()
	for _, size := range [][2]int{{6, 3}, {9, 3}, {11, 3}, {12, 3}, {18, 4}, {22, 4}, {30, 5}} {
		g := mustGS(t, size[0], size[1])
		search := newDisjointSearch(g)
		for _, targets := range groupByNeighbours(g.Order(), g.predecessors) {
			for _, sources := range groupByNeighbours(g.Order(), g.successors) {
				first := 0
				for _, target := range targets {
					search.aimAt(target)
					for _, source := range sources {
						if source == target || g.HasEdge(source, target) {
							continue
						}
						search.longestFrom(source, size[1])
						sum := sumOfFlow(search)
						if first == 0 {
							first = sum
						}
						if sum != first {
							t.Errorf("GS(%d,%d): from %d to %d the sum is %d, for others alike %d",
								size[0], size[1], source, target, sum, first)
						}
					}
				}
			}
		}
	}
}

// TestFaultDiameterBoundOfBinomialGraph checks the example of [Poke19, section 5.6.2.3]: for the
// binomial graph of 12 vertices the estimate is 3 <= δ_f <= 4 with f = 5.
func TestFaultDiameterBoundOfBinomialGraph(t *testing.T) {
	t.Parallel()
	g := mustBuild(t, Binomial, 12)
	if bound, err := g.FaultDiameterBound(5); err != nil || bound != 4 {
		t.Errorf("bound %d, %v, want 4", bound, err)
	}
	if exact := faultDiameter(g, 5); exact > 4 {
		t.Errorf("fault diameter %d", exact)
	}
}

// TestFaultDiameterBoundOfGS checks that the fault diameters of GS are low [Poke19, section 5.6.4].
// The table has the bounds that the search returns, and the exact values for small n.
func TestFaultDiameterBoundOfGS(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		n, d, bound int
	}{{6, 3, 3}, {8, 3, 4}, {9, 3, 4}, {11, 3, 5}, {11, 5, 3}, {16, 4, 5}, {64, 5, 7}, {90, 5, 6},
		{128, 5, 6}} {
		g := mustGS(t, test.n, test.d)
		bound, err := g.FaultDiameterBound(test.d - 1)
		if err != nil || bound != test.bound {
			t.Errorf("GS(%d,%d): bound %d, %v, want %d", test.n, test.d, bound, err, test.bound)
		}
		if test.n <= 16 {
			if exact := faultDiameter(g, test.d-1); bound < exact {
				t.Errorf("GS(%d,%d): bound %d, exact %d", test.n, test.d, bound, exact)
			}
		}
	}
}

func TestFaultDiameterBoundOfSmallOnes(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		g        *Digraph
		f, bound int
	}{
		{mustBuild(t, Complete, 1), 0, 0},
		{mustBuild(t, Complete, 2), 0, 1},
		{mustBuild(t, Complete, 5), 0, 1},
		{mustBuild(t, Complete, 5), 3, 2},
		{mustBuild(t, Ring, 7), 0, 6},
	} {
		if bound, err := test.g.FaultDiameterBound(test.f); err != nil || bound != test.bound {
			t.Errorf("%s of %d, f = %d: bound %d, %v, want %d", test.g.Kind(), test.g.Order(),
				test.f, bound, err, test.bound)
		}
	}
	for _, test := range []struct {
		g *Digraph
		f int
	}{
		{mustBuild(t, Complete, 1), 1},
		{mustBuild(t, Complete, 5), -1},
		{mustBuild(t, Complete, 5), 4},
		{mustBuild(t, Ring, 7), 1},
		{mustGS(t, 8, 3), 3},
	} {
		if _, err := test.g.FaultDiameterBound(test.f); !errors.Is(err, ErrFailures) {
			t.Errorf("%s of %d, f = %d: %v, want %v", test.g.Kind(), test.g.Order(), test.f,
				err, ErrFailures)
		}
	}
}
