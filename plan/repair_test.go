package plan

import (
	"slices"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/sim/network"
)

// TestRepairAgainstSimulator compares how long engines need after a suspicion with the simulator,
// to a factor of two: until the last server A-delivers again. With DARE and TRAM the first
// server begins to lead a group without a leader.
func TestRepairAgainstSimulator(t *testing.T) {
	t.Parallel()
	engineCases(t, []int{250}, func(t *testing.T, p *Plan) {
		for _, e := range p.Engines {
			if p.Question.Servers <= 2 {
				continue // nobody is left to order with
			}
			repaired := time.Duration(0)
			if led := ledEngines[e.Name]; led != nil {
				name := e.Name
				e = estimateOf(t, p, e)
				e.Name, repaired = name, electLed(led(t, p.Question.Deployment,
					p.Question.Servers, p.Question.Transaction, 1))
			} else {
				repaired = repair(t, p, e.Name)
			}
			compareNumbers(t, e.Name+": repair", e.Repair.Seconds(), repaired.Seconds(), 1)
		}
	})
}

// electLed returns how long a campaign takes until all servers A-delivered something.
func electLed(g *remoteGroup) time.Duration {
	g.run(1)
	last := time.Duration(0)
	for _, of := range g.delivered {
		first := time.Hour
		for _, origin := range of {
			first = min(first, origin[0])
		}
		last = max(last, first)
	}
	return last
}

// crashing is a group of engines whose last server crashes after some rounds.
type crashing struct {
	t         *testing.T
	site      site
	network   *network.Network
	engines   []order.Broadcaster
	payload   []byte
	delivered int // at the server that crashes
	crashed   time.Duration
	// again has the instants at which the others A-deliver for the first time after the suspicion.
	again []time.Duration
	// watched says which servers suspect the one that crashed.
	watched func(by int) bool
}

// suspicionAfter is when the others suspect the server that crashed, long after all else stopped.
const suspicionAfter = time.Second

// repair returns how long after a suspicion the last server A-delivers again.
func repair(t *testing.T, p *Plan, name string) time.Duration {
	t.Helper()
	s, err := p.Question.Deployment.site(p.Question.Servers)
	if err != nil {
		t.Fatal(err)
	}
	s.model.Window = p.Question.Deployment.Window
	g := &crashing{t: t, site: s, payload: make([]byte, p.Question.Transaction),
		again: make([]time.Duration, s.servers-1), watched: func(by int) bool {
			return name == EngineTrains || p.Overlay.HasEdge(s.servers-1, by)
		}}
	if g.network, err = network.New(s.model); err != nil {
		t.Fatal(err)
	}
	ours, newEngine := map[order.ServerID]int{}, makerOf(p, name)
	for v := range s.servers {
		engine, err := newEngine(order.ServerID(v))
		if err != nil {
			t.Fatal(err)
		}
		g.engines = append(g.engines, engine)
		ours[order.ServerID(s.place(v))] = v
	}
	for v := range g.engines {
		g.work(v)
	}
	for slices.Contains(g.again, 0) {
		event, more := g.network.Next()
		if !more {
			t.Fatalf("%s stands still", name)
		}
		v := ours[event.Server]
		if event.Frame == nil {
			err = g.engines[v].Suspect(order.ServerID(s.servers - 1))
		} else {
			err = g.engines[v].Receive(order.ServerID(ours[event.From]), event.Frame)
		}
		if err != nil {
			t.Fatal(err)
		}
		g.work(v)
	}
	return slices.Max(g.again) - g.crashed - suspicionAfter
}

// work makes a server A-broadcast and send what it has to.
func (g *crashing) work(v int) {
	victim := len(g.engines) - 1
	for g.crashed == 0 || v != victim {
		if g.engines[v].CanBroadcast() {
			if err := g.engines[v].Broadcast(g.payload); err != nil {
				g.t.Fatal(err)
			}
		}
		ready := g.engines[v].Ready()
		if len(ready.Sends) == 0 && len(ready.Deliveries) == 0 {
			return
		}
		for _, send := range ready.Sends {
			places := make([]order.ServerID, len(send.To))
			for i, to := range send.To {
				places[i] = order.ServerID(g.site.place(int(to)))
			}
			g.network.Send(order.ServerID(g.site.place(v)), places, send.Frame)
		}
		switch {
		case len(ready.Deliveries) == 0:
		case v == victim:
			g.delivered += len(ready.Deliveries)
			if g.delivered > 20 {
				g.crash(victim)
			}
		case g.crashed > 0 && g.network.Now() >= g.crashed+suspicionAfter && g.again[v] == 0:
			g.again[v] = g.network.Now()
		}
	}
}

// crash lets the victim crash, and the others suspect it later.
func (g *crashing) crash(victim int) {
	g.crashed = g.network.Now()
	g.network.Crash(order.ServerID(g.site.place(victim)))
	for v := range victim {
		if g.watched(v) {
			g.network.After(suspicionAfter, order.ServerID(g.site.place(v)), 0)
		}
	}
}
