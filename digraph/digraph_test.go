package digraph

import (
	"errors"
	"slices"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

// mustGS returns GS(n,d), which must exist.
func mustGS(t testing.TB, n, d int) *Digraph {
	t.Helper()
	g, err := GS(n, d)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func mustBuild(t testing.TB, constructor func(int) (*Digraph, error), n int) *Digraph {
	t.Helper()
	g, err := constructor(n)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// anyDigraph draws a digraph with up to maxOrder vertices, from sparse to nearly complete.
func anyDigraph(maxOrder int) *rapid.Generator[*Digraph] {
	return rapid.Custom(func(t *rapid.T) *Digraph {
		n := rapid.IntRange(1, maxOrder).Draw(t, "n")
		missing := rapid.IntRange(0, 9).Draw(t, "missing of ten")
		var edges [][2]int
		for u := range n {
			for v := range n {
				if u != v && rapid.IntRange(0, 9).Draw(t, "edge") >= missing {
					edges = append(edges, [2]int{u, v})
				}
			}
		}
		g, err := New(n, edges)
		if err != nil {
			t.Fatal(err)
		}
		return g
	})
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		n     int
		edges [][2]int
		want  error
	}{
		{"no vertex", 0, nil, ErrOrder},
		{"a negative number of vertices", -1, nil, ErrOrder},
		{"too many vertices", MaxOrder + 1, nil, ErrOrder},
		{"too many edges", 3, make([][2]int, MaxEdges+1), ErrTooManyEdges},
		{"a self-loop", 3, [][2]int{{0, 1}, {1, 1}}, ErrEdge},
		{"an edge twice", 3, [][2]int{{0, 1}, {1, 2}, {0, 1}}, ErrEdge},
		{"an edge from nowhere", 3, [][2]int{{3, 0}}, ErrEdge},
		{"an edge to nowhere", 3, [][2]int{{0, -1}}, ErrEdge},
	} {
		if g, err := New(test.n, test.edges); !errors.Is(err, test.want) || g != nil {
			t.Errorf("%s: got %v, %v, want %v", test.name, g, err, test.want)
		}
	}
}

func TestConstructorsRefuse(t *testing.T) {
	t.Parallel()
	for _, n := range []int{-1, 0, MaxOrder + 1, int(^uint(0) >> 1)} {
		for name, constructor := range map[string]func(int) (*Digraph, error){
			"complete": Complete, "ring": Ring, "binomial": Binomial,
			"gs":       func(n int) (*Digraph, error) { return GS(n, 3) },
			"reliable": func(n int) (*Digraph, error) { return Reliable(n, Target{}) },
		} {
			if _, err := constructor(n); !errors.Is(err, ErrOrder) {
				t.Errorf("%s of %d vertices: got %v, want %v", name, n, err, ErrOrder)
			}
		}
	}
	if _, err := Complete(MaxOrder); !errors.Is(err, ErrTooManyEdges) {
		t.Errorf("complete: got %v, want %v", err, ErrTooManyEdges)
	}
	if _, err := GS(MaxOrder, 1<<10); !errors.Is(err, ErrTooManyEdges) {
		t.Errorf("GS: got %v, want %v", err, ErrTooManyEdges)
	}
}

func TestAccessors(t *testing.T) {
	t.Parallel()
	edges := [][2]int{{2, 0}, {0, 2}, {0, 1}, {1, 2}}
	g, err := New(4, edges)
	if err != nil {
		t.Fatal(err)
	}
	edges[0] = [2]int{3, 3}
	if g.Order() != 4 || g.Degree() != 2 || g.Kind() != KindCustom {
		t.Errorf("order %d, degree %d, kind %q", g.Order(), g.Degree(), g.Kind())
	}
	if want := [][2]int{{0, 1}, {0, 2}, {1, 2}, {2, 0}}; !slices.Equal(g.Edges(), want) {
		t.Errorf("edges %v, want %v", g.Edges(), want)
	}
	if got := g.Successors(0); !slices.Equal(got, []int{1, 2}) {
		t.Errorf("successors of 0: %v", got)
	}
	if got := g.Predecessors(2); !slices.Equal(got, []int{0, 1}) {
		t.Errorf("predecessors of 2: %v", got)
	}
	for _, v := range []int{-1, 3, 4, MaxOrder} {
		if len(g.Successors(v)) != 0 || len(g.Predecessors(v)) != 0 || g.HasEdge(v, 0) ||
			g.HasEdge(0, v) {
			t.Errorf("vertex %d has neighbours", v)
		}
	}
	// Appending to a shared slice does not change the digraph.
	_ = append(g.Successors(0), 99)
	if got := g.Successors(1); !slices.Equal(got, []int{2}) {
		t.Errorf("successors of 1 after an append: %v", got)
	}
}

func TestTransposeReversesEveryEdge(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		g := anyDigraph(8).Draw(t, "digraph")
		reversed := g.Transpose()
		for u := range g.Order() {
			for v := range g.Order() {
				if g.HasEdge(u, v) != reversed.HasEdge(v, u) ||
					g.HasEdge(u, v) != slices.Contains(g.Predecessors(v), u) {
					t.Fatalf("edge (%d,%d) is not reversed", u, v)
				}
			}
		}
		if !slices.Equal(g.Edges(), reversed.Transpose().Edges()) {
			t.Fatal("reversed twice it is another digraph")
		}
		if g.Connectivity() != reversed.Connectivity() {
			t.Fatalf("connectivity %d, reversed %d", g.Connectivity(), reversed.Connectivity())
		}
		inDegree := 0
		for v := range g.Order() {
			inDegree = max(inDegree, len(g.Predecessors(v)))
		}
		if reversed.Degree() != inDegree {
			t.Fatalf("degree of the transpose %d, want %d", reversed.Degree(), inDegree)
		}
	})
}

func TestFamilies(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name                                  string
		constructor                           func(int) (*Digraph, error)
		n                                     int
		degree, diameter, connectivity, edges int
	}{
		{KindComplete, Complete, 1, 0, 0, 0, 0},
		{KindComplete, Complete, 2, 1, 1, 1, 2},
		{KindComplete, Complete, 3, 2, 1, 2, 6},
		{KindComplete, Complete, 7, 6, 1, 6, 42},
		{KindRing, Ring, 1, 0, 0, 0, 0},
		{KindRing, Ring, 2, 1, 1, 1, 2},
		{KindRing, Ring, 9, 1, 8, 1, 9},
		{KindBinomial, Binomial, 1, 0, 0, 0, 0},
		{KindBinomial, Binomial, 2, 1, 1, 1, 2},
		{KindBinomial, Binomial, 3, 2, 1, 2, 6},
		{KindBinomial, Binomial, 4, 3, 1, 3, 12},
		{KindBinomial, Binomial, 8, 5, 2, 5, 40},
		// [Poke19, figure 5.8]: p_i is connected to p_j, j = i ± {1,2,4}; connectivity 6, diameter
		// 2.
		{KindBinomial, Binomial, 12, 6, 2, 6, 72},
	} {
		g := mustBuild(t, test.constructor, test.n)
		diameter, err := g.Diameter()
		if err != nil {
			t.Errorf("%s of %d: %v", test.name, test.n, err)
		}
		if g.Kind() != test.name || g.Order() != test.n || g.Degree() != test.degree ||
			diameter != test.diameter ||
			g.Connectivity() != test.connectivity || len(g.Edges()) != test.edges {
			t.Errorf("%s of %d: kind %q, order %d, degree %d, diameter %d, connectivity %d, %d "+
				"edges, want %+v", test.name, test.n,
				g.Kind(), g.Order(), g.Degree(), diameter, g.Connectivity(), len(g.Edges()), test)
		}
	}
	if got := mustBuild(t, Binomial, 12).Successors(0); !slices.Equal(got,
		[]int{1, 2, 4, 8, 10, 11}) {
		t.Errorf("successors of 0 in the binomial graph of 12: %v", got)
	}
}

// TestBinomialGraphsAreOptimallyConnected checks the claim of optimal connectivity [Poke19, section
// 5.6.4] for binomial graphs.
func TestBinomialGraphsAreOptimallyConnected(t *testing.T) {
	t.Parallel()
	for n := 1; n <= 70; n++ {
		if g := mustBuild(t, Binomial, n); g.Connectivity() != g.Degree() {
			t.Errorf("n = %d: connectivity %d, degree %d", n, g.Connectivity(), g.Degree())
		}
	}
}

func TestDiameterNeedsStrongConnection(t *testing.T) {
	t.Parallel()
	g, err := New(3, [][2]int{{0, 1}, {1, 0}, {1, 2}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.Diameter(); !errors.Is(err, ErrNotStronglyConnected) {
		t.Errorf("got %v, want %v", err, ErrNotStronglyConnected)
	}
	if g.Connectivity() != 0 || Tolerated(g) != 0 {
		t.Errorf("connectivity %d, tolerated %d, want 0", g.Connectivity(), Tolerated(g))
	}
}

func TestConcurrentUse(t *testing.T) {
	t.Parallel()
	g := mustGS(t, 64, 5)
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			if g.Connectivity() != 5 {
				t.Error("another connectivity")
			}
			if _, err := g.FaultDiameterBound(1); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
}

func TestReadingAllocatesNothing(t *testing.T) {
	g := mustGS(t, 64, 5)
	sum := 0
	if allocations := testing.AllocsPerRun(100, func() {
		for v := range g.Order() {
			sum += len(g.Successors(v)) + len(g.Predecessors(v))
			if g.HasEdge(v, 0) {
				sum++
			}
		}
	}); allocations != 0 {
		t.Errorf("%v allocations", allocations)
	}
}

// FuzzNew passes any list of edges to New, which either refuses it or builds exactly that list.
func FuzzNew(f *testing.F) {
	f.Add(3, []byte{0, 1, 1, 2, 2, 0})
	f.Add(2, []byte{0, 0})
	f.Add(2, []byte{0, 1, 0, 1})
	f.Add(0, []byte{})
	f.Add(4, []byte{0, 9})
	f.Fuzz(func(t *testing.T, n int, ends []byte) {
		var edges [][2]int
		for i := 0; i+1 < len(ends); i += 2 {
			edges = append(edges, [2]int{int(int8(ends[i])), int(int8(ends[i+1]))})
		}
		g, err := New(n, edges)
		if err != nil {
			return
		}
		slices.SortFunc(edges, func(x, y [2]int) int { return slices.Compare(x[:], y[:]) })
		if got := g.Edges(); !slices.Equal(got, edges) {
			t.Fatalf("edges %v, want %v", got, edges)
		}
		if n <= 32 {
			if diameter, err := g.Diameter(); (err == nil) != (n == 1 || g.Connectivity() > 0) {
				t.Fatalf("diameter %d, %v with connectivity %d", diameter, err, g.Connectivity())
			}
		}
	})
}

func BenchmarkHasEdge(b *testing.B) {
	g := mustGS(b, 1024, 11)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		g.HasEdge(i&1023, i>>10&1023)
	}
}

func BenchmarkGS1024(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		mustGS(b, 1024, 11)
	}
}

func BenchmarkConnectivity1024(b *testing.B) {
	g := mustGS(b, 1024, 11)
	b.ReportAllocs()
	for b.Loop() {
		g.computeConnectivity()
	}
}

func BenchmarkFaultDiameterBound1024(b *testing.B) {
	g := mustGS(b, 1024, 11)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := g.FaultDiameterBound(10); err != nil {
			b.Fatal(err)
		}
	}
}
