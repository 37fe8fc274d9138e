package digraph

import (
	"fmt"
	"slices"
)

// GS returns the digraph GS(n,d) of Soneoka, Imase and Manabe [Poke19, section 5.6.4]. It is
// d-regular and has vertex-connectivity d. For n <= d^3 + d its diameter is at most one above
// [MinimalDiameter]. It exists for d >= 3 and n >= 2d. The error wraps [ErrOrder], [ErrDegree] or
// [ErrTooManyEdges].
//
// Let n = m·d + t. The generalised de Bruijn digraph over m vertices, with its self-loops replaced
// by cycles, has m·d arcs. Its line digraph has one vertex for each of them, numbered in the order
// of (tail, head). The remaining t vertices come last and are woven in around the arcs at vertex 0.
// The numbering is that of the paper's figures [Poke19, figure 5.1]: in GS(9,3) the successors of 0
// are 3, 4 and 5.
func GS(n, d int) (*Digraph, error) {
	if err := checkOrder(n); err != nil {
		return nil, err
	}
	if d < 3 || d > n/2 {
		return nil, fmt.Errorf("%w: GS(%d,%d) needs a degree of at least 3 and n >= 2d", ErrDegree,
			n, d)
	}
	if n*d > MaxEdges {
		return nil, fmt.Errorf("%w: GS(%d,%d) has %d, at most %d are possible", ErrTooManyEdges,
			n, d, n*d, MaxEdges)
	}
	m, t := n/d, n%d
	arcs := deBruijnWithoutLoops(m, d)
	edges := lineDigraph(m, arcs)
	if t > 0 {
		edges = addRemainderVertices(edges, arcs, d, t)
	}
	return build(KindGS, n, edges)
}

// deBruijnWithoutLoops lists the arcs (tail, head) of G*_B(m,d), sorted. Parallel arcs appear as
// often as they occur. G*_B(m,d) is the generalised de Bruijn digraph G_B(m,d), with arcs (u, u·d +
// a mod m) for 0 <= a < d, without its self-loops. Every vertex has ⌊d/m⌋ or ⌈d/m⌉ self-loops. They
// are replaced by ⌊d/m⌋ cycles through all vertices and one more cycle through the vertices with
// ⌈d/m⌉ self-loops.
func deBruijnWithoutLoops(m, d int) [][2]int {
	arcs := make([][2]int, 0, m*d)
	everyVertex := make([]int, m)
	var oneMoreLoop []int
	for u := range m {
		everyVertex[u] = u
		loops := 0
		for a := range d {
			if v := (u*d + a) % m; v != u {
				arcs = append(arcs, [2]int{u, v})
			} else {
				loops++
			}
		}
		if loops > d/m {
			oneMoreLoop = append(oneMoreLoop, u)
		}
	}
	for range d / m {
		arcs = appendCycle(arcs, everyVertex)
	}
	arcs = appendCycle(arcs, oneMoreLoop)
	slices.SortFunc(arcs, func(x, y [2]int) int { return slices.Compare(x[:], y[:]) })
	return arcs
}

func appendCycle(arcs [][2]int, vertices []int) [][2]int {
	for i, u := range vertices {
		arcs = append(arcs, [2]int{u, vertices[(i+1)%len(vertices)]})
	}
	return arcs
}

// lineDigraph lists the edges of the line digraph. Its vertices are the arcs, numbered by their
// position in the sorted list. An edge leads from each arc to each arc that begins where the first
// ends. All m vertices must have the same number of outgoing arcs.
func lineDigraph(m int, arcs [][2]int) [][2]int {
	d := len(arcs) / m
	edges := make([][2]int, 0, len(arcs)*d)
	for i, arc := range arcs {
		for j := arc[1] * d; j < (arc[1]+1)*d; j++ {
			edges = append(edges, [2]int{i, j})
		}
	}
	return edges
}

// addRemainderVertices adds the vertices w_0 to w_{t-1}, 0 < t < d, to the line digraph of the
// arcs. X are the arcs into vertex 0, and Y the arcs out of it. Each w_i replaces d-t+1 edges from
// X to Y: M_i, a perfect matching of X_i with Y_i. It gets an edge from each vertex in X_i and to
// each vertex in Y_i. The w vertices form a complete digraph among themselves, which brings every
// degree back to d.
func addRemainderVertices(edges, arcs [][2]int, d, t int) [][2]int {
	var x, y []int
	for i, arc := range arcs {
		if arc[1] == 0 {
			x = append(x, i)
		}
		if arc[0] == 0 {
			y = append(y, i)
		}
	}
	width := d - t + 1
	removed := make([]bool, d*d)
	for i := range t {
		w := len(arcs) + i
		for p := range width {
			q := (i + p) % width
			removed[(i+p)*d+i+q] = true
			edges = append(edges, [2]int{x[i+p], w}, [2]int{w, y[i+p]})
		}
		for j := range t {
			if i != j {
				edges = append(edges, [2]int{w, len(arcs) + j})
			}
		}
	}
	return slices.DeleteFunc(edges, func(e [2]int) bool {
		p, fromX := slices.BinarySearch(x, e[0])
		q, toY := slices.BinarySearch(y, e[1])
		return fromX && toY && removed[p*d+q]
	})
}

// MinimalDiameter returns the Moore bound's lower bound on the diameter of a digraph with n
// vertices and degree d, ⌈log_d(n(d-1) + d)⌉ - 1 [Poke19, equation 5.6]. The equation takes into
// account that only the complete digraph attains the Moore bound itself. The bound is 1 for n <=
// d+1 and 0 for a single vertex. It is also 0 unless n >= 1 and d >= 2.
func MinimalDiameter(n, d int) int {
	if n <= 1 || d < 2 {
		return 0
	}
	if n <= d+1 {
		return 1
	}
	// Find the smallest diameter for which 1 + d + ... + d^diameter exceeds n.
	diameter := 0
	for reached, layer := 1, 1; reached <= n; diameter++ {
		if layer > n/d {
			return diameter + 1
		}
		layer *= d
		reached += layer
	}
	return diameter
}
