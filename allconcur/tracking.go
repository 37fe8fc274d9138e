package allconcur

import (
	"math/bits"

	"github.com/ledgerd/ledgerd/digraph"
	"github.com/ledgerd/ledgerd/order"
)

// tracking holds the tracking digraphs g_i of the current reliable round: early termination
// [Poke19, section 5.2.1, Algorithm 5.1 lines 19-38, Algorithm 6.6]. The vertices of g_i[p*] are
// the servers that may have p*'s message m*, and its edges are the ways on which m* may have gone.
// An empty digraph says that m* is here or that no working server has it. When all are empty, the
// round is complete.
//
// Given the notifications F, a non-empty tracking digraph is always the one that these four
// invariants describe [Poke19, section 5.5.1.2]:
//
//	I1  it contains its root p*;
//	I2  it contains all successors in G_R of each of its vertices that is known to have
//	    failed, except the owners of those notifications;
//	I3  its edges lead from vertices known to have failed to their successors in G_R, except
//	    the owners of those notifications;
//	I4  each vertex is the root or such a successor of another vertex.
//
// So g_i[p*] is the single vertex p* until p* is known to have failed. Only from then on is it kept
// as a trackingDigraph.
type tracking struct {
	reliable *digraph.Digraph
	failures *notifications
	members  serverSet
	// awaited are the servers whose tracking digraph is not empty.
	awaited      serverSet
	awaitedCount int
	// grown lists the roots whose digraph contains more than the root. digraphs holds these
	// digraphs.
	grown    []order.ServerID
	digraphs []*trackingDigraph
	// spare holds digraphs for reuse; queue and reached are scratch.
	spare   []*trackingDigraph
	queue   []trackedEdge
	reached serverSet
	// tooSoon plants FaultPrunedTooSoon.
	tooSoon bool
}

// trackingDigraph is one g_i[p*].
type trackingDigraph struct {
	vertices serverSet
	// edges has a row for each server, like notifications.owned: bit i stands for an edge to the
	// server's successor i in G_R.
	edges    []uint64
	rowWords int
}

// trackedEdge is an edge to the successor at an index.
type trackedEdge struct {
	from  order.ServerID
	index int
}

func newTracking(reliable *digraph.Digraph, failures *notifications, members serverSet,
	tooSoon bool) *tracking {
	n := reliable.Order()
	return &tracking{
		reliable: reliable, failures: failures, members: members, tooSoon: tooSoon,
		awaited: newServerSet(n), digraphs: make([]*trackingDigraph, n), reached: newServerSet(n),
	}
}

// reset makes every member's tracking digraph the single vertex of its root.
func (t *tracking) reset() {
	for _, root := range t.grown {
		t.release(root)
	}
	t.grown = t.grown[:0]
	copy(t.awaited, t.members)
	t.awaitedCount = t.members.count()
}

// redeliver counts all notifications again, one by one, in a round that has just begun [Poke19,
// Algorithm 6.3 line 41, Algorithm 6.5 line 90].
func (t *tracking) redeliver() {
	t.failures.unmark()
	for _, fn := range t.failures.arrived {
		index := successorIndex(t.reliable, fn.target, fn.owner)
		t.failures.mark(fn.target, index)
		t.update(fn, index)
	}
}

// received empties the tracking digraph of a server whose message arrived.
func (t *tracking) received(root order.ServerID) {
	if !t.awaited.has(root) {
		return
	}
	t.awaited.remove(root)
	t.awaitedCount--
	if t.digraphs[root] != nil {
		t.release(root)
		t.forget(root)
	}
}

// update applies a notification to all tracking digraphs. The notification is already marked, and
// its owner is the target's successor at the index.
func (t *tracking) update(fn notification, index int) {
	if t.awaited.has(fn.target) && t.digraphs[fn.target] == nil {
		t.digraphs[fn.target] = t.acquire(fn.target)
		t.grown = append(t.grown, fn.target)
	}
	kept := t.grown[:0]
	for _, root := range t.grown {
		if t.updateOne(root, t.digraphs[root], fn, index) {
			kept = append(kept, root)
			continue
		}
		t.release(root)
		t.awaited.remove(root)
		t.awaitedCount--
	}
	t.grown = kept
}

// updateOne is UpdateTrackingDigraph for one notification [Poke19, Algorithm 6.6]. It reports
// whether the digraph is still not empty.
func (t *tracking) updateOne(root order.ServerID, g *trackingDigraph, fn notification,
	index int) bool {
	if !g.vertices.has(fn.target) {
		return true
	}
	if t.tooSoon && fn.target == root {
		return false
	}
	if !g.hasSuccessor(fn.target) {
		t.expand(g, fn.target, index)
	} else if g.hasEdge(fn.target, index) {
		g.removeEdge(fn.target, index) // the owner has not received m* from the target
		t.pruneUnreached(root, g)
	}
	return !g.vertices.within(t.failures.targets) // false: no working server has m*
}

// expand assumes that the target sent m* on before it failed, to its successors except the
// notification's owner, and that failed successors did so in turn [Poke19, Algorithm 6.6, lines
// 98-104].
func (t *tracking) expand(g *trackingDigraph, target order.ServerID, owner int) {
	t.queue = t.queue[:0]
	for i, s := range t.reliable.Successors(int(target)) {
		if i != owner && t.members.has(order.ServerID(s)) {
			t.queue = append(t.queue, trackedEdge{from: target, index: i})
		}
	}
	for head := 0; head < len(t.queue); head++ {
		edge := t.queue[head]
		p := order.ServerID(t.reliable.Successors(int(edge.from))[edge.index])
		if !g.vertices.has(p) {
			g.vertices.add(p)
			if t.failures.targets.has(p) {
				t.queueSuccessors(p)
			}
		}
		g.addEdge(edge.from, edge.index)
	}
}

// queueSuccessors queues the edges on which a failed server may have sent m* on, except those to
// the owners of notifications of its failure.
func (t *tracking) queueSuccessors(p order.ServerID) {
	for i, s := range t.reliable.Successors(int(p)) {
		if t.members.has(order.ServerID(s)) && !t.failures.has(p, i) {
			t.queue = append(t.queue, trackedEdge{from: p, index: i})
		}
	}
}

// pruneUnreached removes the vertices that no path from the root reaches [Poke19, Algorithm 6.6,
// lines 107-108].
func (t *tracking) pruneUnreached(root order.ServerID, g *trackingDigraph) {
	t.reached.clear()
	t.reached.add(root)
	t.queue = append(t.queue[:0], trackedEdge{from: root})
	for head := 0; head < len(t.queue); head++ {
		from := t.queue[head].from
		successors := t.reliable.Successors(int(from))
		for w, word := range g.row(from) {
			for ; word != 0; word &= word - 1 {
				p := order.ServerID(successors[w*wordBits+bits.TrailingZeros64(word)])
				if !t.reached.has(p) {
					t.reached.add(p)
					t.queue = append(t.queue, trackedEdge{from: p})
				}
			}
		}
	}
	for p, more := g.vertices.next(0); more; p, more = g.vertices.next(p + 1) {
		if !t.reached.has(p) {
			g.vertices.remove(p)
			clear(g.row(p))
		}
	}
}

func (t *tracking) acquire(root order.ServerID) *trackingDigraph {
	var g *trackingDigraph
	if last := len(t.spare) - 1; last >= 0 {
		g, t.spare = t.spare[last], t.spare[:last]
	} else {
		n, rowWords := t.reliable.Order(), t.failures.rowWords
		g = &trackingDigraph{vertices: newServerSet(n), edges: make([]uint64, n*rowWords),
			rowWords: rowWords}
	}
	g.vertices.add(root)
	return g
}

func (t *tracking) release(root order.ServerID) {
	g := t.digraphs[root]
	g.vertices.clear()
	clear(g.edges)
	t.digraphs[root] = nil
	t.spare = append(t.spare, g)
}

// forget removes the root from the list of grown digraphs.
func (t *tracking) forget(root order.ServerID) {
	kept := t.grown[:0]
	for _, p := range t.grown {
		if p != root {
			kept = append(kept, p)
		}
	}
	t.grown = kept
}

// clone copies the tracking digraphs for a copy of the engine, with that copy's notifications and
// members.
func (t *tracking) clone(failures *notifications, members serverSet) *tracking {
	c := newTracking(t.reliable, failures, members, t.tooSoon)
	copy(c.awaited, t.awaited)
	c.awaitedCount = t.awaitedCount
	for _, root := range t.grown {
		g := c.acquire(root)
		copy(g.vertices, t.digraphs[root].vertices)
		copy(g.edges, t.digraphs[root].edges)
		c.digraphs[root] = g
		c.grown = append(c.grown, root)
	}
	return c
}

func (g *trackingDigraph) row(p order.ServerID) []uint64 {
	start := int(p) * g.rowWords
	return g.edges[start : start+g.rowWords]
}

func (g *trackingDigraph) hasEdge(from order.ServerID, index int) bool {
	return g.row(from)[index/wordBits]>>(index%wordBits)&1 != 0
}

func (g *trackingDigraph) addEdge(from order.ServerID, index int) {
	g.row(from)[index/wordBits] |= 1 << (index % wordBits)
}

func (g *trackingDigraph) removeEdge(from order.ServerID, index int) {
	g.row(from)[index/wordBits] &^= 1 << (index % wordBits)
}

func (g *trackingDigraph) hasSuccessor(from order.ServerID) bool {
	for _, word := range g.row(from) {
		if word != 0 {
			return true
		}
	}
	return false
}
