package digraph

import (
	"gonum.org/v1/gonum/graph"
	"gonum.org/v1/gonum/graph/iterator"
)

// The methods in this file make a Digraph a gonum graph. A vertex v is the node with the id v.
// Gonum's iterators allocate; engines use Successors, Predecessors and HasEdge instead.
var _ graph.Directed = (*Digraph)(nil)

// node and edge are like those of gonum's package simple. That package brings in linear algebra,
// which takes longer to compile than the rest of gonum that the program uses.
type node int64

// ID implements graph.Node.
func (n node) ID() int64 { return int64(n) }

type edge struct{ from, to node }

// From implements graph.Edge.
func (e edge) From() graph.Node { return e.from }

// To implements graph.Edge.
func (e edge) To() graph.Node { return e.to }

// ReversedEdge implements graph.Edge.
func (e edge) ReversedEdge() graph.Edge { return edge{from: e.to, to: e.from} }

// Node returns the node with the given id, or nil if there is none.
func (g *Digraph) Node(id int64) graph.Node {
	if !g.contains(id) {
		return nil
	}
	return node(id)
}

// Nodes returns an iterator over all nodes by ascending id.
func (g *Digraph) Nodes() graph.Nodes {
	return iterator.NewImplicitNodes(0, g.order, func(id int) graph.Node { return node(id) })
}

// From returns an iterator over the successors of a node by ascending id.
func (g *Digraph) From(id int64) graph.Nodes { return g.nodes(g.successors, id) }

// To returns an iterator over the predecessors of a node by ascending id.
func (g *Digraph) To(id int64) graph.Nodes { return g.nodes(g.predecessors, id) }

func (g *Digraph) nodes(a adjacency, id int64) graph.Nodes {
	if !g.contains(id) {
		return graph.Empty
	}
	neighbours := a.of(int(id))
	if len(neighbours) == 0 {
		return graph.Empty
	}
	nodes := make([]graph.Node, len(neighbours))
	for i, v := range neighbours {
		nodes[i] = node(v)
	}
	return iterator.NewOrderedNodes(nodes)
}

// HasEdgeBetween reports whether an edge connects two nodes in either direction.
func (g *Digraph) HasEdgeBetween(xid, yid int64) bool {
	return g.HasEdgeFromTo(xid, yid) || g.HasEdgeFromTo(yid, xid)
}

// HasEdgeFromTo reports whether an edge leads from uid to vid.
func (g *Digraph) HasEdgeFromTo(uid, vid int64) bool {
	return g.contains(uid) && g.contains(vid) && g.HasEdge(int(uid), int(vid))
}

// Edge returns the edge from uid to vid, or nil if there is none.
func (g *Digraph) Edge(uid, vid int64) graph.Edge {
	if !g.HasEdgeFromTo(uid, vid) {
		return nil
	}
	return edge{from: node(uid), to: node(vid)}
}

func (g *Digraph) contains(id int64) bool { return 0 <= id && id < int64(g.order) }
