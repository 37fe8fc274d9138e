package allconcur

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/digraph"
	"github.com/ledgerd/ledgerd/order"
	"pgregory.net/rapid"
)

// trackedByPaths is a second specification of a tracking digraph [Poke19, section 5.5.1.2, equation
// 5.1], computed from scratch by enumerating paths. Take the digraph with all edges that I3 allows.
// The tracking digraph has the root, and every server that a path from the root reaches on which
// all servers but the last are known to have failed. It is empty if all its vertices failed.
func trackedByPaths(g *digraph.Digraph, failed []notification,
	root order.ServerID) (vertices []order.ServerID, edges []string) {
	n := g.Order()
	known := make([]bool, n)
	owned := map[notification]bool{}
	for _, fn := range failed {
		known[fn.target] = true
		owned[fn] = true
	}
	allowed := func(x, y int) bool {
		return known[x] && g.HasEdge(x, y) &&
			!owned[notification{order.ServerID(x), order.ServerID(y)}]
	}
	in := make([]bool, n)
	onPath := make([]bool, n)
	var walk func(x int)
	walk = func(x int) {
		in[x], onPath[x] = true, true
		for y := range n {
			if !onPath[y] && allowed(x, y) {
				walk(y)
			}
		}
		onPath[x] = false
	}
	walk(int(root))
	lost := true
	for p := range n {
		if in[p] && !known[p] {
			lost = false
		}
	}
	if lost {
		return nil, nil
	}
	for x := range n {
		if !in[x] {
			continue
		}
		vertices = append(vertices, order.ServerID(x))
		for y := range n {
			if in[y] && allowed(x, y) {
				edges = append(edges, fmt.Sprintf("%d>%d", x, y))
			}
		}
	}
	return vertices, edges
}

// tracked returns a tracking digraph as the engine keeps it.
func (t *tracking) tracked(root order.ServerID) (vertices []order.ServerID, edges []string) {
	if !t.awaited.has(root) {
		return nil, nil
	}
	g := t.digraphs[root]
	if g == nil {
		return []order.ServerID{root}, nil
	}
	for x := range t.reliable.Order() {
		var out []int
		for i, y := range t.reliable.Successors(x) {
			if g.hasEdge(order.ServerID(x), i) {
				out = append(out, y)
			}
		}
		slices.Sort(out)
		for _, y := range out {
			edges = append(edges, fmt.Sprintf("%d>%d", x, y))
		}
	}
	return g.vertices.appendTo(nil), edges
}

// checkInvariants checks I1 to I4 for a digraph that is not empty.
func checkInvariants(t *rapid.T, g *digraph.Digraph, f *notifications, root order.ServerID,
	vertices []order.ServerID, edges []string) {
	in := func(p int) bool { return slices.Contains(vertices, order.ServerID(p)) }
	if !in(int(root)) {
		t.Fatalf("I1: the root %d is missing in %v", root, vertices)
	}
	reached := map[int]bool{int(root): true}
	count := 0
	for _, x := range vertices {
		if !f.targets.has(x) {
			continue
		}
		for i, y := range g.Successors(int(x)) {
			if f.has(x, i) {
				continue
			}
			if !in(y) {
				t.Fatalf("I2: %d, a successor of %d, is missing in %v", y, x, vertices)
			}
			if !slices.Contains(edges, fmt.Sprintf("%d>%d", x, y)) {
				t.Fatalf("I2: the edge %d>%d is missing in %v", x, y, edges)
			}
			count++
			reached[y] = true
		}
	}
	if count != len(edges) {
		t.Fatalf("I3: %d edges are allowed, there are %v", count, edges)
	}
	for _, x := range vertices {
		if !reached[int(x)] {
			t.Fatalf("I4: %d is neither the root nor a successor of a failed vertex", x)
		}
	}
}

func someDigraph(t *rapid.T) *digraph.Digraph {
	n := rapid.IntRange(2, 12).Draw(t, "n")
	var g *digraph.Digraph
	var err error
	switch kind := rapid.IntRange(0, 2).Draw(t, "kind"); {
	case kind == 0 && n >= 6:
		g, err = digraph.GS(n, 3)
	case kind == 1 && n >= 8:
		g, err = digraph.GS(n, 4)
	case kind == 2 && n >= 4:
		g, err = digraph.Binomial(n)
	case n > 8: // the complete digraph of more has too many paths to enumerate
		g, err = digraph.Ring(n)
	default:
		g, err = digraph.Complete(n)
	}
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// TestTrackingSpecificationsAgree runs random histories of notifications, messages and new rounds
// through the recursive specification (the engine's). It compares every tracking digraph with the
// one by paths, and with the invariants. In between servers are removed, as between rounds.
func TestTrackingSpecificationsAgree(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		g := someDigraph(t)
		n := g.Order()
		members := newServerSet(n)
		for p := range n {
			members.add(order.ServerID(p))
		}
		f := newNotifications(g)
		tr := newTracking(g, f, members, false)
		tr.reset()
		received := map[order.ServerID]bool{}
		for range rapid.IntRange(1, 25).Draw(t, "steps") {
			p := order.ServerID(rapid.IntRange(0, n-1).Draw(t, "server"))
			switch rapid.IntRange(0, 9).Draw(t, "step") {
			case 0:
				received[p] = true
				tr.received(p)
			case 1: // a new round, with or without a server
				if rapid.Bool().Draw(t, "remove") && members.count() > 2 {
					members.remove(p)
					f.retain(members)
				}
				clear(received)
				tr.reset()
				tr.redeliver()
			default:
				successors := g.Successors(int(p))
				index := rapid.IntRange(0, len(successors)-1).Draw(t, "owner")
				fn := notification{p, order.ServerID(successors[index])}
				if !members.has(p) || !members.has(fn.owner) || f.has(p, index) {
					continue
				}
				f.arrived = append(f.arrived, fn)
				f.mark(p, index)
				tr.update(fn, index)
			}
			compareTracking(t, g, f, tr, members, received)
		}
	})
}

func compareTracking(t *rapid.T, g *digraph.Digraph, f *notifications, tr *tracking,
	members serverSet, received map[order.ServerID]bool) {
	left := within(t, g, members)
	awaited := 0
	for _, root := range members.appendTo(nil) {
		vertices, edges := tr.tracked(root)
		var wantVertices []order.ServerID
		var wantEdges []string
		if !received[root] {
			wantVertices, wantEdges = trackedByPaths(left, f.arrived, root)
		}
		if fmt.Sprint(vertices, edges) != fmt.Sprint(wantVertices, wantEdges) {
			t.Fatalf("g[%d] is %v %v by recursion, %v %v by paths, after %v", root, vertices, edges,
				wantVertices, wantEdges, f.arrived)
		}
		if len(vertices) > 0 {
			awaited++
			checkInvariants(t, left, notificationsOver(left, f.arrived), root, vertices, edges)
		}
	}
	if awaited != tr.awaitedCount || awaited != tr.awaited.count() {
		t.Fatalf("%d digraphs are not empty, counted %d", awaited, tr.awaitedCount)
	}
}

// within returns G_R without the removed servers' edges.
func within(t *rapid.T, g *digraph.Digraph, members serverSet) *digraph.Digraph {
	var edges [][2]int
	for _, e := range g.Edges() {
		if members.has(order.ServerID(e[0])) && members.has(order.ServerID(e[1])) {
			edges = append(edges, e)
		}
	}
	left, err := digraph.New(g.Order(), edges)
	if err != nil {
		t.Fatal(err)
	}
	return left
}

func notificationsOver(g *digraph.Digraph, arrived []notification) *notifications {
	f := newNotifications(g)
	for _, fn := range arrived {
		f.mark(fn.target, successorIndex(g, fn.target, fn.owner))
	}
	return f
}

// TestTrackingExample follows g_6[p_0] through the paper's example over GS(9,3) [Poke19, figure
// 5.2].
func TestTrackingExample(t *testing.T) {
	t.Parallel()
	g, err := digraph.GS(9, 3)
	if err != nil {
		t.Fatal(err)
	}
	members := newServerSet(9)
	for p := range order.ServerID(9) {
		members.add(p)
	}
	f := newNotifications(g)
	tr := newTracking(g, f, members, false)
	tr.reset()
	for _, step := range []struct {
		fn   notification
		want string
	}{
		{notification{0, 4}, "0 3 5 | 0>3 0>5"},
		{notification{5, 6}, "0 3 5 7 8 | 0>3 0>5 5>7 5>8"},
		{notification{5, 8}, "0 3 5 7 | 0>3 0>5 5>7"},
		{notification{0, 3}, "0 5 7 | 0>5 5>7"},
		{notification{5, 7}, ""},
	} {
		index := successorIndex(g, step.fn.target, step.fn.owner)
		if index < 0 {
			t.Fatalf("%d is no successor of %d, which has %v: not the paper's GS(9,3)",
				step.fn.owner, step.fn.target, g.Successors(int(step.fn.target)))
		}
		f.arrived = append(f.arrived, step.fn)
		f.mark(step.fn.target, index)
		tr.update(step.fn, index)
		vertices, edges := tr.tracked(0)
		got := ""
		if len(vertices) > 0 {
			got = strings.Trim(fmt.Sprint(vertices), "[]") + " | " + strings.Join(edges, " ")
		}
		if got != step.want {
			t.Fatalf("after FAIL %d by %d: %q, want %q", step.fn.target, step.fn.owner, got,
				step.want)
		}
	}
}
