package digraph

import (
	"fmt"
	"math/bits"
)

// Tree is the binomial tree of one source. In an unreliable round the source's messages travel
// along it [Poke19, section 6.2.1]. A Tree is immutable and safe for concurrent use.
//
// Let x be a vertex's position relative to the root, (v - root) mod n. The parent of x is x without
// its highest bit, so the children of x are x + 2^k for every 2^k > x below n. The depth is at most
// ⌊log2 n⌋. If each vertex sends to one child at a time, all vertices have the message after ⌈log2
// n⌉ steps.
type Tree struct {
	order int
	root  int
	depth int
	// The children of v are flat[start[v]:start[v+1]].
	start []int
	flat  []int
}

// BinomialTree returns the binomial tree over n vertices, 1 <= n <= [MaxOrder], with the given
// root. The error wraps [ErrOrder] or [ErrVertex].
func BinomialTree(n, root int) (*Tree, error) {
	if err := checkOrder(n); err != nil {
		return nil, err
	}
	if root < 0 || root >= n {
		return nil, fmt.Errorf("%w: %d as a root, want 0 to %d", ErrVertex, root, n-1)
	}
	t := &Tree{order: n, root: root, start: make([]int, n+1), flat: make([]int, 0, n-1)}
	for v := range n {
		t.depth = max(t.depth, bits.OnesCount(uint(v)))
		t.flat = AppendBinomialChildren(t.flat, n, root, v)
		t.start[v+1] = len(t.flat)
	}
	return t, nil
}

// AppendBinomialChildren appends the children of v in the binomial tree over n vertices with the
// given root, in the order of [Tree.Children]. It does not build the tree: a server that relays for
// n sources needs only its own children in each of n trees. It appends nothing unless v and root
// are vertices.
func AppendBinomialChildren(children []int, n, root, v int) []int {
	if n > MaxOrder || root < 0 || root >= n || v < 0 || v >= n {
		return children
	}
	place := (v - root + n) % n
	for power := 1 << bits.Len(uint(place)); place+power < n; power *= 2 {
		children = append(children, (root+place+power)%n)
	}
	return children
}

// Order returns the number of vertices, n.
func (t *Tree) Order() int { return t.order }

// Root returns the source.
func (t *Tree) Root() int { return t.root }

// Depth returns the number of edges between the root and the vertex furthest from it.
func (t *Tree) Depth() int { return t.depth }

// Children returns the children of v in the order in which v sends to them, the child with the
// deepest subtree first. It returns nothing for a leaf and for a v that is not a vertex. The tree
// owns the slice; the caller must not change it.
func (t *Tree) Children(v int) []int {
	if v < 0 || v >= t.order {
		return nil
	}
	end := t.start[v+1]
	return t.flat[t.start[v]:end:end]
}

// Parent returns the vertex from which v receives. It reports false for the root and for a v that
// is not a vertex.
func (t *Tree) Parent(v int) (int, bool) {
	if v < 0 || v >= t.order || v == t.root {
		return 0, false
	}
	place := (v - t.root + t.order) % t.order
	highest := 1 << (bits.Len(uint(place)) - 1)
	return (t.root + place - highest) % t.order, true
}
