package interleave

import (
	"bytes"
	"errors"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/allconcur"
	"github.com/ledgerd/ledgerd/digraph"
	"github.com/ledgerd/ledgerd/order"
)

// plus is a configuration for a group of AllConcur+.
func plus(servers, inFlight int) Config {
	return Config{InFlight: inFlight, Engine: allconcur.Config{
		Engine: allconcur.EngineAllConcurPlus, Servers: servers, Generation: 9}}
}

// TestConfig: what does not fit is refused.
func TestConfig(t *testing.T) {
	t.Parallel()
	complete, err := digraph.Complete(3)
	if err != nil {
		t.Fatal(err)
	}
	good := plus(3, 2)
	good.Engine.Reliable = complete
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*Config){
		"none in flight":     func(c *Config) { c.InFlight = 0 },
		"too many in flight": func(c *Config) { c.InFlight = InFlightMax + 1 },
		"prompt":             func(c *Config) { c.Engine.Prompt = true },
		"changes": func(c *Config) {
			c.Engine.Change = func(order.Delivery) bool { return false }
		},
		"generation": func(c *Config) { c.Engine.Generation = generationMax + 1 },
		"fault":      func(c *Config) { c.Fault = faultEnd },
		"engine":     func(c *Config) { c.Engine.Engine = "raft" },
	} {
		bad := good
		spoil(&bad)
		if _, err := New(bad); !errors.Is(err, allconcur.ErrConfig) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestOneInFlight: with k = 1, frames and A-deliveries are those of the engine alone.
func TestOneInFlight(t *testing.T) {
	t.Parallel()
	g := newGroup(t, 1, plus(3, 1))
	alone := make([]*allconcur.Engine, g.n())
	for p := range alone {
		config := g.config.Engine
		config.Self = order.ServerID(p)
		var err error
		if alone[p], err = allconcur.New(config); err != nil {
			t.Fatal(err)
		}
	}
	type frame struct {
		from, to order.ServerID
		bytes    []byte
	}
	var under []frame
	act := func(p order.ServerID, do func(order.Broadcaster) error) {
		t.Helper()
		if err := errors.Join(do(alone[p]), do(g.engines[p])); err != nil {
			t.Fatal(err)
		}
		a, b := alone[p].Ready(), g.engines[p].Ready()
		same := func(x, y any) bool { return reflect.DeepEqual(x, y) }
		if !slices.EqualFunc(a.Sends, b.Sends, func(x, y order.Send) bool { return same(x, y) }) ||
			!slices.EqualFunc(a.Deliveries, b.Deliveries, func(x, y order.Delivery) bool {
				return same(x, y)
			}) {
			t.Fatalf("%+v alone, %+v", a, b)
		}
		for _, send := range a.Sends {
			for _, to := range send.To {
				under = append(under, frame{p, to, send.Frame})
			}
		}
	}
	for turn := range 20 {
		for p := range order.ServerID(3) {
			if alone[p].CanBroadcast() != g.engines[p].CanBroadcast() {
				t.Fatalf("turn %d: only one of two may A-broadcast", turn)
			}
			if alone[p].CanBroadcast() {
				act(p, func(e order.Broadcaster) error { return e.Broadcast([]byte{byte(turn)}) })
			}
		}
		for len(under) > 0 {
			f := under[0]
			under = under[1:]
			act(f.to, func(e order.Broadcaster) error { return e.Receive(f.from, f.bytes) })
		}
	}
	if g.engines[0].Delivered() < 10 || g.engines[0].Horizon() != alone[0].Horizon() {
		t.Fatalf("round %d, horizon %d", g.engines[0].Delivered(), g.engines[0].Horizon())
	}
}

// TestBroadcastInTurn: a server with two rounds in flight A-broadcasts twice, and then waits for
// its first round. What it says at once is A-delivered in its order.
func TestBroadcastInTurn(t *testing.T) {
	t.Parallel()
	g := newGroup(t, 1, plus(3, 2))
	e := g.engines[0]
	for flying := range 2 {
		if !e.CanBroadcast() || e.Solicited() || e.InFlight() != flying {
			t.Fatalf("%d in flight, %+v", e.InFlight(), e.Status())
		}
		if !g.say(0, true) {
			t.Fatal("it does not say anything")
		}
	}
	if e.CanBroadcast() || e.InFlight() != 2 {
		t.Fatalf("%d in flight, %+v", e.InFlight(), e.Status())
	}
	if err := e.Broadcast(nil); !errors.Is(err, order.ErrNotNow) {
		t.Fatal(err)
	}
	if err := e.Broadcast(make([]byte, 8<<20)); err == nil {
		t.Fatal("a payload over the bound is taken")
	}
	g.rest(1000)
	if got := g.heard[2][0]; got != 2 || len(g.broken) > 0 {
		t.Fatalf("server 2 heard %d messages, %v", got, g.broken)
	}
	if e.Undelivered() {
		t.Errorf("a message waits: %+v", e.Status())
	}
	// Two rounds of each engine close the messages, and the next round follows.
	if s := e.Status(); s.Round != e.Delivered()+2*2+1 {
		t.Errorf("%+v, the last A-delivered round is %d", s, e.Delivered())
	}
}

// TestFramesOfOthers: a frame of an engine that does not exist here is malformed, and one of
// another generation is ignored.
func TestFramesOfOthers(t *testing.T) {
	t.Parallel()
	three, two := newGroup(t, 1, plus(3, 3)), newGroup(t, 1, plus(3, 2))
	later := plus(3, 2)
	later.Engine.Generation = 10
	for range 3 {
		three.say(1, true)
	}
	for number, frame := range three.channels[1*3+0] {
		if generation, err := FrameGeneration(frame); generation != 9 || err != nil {
			t.Errorf("frame %d is of generation %d: %v", number, generation, err)
		}
		err := two.engines[0].Receive(1, frame)
		if isError := errors.Is(err, order.ErrFrame); isError != (number == 2) {
			t.Errorf("frame of engine %d: %v", number, err)
		}
		other := newGroup(t, 1, later)
		if err := other.engines[0].Receive(1, frame); number < 2 && err != nil ||
			other.engines[0].Solicited() {
			t.Errorf("frame of engine %d of another generation: %v", number, err)
		}
	}
	if err := two.engines[0].Receive(1, []byte("no frame")); !errors.Is(err, order.ErrFrame) {
		t.Error(err)
	}
}

// TestHalts: a server that halts in one engine halts, and says so.
func TestHalts(t *testing.T) {
	t.Parallel()
	config := plus(3, 2)
	config.Engine.Detector = allconcur.DetectorPerfect
	e := newGroup(t, 1, config).engines[0]
	err := errors.Join(e.Suspect(1), e.Suspect(2))
	status := e.Status()
	if status.Halted == "" {
		t.Fatalf("it suspects all others and goes on: %+v, %v", status, err)
	}
	for name, err := range map[string]error{"suspect": e.Suspect(1), "broadcast": e.Broadcast(nil),
		"suspect again": e.Suspect(2)} {
		if !errors.Is(err, order.ErrHalted) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if e.CanBroadcast() || e.Solicited() || e.Undelivered() {
		t.Errorf("it wants to go on: %+v", e.Status())
	}
}

// TestClone: a copy and its original go on alike and do not disturb each other, and equal states
// have equal forms.
func TestClone(t *testing.T) {
	t.Parallel()
	for seed := range uint64(seeds(40)) {
		g := newGroup(t, seed, plus(3, 3))
		for range 200 {
			g.step(true)
		}
		for p, e := range g.engines {
			before := e.AppendState(nil)
			c := e.Clone()
			if !bytes.Equal(c.AppendState(nil), before) {
				t.Fatalf("seed %d: a copy differs", seed)
			}
			hear := func(e *Engine) {
				for from := range 3 {
					for _, frame := range g.channels[from*3+p] {
						if err := e.Receive(order.ServerID(from), frame); err != nil {
							t.Fatal(err)
						}
					}
				}
				e.Ready()
			}
			hear(c)
			if !bytes.Equal(e.AppendState(nil), before) {
				t.Fatalf("seed %d: the original changed with its copy", seed)
			}
			hear(e)
			if !bytes.Equal(e.AppendState(nil), c.AppendState(nil)) {
				t.Fatalf("seed %d: the same input leads to different states", seed)
			}
		}
	}
}

// TestPace: A-broadcasts that would bunch are spread over the time of a round.
func TestPace(t *testing.T) {
	t.Parallel()
	p := NewPace(4)
	if wait := p.Wait(0); wait != 0 {
		t.Fatalf("it waits %v with nothing in flight", wait)
	}
	// Rounds take 40 ms. All four begin at once, and are spread soon after.
	const took = 40 * time.Millisecond
	var ends []time.Duration
	last, gap := time.Duration(0), time.Duration(0)
	for now := time.Duration(0); now < time.Second; now += time.Millisecond {
		for len(ends) > 0 && ends[0] <= now {
			ends = ends[1:]
			p.Observe(now, len(ends))
		}
		for len(ends) < 4 && p.Wait(now) == 0 {
			p.Broadcast(now)
			ends = append(ends, now+took)
			if now > 500*time.Millisecond {
				if gap = now - last; gap < 9*time.Millisecond || gap > 13*time.Millisecond {
					t.Fatalf("%v between two A-broadcasts at %v", gap, now)
				}
			}
			last = now
		}
	}
	if gap == 0 {
		t.Fatal("nothing was A-broadcast")
	}
}
