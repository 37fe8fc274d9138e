package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/ledgerd/ledgerd/allconcur"
	"github.com/ledgerd/ledgerd/node/fabric"
	"github.com/ledgerd/ledgerd/order"
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
	for _, kind := range []fabric.Kind{fabric.Memory, fabric.P2P} {
		t.Run(string(kind), func(t *testing.T) {
			p := parameters(kind)
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
				result.ComparedRound == 0 {
				t.Errorf("%+v", result)
			}
			// A message of 128 bytes, after a header of 32, travels to each of two servers once.
			if result.WireBytesPerByte < 2 || result.WireBytesPerByte > 4 {
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
		w := newWorkload(9, 1, 8)
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
		_, payload, prefixes := w.delivered()
		return report{Payload: payload, Prefixes: prefixes}
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
		1); !errors.Is(err, ErrServer) {
		t.Errorf("a halted server: %v", err)
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
