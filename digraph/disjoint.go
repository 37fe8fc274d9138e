package digraph

import (
	"fmt"
	"slices"
)

// FaultDiameterBound returns an upper bound on the fault diameter D_f: the largest diameter that
// remains when any f vertices are removed. For any two vertices it finds the f+1 vertex-disjoint
// paths with the smallest sum of lengths. Whichever f vertices fail, one of the paths remains, so
// the length of the longest path is a bound [Poke19, section 5.6.2.3]. It is not the least bound,
// which is NP-hard to find.
//
// f must be below the connectivity, else the error wraps [ErrFailures]. With f = 0 the bound is the
// diameter.
//
// The paths come from a minimum-cost flow: f+1 shortest-path searches for each pair of vertices,
// each in O(E) time for E edges. Two pairs share a result if neither has an edge, their sources
// have the same successors and their targets have the same predecessors. Of the n² pairs of GS(n,d)
// about n·d + (n/d)² remain. Binomial graphs, complete digraphs and rings look the same from every
// vertex, so n pairs are enough.
func (g *Digraph) FaultDiameterBound(f int) (int, error) {
	if g.order == 1 && f == 0 {
		return 0, nil
	}
	if connectivity := g.Connectivity(); f < 0 || f >= connectivity {
		return 0, fmt.Errorf("%w: %d, want at least 0 and less than the vertex-connectivity, %d",
			ErrFailures, f, connectivity)
	}
	if g.Connectivity() == g.order-1 {
		// In the complete digraph the paths are the edge and the paths with one vertex in between.
		return min(f+1, 2), nil
	}
	sources := g.order
	if g.symmetric {
		sources = 1
	}
	sourceClasses := groupByNeighbours(sources, g.successors)
	search := newDisjointSearch(g)
	answered := make([]bool, len(sourceClasses))
	bound := 0
	for _, targets := range groupByNeighbours(g.order, g.predecessors) {
		clear(answered)
		for _, t := range targets {
			search.aimAt(t)
			for class, members := range sourceClasses {
				for _, s := range members {
					neighbours := g.HasEdge(s, t)
					if s == t || answered[class] && !neighbours {
						continue
					}
					// A set of paths with the smallest sum for (s,t) visits no other vertex with
					// the successors of s: a path could skip everything before that vertex. The
					// same holds for the predecessors of t. So if no edge joins s and t, the paths
					// serve all pairs of their classes.
					answered[class] = answered[class] || !neighbours
					bound = max(bound, search.longestFrom(s, f+1))
				}
			}
		}
	}
	return bound, nil
}

// groupByNeighbours groups the vertices below n by equal lists of neighbours.
func groupByNeighbours(n int, neighbours adjacency) [][]int {
	vertices := make([]int, n)
	for v := range vertices {
		vertices[v] = v
	}
	slices.SortStableFunc(vertices, func(u, v int) int {
		return slices.Compare(neighbours.of(u), neighbours.of(v))
	})
	var groups [][]int
	for len(vertices) > 0 {
		size := 1
		for size < len(vertices) && slices.Equal(neighbours.of(vertices[0]),
			neighbours.of(vertices[size])) {
			size++
		}
		groups = append(groups, vertices[:size])
		vertices = vertices[size:]
	}
	return groups
}

// disjointSearch finds disjoint paths with the smallest sum of lengths [Poke19, section 5.6.2.3].
// It uses successive shortest paths with potentials, which keep every arc's reduced length
// non-negative. Lengths are small integers, so the queue consists of buckets. The potentials start
// as the negated distances to the target, which directs a search straight towards it.
type disjointSearch struct {
	*splitNetwork
	predecessors adjacency
	target       int
	// toTarget is the distance of each node to in(target) in the empty network.
	toTarget []int32
	// potential starts as -toTarget. Only the nodes in raised have a different value.
	potential []int32
	raised    []int32
	// distance is valid for nodes that the current search has reached.
	distance []int32
	// buckets holds the nodes by distance. An entry is stale if its node was later reached at a
	// smaller distance.
	buckets [][]int32
}

func newDisjointSearch(g *Digraph) *disjointSearch {
	return &disjointSearch{
		splitNetwork: newSplitNetwork(g.successors),
		predecessors: g.predecessors,
		toTarget:     make([]int32, 2*g.order),
		potential:    make([]int32, 2*g.order),
		distance:     make([]int32, 2*g.order),
	}
}

// aimAt makes t the target of the following searches. Every vertex must reach t.
func (d *disjointSearch) aimAt(t int) {
	d.target = t
	d.raised = d.raised[:0]
	d.nextSearch()
	start := inNode(t)
	d.reached[start], d.toTarget[start] = d.search, 0
	d.queue = append(d.queue[:0], start)
	for head := 0; head < len(d.queue); head++ {
		in := d.queue[head]
		for _, u := range d.predecessors.of(vertexOf(in)) {
			if d.reached[outNode(u)] == d.search {
				continue
			}
			distance := d.toTarget[in] + 1
			d.reached[outNode(u)], d.toTarget[outNode(u)] = d.search, distance
			if u != t {
				d.toTarget[inNode(u)] = distance
				d.queue = append(d.queue, inNode(u))
			}
		}
	}
	for x, distance := range d.toTarget {
		d.potential[x] = -distance
	}
}

// longestFrom takes count paths from s to the target that share no other vertex and have the
// smallest sum of lengths, and returns the length of the longest. Such paths must exist: the
// connectivity must be at least count.
func (d *disjointSearch) longestFrom(s, count int) int {
	d.reset()
	for _, x := range d.raised {
		d.potential[x] = -d.toTarget[x]
	}
	d.raised = d.raised[:0]
	for range count {
		if !d.shortest(outNode(s), inNode(d.target)) {
			panic("digraph: fewer disjoint paths between two vertices than the vertex-connectivity")
		}
		d.push(inNode(d.target))
	}
	return d.longestPath(s)
}

// shortest finds a shortest path from start to end that augments the flow, and updates the
// potentials.
func (d *disjointSearch) shortest(start, end int32) bool {
	d.nextSearch()
	d.queue = d.queue[:0]
	d.reach(start, noArc, 0)
	for at := int32(0); at < int32(len(d.buckets)); at++ {
		for i := 0; i < len(d.buckets[at]); i++ {
			x := d.buckets[at][i]
			if d.distance[x] < at {
				continue
			}
			if x == end {
				d.raisePotentials(at)
				return true
			}
			d.relax(x, at)
		}
	}
	d.raisePotentials(0)
	return false
}

func (d *disjointSearch) relax(x, at int32) {
	for a := d.first[x]; a < d.first[x+1]; a++ {
		if !d.free[a] {
			continue
		}
		y := d.arcs[a].head
		distance := at + int32(d.arcs[a].length) + d.potential[x] - d.potential[y]
		if d.reached[y] != d.search || distance < d.distance[y] {
			d.reach(y, a, distance)
		}
	}
}

func (d *disjointSearch) reach(x, by, distance int32) {
	if d.reached[x] != d.search {
		d.queue = append(d.queue, x)
	}
	d.reached[x], d.enteredBy[x], d.distance[x] = d.search, by, distance
	for int(distance) >= len(d.buckets) {
		d.buckets = append(d.buckets, nil)
	}
	d.buckets[distance] = append(d.buckets[distance], x)
}

// raisePotentials keeps every reduced length non-negative after the flow has grown along a path of
// length end. The potential of a node increases by its distance, or by end if the node is further
// away. All potentials are then lowered by end, so most stay unchanged. It also empties the
// buckets.
func (d *disjointSearch) raisePotentials(end int32) {
	for _, x := range d.queue {
		if d.distance[x] < end {
			d.potential[x] += d.distance[x] - end
			d.raised = append(d.raised, x)
		}
	}
	for i := range d.buckets {
		d.buckets[i] = d.buckets[i][:0]
	}
}

// longestPath returns the length of the longest path that the flow takes from s to the target.
func (d *disjointSearch) longestPath(s int) int {
	longest := 0
	start := outNode(s)
	for a := d.first[start]; a < d.first[start+1]; a++ {
		if !d.isReal(a) || d.free[a] {
			continue
		}
		length := 1
		for x := d.arcs[a].head; x != inNode(d.target); length++ {
			x = d.next(x)
		}
		longest = max(longest, length)
	}
	return longest
}

// next returns the in node that follows the in node x on the only path through x.
func (d *disjointSearch) next(x int32) int32 {
	out := outNode(vertexOf(x))
	for a := d.first[out]; a < d.first[out+1]; a++ {
		if d.isReal(a) && !d.free[a] {
			return d.arcs[a].head
		}
	}
	panic("digraph: a path of the flow ends before its target")
}
