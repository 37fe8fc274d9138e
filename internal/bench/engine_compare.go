package bench

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/ledgerd/ledgerd/node/engine"
	"github.com/ledgerd/ledgerd/node/fabric"
)

// The sizes of messages in a comparison.
const (
	comparedRequest = 64        // bytes of a request alone in its message
	comparedLarge   = 64 << 10  // a message of one piece
	comparedPacked  = 128 << 10 // a message of requests that are delivered by themselves, at most
)

// EngineLoad is a load of a comparison of engines.
type EngineLoad struct {
	// Name is unique, such as "allconcur+_4_alone".
	Name string
	Parameters
}

// EngineLoads returns the loads of a comparison, each for the given time: one request a message
// with each engine and more and more servers, the same within a machine, large messages with and
// without encryption, and requests of several sizes that are delivered by themselves.
func EngineLoads(measured time.Duration) []EngineLoad {
	var loads []EngineLoad
	add := func(name string, p Parameters) {
		if p.Engine == "" {
			p.Engine = engine.Default
		}
		if p.Fabric == "" {
			p.Fabric = fabric.P2PTrusted
		}
		p.For = measured
		loads = append(loads, EngineLoad{name, p})
	}
	for _, made := range Engines() {
		sizes := []int{4, 8, 16}
		if !made.TakesFrames() {
			sizes = sizes[:2] // for few servers: each of them polls
		}
		for _, servers := range sizes {
			add(fmt.Sprintf("%s_%d_alone", made.Name, servers),
				Parameters{Engine: made.Name, Servers: servers, Batch: 1, Size: comparedRequest})
		}
	}
	for _, servers := range []int{4, 8} {
		add(fmt.Sprintf("%s_%d_alone_shm", engine.Default, servers),
			Parameters{
				Fabric: fabric.SharedMemory, Servers: servers, Batch: 1, Size: comparedRequest,
			})
	}
	for _, kind := range []fabric.Kind{fabric.P2PTrusted, fabric.P2P} {
		for _, servers := range []int{4, 8} {
			name := fmt.Sprintf("large_%d", servers)
			if kind == fabric.P2P {
				name += "_encrypted"
			}
			add(name, Parameters{Fabric: kind, Servers: servers, Batch: 1, Size: comparedLarge})
		}
	}
	for _, size := range []int{10, 100, 1_000, 10_000} {
		p := Parameters{Servers: 5, Size: size, Each: true}
		p.Batch = comparedPacked / (p.lengthBytes() + size)
		add(fmt.Sprintf("each_5_of_%d_bytes", size), p)
	}
	return loads
}

// EngineComparison is the result of a comparison of engines.
type EngineComparison struct {
	Loads []ComparedLoad `json:"loads"`
}

// ComparedLoad is the result of one load.
type ComparedLoad struct {
	Load     string         `json:"load"`
	Loopback LoopbackLimits `json:"loopback"`
	// Poller was measured with the poller of package p2p, NoPoller without it.
	Poller   ComparedResult `json:"poller"`
	NoPoller ComparedResult `json:"no_poller"`
}

// LoopbackLimits are the figures of one TCP connection over loopback just before a load: 64 bytes
// there and back, and a stream with writes of 64 KiB.
type LoopbackLimits struct {
	RoundTripP50  float64 `json:"round_trip_us_p50"`
	GbitPerSecond float64 `json:"gbit_per_second"`
}

// ComparedResult is a result beside loopback.
type ComparedResult struct {
	Result
	// RoundTrips is the median latency in round trips over loopback.
	RoundTrips float64 `json:"latency_p50_round_trips"`
	// LoopbackShare is the agreed throughput as a share of what loopback carries, divided by the
	// number of receivers that each byte has to reach.
	LoopbackShare float64 `json:"loopback_share"`
}

// CompareEngines measures one load after the other, with and without the poller, and loopback
// before each load. It passes each load's name to progress before the load. The error is as for
// Run.
func CompareEngines(ctx context.Context, loads []EngineLoad, command []string, logger *slog.Logger,
	progress func(load string)) (result EngineComparison, err error) {
	for _, load := range loads {
		if err := load.Validate(); err != nil {
			return EngineComparison{}, fmt.Errorf("%s: %w", load.Name, err)
		}
	}
	for _, load := range loads {
		progress(load.Name)
		compared, err := compareLoad(ctx, load, command, logger)
		if err != nil {
			return EngineComparison{}, fmt.Errorf("%s: %w", load.Name, err)
		}
		result.Loads = append(result.Loads, compared)
	}
	return result, nil
}

func compareLoad(ctx context.Context, load EngineLoad, command []string,
	logger *slog.Logger) (compared ComparedLoad, err error) {
	compared.Load = load.Name
	if compared.Loopback, err = loopbackLimits(ctx, warmUp(load.For)); err != nil {
		return compared, err
	}
	for _, turn := range []struct {
		noPoller bool
		result   *ComparedResult
	}{{false, &compared.Poller}, {true, &compared.NoPoller}} {
		p := load.Parameters
		p.NoPoller = turn.noPoller
		r, err := Run(ctx, p, command, logger)
		if err != nil {
			return compared, err
		}
		*turn.result = ComparedResult{Result: r,
			RoundTrips: r.LatencyP50 / compared.Loopback.RoundTripP50,
			LoopbackShare: r.GbitPerSecond * float64(max(1, p.Servers-1)) /
				compared.Loopback.GbitPerSecond}
	}
	return compared, nil
}

// loopbackLimits measures for about the given time.
func loopbackLimits(ctx context.Context, measured time.Duration) (LoopbackLimits, error) {
	trips, err := roundTrips(ctx, measured/2)
	if err != nil {
		return LoopbackLimits{}, err
	}
	bytes, err := stream(ctx, loopbackWrite, measured/2)
	return LoopbackLimits{RoundTripP50: float64(trips.Quantile(0.50)) / 1e3,
		GbitPerSecond: bytes * 8 / 1e9}, err
}
