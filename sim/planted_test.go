package sim

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/allconcur"
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/shard/turn"
	"github.com/ledgerd/ledgerd/sim/sweep"
)

// seedsUntilCaught runs seeds from 1 on until one breaks a property, and returns how many that
// took, or 0 if none of limit does.
func seedsUntilCaught(t *testing.T, options Options, limit int) int {
	t.Helper()
	caught := 0
	err := sweep.Seeds(context.Background(), 1, limit, options.RunSeed, func(r Result) bool {
		if len(r.Violations) > 0 {
			caught = int(r.Seed)
		}
		return caught == 0
	})
	if err != nil {
		t.Fatal(err)
	}
	return caught
}

// TestPlantedBugsAreCaught plants each bug in each engine that can have it, and in groups that can
// show it, and bounds the seeds until a property breaks.
func TestPlantedBugsAreCaught(t *testing.T) {
	t.Parallel()
	cases := []struct {
		fault   allconcur.Fault
		engine  string
		servers []int
		limit   int
	}{
		{allconcur.FaultDroppedForward, allconcur.EngineAllConcur, []int{3, 5, 6, 8, 16, 32}, 30},
		// In a group of three, all servers are neighbours, and one failure only starts the reliable
		// round in which a second one would need the relays.
		{allconcur.FaultDroppedForward, allconcur.EngineAllConcurPlus, []int{5, 6, 8, 16, 32}, 30},
		// AllConcur has no unreliable rounds to deliver early.
		{allconcur.FaultEarlyDelivery, allconcur.EngineAllConcurPlus, []int{3, 5, 6, 8, 16, 32},
			30},
		{allconcur.FaultPrunedTooSoon, allconcur.EngineAllConcur, []int{3, 5, 6, 8, 16, 32}, 150},
		{allconcur.FaultPrunedTooSoon, allconcur.EngineAllConcurPlus, []int{5, 6, 8, 16, 32}, 150},
	}
	for _, c := range cases {
		for _, servers := range c.servers {
			if servers > 8 && (testing.Short() || raceEnabled) {
				continue
			}
			t.Run(fmt.Sprintf("%v in %s of %d", c.fault, c.engine, servers), func(t *testing.T) {
				t.Parallel()
				seeds := seedsUntilCaught(t, Group{Detector: perfectly, Faults: FaultCrash,
					Engine: c.engine, Servers: servers, Fault: c.fault}.options(t), c.limit)
				if seeds == 0 {
					t.Fatalf("not caught by %d seeds", c.limit)
				}
				t.Logf("caught by seed %d", seeds)
			})
		}
	}
}

func TestShrinkKeepsTheProperty(t *testing.T) {
	t.Parallel()
	options := Group{Detector: perfectly, Faults: FaultCrash, Engine: allconcur.EngineAllConcur,
		Servers: 6, Fault: allconcur.FaultPrunedTooSoon}.options(t)
	options.Seed = uint64(seedsUntilCaught(t, options, 150))
	result, err := Check(options)
	if err != nil || len(result.Violations) == 0 {
		t.Fatalf("seed %d: %v, %v", options.Seed, result, err)
	}
	smaller, shrunk := Shrink(options, result)
	if shrunk.broken() != result.broken() {
		t.Fatalf("%v became %v", result.Violations, shrunk.Violations)
	}
	if shrunk.Events > result.Events || len(shrunk.Crashed) > len(result.Crashed) {
		t.Errorf("%d events and %d crashes became %d and %d", result.Events, len(result.Crashed),
			shrunk.Events, len(shrunk.Crashed))
	}
	var text bytes.Buffer
	smaller.Trace = &text
	again, err := Check(smaller)
	if err != nil || again.Hash != shrunk.Hash {
		t.Fatalf("the smaller run replays with hash %x, want %x (%v)", again.Hash, shrunk.Hash, err)
	}
	for _, want := range []string{"crashes", "A-broadcasts", "A-delivers", "is broken"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the trace tells of nothing that %s", want)
		}
	}
}

// sabotage is an engine with a fault of its own.
type sabotage struct {
	order.Broadcaster
	receive func(engine order.Broadcaster, from order.ServerID, frame []byte) error
	ready   func(order.Ready) order.Ready
	forever bool // Undelivered always holds
}

func (s sabotage) Receive(from order.ServerID, frame []byte) error {
	if s.receive != nil {
		return s.receive(s.Broadcaster, from, frame)
	}
	return s.Broadcaster.Receive(from, frame)
}

func (s sabotage) Ready() order.Ready {
	if s.ready != nil {
		return s.ready(s.Broadcaster.Ready())
	}
	return s.Broadcaster.Ready()
}

func (s sabotage) Undelivered() bool { return s.forever || s.Broadcaster.Undelivered() }

// TestOraclesCanFail sabotages server 2 of 5 so that each oracle of this package finds a violation.
func TestOraclesCanFail(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name     string
		crashes  int
		sabotage sabotage
		property order.Property
		evidence string
	}{
		{"panics", 0, sabotage{receive: func(order.Broadcaster, order.ServerID, []byte) error {
			panic("an invariant is broken")
		}},
			Contract, "an invariant is broken"},
		{"refuses frames", 0, sabotage{receive: func(order.Broadcaster, order.ServerID,
			[]byte) error {
			return order.ErrFrame
		}},
			Contract, "it refuses a frame of server"},
		{"changes frames", 0, sabotage{receive: func(engine order.Broadcaster, from order.ServerID,
			frame []byte) error {
			err := engine.Receive(from, frame)
			frame[len(frame)-1]++
			return err
		}}, Contract, "was changed afterwards"},
		{"sends to itself", 0, sabotage{ready: func(r order.Ready) order.Ready {
			r.Sends = append(r.Sends, order.Send{To: []order.ServerID{2}, Frame: []byte("hello")})
			return r
		}}, Contract, "it sends a frame to 2"},
		{"sends to nobody", 0, sabotage{ready: func(r order.Ready) order.Ready {
			r.Sends = append(r.Sends, order.Send{To: []order.ServerID{5}, Frame: []byte("hello")})
			return r
		}}, Contract, "it sends a frame to 5"},
		{"never rests", 0, sabotage{forever: true}, Progress, "there is no rest"},
		{"hears nothing", 0, sabotage{receive: func(order.Broadcaster, order.ServerID,
			[]byte) error {
			return nil
		}}, order.Validity, "never A-delivers it"},
		{"halts", 0, sabotage{receive: func(order.Broadcaster, order.ServerID, []byte) error {
			return order.ErrHalted
		}}, order.Validity, "never A-delivers it"},
		{"removes the living", 0, sabotage{ready: func(r order.Ready) order.Ready {
			for i := range r.Deliveries {
				r.Deliveries[i].Messages = r.Deliveries[i].Messages[1:]
				r.Deliveries[i].Removed = []order.ServerID{0}
			}
			return r
		}}, Accuracy, "server 0 has not failed"},
		{"goes on alone", 4, sabotage{ready: func(r order.Ready) order.Ready {
			for i := range r.Deliveries {
				r.Deliveries[i].Removed = []order.ServerID{0, 1, 3, 4}
			}
			return r
		}}, Tolerance, "the group tolerates 2 failures"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			options := Group{Detector: perfectly, Faults: FaultCrash,
				Engine: allconcur.EngineAllConcur, Servers: 5}.options(t)
			options.Crashes, options.Rounds = c.crashes, 3
			honest := options.New
			options.New = func(self order.ServerID) (order.Broadcaster, error) {
				engine, err := honest(self)
				if self == 2 && err == nil {
					own := c.sabotage
					own.Broadcaster = engine
					return own, nil
				}
				return engine, err
			}
			for options.Seed = 1; options.Seed <= 40; options.Seed++ {
				result, err := Check(options)
				if err != nil {
					t.Fatal(err)
				}
				for _, v := range result.Violations {
					if v.Property == c.property && strings.Contains(v.Error(), c.evidence) {
						return
					}
				}
			}
			t.Errorf("%s is never broken with %q as evidence", c.property, c.evidence)
		})
	}
}

// TestProgressTellsWhereServersStand checks the evidence of a broken liveness property.
func TestProgressTellsWhereServersStand(t *testing.T) {
	t.Parallel()
	options := Group{Detector: perfectly, Faults: FaultCrash, Engine: allconcur.EngineAllConcur,
		Servers: 8, Fault: allconcur.FaultDroppedForward}.options(t)
	options.Seed = 1
	result, err := Check(options)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range result.Violations {
		if v.Property == Progress && strings.Contains(v.Error(), "awaits") {
			return
		}
	}
	t.Errorf("no word of who awaits whom: %v", result.Violations)
}

// TestPlantedBugsOfTurnsAreCaught plants bugs in the driver of the engines. They show in reliable
// rounds, of which AllConcur+ has few.
func TestPlantedBugsOfTurnsAreCaught(t *testing.T) {
	t.Parallel()
	for _, fault := range []turn.Fault{turn.FaultDeliverFirst, turn.FaultOpinionsFirst} {
		for _, c := range []struct {
			engine         string
			servers, limit int
		}{
			{allconcur.EngineAllConcur, 3, 800}, {allconcur.EngineAllConcur, 5, 800},
			{allconcur.EngineAllConcurPlus, 5, 5000},
		} {
			t.Run(fmt.Sprintf("%v in %s of %d", fault, c.engine, c.servers), func(t *testing.T) {
				t.Parallel()
				group := Group{
					Detector: perfectly, Faults: FaultCrash, Engine: c.engine, Servers: c.servers,
					TurnFault: fault,
				}
				seeds := seedsUntilCaught(t, group.options(t), c.limit)
				if seeds == 0 {
					t.Fatalf("not caught by %d seeds", c.limit)
				}
				t.Logf("caught by seed %d", seeds)
			})
		}
	}
}

// TestPlantedBugsOfTurnsAreCaughtInLives plants the same bugs in the driver of the engines of a
// life. Trusting a silenced server again needs a broken connection.
func TestPlantedBugsOfTurnsAreCaughtInLives(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		fault   turn.Fault
		engine  string
		servers int
		faults  Faults
		limit   int
	}{
		{turn.FaultDeliverFirst, allconcur.EngineAllConcur, 3, FaultsAll, 20},
		{turn.FaultDeliverFirst, allconcur.EngineAllConcurPlus, 5, FaultsAll, 20},
		{turn.FaultOpinionsFirst, allconcur.EngineAllConcur, 3, FaultsAll, 50},
		{turn.FaultOpinionsFirst, allconcur.EngineAllConcurPlus, 5, FaultsAll, 50},
		{turn.FaultSilencedTrusted, allconcur.EngineAllConcurPlus, 5, FaultBreak, 20},
		{turn.FaultStaleFrames, allconcur.EngineAllConcur, 5, FaultsAll, 300},
	} {
		t.Run(fmt.Sprintf("%v in %s of %d", c.fault, c.engine, c.servers), func(t *testing.T) {
			t.Parallel()
			mustBreak(t, Group{
				Engine: c.engine, Servers: c.servers, Faults: c.faults, TurnFault: c.fault,
			}, c.limit, nil)
		})
	}
}
