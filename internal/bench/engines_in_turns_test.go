package bench

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/node/fabric"
	"github.com/ledgerd/ledgerd/trains"
)

// All engines are measured three times, there and back, and the medians and ratios are theirs.
func TestCompareInTurns(t *testing.T) {
	t.Setenv(serverVariable, "1")
	p := parameters(fabric.Memory)
	p.Trains = 2
	var turns []string
	var result EnginesInTurns
	for {
		turns = nil
		var err error
		result, err = CompareInTurns(t.Context(), p, []string{os.Args[0]}, quiet(),
			func(engine string, turn, of int) {
				turns = append(turns, fmt.Sprintf("%d of %d: %s", turn, of, engine))
			})
		if err != nil && strings.Contains(err.Error(), "measure for longer") && p.For < patience {
			p.For *= 4
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		break
	}
	names := Engines().Names()
	var want []string
	for turn := range 3 {
		for _, name := range names {
			want = append(want, fmt.Sprintf("%d of 3: %s", turn+1, name))
		}
		slices.Reverse(names)
	}
	if !slices.Equal(turns, want) {
		t.Errorf("turns %q, want %q", turns, want)
	}
	for i, e := range result.Engines {
		if e.Engine != Engines()[i].Name || len(e.Turns) != 3 || e.NotMeasured != "" {
			t.Errorf("%+v", e)
		}
		values := []float64{e.Turns[0].RequestsPerSecond, e.Turns[1].RequestsPerSecond,
			e.Turns[2].RequestsPerSecond}
		slices.Sort(values)
		if e.RequestsPerSecond != values[1] || e.ThroughputRatio != values[1]/
			result.Engines[0].RequestsPerSecond || e.LatencyP50 <= 0 || e.RoundTrips <= 0 ||
			e.LoopbackShare <= 0 {
			t.Errorf("%+v", e)
		}
		if trained := e.Turns[0].Trains == 2; trained != (e.Engine == trains.EngineName) {
			t.Errorf("%s has %d trains", e.Engine, e.Turns[0].Trains)
		}
	}
}

// An engine that cannot have the load is named, and the others are compared with the first one that
// can.
func TestCompareInTurnsWithoutSome(t *testing.T) {
	t.Parallel()
	e := EnginesInTurns{Loopback: LoopbackLimits{RoundTripP50: 2, GbitPerSecond: 8},
		Engines: []EngineInTurns{{Engine: "a", NotMeasured: "too slow"}, {Engine: "b"},
			{Engine: "c"}}}
	for i, rate := range map[int]float64{1: 10, 2: 30} {
		for _, factor := range []float64{7, 1, 2} {
			e.Engines[i].Turns = append(e.Engines[i].Turns, Result{
				Parameters:        Parameters{Servers: 5},
				RequestsPerSecond: rate * factor, LatencyP50: rate, GbitPerSecond: 1})
		}
	}
	e.summarise()
	if b, c := e.Engines[1], e.Engines[2]; b.ThroughputRatio != 1 || c.ThroughputRatio != 3 ||
		c.LatencyRatio != 3 || c.RequestsPerSecond != 60 || c.LoopbackShare != 0.5 ||
		c.RoundTrips != 15 || e.Engines[0].RequestsPerSecond != 0 {
		t.Errorf("%+v", e)
	}
	p := parameters(fabric.Memory)
	p.Servers = 0
	if _, err := CompareInTurns(t.Context(), p, nil, quiet(), nil); !errors.Is(err, ErrParameters) {
		t.Errorf("no servers: %v", err)
	}
}
