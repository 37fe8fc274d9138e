package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/ledgerd/ledgerd/allconcur"
	"github.com/ledgerd/ledgerd/dare"
	"github.com/ledgerd/ledgerd/node/engine"
	"github.com/ledgerd/ledgerd/node/fabric"
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/trains"
)

// serverVariable makes the test binary a server process.
const serverVariable = "LEDGERD_TEST_SERVER"

func TestMain(m *testing.M) {
	if os.Getenv(serverVariable) != "" {
		if err := Serve(context.Background(), os.Stdin, os.Stdout,
			slog.New(slog.DiscardHandler)); err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// patience limits the length of a run.
const patience = 20 * time.Second

func parameters(kind fabric.Kind) Parameters {
	return Parameters{Engine: allconcur.EngineAllConcurPlus, Servers: 3, Batch: 4, Size: 32,
		Fabric: kind, For: 150 * time.Millisecond}
}

func TestRun(t *testing.T) {
	t.Setenv(serverVariable, "1")
	for _, test := range []struct {
		name   string
		change func(*Parameters)
	}{
		{"memory", func(p *Parameters) { p.Fabric = fabric.Memory }},
		{"p2p", func(*Parameters) {}},
		{"shm", func(p *Parameters) { p.Fabric = fabric.SharedMemory }},
		{"p2p without the poller", func(p *Parameters) { p.NoPoller = true }},
		{"memory, each", func(p *Parameters) { p.Fabric, p.Each = fabric.Memory, true }},
		{"memory, several in flight", func(p *Parameters) {
			p.Fabric, p.InFlight, p.Delay = fabric.Memory, 4, 2*time.Millisecond
		}},
		{"p2p, several in flight, at a rate", func(p *Parameters) {
			p.InFlight, p.Rate, p.Each, p.Delay = 3, 500, true, time.Millisecond
		}},
		{"memory, trains", func(p *Parameters) {
			p.Fabric, p.Engine, p.Trains = fabric.Memory, trains.EngineName, 8
		}},
		{"p2p-trusted, trains", func(p *Parameters) {
			p.Fabric, p.Engine = fabric.P2PTrusted, trains.EngineName
		}},
		{"memory, dare", func(p *Parameters) {
			p.Fabric, p.Engine, p.InFlight = fabric.Memory, dare.EngineName, 4
		}},
		{"p2p-trusted, dare", func(p *Parameters) {
			p.Fabric, p.Engine = fabric.P2PTrusted, dare.EngineName
		}},
		{"p2p-trusted, each", func(p *Parameters) { p.Fabric, p.Each = fabric.P2PTrusted, true }},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := parameters(fabric.P2P)
			test.change(&p)
			result, err := Run(t.Context(), p, []string{os.Args[0]}, quiet())
			// Measure for longer on a busy machine.
			for err != nil && strings.Contains(err.Error(), "measure for longer") &&
				p.For < patience {
				p.For *= 4
				result, err = Run(t.Context(), p, []string{os.Args[0]}, quiet())
			}
			if err != nil {
				t.Fatal(err)
			}
			if result.RequestsPerSecond <= 0 || result.LatencyP50 <= 0 ||
				result.LatencyP99 < result.LatencyP50 || result.CPUSeconds <= 0 ||
				result.ComparedRound == 0 || result.CPUPerFrame == nil ||
				*result.CPUPerFrame <= 0 || result.Hashed != HashedSample {
				t.Errorf("%+v", result)
			}
			if calls := result.SystemCallsPerMessage; (calls == nil) ==
				(result.SystemCallsUncounted == "") || calls != nil && *calls < 0 {
				t.Errorf("%v system calls a message, uncounted for %q", calls,
					result.SystemCallsUncounted)
			}
			if p.Fabric != fabric.Memory && result.SwitchesPerMessage <= 0 {
				t.Errorf("%v context switches a message", result.SwitchesPerMessage)
			}
			// A message of 128 bytes, after a header of 32, travels to each of two servers once.
			// At a rate, messages are shorter, or empty. DARE also writes and reads words.
			if result.WireBytesPerByte < 2 || result.WireBytesPerByte > 4 && p.Rate == 0 &&
				p.Engine != dare.EngineName {
				t.Errorf("%v bytes on lanes a byte", result.WireBytesPerByte)
			}
		})
	}
}

func TestInterruptedRunLeavesNothing(t *testing.T) {
	t.Setenv(serverVariable, "1")
	for _, kind := range []fabric.Kind{fabric.Memory, fabric.P2P} {
		t.Run(string(kind), func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			p := parameters(kind)
			p.For = time.Hour
			if _, err := Run(ctx, p, []string{os.Args[0]}, quiet()); !errors.Is(err,
				context.DeadlineExceeded) {
				t.Errorf("%v", err)
			}
			// TestMain looks for goroutines, and Wait has returned for every process.
		})
	}
}

func TestServerProcessThatDoesNotRun(t *testing.T) {
	t.Parallel()
	for _, command := range [][]string{{"/nonexistent/program"}, {"/bin/true"},
		{"/bin/echo", "no JSON"}, {"/bin/echo", `{"error":"out of order"}`}} {
		if _, err := Run(t.Context(), parameters(fabric.P2P), command, quiet()); err == nil {
			t.Errorf("%v serves", command)
		}
	}
}

func TestServeRefusesNonsense(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, input, answer string }{
		{"nothing", ``, ``},
		{"a step too early", `{"step":"begin"}`, "makes no sense now"},
		{"nothing to listen for", `{"step":"listen"}`, "makes no sense now"},
		{"members before a host", `{"step":"activate","members":[]}`, "makes no sense now"},
	} {
		var output bytes.Buffer
		if err := Serve(t.Context(), strings.NewReader(test.input), &output, quiet()); err != nil {
			t.Errorf("%s: %v", test.name, err)
		}
		if !strings.Contains(output.String(), test.answer) {
			t.Errorf("%s: answer %q", test.name, output.String())
		}
	}
	if err := Serve(t.Context(), strings.NewReader("no JSON"), io.Discard, quiet()); err == nil {
		t.Error("no JSON is taken")
	}
}

// Two servers whose rounds differ in one byte of one payload are told apart, at whatever rounds
// they ended.
func TestCompareFindsADifference(t *testing.T) {
	t.Parallel()
	deliver := func(rounds int, change int) report {
		w := newWorkload(9, Parameters{Batch: 1, Size: 8})
		for round := 1; round <= rounds; round++ {
			payload := []byte{1, 2, 3, byte(round)}
			if round == change {
				payload[0]++
			}
			delivery := order.Delivery{Round: order.Round(round),
				Messages: []order.Message{{Origin: 0, Payload: payload}, {Origin: 1}}}
			if err := w.Deliver(t.Context(), []order.Delivery{delivery}); err != nil {
				t.Fatal(err)
			}
		}
		counts, prefixes := w.delivered()
		return report{Payload: counts.Bytes, Prefixes: prefixes}
	}
	for _, test := range []struct {
		name     string
		reports  []report
		common   order.Round
		diverged bool
	}{
		{"the same", []report{deliver(5, 0), deliver(7, 0), deliver(6, 0)}, 5, false},
		{"more rounds than are kept", []report{deliver(3*prefixesKept, 0),
			deliver(3*prefixesKept+5, 0)}, 3 * prefixesKept, false},
		{"a difference long ago", []report{deliver(3*prefixesKept, 1), deliver(3*prefixesKept, 0)},
			0, true},
		{"a difference at the end", []report{deliver(6, 0), deliver(6, 6)}, 0, true},
		{"a difference after the common round", []report{deliver(6, 0), deliver(7, 7)}, 6, false},
		{"too far apart to tell", []report{deliver(6, 0), deliver(3*prefixesKept, 0)}, 0, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			common, err := compare(test.reports)
			if common != test.common || errors.Is(err, ErrDiverged) != test.diverged {
				t.Errorf("round %d, %v", common, err)
			}
		})
	}
	if _, err := combine(parameters(fabric.Memory), []report{{Halted: "too many failures"}},
		use{}, calls{}); !errors.Is(err, ErrServer) {
		t.Errorf("a halted server: %v", err)
	}
	// Deliveries of batches that began before the window have no latency.
	early := deliver(3, 0)
	early.Window = Window{Seconds: 0.1, Counts: Counts{Requests: 4, Messages: 1, Rounds: 1}}
	if result, err := combine(parameters(fabric.Memory), []report{early}, use{},
		calls{}); !errors.Is(err, ErrServer) {
		t.Errorf("a run that measured no latency: %+v, %v", result, err)
	}
}

// Of a long payload the first bytes count in every round, and the others in some.
func TestCompareSamples(t *testing.T) {
	t.Parallel()
	const rounds = 2 * hashedRounds
	hashes := func(changed order.Round, at int) []Prefix {
		w := newWorkload(9, Parameters{Batch: 1, Size: 10 * hashedBytes})
		for round := order.Round(1); round <= rounds; round++ {
			payload := make([]byte, 10*hashedBytes)
			if round == changed {
				payload[at]++
			}
			if err := w.Deliver(t.Context(), []order.Delivery{{Round: round,
				Messages: []order.Message{{Origin: 1, Payload: payload}}}}); err != nil {
				t.Fatal(err)
			}
		}
		_, prefixes := w.delivered()
		return prefixes
	}
	same := hashes(0, 0)
	for _, test := range []struct {
		round order.Round
		at    int
		found bool
	}{
		{1, 0, true},
		{rounds - 1, hashedBytes - 1, true},
		{rounds - 1, hashedBytes, false},
		{hashedRounds, hashedBytes, true},
		{rounds, 10*hashedBytes - 1, true},
	} {
		other := hashes(test.round, test.at)
		if found := same[rounds-1] != other[rounds-1]; found != test.found {
			t.Errorf("byte %d in round %d: found %v", test.at, test.round, found)
		}
	}
}

// A server hands over the requests that others packed, one by one and in their order.
func TestEachRequestIsHandedOver(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := Parameters{Batch: rapid.IntRange(1, 50).Draw(t, "batch"),
			Size: rapid.IntRange(1, 300).Draw(t, "size"), Each: true}
		w := newWorkload(1, p)
		w.start()
		var got []byte
		requests := 0
		w.take = func(request []byte) {
			if len(request) != p.Size {
				t.Fatalf("a request of %d bytes", len(request))
			}
			got = append(got, request...)
			requests++
		}
		batch := w.Next(p.payload())
		if len(batch) != p.payload() {
			t.Fatalf("a batch of %d bytes, want %d", len(batch), p.payload())
		}
		deliveries := []order.Delivery{{Round: 1,
			Messages: []order.Message{{Origin: 0, Payload: batch}, {Origin: 1}}}}
		if taken, err := w.TryDeliver(deliveries); err != nil || !taken {
			t.Fatal(err)
		}
		if !bytes.Equal(got, w.requests) {
			t.Fatalf("handed over %x, want %x", got, w.requests)
		}
		want := Counts{Requests: uint64(p.Batch), Bytes: uint64(p.Batch * p.Size), Messages: 1,
			Rounds: 1}
		if counts, _ := w.delivered(); counts != want {
			t.Fatalf("counted %+v, want %+v", counts, want)
		}
	})
}

func FuzzUnpack(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{1, 7, 2, 7, 7})
	f.Add([]byte{0})
	f.Add([]byte{3, 7, 7})
	f.Add([]byte{0x80})
	f.Add(bytes.Repeat([]byte{0xff}, 11))
	f.Fuzz(func(t *testing.T, batch []byte) {
		w := newWorkload(0, Parameters{Batch: 1, Size: 8, Each: true})
		seen := 0
		w.take = func(request []byte) { seen += len(request) }
		_, count, err := w.unpack(batch)
		if err == nil && count != uint64(seen) || seen > len(batch) ||
			err != nil && !errors.Is(err, ErrServer) {
			t.Errorf("%x: %d bytes, saw %d, %v", batch, count, seen, err)
		}
	})
}

func TestReadsAndWritesAreParsed(t *testing.T) {
	t.Parallel()
	sum := uint64(30)
	for _, test := range []struct {
		text string
		want *uint64
	}{
		{"rchar: 6976\nwchar: 5\nsyscr: 10\nsyscw: 20\nread_bytes: 0\n", &sum},
		{"rchar: 6976\nsyscr: 10\n", nil},
		{"syscr: 10\nsyscw: many\n", nil},
		{"", nil},
	} {
		got := parseReadsAndWrites(test.text)
		if (got == nil) != (test.want == nil) || got != nil && *got != *test.want {
			t.Errorf("%q: %v", test.text, got)
		}
	}
}

// What is unknown of one process is unknown of all.
func TestUseOfProcesses(t *testing.T) {
	t.Parallel()
	number := func(n uint64) *uint64 { return &n }
	known, unknown := use{1, 2, number(3)}, use{1, 2, nil}
	if sum := known.plus(use{10, 20, number(30)}); sum.CPU != 11 || sum.Switches != 22 ||
		*sum.ReadsAndWrites != 33 {
		t.Errorf("%+v", sum)
	}
	if known.plus(unknown).ReadsAndWrites != nil || unknown.since(known).ReadsAndWrites != nil {
		t.Error("an unknown count is taken for a known one")
	}
	some, none := calls{5, 2, ""}, calls{Uncounted: "not allowed"}
	if sum := some.plus(some); sum != (calls{10, 4, ""}) {
		t.Errorf("%+v", sum)
	}
	if some.plus(none).Uncounted == "" || none.plus(some).Uncounted == "" {
		t.Error("uncounted calls are taken for counted ones")
	}
	if (*callCounting)(nil).end().Uncounted == "" {
		t.Error("calls are counted without a beginning")
	}
}

func TestCompareEngines(t *testing.T) {
	t.Setenv(serverVariable, "1")
	load := EngineLoad{"few", parameters(fabric.P2PTrusted)}
	var said []string
	for {
		said = nil
		result, err := CompareEngines(t.Context(), []EngineLoad{load}, []string{os.Args[0]},
			quiet(), func(load string) { said = append(said, load) })
		if err != nil && strings.Contains(err.Error(), "measure for longer") &&
			load.For < patience {
			load.For *= 4
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		got := result.Loads[0]
		if got.Load != "few" || got.Poller.NoPoller || !got.NoPoller.NoPoller ||
			got.Loopback.GbitPerSecond <= 0 || got.Loopback.RoundTripP50 <= 0 ||
			got.Poller.RoundTrips <= 0 || got.NoPoller.LoopbackShare <= 0 {
			t.Errorf("%+v", got)
		}
		break
	}
	if !slices.Equal(said, []string{"few"}) {
		t.Errorf("progress: %q", said)
	}
	load.Servers = 0
	if _, err := CompareEngines(t.Context(), []EngineLoad{load}, nil, quiet(),
		func(string) {}); !errors.Is(err, ErrParameters) {
		t.Errorf("no servers: %v", err)
	}
}

// All loads of a comparison are valid, and their names differ.
func TestEngineLoads(t *testing.T) {
	t.Parallel()
	names := map[string]bool{}
	for _, load := range EngineLoads(time.Second) {
		if names[load.Name] {
			t.Errorf("two loads %s", load.Name)
		}
		names[load.Name] = true
		load.NoPoller = true
		if err := load.Validate(); err != nil {
			t.Errorf("%s: %v", load.Name, err)
		}
		if load.Each && (load.payload() > comparedPacked || load.payload() <
			comparedPacked-load.Size-load.lengthBytes()) {
			t.Errorf("%s: messages of %d bytes", load.Name, load.payload())
		}
	}
	frames := len(Engines().With(engine.Engine.TakesFrames))
	if polled := len(Engines()) - frames; len(names) != 3*frames+2*polled+10 {
		t.Errorf("%d loads for %d engines with frames and %d polled ones", len(names), frames,
			polled)
	}
}

// Each crash of a leader is followed by a delivery under another one.
func TestFailover(t *testing.T) {
	t.Parallel()
	p := parameters(fabric.Memory)
	p.Engine = dare.EngineName
	f, err := RunFailover(t.Context(), p, 3, quiet())
	if err != nil {
		t.Fatal(err)
	}
	if f.Crashes != 3 || len(f.Each) != 3 || f.Median <= 0 || f.Worst < f.Median ||
		f.Timeout != 500 || !slices.Contains(f.Each, f.Median) ||
		!slices.Contains(f.Each, f.Worst) {
		t.Errorf("%+v", f)
	}
	for _, wrong := range []struct {
		change  func(*Parameters)
		crashes int
	}{
		{func(p *Parameters) { p.Engine = allconcur.EngineAllConcur }, 1},
		{func(p *Parameters) { p.Fabric = fabric.P2P }, 1},
		{func(p *Parameters) { p.Servers = 2 }, 1},
		{func(p *Parameters) { p.Delay = time.Millisecond }, 1},
		{func(*Parameters) {}, 0},
		{func(*Parameters) {}, CrashesMax + 1},
	} {
		refused := p
		wrong.change(&refused)
		_, err := RunFailover(t.Context(), refused, wrong.crashes, quiet())
		if !errors.Is(err, ErrParameters) {
			t.Errorf("%+v, %d crashes: %v", refused, wrong.crashes, err)
		}
	}
}

// A leader that does not run for a while is replaced, and may not know it when it is crashed. That
// crash stopped nobody.
func TestCrashOfALeaderThatWasReplaced(t *testing.T) {
	t.Parallel()
	crashed := time.Now()
	at := func(after time.Duration) time.Time { return crashed.Add(after) }
	took, err := outage(crashed, []time.Time{at(3 * time.Millisecond), at(time.Millisecond)})
	if err != nil || took != 3*time.Millisecond {
		t.Errorf("%v, %v", took, err)
	}
	_, err = outage(crashed, []time.Time{at(time.Millisecond), at(-time.Microsecond)})
	if !errors.Is(err, errReplaced) {
		t.Errorf("a server delivered under another leader before the crash: %v", err)
	}
}

func TestHistogram(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		value := rapid.Uint64Range(0, 1<<62).Draw(t, "value")
		bucket := bucketOf(value)
		low, next := valueOf(bucket), valueOf(bucket+1)
		if low > value || next <= value || float64(value-low) > float64(value)/subBuckets {
			t.Fatalf("%d is in bucket %d, from %d to %d", value, bucket, low, next)
		}
	})
	var h Histogram
	if h.Quantile(0.5) != 0 {
		t.Error("an empty one has a median")
	}
	for i := range 1000 {
		h.Add(time.Duration(i+1) * time.Microsecond)
	}
	var both Histogram
	both.Merge(h)
	both.Merge(h)
	for share, want := range map[float64]time.Duration{0: time.Microsecond,
		0.5: 500 * time.Microsecond, 0.99: 990 * time.Microsecond, 1: time.Millisecond} {
		if got := both.Quantile(share); got < want*97/100 || got > want*103/100 {
			t.Errorf("quantile %v is %v, want %v", share, got, want)
		}
	}
}

func TestLoopback(t *testing.T) {
	t.Parallel()
	result, err := Loopback(t.Context(), 90*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	if result.StreamGbit64K <= 0 || result.StreamGbit1M <= 0 || result.RoundTripP50 <= 0 ||
		result.RequestsPerSecond <= 0 {
		t.Errorf("%+v", result)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Loopback(ctx, time.Hour); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	if _, err := Loopback(t.Context(), 0); !errors.Is(err, ErrParameters) {
		t.Errorf("for no time: %v", err)
	}
}

func FuzzServe(f *testing.F) {
	f.Add([]byte(`{"step":"report"}`))
	f.Add([]byte(`{"step":"listen","parameters":{"engine":"x","servers":-1}}`))
	f.Add([]byte(`{"step":5}`))
	f.Fuzz(func(t *testing.T, input []byte) {
		var first instruction
		if json.Unmarshal(input, &first) == nil && first.Step == stepListen {
			t.Skip("opens sockets")
		}
		_ = Serve(t.Context(), bytes.NewReader(input), io.Discard, quiet()) // any error is fine
	})
}
