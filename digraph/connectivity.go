package digraph

// Connectivity returns the vertex-connectivity κ: the smallest number of vertices whose removal
// leaves a digraph that is not strongly connected or has only one vertex. It is n-1 for the
// complete digraph and 0 for a digraph that is not strongly connected. The value is exact.
//
// The first call computes it, in O((n + κ²)·κ·E) time for E edges; later calls return the stored
// value. By Even's reduction it is enough to search for κ disjoint paths between each pair of the
// first κ vertices, and then between every later vertex and the set of all vertices before it, in
// both directions.
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
	// If a pass finds fewer than bound disjoint paths, some separator is no larger than that
	// number, which becomes the new bound. The bound is the answer once a whole pass confirms it.
	for {
		found := confirmConnectivity(g.order, bound, forward, backward)
		if found == bound {
			return bound
		}
		bound = found
	}
}

// confirmConnectivity returns bound if the connectivity is at least bound. Otherwise it returns a
// smaller number that the connectivity does not exceed.
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
