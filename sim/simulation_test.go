package sim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/allconcur"
	"github.com/ledgerd/ledgerd/digraph"
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/sim/sweep"
)

// mustReplay runs a seed twice, once with a trace, which must not matter, and expects equal hashes.
func mustReplay(t *testing.T, options Options) Result {
	t.Helper()
	options.Trace = nil
	first, err := Check(options)
	if err != nil {
		t.Fatal(err)
	}
	options.Trace = io.Discard
	second, err := Check(options)
	if err != nil {
		t.Fatal(err)
	}
	if first.Hash != second.Hash || first.Events != second.Events ||
		first.Elapsed != second.Elapsed || !slices.Equal(first.Crashed, second.Crashed) {
		t.Errorf("seed %d went as %+v and then as %+v", options.Seed, first, second)
	}
	return first
}

// TestReplay runs seeds twice, once with a trace, which must not matter, and expects the same hash.
// Other seeds must have other hashes.
func TestReplay(t *testing.T) {
	t.Parallel()
	for _, engine := range engines {
		options := Group{Detector: perfectly, Faults: FaultCrash, Engine: engine,
			Servers: 8}.options(t)
		hashes := make(map[uint64]uint64)
		for options.Seed = range uint64(share(60)) {
			first := mustReplay(t, options)
			if other, seen := hashes[first.Hash]; seen {
				t.Errorf("seeds %d and %d have one hash", other, options.Seed)
			}
			hashes[first.Hash] = options.Seed
		}
	}
}

// witness is an engine that checks the promises of P and of the links.
type witness struct {
	order.Broadcaster
	suspected map[order.ServerID]bool
	faults    *[]string
}

func (w witness) Receive(from order.ServerID, frame []byte) error {
	if w.suspected[from] {
		*w.faults = append(*w.faults, fmt.Sprintf("a frame of %d after its suspicion", from))
	}
	return w.Broadcaster.Receive(from, frame)
}

func (w witness) Suspect(server order.ServerID) error {
	w.suspected[server] = true
	return w.Broadcaster.Suspect(server)
}

// TestDetectorIsPerfect: no server is suspected that has not failed, each live successor in the
// reliable digraph suspects a failed server, and nothing of a server is received after its
// suspicion.
func TestDetectorIsPerfect(t *testing.T) {
	t.Parallel()
	options := Group{Detector: perfectly, Faults: FaultCrash, Engine: allconcur.EngineAllConcurPlus,
		Servers: 9}.options(t)
	honest := options.New
	crashes := 0
	for options.Seed = range uint64(share(200)) {
		var faults []string
		witnesses := []witness{}
		options.New = func(self order.ServerID) (order.Broadcaster, error) {
			engine, err := honest(self)
			witnesses = append(witnesses, witness{engine, map[order.ServerID]bool{}, &faults})
			return witnesses[self], err
		}
		result, err := Check(options)
		if err != nil {
			t.Fatal(err)
		}
		crashes += len(result.Crashed)
		for server := range options.Servers {
			for other := range options.Servers {
				failed := slices.Contains(result.Crashed, order.ServerID(server))
				suspects := witnesses[other].suspected[order.ServerID(server)]
				if suspects && !failed {
					t.Errorf("seed %d: %d suspects %d, who has not failed", options.Seed, other,
						server)
				}
				alive := !slices.Contains(result.Crashed, order.ServerID(other))
				if failed && alive && !suspects && options.Reliable.HasEdge(server, other) {
					t.Errorf("seed %d: %d never suspects its predecessor %d, who has failed",
						options.Seed, other, server)
				}
			}
		}
		if faults != nil {
			t.Errorf("seed %d: %s", options.Seed, faults[0])
		}
	}
	if crashes == 0 {
		t.Error("nobody crashed")
	}
}

// TestTailsAreLost shows that crashes lose frames, and only if they should.
func TestTailsAreLost(t *testing.T) {
	t.Parallel()
	for _, tails := range []bool{false, true} {
		options := Group{Detector: perfectly, Faults: FaultCrash,
			Engine: allconcur.EngineAllConcurPlus, Servers: 6}.options(t)
		options.LoseTails = tails
		var text bytes.Buffer
		options.Trace = &text
		for options.Seed = range uint64(10) {
			if _, err := Check(options); err != nil {
				t.Fatal(err)
			}
		}
		if lost := strings.Contains(text.String(), "is lost"); lost != tails {
			t.Errorf("with LoseTails %v frames are lost: %v", tails, lost)
		}
	}
}

func TestLinksAreInOrderAndOvertakeEachOther(t *testing.T) {
	t.Parallel()
	overtaken := 0
	for seed := range uint64(40) {
		n := newNetwork(seed, 3)
		var last [2]Instant
		for now := range Instant(50) {
			for to := range order.ServerID(2) {
				at := n.put(2, to, now*microsecond)
				if at <= last[to] || at <= now*microsecond {
					t.Fatalf(
						"seed %d: a frame put at %v after one that arrives at %v arrives at %v",
						seed, now*microsecond, last[to], at)
				}
				last[to] = at
			}
			if last[1] < last[0] {
				overtaken++
			}
		}
	}
	if overtaken == 0 {
		t.Error("no frame on another link is ever quicker")
	}
}

func TestQueueIsInOrder(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 1))
	var q queue
	for number := range 1000 {
		q.push(event{at: Instant(random.IntN(50)), number: number})
	}
	var before event
	for number := 1000; q.size() > 0; number++ {
		e := q.pop()
		if e.at < before.at || (e.at == before.at && e.number < before.number) {
			t.Fatalf("%v number %d comes after %v number %d", e.at, e.number, before.at,
				before.number)
		}
		before = e
		if number < 1500 {
			// into the place of an event that has happened
			q.push(event{at: e.at + Instant(random.IntN(50)), number: number})
		}
	}
	if len(q.events) != 1000 {
		t.Errorf("room for %d events, of which 1000 at a time are scheduled", len(q.events))
	}
}

// TestAdversaryKeepsToItsBudget also shows that every strategy, moment and cut is drawn.
func TestAdversaryKeepsToItsBudget(t *testing.T) {
	t.Parallel()
	names := make(map[string]bool)
	moments := make(map[moment]bool)
	cuts := make(map[cut]bool)
	for _, servers := range []int{1, 2, 3, 8, 16} {
		reliable, err := digraph.Reliable(servers, digraph.Target{})
		if err != nil {
			t.Fatal(err)
		}
		options := Options{Servers: servers, Reliable: reliable}
		for budget := 0; budget <= servers; budget++ {
			for seed := range uint64(100) {
				plan, name := planCrashes(seed, &options, millisecond, budget)
				names[name] = true
				if len(plan) > budget {
					t.Fatalf("%d crashes are planned, allowed are %d", len(plan), budget)
				}
				seen := make(map[order.ServerID]bool)
				for number, c := range plan {
					if seen[c.server] || int(c.server) >= servers || c.after >= number {
						t.Fatalf("plan %v: crash %d is wrong", plan, number)
					}
					seen[c.server] = true
					moments[c.moment], cuts[c.cut] = true, true
				}
			}
		}
	}
	if len(names) != 7 || len(moments) != 3 || len(cuts) != 4 {
		t.Errorf("drawn were %v, %v, %v", names, moments, cuts)
	}
}

func TestBadOptions(t *testing.T) {
	t.Parallel()
	good := Group{Detector: perfectly, Faults: FaultCrash, Engine: allconcur.EngineAllConcur,
		Servers: 3}.options(t)
	for name, change := range map[string]func(*Options){
		"no servers":           func(o *Options) { o.Servers = 0 },
		"too many servers":     func(o *Options) { o.Servers = ServersMax + 1 },
		"another digraph":      func(o *Options) { o.Servers = 4 },
		"no digraph":           func(o *Options) { o.Reliable = nil },
		"no engine":            func(o *Options) { o.New = nil },
		"more crashes than":    func(o *Options) { o.Crashes = 4 },
		"fewer crashes than":   func(o *Options) { o.Crashes = -2 },
		"negative rounds":      func(o *Options) { o.Rounds = -1 },
		"payloads too small":   func(o *Options) { o.PayloadMax = 1 },
		"payloads of negative": func(o *Options) { o.PayloadMax = -1 },
	} {
		options := good
		change(&options)
		if _, err := Check(options); !errors.Is(err, ErrOptions) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, group := range []Group{{Engine: "raft", Servers: 3}, {Engine: allconcur.EngineAllConcur},
		{Engine: allconcur.EngineAllConcur, Servers: ServersMax + 1}} {
		if _, err := group.Options(); !errors.Is(err, ErrOptions) {
			t.Errorf("%+v: %v", group, err)
		}
	}
}

func TestEngineThatCannotBeMadeAndTraceThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	cause := errors.New("no")
	options := Group{Detector: perfectly, Faults: FaultCrash, Engine: allconcur.EngineAllConcur,
		Servers: 3}.options(t)
	options.Trace = failingWriter{cause}
	if _, err := Check(options); !errors.Is(err, cause) {
		t.Errorf("a trace that cannot be written: %v", err)
	}
	options.Trace = nil
	options.New = func(order.ServerID) (order.Broadcaster, error) { return nil, cause }
	if _, err := Check(options); !errors.Is(err, cause) {
		t.Errorf("an engine that cannot be made: %v", err)
	}
	if err := sweep.Seeds(context.Background(), 1, 10, options.RunSeed, func(Result) bool {
		return true
	}); !errors.Is(err, cause) {
		t.Errorf("a sweep of it: %v", err)
	}
}

type failingWriter struct{ err error }

func (w failingWriter) Write([]byte) (int, error) { return 0, w.err }

func TestSweepReportsInOrderAndStops(t *testing.T) {
	t.Parallel()
	options := Group{Detector: perfectly, Faults: FaultCrash, Engine: allconcur.EngineAllConcur,
		Servers: 3}.options(t)
	next := uint64(5)
	err := sweep.Seeds(context.Background(), 5, 100, options.RunSeed, func(r Result) bool {
		if r.Seed != next {
			t.Errorf("seed %d is reported, want %d", r.Seed, next)
		}
		next++
		return next < 20
	})
	if err != nil || next != 20 {
		t.Errorf("it stopped before seed %d with %v, want 20", next, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := sweep.Seeds(ctx, 1, 1_000_000, options.RunSeed, func(Result) bool {
		return true
	}); !errors.Is(err, context.Canceled) {
		t.Errorf("a sweep that is called off: %v", err)
	}
	if err := sweep.Seeds(context.Background(), 1, 0, options.RunSeed, func(Result) bool {
		return true
	}); err != nil {
		t.Errorf("no seeds: %v", err)
	}
}

// BenchmarkRun measures one run of a group of 8.
func BenchmarkRun(b *testing.B) {
	for _, engine := range engines {
		b.Run(engine, func(b *testing.B) {
			options, err := Group{Detector: perfectly, Faults: FaultCrash, Engine: engine,
				Servers: 8}.Options()
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			events := 0
			for b.Loop() {
				options.Seed++
				result, err := Check(options)
				if err != nil || len(result.Violations) > 0 {
					b.Fatal(err, result.Violations)
				}
				events += result.Events
			}
			b.ReportMetric(float64(events)/b.Elapsed().Seconds(), "events/s")
		})
	}
}
