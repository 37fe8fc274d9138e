package bench

import (
	"context"
	"fmt"
	"log/slog"
	"slices"

	"github.com/ledgerd/ledgerd/trains"
)

// engineTurns is how many runs each engine has in a comparison. The machine's moods then meet all
// engines, and the median leaves out a run that something disturbed.
const engineTurns = 3

// EnginesInTurns is the result of one load with several engines, in turns.
type EnginesInTurns struct {
	// Loopback was measured before the first turn.
	Loopback LoopbackLimits  `json:"loopback"`
	Engines  []EngineInTurns `json:"engines"`
}

// EngineInTurns is the results of one engine. The ratios are to the first engine of the comparison.
type EngineInTurns struct {
	Engine string `json:"engine"`
	// NotMeasured says why the engine cannot have the load. The rest is then empty.
	NotMeasured string `json:"not_measured,omitempty"`
	// Medians of the turns; see Result.
	RequestsPerSecond float64 `json:"requests_per_second"`
	GbitPerSecond     float64 `json:"gbit_per_second"`
	LatencyP50        float64 `json:"latency_p50_us"`
	LatencyP99        float64 `json:"latency_p99_us"`
	WireBytesPerByte  float64 `json:"wire_bytes_per_byte"`
	// RoundTrips and LoopbackShare are as in ComparedResult.
	RoundTrips    float64 `json:"latency_p50_round_trips"`
	LoopbackShare float64 `json:"loopback_share"`
	// ThroughputRatio and LatencyRatio compare the medians with those of the first engine.
	ThroughputRatio float64  `json:"throughput_ratio"`
	LatencyRatio    float64  `json:"latency_ratio"`
	Turns           []Result `json:"turns,omitempty"`
}

// CompareInTurns measures one load with all engines that can have it, in turns: each engine once,
// and then again in the opposite order. The engine of the load does not matter, and Trains holds
// for the engine that has trains. Each engine's measurement takes p.For in all. It passes the
// engine and the turn, from 1 on, to progress before each. The error is as for Run; it wraps
// ErrParameters if no engine can have the load.
func CompareInTurns(ctx context.Context, p Parameters, command []string, logger *slog.Logger,
	progress func(engine string, turn, turns int)) (EnginesInTurns, error) {
	var result EnginesInTurns
	var loads []Parameters
	var refused error
	for _, made := range Engines() {
		load := p
		load.Engine, load.For = made.Name, p.For/engineTurns
		if made.Name != trains.EngineName {
			load.Trains = 0
		}
		compared := EngineInTurns{Engine: made.Name}
		if err := load.Validate(); err != nil {
			compared.NotMeasured, refused = err.Error(), err
		} else {
			loads = append(loads, load)
		}
		result.Engines = append(result.Engines, compared)
	}
	if len(loads) == 0 {
		return EnginesInTurns{}, refused
	}
	var err error
	if result.Loopback, err = loopbackLimits(ctx, warmUp(p.For)); err != nil {
		return EnginesInTurns{}, err
	}
	for turn := range engineTurns {
		for _, load := range loads {
			progress(load.Engine, turn+1, engineTurns)
			r, err := Run(ctx, load, command, logger)
			if err != nil {
				return EnginesInTurns{}, fmt.Errorf("%s: %w", load.Engine, err)
			}
			compared := result.of(load.Engine)
			compared.Turns = append(compared.Turns, r)
		}
		slices.Reverse(loads)
	}
	result.summarise()
	return result, nil
}

// of returns the results of an engine.
func (e *EnginesInTurns) of(name string) *EngineInTurns {
	at := slices.IndexFunc(e.Engines, func(i EngineInTurns) bool { return i.Engine == name })
	return &e.Engines[at]
}

// summarise computes the medians and the ratios.
func (e *EnginesInTurns) summarise() {
	var first *EngineInTurns
	for i := range e.Engines {
		compared := &e.Engines[i]
		if len(compared.Turns) == 0 {
			continue
		}
		median := func(of func(Result) float64) float64 {
			values := make([]float64, len(compared.Turns))
			for i, r := range compared.Turns {
				values[i] = of(r)
			}
			slices.Sort(values)
			return values[len(values)/2]
		}
		compared.RequestsPerSecond = median(func(r Result) float64 { return r.RequestsPerSecond })
		compared.GbitPerSecond = median(func(r Result) float64 { return r.GbitPerSecond })
		compared.LatencyP50 = median(func(r Result) float64 { return r.LatencyP50 })
		compared.LatencyP99 = median(func(r Result) float64 { return r.LatencyP99 })
		compared.WireBytesPerByte = median(func(r Result) float64 { return r.WireBytesPerByte })
		compared.RoundTrips = compared.LatencyP50 / e.Loopback.RoundTripP50
		servers := compared.Turns[0].Servers
		compared.LoopbackShare = compared.GbitPerSecond * float64(max(1, servers-1)) /
			e.Loopback.GbitPerSecond
		if first == nil {
			first = compared
		}
		compared.ThroughputRatio = compared.RequestsPerSecond / first.RequestsPerSecond
		compared.LatencyRatio = compared.LatencyP50 / first.LatencyP50
	}
}
