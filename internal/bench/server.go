package bench

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/ledgerd/ledgerd/allconcur/interleave"
	"github.com/ledgerd/ledgerd/node/driver"
	"github.com/ledgerd/ledgerd/node/engine"
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/rdmanet"
)

// closeTimeout limits the time that a host may take to close.
const closeTimeout = 5 * time.Second

// server is one server of a run: host, production driver and workload.
type server struct {
	host     rdmanet.Host
	driver   *driver.Driver
	workload *workload
	group    driver.Group
	halted   atomic.Pointer[string]
}

// newServer makes a server that is ready to be activated. It holds frames that arrive earlier.
func newServer(p Parameters, host rdmanet.Host, self order.ServerID, peers []rdmanet.PeerID,
	logger *slog.Logger) (*server, error) {
	g, err := reliableDigraph(p.Servers)
	if err != nil {
		return nil, err
	}
	made, err := Engines().Of(p.Engine)
	if err != nil {
		return nil, err
	}
	frameRun := made.FrameRun
	if p.InFlight > 1 {
		frameRun = interleave.FrameGeneration
	}
	if p.Delay > 0 {
		host = newLateHost(host, p.Delay)
	}
	s := &server{host: host, workload: newWorkload(self, p),
		group: driver.Group{Run: 1, FirstRound: 1}}
	for i := range peers {
		s.group.Members = append(s.group.Members, order.ServerID(i))
	}
	s.driver, err = driver.New(driver.Config{
		Host: host, Self: self, Peers: peers,
		NewEngine: func(group driver.Group, place order.ServerID) (order.Broadcaster, error) {
			return s.newEngine(made, engine.Config{
				Self: place, Servers: len(group.Members), Reliable: g, Run: group.Run,
				FirstRound: group.FirstRound, MaxPayload: max(p.payload(), 1024),
				InFlight: p.InFlight, Trains: p.Trains,
			})
		},
		FrameRun: frameRun,
		Source:   s.workload, Sink: s.workload,
		MaxBatch: p.payload(),
		Halted:   func(_ driver.Group, reason string) { s.halted.Store(&reason) },
		Logger:   logger,
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// newEngine returns the server's engine, or several with their rounds in flight at a time.
func (s *server) newEngine(made engine.Engine, config engine.Config) (order.Broadcaster, error) {
	e, err := made.New(config)
	several, are := e.(*interleave.Engine)
	if err != nil || !are {
		return e, err
	}
	paced := newPaced(several, config.InFlight)
	s.workload.hold = paced.Hold
	return paced, nil
}

// report stops the server's rounds and returns its report.
func (s *server) report(window Window) report {
	s.driver.Freeze()
	delivered, prefixes := s.workload.delivered()
	traffic := s.driver.Status().Traffic
	r := report{Window: window, Payload: delivered.Bytes, Rounds: delivered.Rounds,
		Prefixes: prefixes, BytesSent: traffic.BytesSent, FramesSent: traffic.FramesSent}
	if reason := s.halted.Load(); reason != nil {
		r.Halted = *reason
	}
	return r
}

func (s *server) close() error {
	s.driver.Close()
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	if err := s.host.Close(ctx); err != nil {
		return fmt.Errorf("bench: close: %w", err)
	}
	return nil
}

// warmUp returns the time between the start of a run and its window.
func warmUp(measured time.Duration) time.Duration { return min(time.Second, measured/4) }

// countingTime returns the length of the part of a run, after its window, in which system calls are
// counted.
func countingTime(measured time.Duration) time.Duration { return warmUp(measured) }

// pause waits for d. It returns ctx's cause if ctx ends first.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}
