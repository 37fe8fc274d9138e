package bench

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/ledgerd/ledgerd/allconcur/interleave"
	"github.com/ledgerd/ledgerd/node/driver"
	"github.com/ledgerd/ledgerd/node/engine"
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/trains"
)

// closeTimeout limits the time that a host may take to close.
const closeTimeout = 5 * time.Second

// server is one server of a run: host, engine with what drives it, and workload.
type server struct {
	host     rdmanet.Host
	ordering ordering
	workload *workload
	halted   atomic.Pointer[string]
}

// ordering is an engine and what drives it in production.
type ordering interface {
	start() error
	// freeze ends the engine's work: nothing is delivered any more.
	freeze()
	// sent returns the bytes that the engine put on the fabric, and in how many frames or
	// operations. It is called after freeze.
	sent() (bytes, pieces uint64)
	close() error
}

// newServer makes a server that is ready to start. peers are the servers by place.
func newServer(p Parameters, host rdmanet.Host, self order.ServerID, peers []rdmanet.Peer,
	logger *slog.Logger) (*server, error) {
	made, err := Engines().Of(p.Engine)
	if err != nil {
		return nil, err
	}
	s := &server{host: host, workload: newWorkload(self, p)}
	config := engine.Config{Self: self, Servers: len(peers), Run: 1, FirstRound: 1,
		MaxPayload: max(p.payload(), 1024), InFlight: p.InFlight, Trains: p.Trains}
	if made.TakesFrames() {
		s.ordering, err = s.newFrames(p, made, config, peers, logger)
	} else {
		s.ordering, err = s.newPolled(p, made, config, peers)
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// frames is an engine that takes frames, behind the production driver.
type frames struct {
	driver *driver.Driver
	group  driver.Group
}

// newFrames makes an engine that takes frames. The driver holds those that arrive before it starts.
func (s *server) newFrames(p Parameters, made engine.Engine, config engine.Config,
	peers []rdmanet.Peer, logger *slog.Logger) (ordering, error) {
	g, err := reliableDigraph(p.Servers)
	if err != nil {
		return nil, err
	}
	if config.Layout, err = p.layout(); err != nil {
		return nil, err
	}
	frameRun := made.FrameRun
	if p.InFlight > 1 {
		frameRun = interleave.FrameGeneration
	}
	if p.Delay > 0 {
		s.host = newLateHost(s.host, p.Delay)
	}
	f := &frames{group: driver.Group{Run: config.Run, FirstRound: config.FirstRound}}
	ids := make([]rdmanet.PeerID, len(peers))
	for i, peer := range peers {
		ids[i] = peer.ID
		f.group.Members = append(f.group.Members, order.ServerID(i))
	}
	run := config.Run
	if config.Layout == trains.LayoutPaper {
		// The paper's frames do not have the run's number. This is the only run of its servers.
		run = 0
		frameRun = func([]byte) (uint64, error) { return f.group.Run, nil }
	}
	f.driver, err = driver.New(driver.Config{
		Host: s.host, Self: config.Self, Peers: ids,
		NewEngine: func(group driver.Group, place order.ServerID) (order.Broadcaster, error) {
			config := config
			config.Self, config.Servers, config.Reliable = place, len(group.Members), g
			config.Run, config.FirstRound = run, group.FirstRound
			return s.newEngine(made, config)
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
	return f, nil
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

func (f *frames) start() error { return f.driver.Activate(f.group) }

func (f *frames) freeze() { f.driver.Freeze() }

func (f *frames) sent() (bytes, pieces uint64) {
	traffic := f.driver.Status().Traffic
	return traffic.BytesSent, traffic.FramesSent
}

func (f *frames) close() error {
	f.driver.Close()
	return nil
}

// report stops the server's rounds and returns its report.
func (s *server) report(window Window) report {
	s.ordering.freeze()
	delivered, prefixes := s.workload.delivered()
	bytes, pieces := s.ordering.sent()
	r := report{Window: window, Payload: delivered.Bytes, Rounds: delivered.Rounds,
		Prefixes: prefixes, BytesSent: bytes, FramesSent: pieces}
	if reason := s.halted.Load(); reason != nil {
		r.Halted = *reason
	}
	return r
}

func (s *server) close() error { return errors.Join(s.ordering.close(), closeHost(s.host)) }

// closeHost closes a host in bounded time.
func closeHost(host rdmanet.Host) error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	if err := host.Close(ctx); err != nil {
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
