package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// LoopbackResult is the ceiling of this machine's TCP: one connection on 127.0.0.1, both ends in
// this process, plain bytes. The keys that all benchmarks share are set where they make sense: a
// request is a round trip, and the throughput is that of 1 MiB writes.
type LoopbackResult struct {
	Seconds           float64 `json:"seconds"`
	RequestsPerSecond float64 `json:"requests_per_second"`
	GbitPerSecond     float64 `json:"gbit_per_second"`
	LatencyP50        float64 `json:"latency_p50_us"`
	LatencyP99        float64 `json:"latency_p99_us"`
	CPUSeconds        float64 `json:"cpu_seconds"`
	WireBytesPerByte  float64 `json:"wire_bytes_per_byte"`
	// Stream figures are for one-way streaming with writes of the size in the name.
	StreamGbit64K  float64 `json:"stream_gbit_64k"`
	StreamGbit1M   float64 `json:"stream_gbit_1m"`
	StreamBytes64K float64 `json:"stream_64k_bytes_per_second"`
	StreamBytes1M  float64 `json:"stream_1m_bytes_per_second"`
	// RoundTrip figures are for 64 bytes there and back.
	RoundTripP50 float64 `json:"round_trip_us_p50"`
	RoundTripP99 float64 `json:"round_trip_us_p99"`
}

// roundTripBytes is the size of a ping.
const roundTripBytes = 64

// Loopback measures for about the given time, a third of it for each of three figures.
func Loopback(ctx context.Context, measured time.Duration) (LoopbackResult, error) {
	if measured <= 0 {
		return LoopbackResult{}, fmt.Errorf("%w: a run for %v", ErrParameters, measured)
	}
	begun := time.Now()
	cpuBefore, err := cpuTime()
	if err != nil {
		return LoopbackResult{}, err
	}
	part := measured / 3
	small, err := stream(ctx, 64<<10, part)
	if err != nil {
		return LoopbackResult{}, err
	}
	large, err := stream(ctx, 1<<20, part)
	if err != nil {
		return LoopbackResult{}, err
	}
	trips, err := roundTrips(ctx, part)
	if err != nil {
		return LoopbackResult{}, err
	}
	cpuAfter, err := cpuTime()
	if err != nil {
		return LoopbackResult{}, err
	}
	p50, p99 := float64(trips.Quantile(0.50))/1e3, float64(trips.Quantile(0.99))/1e3
	return LoopbackResult{
		Seconds:           time.Since(begun).Seconds(),
		RequestsPerSecond: float64(trips.total()) / part.Seconds(),
		GbitPerSecond:     large * 8 / 1e9,
		LatencyP50:        p50, LatencyP99: p99,
		CPUSeconds:       (cpuAfter - cpuBefore).Seconds(),
		WireBytesPerByte: 1,
		StreamGbit64K:    small * 8 / 1e9, StreamGbit1M: large * 8 / 1e9,
		StreamBytes64K: small, StreamBytes1M: large,
		RoundTripP50: p50, RoundTripP99: p99,
	}, nil
}

// connectionPair returns both ends of a TCP connection on the loopback interface. They close with
// ctx.
func connectionPair(ctx context.Context) (a, b net.Conn, end func(), err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, nil, fmt.Errorf("bench: loopback: %w", err)
	}
	defer func() { err = errors.Join(err, listener.Close()) }()
	var dialer net.Dialer
	a, err = dialer.DialContext(ctx, "tcp", listener.Addr().String())
	if err != nil {
		return nil, nil, nil, fmt.Errorf("bench: loopback: %w", err)
	}
	b, err = listener.Accept()
	if err != nil {
		return nil, nil, nil, errors.Join(fmt.Errorf("bench: loopback: %w", err), a.Close())
	}
	closeBoth := func() { _, _ = a.Close(), b.Close() }
	stop := context.AfterFunc(ctx, closeBoth)
	return a, b, func() { stop(); closeBoth() }, nil
}

// stream returns the bytes that arrive in one second with writes of the given size.
func stream(ctx context.Context, writeBytes int, measured time.Duration) (float64, error) {
	sender, receiver, end, err := connectionPair(ctx)
	if err != nil {
		return 0, err
	}
	written := make(chan struct{})
	go func() {
		defer close(written)
		buffer := touched(writeBytes)
		for {
			if _, err := sender.Write(buffer); err != nil {
				return // the receiver has closed the connection
			}
		}
	}()
	defer func() { end(); <-written }()
	buffer := make([]byte, writeBytes)
	begun := time.Now()
	received := 0
	for time.Since(begun) < measured {
		n, err := receiver.Read(buffer)
		if err != nil {
			return 0, errors.Join(context.Cause(ctx), fmt.Errorf("bench: loopback: %w", err))
		}
		received += n
	}
	return float64(received) / time.Since(begun).Seconds(), nil
}

// roundTrips repeatedly sends a ping and waits for its echo.
func roundTrips(ctx context.Context, measured time.Duration) (Histogram, error) {
	near, far, end, err := connectionPair(ctx)
	if err != nil {
		return Histogram{}, err
	}
	echoed := make(chan struct{})
	go func() {
		defer close(echoed)
		buffer := make([]byte, roundTripBytes)
		for {
			if _, err := io.ReadFull(far, buffer); err != nil {
				return
			}
			if _, err := far.Write(buffer); err != nil {
				return
			}
		}
	}()
	defer func() { end(); <-echoed }()
	var trips Histogram
	buffer := make([]byte, roundTripBytes)
	for begun := time.Now(); time.Since(begun) < measured; {
		sent := time.Now()
		if _, err := near.Write(buffer); err != nil {
			return Histogram{}, errors.Join(context.Cause(ctx),
				fmt.Errorf("bench: loopback: %w", err))
		}
		if _, err := io.ReadFull(near, buffer); err != nil {
			return Histogram{}, errors.Join(context.Cause(ctx),
				fmt.Errorf("bench: loopback: %w", err))
		}
		trips.Add(time.Since(sent))
	}
	return trips, nil
}
