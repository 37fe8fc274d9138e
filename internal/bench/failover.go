package bench

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/ledgerd/ledgerd/node/engine"
	"github.com/ledgerd/ledgerd/node/fabric"
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/rdmanet/memory"
)

// Bounds of a measurement of failovers.
const (
	// CrashesMax bounds the crashes of a measurement.
	CrashesMax = 1000
	// calm is how long a group orders before its leader crashes, and calmStep what each crash adds
	// to that, so that crashes meet all moments between two heartbeats.
	calm     = 20 * time.Millisecond
	calmStep = 137 * time.Microsecond
	// failoverTimeout is how long the others may take.
	failoverTimeout = 10 * time.Second
	// failoverTries is how often a crash is tried that met a leader which had been replaced.
	failoverTries = 100
)

// errReplaced means that the server that crashed led no more.
var errReplaced = errors.New("the others had another leader already")

// Failover is how long a group orders nothing after its leader has crashed, in microseconds: from
// the crash until each of the others has A-delivered a message under another leader.
type Failover struct {
	Parameters
	Crashes int     `json:"crashes"`
	Timeout float64 `json:"timeout_us"` // after which a silent leader is suspected, at first
	Median  float64 `json:"failover_p50_us"`
	Worst   float64 `json:"failover_max_us"`
	// Each lists all of them, in the order of the crashes.
	Each []float64 `json:"failovers_us"`
}

// RunFailover crashes a leader, the given number of times, each in a new group of servers in this
// process. A crashed server does nothing more, and its memory is gone. The others have to find out
// by its silence. They are told that it will not come back, which makes room in their logs and
// starts nothing. The error is as for Run. It wraps ErrParameters if the engine has no leader.
func RunFailover(ctx context.Context, p Parameters, crashes int, logger *slog.Logger) (Failover,
	error) {
	p.For = time.Second // valid; there is no window
	if err := p.Validate(); err != nil {
		return Failover{}, err
	}
	switch made, _ := Engines().Of(p.Engine); {
	case made.Kind != engine.Polled:
		led := Engines().With(func(e engine.Engine) bool { return e.Kind == engine.Polled })
		return Failover{}, fmt.Errorf("%w: %s has no leader to crash; take %s", ErrParameters,
			p.Engine, led)
	case p.Fabric != fabric.Memory:
		return Failover{}, fmt.Errorf("%w: failovers are measured over %s, where the crash and "+
			"what follows have one clock", ErrParameters, fabric.Memory)
	case p.Servers < 3:
		return Failover{}, fmt.Errorf("%w: %d servers, want 3 or more, so that a majority is left",
			ErrParameters, p.Servers)
	case crashes < 1 || crashes > CrashesMax:
		return Failover{}, fmt.Errorf("%w: %d crashes, want 1 to %d", ErrParameters, crashes,
			CrashesMax)
	}
	f := Failover{Parameters: p, Crashes: crashes, Timeout: micros(timeoutMemory)}
	for i := range crashes {
		took, err := failOver(ctx, p, calm+time.Duration(i)*calmStep, logger)
		for range failoverTries { // a busy machine replaces leaders that do run
			if !errors.Is(err, errReplaced) {
				break
			}
			took, err = failOver(ctx, p, calm+time.Duration(i)*calmStep, logger)
		}
		if err != nil {
			return Failover{}, fmt.Errorf("crash %d: %w", i+1, err)
		}
		f.Each = append(f.Each, micros(took))
	}
	sorted := slices.Sorted(slices.Values(f.Each))
	f.Median, f.Worst = sorted[len(sorted)/2], sorted[len(sorted)-1]
	return f, nil
}

func micros(span time.Duration) float64 { return float64(span.Nanoseconds()) / 1e3 }

// failOver runs a group, crashes its leader, and returns how long the others took. It returns
// errReplaced if one of them had delivered under another leader before the crash.
func failOver(ctx context.Context, p Parameters, before time.Duration,
	logger *slog.Logger) (took time.Duration, err error) {
	servers, err := startMemory(ctx, p, memory.NewNetwork(), logger)
	defer func() {
		for _, s := range servers {
			err = errors.Join(err, s.close())
		}
	}()
	if err != nil {
		return 0, err
	}
	if err := pause(ctx, before); err != nil {
		return 0, err
	}
	leader, term, err := leads(ctx, servers)
	if err != nil {
		return 0, err
	}
	// What was A-delivered under this leader may reach the others later, so a later term counts.
	others := slices.Delete(slices.Clone(servers), int(leader), int(leader)+1)
	heard := make([]chan time.Time, len(others))
	for i, s := range others {
		first := make(chan time.Time, 1)
		heard[i] = first
		o := s.ordering.(*polled)
		o.poller.Do(func() { o.heard = firstAfter(term, first) })
	}
	servers[leader].ordering.freeze()
	crashed := time.Now()
	if err := closeHost(servers[leader].host); err != nil {
		return 0, err
	}
	for _, s := range others {
		o := s.ordering.(*polled)
		o.poller.Do(func() { o.machine.Exclude(leader) })
	}
	timeout := time.NewTimer(failoverTimeout)
	defer timeout.Stop()
	firsts := make([]time.Time, 0, len(heard))
	for _, each := range heard {
		select {
		case at := <-each:
			firsts = append(firsts, at)
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		case <-timeout.C:
			return 0, fmt.Errorf("%w: a server delivers nothing for %v after leader %d of term %d "+
				"crashed: %v", ErrServer, failoverTimeout, leader, term, states(others))
		}
	}
	reports := make([]report, len(others))
	for i, s := range others {
		s.workload.stop()
		reports[i] = s.report(Window{})
	}
	if _, err := compare(reports); err != nil {
		return 0, err
	}
	return outage(crashed, firsts)
}

// outage returns the time from a leader's crash until the last of the others delivers under another
// one, for the times of their first such deliveries.
func outage(crashed time.Time, firsts []time.Time) (took time.Duration, err error) {
	for _, at := range firsts {
		if at.Before(crashed) {
			return 0, fmt.Errorf("%w, for %v", errReplaced, crashed.Sub(at))
		}
		took = max(took, at.Sub(crashed))
	}
	return took, nil
}

// leads waits until a server leads, and returns it and its term. On a busy machine a group may just
// be electing another one.
func leads(ctx context.Context, servers []*server) (order.ServerID, order.Epoch, error) {
	type state struct {
		leader order.ServerID
		known  bool
		term   order.Epoch
	}
	const between = time.Millisecond
	for range failoverTimeout / between {
		for i, s := range servers {
			o, told := s.ordering.(*polled), make(chan state, 1)
			o.poller.Do(func() { // nobody stops this poller before the answer
				var now state
				now.leader, now.known = o.machine.Leader()
				now.term = o.machine.Status().Epoch
				told <- now
			})
			if now := <-told; now.known && now.leader == order.ServerID(i) {
				return now.leader, now.term, nil
			}
		}
		if err := pause(ctx, between); err != nil {
			return 0, 0, err
		}
	}
	return 0, 0, fmt.Errorf("%w: no server leads: %v", ErrServer, states(servers))
}

// states stops servers and describes their machines.
func states(servers []*server) (all []string) {
	for _, s := range servers {
		s.ordering.freeze()
		all = append(all, s.ordering.(*polled).machine.String())
	}
	return all
}

// firstAfter returns a function that sends the time of the first delivery after a term.
func firstAfter(term order.Epoch, first chan<- time.Time) func([]order.Delivery) {
	return func(deliveries []order.Delivery) {
		for i := range deliveries {
			if deliveries[i].Epoch > term {
				select {
				case first <- time.Now():
				default: // it was not the first one
				}
				return
			}
		}
	}
}
