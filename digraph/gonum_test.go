package digraph

import (
	"testing"

	"gonum.org/v1/gonum/graph"
	"gonum.org/v1/gonum/graph/path"
	"gonum.org/v1/gonum/graph/topo"
	"pgregory.net/rapid"
)

// TestGonumSeesTheSameDigraph checks nodes, edges in both directions, strong connection and
// distances.
func TestGonumSeesTheSameDigraph(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		g := anyDigraph(9).Draw(t, "digraph")
		if got := len(graph.NodesOf(g.Nodes())); got != g.Order() {
			t.Fatalf("%d nodes, want %d", got, g.Order())
		}
		for u := range g.Order() {
			id := int64(u)
			if node := g.Node(id); node == nil || node.ID() != id {
				t.Fatalf("node %d is %v", u, node)
			}
			for i, node := range graph.NodesOf(g.From(id)) {
				if node.ID() != int64(g.Successors(u)[i]) {
					t.Fatalf("successor %d of %d is %v", i, u, node)
				}
			}
			for i, node := range graph.NodesOf(g.To(id)) {
				if node.ID() != int64(g.Predecessors(u)[i]) {
					t.Fatalf("predecessor %d of %d is %v", i, u, node)
				}
			}
			for v := range g.Order() {
				has, other := g.HasEdge(u, v), g.HasEdge(v, u)
				if g.HasEdgeFromTo(id, int64(v)) != has ||
					g.HasEdgeBetween(id, int64(v)) != (has || other) ||
					(g.Edge(id, int64(v)) != nil) != has {
					t.Fatalf("edge (%d,%d)", u, v)
				}
			}
		}
		diameter, err := g.Diameter()
		if connected := len(topo.TarjanSCC(g)) == 1; connected != (err == nil) {
			t.Fatalf("strongly connected %t, but the diameter is %d, %v", connected, diameter, err)
		}
		if err != nil {
			return
		}
		distances := path.DijkstraAllPaths(g)
		longest := 0
		for u := range g.Order() {
			for v := range g.Order() {
				longest = max(longest, int(distances.Weight(int64(u), int64(v))))
			}
		}
		if diameter != longest {
			t.Fatalf("diameter %d, want %d", diameter, longest)
		}
	})
}

func TestGonumNodesThatAreNone(t *testing.T) {
	t.Parallel()
	g := mustGS(t, 8, 3)
	for _, id := range []int64{-1, 8, 1 << 40} {
		if g.Node(id) != nil || g.From(id).Len() != 0 || g.To(id).Len() != 0 ||
			g.HasEdgeFromTo(id, 0) || g.HasEdgeFromTo(0, id) || g.Edge(0, id) != nil {
			t.Errorf("node %d exists", id)
		}
	}
}
