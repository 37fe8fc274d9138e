package digraph

// splitNetwork is a flow network in which one unit of flow is a path of the digraph, and different
// units share no vertex. Every vertex v is split into two nodes, in(v) and out(v), joined by one
// arc. An edge (u,v) becomes an arc from out(u) to in(v). All capacities are one.
//
// A network answers one query at a time and is reused for the next. A query first undoes the
// changes of the previous query, at a cost proportional to those changes.
type splitNetwork struct {
	// arcs[first[x]:first[x+1]] are the arcs that leave node x and the reverses of the arcs that
	// enter it.
	arcs  []arc
	first []int32
	// free reports for each arc whether flow can go along it: the arc is unused, or it is the
	// reverse of a used arc.
	free []bool
	// changed lists the arcs whose free flag differs from the empty network's. An arc may be listed
	// twice.
	changed []int32

	// enteredBy is the arc through which the search reached a node. It is valid if reached equals
	// the number of the current search.
	enteredBy []int32
	reached   []uint32
	search    uint32
	queue     []int32

	// ended reports for each vertex whether a path ends there. Only disjointToBefore uses it.
	ended     []bool
	endedList []int
}

type arc struct {
	head    int32
	reverse int32
	// length is 1 for an edge of the digraph, 0 within a vertex, and -1 or 0 for their reverses.
	length int8
}

// noArc marks the node at which a search begins.
const noArc = -1

func inNode(v int) int32  { return int32(2 * v) }
func outNode(v int) int32 { return int32(2*v + 1) }

// vertexOf returns the vertex of a node.
func vertexOf(node int32) int { return int(node / 2) }

// isOut reports whether a node is an out node.
func isOut(node int32) bool { return node%2 == 1 }

func newSplitNetwork(successors adjacency) *splitNetwork {
	order := len(successors.start) - 1
	total := 2 * (order + len(successors.flat))
	w := &splitNetwork{
		arcs:      make([]arc, total),
		first:     make([]int32, 2*order+1),
		free:      make([]bool, total),
		enteredBy: make([]int32, 2*order),
		reached:   make([]uint32, 2*order),
		ended:     make([]bool, order),
	}
	// Every arc counts once at its tail and, as a reverse, once at its head.
	for u := range order {
		w.first[inNode(u)+1]++
		w.first[outNode(u)+1]++
		for _, v := range successors.of(u) {
			w.first[outNode(u)+1]++
			w.first[inNode(v)+1]++
		}
	}
	for x := range 2 * order {
		w.first[x+1] += w.first[x]
	}
	next := make([]int32, 2*order)
	copy(next, w.first)
	connect := func(tail, head int32, length int8) {
		a, b := next[tail], next[head]
		next[tail]++
		next[head]++
		w.arcs[a] = arc{head: head, reverse: b, length: length}
		w.arcs[b] = arc{head: tail, reverse: a, length: -length}
		w.free[a] = true
	}
	for u := range order {
		connect(inNode(u), outNode(u), 0)
		for _, v := range successors.of(u) {
			connect(outNode(u), inNode(v), 1)
		}
	}
	return w
}

// reset empties the network.
func (w *splitNetwork) reset() {
	// An arc and its reverse change together, and an arc may have changed twice. Restoring both
	// from their kind (real or reverse) is correct in every case.
	for _, a := range w.changed {
		real := w.isReal(a)
		w.free[a] = real
		w.free[w.arcs[a].reverse] = !real
	}
	w.changed = w.changed[:0]
	for _, v := range w.endedList {
		w.ended[v] = false
	}
	w.endedList = w.endedList[:0]
}

// isReal reports whether an arc is an arc of the network, not the reverse of one.
func (w *splitNetwork) isReal(a int32) bool {
	fromOut := isOut(w.arcs[w.arcs[a].reverse].head)
	// Real arcs go from in to out within a vertex, and from out to in between vertices.
	if w.arcs[a].length == 0 {
		return !fromOut
	}
	return fromOut
}

// push sends one unit of flow along the path through which the search reached a node.
func (w *splitNetwork) push(node int32) {
	for a := w.enteredBy[node]; a != noArc; {
		reverse := w.arcs[a].reverse
		w.free[a], w.free[reverse] = false, true
		w.changed = append(w.changed, a)
		a = w.enteredBy[w.arcs[reverse].head]
	}
}

// disjointBetween counts the paths from u to v that share no other vertex, up to a limit.
func (w *splitNetwork) disjointBetween(u, v, limit int) int {
	w.reset()
	for count := range limit {
		end, found := w.augment(u, func(node int32) bool { return node == inNode(v) })
		if !found {
			return count
		}
		w.push(end)
	}
	return limit
}

// disjointToBefore counts the paths from v to vertices smaller than v that share no vertex but v,
// up to a limit. The paths therefore end in different vertices.
func (w *splitNetwork) disjointToBefore(v, limit int) int {
	w.reset()
	for count := range limit {
		end, found := w.augment(v, func(node int32) bool {
			vertex := vertexOf(node)
			return isOut(node) && vertex < v && !w.ended[vertex]
		})
		if !found {
			return count
		}
		w.push(end)
		w.ended[vertexOf(end)] = true
		w.endedList = append(w.endedList, vertexOf(end))
	}
	return limit
}

// augment searches breadth first from out(source) for a node that satisfies isEnd.
func (w *splitNetwork) augment(source int, isEnd func(node int32) bool) (int32, bool) {
	w.nextSearch()
	start := outNode(source)
	w.reached[start], w.enteredBy[start] = w.search, noArc
	w.queue = append(w.queue[:0], start)
	for head := 0; head < len(w.queue); head++ {
		x := w.queue[head]
		for a := w.first[x]; a < w.first[x+1]; a++ {
			y := w.arcs[a].head
			if !w.free[a] || w.reached[y] == w.search {
				continue
			}
			w.reached[y], w.enteredBy[y] = w.search, a
			if isEnd(y) {
				return y, true
			}
			w.queue = append(w.queue, y)
		}
	}
	return 0, false
}

// nextSearch marks all nodes as not reached.
func (w *splitNetwork) nextSearch() {
	w.search++
	if w.search == 0 {
		clear(w.reached)
		w.search = 1
	}
}
