package digraph

// Connectivity is the vertex-connectivity κ: the smallest number of vertices whose removal leaves a
// digraph that is not strongly connected or has one vertex only; n-1 for the complete digraph, 0
// for one that is not strongly connected. It is exact.
//
// It is computed when first asked for, in O((n + κ²)·κ·E) time for E edges, and remembered. By
// Even's reduction it is enough to search for κ disjoint paths between the first κ vertices
// pairwise, and then from every later vertex to all before it taken together, and back.
func (g *Digraph) Connectivity() int {
	g.connectivityOnce.Do(func() { g.connectivity = g.computeConnectivity() })
	return g.connectivity
}

func (g *Digraph) computeConnectivity() int {
	bound := g.order - 1
	for v := range g.order {
		bound = min(bound, len(g.successors.of(v)), len(g.predecessors.of(v)))
	}
	if bound == g.order-1 {
		return bound
	}
	forward := newSplitNetwork(g.successors)
	backward := newSplitNetwork(g.predecessors)
	// Whenever fewer than bound disjoint paths are found, some separator is no larger than their
	// number: it is the new bound. The bound is the answer once a whole pass confirms it.
	for {
		found := confirmConnectivity(g.order, bound, forward, backward)
		if found == bound {
			return bound
		}
		bound = found
	}
}

// confirmConnectivity is bound if the connectivity is at least the bound, and else a smaller number
// that the connectivity does not exceed.
func confirmConnectivity(order, bound int, forward, backward *splitNetwork) int {
	for v := 1; v < order; v++ {
		if v >= bound {
			// Backward paths from v to the vertices before it are forward paths from them to v.
			found := min(forward.disjointToBefore(v, bound), backward.disjointToBefore(v, bound))
			if found < bound {
				return found
			}
			continue
		}
		for u := range v {
			found := min(forward.disjointBetween(u, v, bound),
				backward.disjointBetween(u, v, bound))
			if found < bound {
				return found
			}
		}
	}
	return bound
}
