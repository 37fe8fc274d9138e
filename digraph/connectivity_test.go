package digraph

import (
	"math/bits"
	"testing"

	"gonum.org/v1/gonum/graph/simple"
	"gonum.org/v1/gonum/graph/topo"
	"pgregory.net/rapid"
)

// stronglyConnected checks with gonum whether the digraph is strongly connected without the removed
// vertices, given as a bit set.
func stronglyConnected(g *Digraph, removed uint) bool {
	rest := simple.NewDirectedGraph()
	for v := range g.Order() {
		if removed>>v&1 == 0 {
			rest.AddNode(simple.Node(v))
		}
	}
	for _, e := range g.Edges() {
		if removed>>e[0]&1 == 0 && removed>>e[1]&1 == 0 {
			rest.SetEdge(rest.NewEdge(simple.Node(e[0]), simple.Node(e[1])))
		}
	}
	return len(topo.TarjanSCC(rest)) == 1
}

// connectivityByDefinition tries every set of removed vertices.
func connectivityByDefinition(g *Digraph) int {
	smallest := g.Order() - 1
	for removed := range uint(1) << g.Order() {
		if size := bits.OnesCount(removed); size < smallest && !stronglyConnected(g, removed) {
			smallest = size
		}
	}
	return smallest
}

func TestConnectivityMeetsItsDefinition(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		g := anyDigraph(7).Draw(t, "digraph")
		if got, want := g.Connectivity(), connectivityByDefinition(g); got != want {
			t.Fatalf("connectivity %d, want %d: %v", got, want, g.Edges())
		}
	})
}

// TestConnectivityOfBottlenecks uses dense digraphs with a bottleneck. Their degrees are higher
// than their connectivity, so the bound must decrease, in either direction and wherever the
// bottleneck is in the order of the vertices.
func TestConnectivityOfBottlenecks(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		left := rapid.IntRange(2, 9).Draw(t, "left")
		right := rapid.IntRange(2, 9).Draw(t, "right")
		neck := rapid.IntRange(0, min(left, right)-1).Draw(t, "neck")
		n := left + right + neck
		place := rapid.Permutation(sequence(n)).Draw(t, "place")
		oneWay := rapid.Bool().Draw(t, "one way")
		reversed := rapid.Bool().Draw(t, "reversed")
		// The vertices below left are on the left, and the last ones are the neck. The neck is
		// connected to all vertices. Left and right are not connected, or only in one direction.
		var edges [][2]int
		for u := range n {
			for v := range n {
				fromLeft, fromRight := u < left, u >= left && u < left+right
				toLeft, toRight := v < left, v >= left && v < left+right
				if u == v || fromLeft && toRight && !oneWay || fromRight && toLeft {
					continue
				}
				edges = append(edges, [2]int{place[u], place[v]})
			}
		}
		g, err := New(n, edges)
		if err != nil {
			t.Fatal(err)
		}
		if reversed {
			g = g.Transpose()
		}
		if got := g.Connectivity(); got != neck {
			t.Fatalf("connectivity %d, want %d", got, neck)
		}
	})
}

func sequence(n int) []int {
	s := make([]int, n)
	for i := range s {
		s[i] = i
	}
	return s
}

// A digraph that lacks one edge to be complete is n-2 connected. A digraph built from a list may be
// complete.
func TestConnectivityOfNearlyComplete(t *testing.T) {
	t.Parallel()
	for n := 2; n <= 20; n++ {
		edges := mustBuild(t, Complete, n).Edges()
		complete, err := New(n, edges)
		if err != nil {
			t.Fatal(err)
		}
		nearly, err := New(n, edges[:len(edges)-1])
		if err != nil {
			t.Fatal(err)
		}
		if complete.Connectivity() != n-1 || nearly.Connectivity() != n-2 {
			t.Errorf("n = %d: connectivity %d and, without an edge, %d", n, complete.Connectivity(),
				nearly.Connectivity())
		}
	}
}
