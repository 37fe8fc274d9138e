package digraph

import "math/bits"

// AppendBinomialChildren appends the children of v in the binomial tree over n vertices with the
// given root, in the order in which v sends to them: the child with the deepest subtree first. It
// appends nothing unless v and root are vertices.
//
// In an unreliable round the messages of each source travel along the binomial tree from it
// [Poke19, section 6.2.1]. Let x be a vertex's position relative to the root, (v - root) mod n. The
// parent of x is x without its highest bit, so the children of x are x + 2^k for every 2^k > x
// below n. The depth is at most ⌊log2 n⌋. If each vertex sends to one child at a time, all vertices
// have the message after ⌈log2 n⌉ steps. No tree is built: a server that relays for n sources needs
// only its own children in each of n trees.
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
