package allconcur

import (
	"slices"
	"testing"

	"github.com/ledgerd/ledgerd/digraph"
	"github.com/ledgerd/ledgerd/order"
)

// TestForkInPartition shows why round stability needs a majority. Nine servers run over a digraph
// of connectivity 3, f = 2. All complete round 1. All messages of round 2 reach three of the
// servers, which go on to round 3. Then these three and a fourth are cut off. As published, three
// servers in round 3 are f others and oneself, enough to A-deliver round 1. The five behind the cut
// are a majority, enough to rerun and A-deliver another round 1. As corrected, the three wait.
func TestForkInPartition(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		detector Detector
		fault    Fault
		forks    bool
	}{{DetectorEventual, FaultNone, false}, {DetectorEventualPaper, FaultNone, true},
		{DetectorEventual, FaultToleratedNotMajority, true}} {
		g, err := digraph.GS(9, 3)
		if err != nil {
			t.Fatal(err)
		}
		w, err := newNetwork(1, Config{Engine: EngineAllConcurPlus, Servers: 9, Reliable: g,
			Detector: test.detector, Fault: test.fault})
		if err != nil {
			t.Fatal(err)
		}
		cut := cutOff(t, g)
		w.round(t, nil, nil)
		w.round(t, cut[:3], nil)
		w.round(t, cut[:3], cut[:3])
		early := len(w.delivered[cut[0]])
		majority := make([]int, 0, 5)
		for p := range 9 {
			if !slices.Contains(cut, p) {
				majority = append(majority, p)
			}
		}
		for _, p := range majority {
			for _, q := range g.Predecessors(p) {
				if slices.Contains(cut, q) {
					if err := w.engines[p].Suspect(order.ServerID(q)); err != nil {
						t.Fatal(err)
					}
					w.pump(p)
				}
			}
		}
		w.flowWithin(t, majority)
		if len(w.delivered[majority[0]]) == 0 {
			t.Fatalf("%s: the majority does not A-deliver: %+v", test.detector,
				w.engines[majority[0]].Status())
		}
		forked := early > 0 && !equalDeliveries(w.delivered[cut[0]][0], w.delivered[majority[0]][0])
		if forked != test.forks {
			t.Errorf("%s, %s: forked: %t", test.detector, test.fault, forked)
		}
	}
}

// cutOff finds four servers such that the other five still reach each other without them.
func cutOff(t *testing.T, g *digraph.Digraph) []int {
	t.Helper()
	for bits := range 1 << 9 {
		var cut, rest []int
		for p := range 9 {
			if bits>>p&1 != 0 {
				cut = append(cut, p)
			} else {
				rest = append(rest, p)
			}
		}
		if len(cut) != 4 {
			continue
		}
		var edges [][2]int
		for i, p := range rest {
			for j, q := range rest {
				if g.HasEdge(p, q) {
					edges = append(edges, [2]int{i, j})
				}
			}
		}
		if left, err := digraph.New(5, edges); err == nil && left.Connectivity() > 0 {
			return cut
		}
	}
	t.Fatal("no four of nine leave the others connected")
	return nil
}

// round makes some servers (nil: all) A-broadcast an unreliable message, and delivers all these
// directly to some servers (nil: all). Relayed copies are not needed then.
func (w *network) round(t *testing.T, to, from []int) {
	t.Helper()
	frames := map[int][]byte{}
	for p, engine := range w.engines {
		if from != nil && !slices.Contains(from, p) {
			continue
		}
		if err := engine.Broadcast([]byte{byte('a' + p)}); err != nil {
			t.Fatal(err)
		}
		frames[p] = engine.current.frames[p]
		w.pump(p)
	}
	for p, engine := range w.engines {
		if to != nil && !slices.Contains(to, p) {
			continue
		}
		for q := range w.n() {
			if frame := frames[q]; q != p && frame != nil {
				if err := engine.Receive(order.ServerID(q), frame); err != nil {
					t.Fatal(err)
				}
				w.pump(p)
			}
		}
	}
	for i := range w.channels {
		w.channels[i] = nil
	}
}

// flowWithin delivers all frames under way among some servers.
func (w *network) flowWithin(t *testing.T, servers []int) {
	t.Helper()
	for again := true; again; {
		again = false
		for c := range w.channels {
			if len(w.channels[c]) == 0 || !slices.Contains(servers, c/w.n()) ||
				!slices.Contains(servers, c%w.n()) {
				continue
			}
			again = true
			if err := w.receive(c/w.n(), c%w.n()); err != nil {
				t.Fatal(err)
			}
		}
	}
}
