package digraph

import "fmt"

// Complete returns the digraph with an edge between any two of n vertices, 1 <= n <= [MaxOrder].
// The error wraps [ErrTooManyEdges] if it would have more than [MaxEdges] edges.
func Complete(n int) (*Digraph, error) {
	if err := checkOrder(n); err != nil {
		return nil, err
	}
	if n*(n-1) > MaxEdges {
		return nil, fmt.Errorf("%w: the complete digraph of %d vertices has %d, at most %d are "+
			"possible", ErrTooManyEdges, n, n*(n-1), MaxEdges)
	}
	edges := make([][2]int, 0, n*(n-1))
	for u := range n {
		for v := range n {
			if u != v {
				edges = append(edges, [2]int{u, v})
			}
		}
	}
	return buildSymmetric(KindComplete, n, edges)
}

// Ring returns the directed cycle 0, 1, ..., n-1, 0 over n vertices, 1 <= n <= [MaxOrder]. With one
// vertex it has no edge.
func Ring(n int) (*Digraph, error) {
	if err := checkOrder(n); err != nil {
		return nil, err
	}
	return circulant(KindRing, n, []int{1 % n})
}

// Binomial returns the binomial graph over n vertices, 1 <= n <= [MaxOrder]. Vertex i has an edge
// to i ± 2^l (mod n) for 0 <= l <= ⌊log2 n⌋ [Poke19, section 5.6.2.3]. Each edge has its reverse,
// so the graph is undirected. Its connectivity equals its degree, which follows from n.
func Binomial(n int) (*Digraph, error) {
	if err := checkOrder(n); err != nil {
		return nil, err
	}
	var offsets []int
	for power := 1; power <= n; power *= 2 {
		offsets = append(offsets, power%n, (n-power)%n)
	}
	return circulant(KindBinomial, n, offsets)
}

// circulant connects every vertex i to i+offset (mod n) for each distinct offset other than 0.
// Offsets are 0 to n-1.
func circulant(kind string, n int, offsets []int) (*Digraph, error) {
	wanted := make([]bool, n)
	distinct := make([]int, 0, len(offsets))
	for _, offset := range offsets {
		if offset != 0 && !wanted[offset] {
			wanted[offset] = true
			distinct = append(distinct, offset)
		}
	}
	edges := make([][2]int, 0, n*len(distinct))
	for u := range n {
		for _, offset := range distinct {
			edges = append(edges, [2]int{u, (u + offset) % n})
		}
	}
	return buildSymmetric(kind, n, edges)
}

func buildSymmetric(kind string, n int, edges [][2]int) (*Digraph, error) {
	g, err := build(kind, n, edges)
	if err != nil {
		return nil, err
	}
	g.symmetric = true
	return g, nil
}
