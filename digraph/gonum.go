package digraph

import (
	"gonum.org/v1/gonum/graph"
	"gonum.org/v1/gonum/graph/iterator"
	"gonum.org/v1/gonum/graph/simple"
)

// The methods in this file make a Digraph a gonum graph; a vertex v is the node with the id v.
// Gonum's iterators allocate: engines use Successors, Predecessors and HasEdge instead.
var _ graph.Directed = (*Digraph)(nil)

// Node is the node with the given id, or nil if there is none.
func (g *Digraph) Node(id int64) graph.Node {
	if !g.contains(id) {
		return nil
	}
	return simple.Node(id)
}

// Nodes iterates over all nodes by ascending id.
func (g *Digraph) Nodes() graph.Nodes {
	return iterator.NewImplicitNodes(0, g.order, func(id int) graph.Node { return simple.Node(id) })
}

// From iterates over the successors of a node by ascending id.
func (g *Digraph) From(id int64) graph.Nodes { return g.nodes(g.successors, id) }

// To iterates over the predecessors of a node by ascending id.
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

// HasEdgeBetween tells whether there is an edge between two nodes in one direction or the other.
func (g *Digraph) HasEdgeBetween(xid, yid int64) bool {
	return g.HasEdgeFromTo(xid, yid) || g.HasEdgeFromTo(yid, xid)
}

// HasEdgeFromTo tells whether there is an edge from one node to another.
func (g *Digraph) HasEdgeFromTo(uid, vid int64) bool {
	return g.contains(uid) && g.contains(vid) && g.HasEdge(int(uid), int(vid))
}

// Edge is the edge from one node to another, or nil if there is none.
func (g *Digraph) Edge(uid, vid int64) graph.Edge {
	if !g.HasEdgeFromTo(uid, vid) {
		return nil
	}
	return simple.Edge{F: simple.Node(uid), T: simple.Node(vid)}
}

func (g *Digraph) contains(id int64) bool { return 0 <= id && id < int64(g.order) }
