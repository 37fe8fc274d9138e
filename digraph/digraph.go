package digraph

import (
	"errors"
	"fmt"
	"slices"
	"sync"
)

const (
	// MaxOrder is the largest number of vertices of a digraph.
	MaxOrder = 1 << 16
	// MaxEdges is the largest number of edges of a digraph.
	MaxEdges = 1 << 23
)

// The kinds of digraph that [Digraph.Kind] returns.
const (
	KindGS       = "gs"
	KindBinomial = "binomial"
	KindComplete = "complete"
	KindRing     = "ring"
	KindCustom   = "custom"
)

var (
	// ErrOrder reports a number of vertices for which the wanted digraph does not exist, or one
	// above [MaxOrder].
	ErrOrder = errors.New("digraph: number of vertices out of range")
	// ErrDegree reports a degree for which no GS(n,d) exists: d >= 3 and n >= 2d must hold.
	ErrDegree = errors.New("digraph: degree out of range")
	// ErrEdge reports an edge in a list that is a self-loop or a duplicate, or has an end that is
	// not a vertex.
	ErrEdge = errors.New("digraph: invalid edge")
	// ErrTooManyEdges reports a digraph that would have more than [MaxEdges] edges.
	ErrTooManyEdges = errors.New("digraph: too many edges")
	// ErrNotStronglyConnected reports that some vertex does not reach another, so the digraph has
	// no diameter.
	ErrNotStronglyConnected = errors.New("digraph: not strongly connected")
	// ErrFailures reports a number of failures that is negative or not below the
	// vertex-connectivity.
	ErrFailures = errors.New("digraph: number of failures out of range")
	// ErrTarget reports a reliability target that no degree can be computed for.
	ErrTarget = errors.New("digraph: invalid reliability target")
)

// Digraph is an immutable directed graph over the vertices 0 to n-1, without self-loops or parallel
// edges. It is safe for concurrent use.
type Digraph struct {
	kind         string
	order        int
	degree       int
	successors   adjacency
	predecessors adjacency
	// symmetric is true if automorphisms map any vertex to any other. One source then stands for
	// all.
	symmetric bool

	// connectivity is computed on first use, because it is expensive.
	connectivity     int
	connectivityOnce sync.Once
}

// adjacency stores the neighbours of all vertices consecutively. Those of v are
// flat[start[v]:start[v+1]], ascending.
type adjacency struct {
	start []int
	flat  []int
}

func (a adjacency) of(v int) []int {
	if v < 0 || v >= len(a.start)-1 {
		return nil
	}
	end := a.start[v+1]
	return a.flat[a.start[v]:end:end]
}

// New builds a digraph with n vertices, 1 <= n <= [MaxOrder], from a list of edges (from, to) in
// any order. It copies the list. The error wraps [ErrOrder], [ErrTooManyEdges] or [ErrEdge].
func New(n int, edges [][2]int) (*Digraph, error) {
	return build(KindCustom, n, edges)
}

func build(kind string, n int, edges [][2]int) (*Digraph, error) {
	if err := checkOrder(n); err != nil {
		return nil, err
	}
	if len(edges) > MaxEdges {
		return nil, fmt.Errorf("%w: %d, at most %d are possible", ErrTooManyEdges, len(edges),
			MaxEdges)
	}
	for _, e := range edges {
		switch {
		case e[0] < 0 || e[0] >= n || e[1] < 0 || e[1] >= n:
			return nil, fmt.Errorf("%w: (%d,%d) leaves the vertices 0 to %d", ErrEdge, e[0],
				e[1], n-1)
		case e[0] == e[1]:
			return nil, fmt.Errorf("%w: (%d,%d) is a self-loop", ErrEdge, e[0], e[1])
		}
	}
	g := &Digraph{
		kind:         kind,
		order:        n,
		successors:   newAdjacency(n, edges, 0, 1),
		predecessors: newAdjacency(n, edges, 1, 0),
	}
	for v := range n {
		successors := g.successors.of(v)
		for i := 1; i < len(successors); i++ {
			if successors[i-1] == successors[i] {
				return nil, fmt.Errorf("%w: (%d,%d) is given twice", ErrEdge, v, successors[i])
			}
		}
		g.degree = max(g.degree, len(successors))
	}
	return g, nil
}

func checkOrder(n int) error {
	if n < 1 || n > MaxOrder {
		return fmt.Errorf("%w: %d, want 1 to %d", ErrOrder, n, MaxOrder)
	}
	return nil
}

// newAdjacency groups the edges by their end at index from (0 or 1) and lists their other ends, at
// index to. The list of each vertex is ascending.
func newAdjacency(n int, edges [][2]int, from, to int) adjacency {
	a := adjacency{start: make([]int, n+1), flat: make([]int, len(edges))}
	for _, e := range edges {
		a.start[e[from]+1]++
	}
	for v := range n {
		a.start[v+1] += a.start[v]
	}
	next := slices.Clone(a.start[:n])
	for _, e := range edges {
		a.flat[next[e[from]]] = e[to]
		next[e[from]]++
	}
	for v := range n {
		slices.Sort(a.of(v))
	}
	return a
}

// Kind returns the name of the family: gs, binomial, complete, ring, or custom for a digraph built
// from a list of edges.
func (g *Digraph) Kind() string { return g.kind }

// Order returns the number of vertices, n.
func (g *Digraph) Order() int { return g.order }

// Degree returns the largest number of successors of a vertex, d.
func (g *Digraph) Degree() int { return g.degree }

// Successors returns the vertices to which v has an edge, ascending. It returns nothing for a v
// that is not a vertex. The digraph owns the slice; the caller must not change it.
func (g *Digraph) Successors(v int) []int { return g.successors.of(v) }

// Predecessors returns the vertices that have an edge to v, ascending. It returns nothing for a v
// that is not a vertex. The digraph owns the slice; the caller must not change it.
func (g *Digraph) Predecessors(v int) []int { return g.predecessors.of(v) }

// HasEdge reports whether the edge (u,v) is in the digraph. It takes O(log d) time.
func (g *Digraph) HasEdge(u, v int) bool {
	_, found := slices.BinarySearch(g.successors.of(u), v)
	return found
}

// Edges returns all edges (from, to), sorted. The caller owns the slice.
func (g *Digraph) Edges() [][2]int {
	edges := make([][2]int, 0, len(g.successors.flat))
	for u := range g.order {
		for _, v := range g.successors.of(u) {
			edges = append(edges, [2]int{u, v})
		}
	}
	return edges
}

// Transpose returns the digraph with every edge reversed. Backward messages travel on it. It keeps
// the kind and shares memory with g.
func (g *Digraph) Transpose() *Digraph {
	t := &Digraph{
		kind:         g.kind,
		order:        g.order,
		successors:   g.predecessors,
		predecessors: g.successors,
		symmetric:    g.symmetric,
	}
	for v := range t.order {
		t.degree = max(t.degree, len(t.successors.of(v)))
	}
	return t
}

// Diameter returns the largest distance between two vertices, D, in edges. This is the number of
// steps of a broadcast without failures. It takes O(n·E) time for E edges. The error wraps
// [ErrNotStronglyConnected].
func (g *Digraph) Diameter() (int, error) {
	sources := g.order
	if g.symmetric {
		sources = 1
	}
	diameter := 0
	distance := make([]int, g.order)
	queue := make([]int, 0, g.order)
	for source := range sources {
		for v := range distance {
			distance[v] = -1
		}
		distance[source] = 0
		queue = append(queue[:0], source)
		for head := 0; head < len(queue); head++ {
			u := queue[head]
			for _, v := range g.successors.of(u) {
				if distance[v] < 0 {
					distance[v] = distance[u] + 1
					queue = append(queue, v)
				}
			}
		}
		if len(queue) < g.order {
			missing := slices.Index(distance, -1)
			return 0, fmt.Errorf("%w: vertex %d does not reach vertex %d", ErrNotStronglyConnected,
				source, missing)
		}
		diameter = max(diameter, distance[queue[len(queue)-1]])
	}
	return diameter, nil
}
