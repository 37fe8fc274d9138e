package digraph

import (
	"gonum.org/v1/gonum/graph"
	"gonum.org/v1/gonum/graph/iterator"
	"gonum.org/v1/gonum/graph/simple"
)

// The methods in this file make a Digraph a gonum graph. A vertex v is the node with the id v.
// Gonum's iterators allocate; engines use Successors, Predecessors and HasEdge instead.
var _ graph.Directed = (*Digraph)(nil)

// Node returns the node with the given id, or nil if there is none.
func (g *Digraph) Node(id int64) graph.Node {
	if !g.contains(id) {
		return nil
	}
	return simple.Node(id)
}

// Nodes returns an iterator over all nodes by ascending id.
func (g *Digraph) Nodes() graph.Nodes {
	return iterator.NewImplicitNodes(0, g.order, func(id int) graph.Node { return simple.Node(id) })
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
		nodes[i] = simple.Node(v)
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
	return simple.Edge{F: simple.Node(uid), T: simple.Node(vid)}
}

func (g *Digraph) contains(id int64) bool { return 0 <= id && id < int64(g.order) }
