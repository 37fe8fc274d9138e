package plan

import (
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/allconcur"
	"github.com/ledgerd/ledgerd/dare"
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/trains"
	"github.com/ledgerd/ledgerd/tram/replica"
)

// maker makes the engine of a server.
type maker = func(self order.ServerID) (order.Broadcaster, error)

// makerOf returns the maker of an engine that sends messages, as a node runs it. TRAINS has a
// perfect detector, since it does not go on after a failure without one.
func makerOf(p *Plan, name string) maker {
	servers := p.Question.Servers
	return func(self order.ServerID) (order.Broadcaster, error) {
		if name == EngineTrains {
			return trains.New(trains.Config{Servers: servers, Self: self,
				Detector: trains.DetectorPerfect})
		}
		kind := allconcur.EngineAllConcurPlus
		if name == EngineAllConcur {
			kind = allconcur.EngineAllConcur
		}
		return allconcur.New(allconcur.Config{Engine: kind, Servers: servers, Self: self,
			Reliable: p.Overlay})
	}
}

// engineRun is a run of an engine in the simulator. Its numbers are those of Engine.
type engineRun struct {
	latency, all, worst time.Duration
	messages, wire      float64
}

// ledEngines make groups whose first server leads.
var ledEngines = map[string]func(t *testing.T, d Deployment, servers, payload,
	window int) *remoteGroup{EngineDARE: newLed, EngineTRAM: newTRAM}

// runEngine runs an engine for some rounds.
func runEngine(t *testing.T, p *Plan, name string) engineRun {
	t.Helper()
	q := p.Question
	payload := q.Transaction * q.Batch
	if led := ledEngines[name]; led != nil {
		idle := led(t, q.Deployment, q.Servers, payload, 1).measure(1)
		busy := led(t, q.Deployment, q.Servers, payload, LeaderWindow).measure(LeaderWindow)
		idle.messages, idle.wire = busy.messages, busy.wire
		return idle
	}
	s, err := q.Deployment.site(q.Servers)
	if err != nil {
		t.Fatal(err)
	}
	s.model.Window = q.Deployment.Window
	first, last := 5, 12
	if name == EngineTrains {
		first, last = first*RingTrains, last*RingTrains
	}
	m := simulate(t, s, payload, first, last, makerOf(p, name))
	return engineRun{m.latency, m.all, m.worst, float64(q.Servers) / m.round.Seconds(),
		m.wire / float64(q.Servers*payload)}
}

// estimateOf returns the estimate that a run is compared with. In the simulator, server 0 leads.
func estimateOf(t *testing.T, p *Plan, e Engine) Engine {
	t.Helper()
	if ledEngines[e.Name] == nil {
		return e
	}
	q := p.Question
	r, err := newRemote(q.Deployment, q.Servers)
	if err != nil {
		t.Fatal(err)
	}
	if e.Name == EngineTRAM {
		return r.tramLed(0, q.Servers, q.Transaction*q.Batch)
	}
	return r.leads(0, q.Servers, q.Transaction*q.Batch)
}

// enginePlaces are the networks on which engines are compared with the simulator: the deployments,
// and a lan whose servers are far from each other.
func enginePlaces(t *testing.T) (places []Deployment) {
	t.Helper()
	far, err := DeploymentOf("lan")
	if err != nil {
		t.Fatal(err)
	}
	far.Distance = 5 * time.Millisecond
	return append([]Deployment{far}, deployments...)
}

// engineCases calls a function for networks, numbers of servers and sizes of messages, few of them
// in short runs.
func engineCases(t *testing.T, sizes []int, run func(t *testing.T, p *Plan)) {
	t.Helper()
	if raceEnabled {
		t.Skip("one goroutine at a time, and slow under the race detector")
	}
	for _, place := range enginePlaces(t) {
		for _, servers := range []int{2, 3, 5, 8, 16} {
			for _, size := range sizes {
				if testing.Short() && servers != 3 || (testing.Short() || servers > 8) &&
					size != sizes[0] {
					continue
				}
				t.Run(fmt.Sprintf("%s + %v, %d servers, %d bytes", place.Name, place.Distance,
					servers, size), func(t *testing.T) {
					t.Parallel()
					p, err := Make(Question{Servers: servers, Deployment: place,
						Transaction: size})
					if err != nil {
						t.Fatal(err)
					}
					run(t, &p)
				})
			}
		}
	}
}

// modelBounds is how far a model's latencies and throughput may be from the simulator's. A ring has
// no queues but those of the trains, so its model is nearly exact.
var modelBounds = map[string]float64{EngineAllConcurPlus: 0.3, EngineAllConcur: 0.4,
	EngineTrains: 0.05, EngineDARE: 0.4, EngineTRAM: 0.4}

// TestEnginesAgainstSimulator compares the models of all engines with the engines themselves in the
// simulator: latencies and throughput to modelBounds, the bytes on the links to 40 %, and the worst
// latency to a factor of two.
func TestEnginesAgainstSimulator(t *testing.T) {
	t.Parallel()
	engineCases(t, []int{64, 8000}, func(t *testing.T, p *Plan) {
		for _, planned := range p.Engines[4:] {
			e, got := estimateOf(t, p, planned), runEngine(t, p, planned.Name)
			bound := modelBounds[planned.Name]
			for _, c := range []struct {
				name       string
				model, run float64
				bound      float64
			}{
				{"latency", e.Latency.Seconds(), got.latency.Seconds(), bound},
				{"latency at the last server", e.All.Seconds(), got.all.Seconds(), bound},
				{"worst latency", e.Worst.Seconds(), got.worst.Seconds(), 1},
				{"messages a second", e.Messages, got.messages, bound},
				{"bytes on the links", e.Wire, got.wire, 0.4},
			} {
				compareNumbers(t, planned.Name+": "+c.name, c.model, c.run, c.bound)
			}
		}
	})
}

// compareNumbers checks that two numbers differ by less than a share of the smaller one.
func compareNumbers(t *testing.T, what string, model, run, share float64) {
	t.Helper()
	ratio := model / run
	t.Logf("%s: %.4g by the model, %.4g in the simulator, ratio %.2f", what, model, run, ratio)
	if math.Max(ratio, 1/ratio) > 1+share {
		t.Errorf("%s: %.4g by the model, %.4g in the simulator, ratio %.2f", what, model, run,
			ratio)
	}
}

// TestRingTakesThePapersHops compares with [TRAINS, Table III]: a message is A-delivered by all
// after 5n/2 - 1/2 hops, if all hops take equally long.
func TestRingTakesThePapersHops(t *testing.T) {
	t.Parallel()
	for servers, hops := range map[int]float64{2: 4.5, 4: 9.5, 6: 14.5, 8: 19.5} {
		far, err := DeploymentOf("lan")
		if err != nil {
			t.Fatal(err)
		}
		far.Distance = time.Second // beside it nothing counts
		e, err := ring(far, servers, 100)
		if err != nil {
			t.Fatal(err)
		}
		if got := e.All.Seconds(); math.Abs(got-hops) > 0.01 {
			t.Errorf("%d servers: %v hops, want %v", servers, got, hops)
		}
		if worst := e.Worst.Seconds(); math.Abs(worst-float64(3*servers-1)) > 0.01 {
			t.Errorf("%d servers: at worst %v hops, want %d", servers, worst, 3*servers-1)
		}
	}
}

// TestEngineBounds compares the constants of the models with those of the engines.
func TestEngineBounds(t *testing.T) {
	t.Parallel()
	if wagonFrameMin != trains.WagonFrameMinDefault || RingMax != trains.ServersMax ||
		RingTrains != trains.TrainsDefault || LeaderMax != dare.ServersMax ||
		TRAMMax != replica.ServersMax {
		t.Errorf("rings of %d with %d trains, leaders of %d, groups of %d", RingMax, RingTrains,
			LeaderMax, TRAMMax)
	}
	names := EngineNames()
	for i, want := range []string{allconcur.EngineAllConcurPlus,
		allconcur.EngineAllConcur, trains.EngineName} {
		if names[i] != want {
			t.Errorf("engine %d is %q, want %q", i, names[i], want)
		}
	}
}

// TestEnginesOfAnySize plans groups of one server, of two, and too large ones for some engines.
func TestEnginesOfAnySize(t *testing.T) {
	t.Parallel()
	for _, place := range enginePlaces(t) {
		for _, servers := range []int{1, 2, 64, 65} {
			p, err := Make(Question{Servers: servers, Deployment: place})
			if err != nil {
				t.Fatal(err)
			}
			for i, e := range p.Engines {
				if e.Name != EngineNames()[i] {
					t.Fatalf("engine %d is %s", i, e.Name)
				}
				excluded := servers > 64 && (e.Name == EngineTrains || e.Name == EngineDARE)
				if (e.Excluded != "") != excluded {
					t.Errorf("%d servers: %s is excluded by %q", servers, e.Name, e.Excluded)
				}
				if excluded {
					continue
				}
				if e.Latency <= 0 || e.All < e.Latency || e.Worst < e.All || e.Messages <= 0 ||
					e.Bytes <= 0 || e.Wire < 0 || e.Pause < p.Careful.Timeout || e.Bound == "" ||
					!e.Carries || e.Detector == "" || e.Outstanding < 1 ||
					e.Uninterrupted > e.Tolerated || e.Tolerated >= servers ||
					e.NodePause < e.Pause || e.NodeTolerated > e.Tolerated {
					t.Errorf("%s, %d servers: %+v", place.Name, servers, e)
				}
			}
		}
	}
}

// TestChoice checks whom the plan chooses, with loads that fewer and fewer engines carry.
func TestChoice(t *testing.T) {
	t.Parallel()
	of := func(load float64) (quick, strong string) {
		p, err := Make(Question{Servers: 5, Deployment: deployments[0], Load: load})
		if err != nil {
			t.Fatal(err)
		}
		q, _ := Quickest(p.Engines)
		s, _ := Strongest(p.Engines)
		return q.Name, s.Name
	}
	p, err := Make(Question{Servers: 5, Deployment: deployments[0]})
	if err != nil {
		t.Fatal(err)
	}
	quick, strong := of(0)
	if quick != EngineAllConcurPlus || strong != EngineTrains {
		t.Errorf("quickest %s, strongest %s", quick, strong)
	}
	if quick, strong = of(p.Engines[2].Transactions - 1); quick != strong ||
		strong != EngineTrains {
		t.Errorf("with the greatest load: quickest %s, strongest %s", quick, strong)
	}
	if quick, strong = of(p.Engines[2].Transactions + 1); quick != "" || strong != "" {
		t.Errorf("with a greater load: quickest %q, strongest %q", quick, strong)
	}
	for _, load := range []float64{-1, math.NaN(), math.Inf(1)} {
		if _, err := Make(Question{Servers: 5, Deployment: deployments[0],
			Load: load}); !errors.Is(err, ErrQuestion) {
			t.Errorf("a load of %v: %v", load, err)
		}
	}
}
