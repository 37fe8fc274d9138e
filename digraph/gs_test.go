package digraph

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// checkGS returns an error if a digraph lacks a property of GS(n,d): regularity, optimal
// connectivity and, for n <= d^3 + d, a quasi-minimal diameter [Poke19, section 5.6.4].
func checkGS(g *Digraph, n, d int) error {
	if g.Order() != n || g.Degree() != d {
		return fmt.Errorf("order %d and degree %d, want %d and %d", g.Order(), g.Degree(), n, d)
	}
	for v := range n {
		if len(g.Successors(v)) != d || len(g.Predecessors(v)) != d {
			return fmt.Errorf("vertex %d has %d successors and %d predecessors, want %d", v,
				len(g.Successors(v)), len(g.Predecessors(v)), d)
		}
	}
	if g.Connectivity() != d {
		return fmt.Errorf("connectivity %d, want %d", g.Connectivity(), d)
	}
	diameter, err := g.Diameter()
	if err != nil {
		return err
	}
	smallest := MinimalDiameter(n, d)
	if diameter < smallest || n <= d*d*d+d && diameter > smallest+1 {
		return fmt.Errorf("diameter %d, want %d or %d", diameter, smallest, smallest+1)
	}
	return nil
}

// TestTable53 checks [Poke19, table 5.3]: the degree for 6 nines over 24 hours, the diameter and
// its lower bound.
func TestTable53(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ n, degree, diameter, smallest int }{
		{6, 3, 2, 2}, {8, 3, 2, 2}, {11, 3, 3, 2}, {16, 4, 2, 2}, {22, 4, 3, 3}, {32, 4, 3, 3},
		{45, 4, 4, 3}, {64, 5, 4, 3}, {90, 5, 3, 3},
		{128, 5, 4, 3}, {256, 7, 4, 3}, {512, 8, 3, 3}, {1024, 11, 4, 3},
	} {
		degree, err := Degree(row.n, Target{})
		if err != nil || degree != row.degree {
			t.Errorf("degree for n = %d: %d, %v, want %d", row.n, degree, err, row.degree)
			continue
		}
		g := mustGS(t, row.n, degree)
		if diameter, err := g.Diameter(); err != nil || diameter != row.diameter {
			t.Errorf("diameter of GS(%d,%d): %d, %v, want %d", row.n, degree, diameter, err,
				row.diameter)
		}
		if got := MinimalDiameter(row.n, degree); got != row.smallest {
			t.Errorf("smallest diameter for n = %d, d = %d: %d, want %d", row.n, degree, got,
				row.smallest)
		}
		if err := checkGS(g, row.n, degree); err != nil {
			t.Errorf("GS(%d,%d): %v", row.n, degree, err)
		}
	}
}

// TestTable62 checks [Poke19, table 6.2]: the vertex-connectivity for the same target.
func TestTable62(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ n, connectivity int }{
		{8, 3}, {18, 4}, {30, 4}, {32, 4}, {72, 5}, {75, 5}, {128, 5}, {140, 6}, {225, 6}, {242, 7},
		{450, 8}, {455, 8},
	} {
		g := mustBuild(t, func(n int) (*Digraph, error) { return Reliable(n, Target{}) }, row.n)
		if g.Kind() != KindGS || g.Connectivity() != row.connectivity {
			t.Errorf("n = %d: %s with connectivity %d, want %d", row.n, g.Kind(), g.Connectivity(),
				row.connectivity)
		}
	}
}

// TestGS93 checks the overlay of the running example [Poke19, section 5.2.1 and figure 5.2]: the
// successors of p0 are p3, p4 and p5, and p7 is a successor of p2.
func TestGS93(t *testing.T) {
	t.Parallel()
	g := mustGS(t, 9, 3)
	want := [][]int{{3, 4, 5}, {3, 4, 5}, {6, 7, 8}, {0, 1, 2}, {6, 7, 8}, {6, 7, 8}, {0, 1, 2},
		{0, 1, 2}, {3, 4, 5}}
	for v := range want {
		if got := g.Successors(v); !slices.Equal(got, want[v]) {
			t.Errorf("successors of %d: %v, want %v", v, got, want[v])
		}
	}
}

// TestGS83 pins every edge of a digraph with a remainder, t = 2. Servers that run different builds
// must agree on it.
func TestGS83(t *testing.T) {
	t.Parallel()
	g := mustGS(t, 8, 3)
	want := [][]int{{3, 4, 5}, {3, 4, 5}, {3, 4, 5}, {1, 2, 6}, {0, 6, 7}, {0, 2, 7}, {0, 1, 7},
		{1, 2, 6}}
	for v := range want {
		if got := g.Successors(v); !slices.Equal(got, want[v]) {
			t.Errorf("successors of %d: %v, want %v", v, got, want[v])
		}
	}
}

// TestGSSweep checks every n and every degree up to a limit, which covers every remainder.
// LEDGERD_LONG_TESTS raises the limits.
func TestGSSweep(t *testing.T) {
	t.Parallel()
	sweep := func(maxOrder, maxDegree int) {
		for n := 6; n <= maxOrder; n++ {
			for d := 3; d <= min(maxDegree, n/2); d++ {
				if err := checkGS(mustGS(t, n, d), n, d); err != nil {
					t.Errorf("GS(%d,%d): %v", n, d, err)
				}
			}
		}
	}
	sweep(28, 14)
	sweep(72, 7)
	if os.Getenv("LEDGERD_LONG_TESTS") != "" {
		sweep(80, 40)
		sweep(400, 12)
	}
}

func TestGSProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		d := rapid.IntRange(3, 14).Draw(t, "d")
		n := rapid.IntRange(2*d, 2*d+220).Draw(t, "n")
		g, err := GS(n, d)
		if err != nil {
			t.Fatal(err)
		}
		if err := checkGS(g, n, d); err != nil {
			t.Fatalf("GS(%d,%d): %v", n, d, err)
		}
		again, _ := GS(n, d)
		if !slices.Equal(g.Edges(), again.Edges()) {
			t.Fatalf("GS(%d,%d) differs from itself", n, d)
		}
	})
}

// TestCheckGSFindsFaults proves that checkGS can fail: one wrong edge is enough.
func TestCheckGSFindsFaults(t *testing.T) {
	t.Parallel()
	for _, n := range []int{9, 11, 22, 45} {
		edges := mustGS(t, n, 3).Edges()
		missing, err := New(n, edges[1:])
		if err != nil {
			t.Fatal(err)
		}
		if checkGS(missing, n, 3) == nil {
			t.Errorf("n = %d: a missing edge is not found", n)
		}
		if missing.Connectivity() != 2 {
			t.Errorf("n = %d: connectivity %d without an edge, want 2", n, missing.Connectivity())
		}
	}
	// This digraph is regular and optimally connected but has a large diameter.
	ring, err := circulant(KindCustom, 30, []int{1, 2, 3})
	if err != nil {
		t.Fatal(err)
	}
	if checkGS(ring, 90, 3) == nil {
		t.Error("a diameter of 10 is not found")
	}
}

func TestGSRefuses(t *testing.T) {
	t.Parallel()
	for _, test := range [][2]int{{6, 2}, {6, 4}, {5, 3}, {7, 0}, {7, -3}, {1, 3}, {1024, 513}} {
		if g, err := GS(test[0], test[1]); !errors.Is(err, ErrDegree) || g != nil {
			t.Errorf("GS(%d,%d): %v, %v, want %v", test[0], test[1], g, err, ErrDegree)
		}
	}
}

func TestMinimalDiameter(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ n, d, want int }{
		{-1, 3, 0}, {0, 3, 0}, {1, 3, 0}, {2, 3, 1}, {4, 3, 1}, {5, 3, 2}, {12, 3, 2}, {13, 3, 3},
		{39, 3, 3}, {40, 3, 4}, {10, 1, 0}, {100, 1000, 1},
	} {
		if got := MinimalDiameter(test.n, test.d); got != test.want {
			t.Errorf("MinimalDiameter(%d,%d) = %d, want %d", test.n, test.d, got, test.want)
		}
	}
}
