package bench

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/ledgerd/ledgerd/node/fabric"
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/tram"
)

// The ways to take a leader away, for MulticastParameters.Failover.
const (
	FailoverCrash  = "crash"
	FailoverChange = "change"
)

// Limits of MulticastParameters.
const (
	MulticastReplicasMax    = 256 // of all groups together
	MulticastClientsMax     = 256
	MulticastOutstandingMax = 256
	MulticastSizeMax        = 64 << 10 // bytes
)

// replicasOfGroupMax limits the replicas of one group.
const replicasOfGroupMax = 64

// MulticastParameters are the parameters of a run.
type MulticastParameters struct {
	// Engine is one of MulticastEngines.
	Engine string `json:"engine"`
	// Tree names the tree's shape or file; Shape is the tree.
	Tree  string     `json:"tree"`
	Shape *tram.Tree `json:"-"`
	// Groups is the number of groups in the tree. Each has Replicas replicas.
	Groups   int `json:"groups"`
	Replicas int `json:"replicas"`
	// Destinations is the number of groups that each message goes to, drawn anew for each message.
	Destinations int `json:"destinations"`
	// Size is a message's payload in bytes.
	Size int `json:"size"`
	// Clients is the number of clients. Each keeps Outstanding messages under way.
	Clients     int         `json:"clients"`
	Outstanding int         `json:"outstanding"`
	Fabric      fabric.Kind `json:"fabric"`
	// Failover is "", FailoverCrash or FailoverChange.
	Failover string `json:"failover,omitempty"`
	// For is the length of the measured window.
	For time.Duration `json:"-"`
}

// Validate reports the first invalid parameter. The error wraps ErrParameters.
func (p MulticastParameters) Validate() error {
	refuse := func(format string, arguments ...any) error {
		return fmt.Errorf("%w: %s", ErrParameters, fmt.Sprintf(format, arguments...))
	}
	row, known := multicastRowOf(p.Engine)
	switch {
	case !known:
		return refuse("engine %q, want one of %q", p.Engine, MulticastEngines())
	case p.Shape == nil || p.Shape.Groups() != p.Groups:
		return refuse("no tree of %d groups", p.Groups)
	case p.Replicas < 1 || p.Replicas > replicasOfGroupMax ||
		p.Replicas > MulticastReplicasMax/p.Groups:
		return refuse("%d groups of %d replicas, want 1 to %d replicas a group and at most %d "+
			"in all", p.Groups, p.Replicas, replicasOfGroupMax, MulticastReplicasMax)
	case p.Destinations < 1 || p.Destinations > p.Groups:
		return refuse("%d destinations of %d groups, want 1 to as many as there are groups",
			p.Destinations, p.Groups)
	case p.Size < 0 || p.Size > MulticastSizeMax:
		return refuse("messages of %d bytes, want 0 to %d", p.Size, MulticastSizeMax)
	case p.Clients < 1 || p.Clients > MulticastClientsMax:
		return refuse("%d clients, want 1 to %d", p.Clients, MulticastClientsMax)
	case p.Outstanding < 1 || p.Outstanding > MulticastOutstandingMax:
		return refuse("%d messages under way, want 1 to %d", p.Outstanding, MulticastOutstandingMax)
	case p.Failover != "" && p.Failover != FailoverCrash && p.Failover != FailoverChange:
		return refuse("failover %q, want %q or %q", p.Failover, FailoverCrash, FailoverChange)
	case p.Failover != "" && !row.led:
		return refuse("engine %q has no leaders to take away: leave failover out, or measure "+
			"engine %q", p.Engine, EngineTRAM)
	case p.Failover != "" && p.Replicas < 3:
		return refuse("failover with %d replicas a group, want at least 3: fewer do not survive "+
			"the loss of their leader", p.Replicas)
	case p.For <= 0:
		return refuse("a run for %v", p.For)
	}
	return checkFabric(p.Fabric)
}

// Hosts returns the number of hosts that a run needs: one for each replica and, if clients write to
// the replicas' memory, one for each client.
func (p MulticastParameters) Hosts() int {
	if row, _ := multicastRowOf(p.Engine); row.clientsHaveHosts {
		return p.Groups*p.Replicas + p.Clients
	}
	return p.Groups * p.Replicas
}

// MulticastResult is the result of a run. The package comment explains the figures.
type MulticastResult struct {
	MulticastParameters
	Seconds             float64 `json:"seconds"`
	RequestsPerSecond   float64 `json:"requests_per_second"`
	DeliveriesPerSecond float64 `json:"deliveries_per_second"`
	GbitPerSecond       float64 `json:"gbit_per_second"`
	LatencyP50          float64 `json:"latency_p50_us"`
	LatencyP99          float64 `json:"latency_p99_us"`
	CPUSeconds          float64 `json:"cpu_seconds"`
	// ComparedDeliveries is the number of deliveries, of all replicas together, that were compared
	// within their groups.
	ComparedDeliveries uint64 `json:"compared_deliveries"`
	// Failovers is nil without MulticastParameters.Failover.
	Failovers *Failovers `json:"failovers,omitempty"`
}

// Failovers describes the effect of taking leaders away. Times are the longest ones without a
// delivery, in microseconds.
type Failovers struct {
	Count           int     `json:"count"`
	WithoutP50      float64 `json:"without_delivery_p50_us"`
	WithoutMax      float64 `json:"without_delivery_max_us"`
	UndisturbedP50  float64 `json:"undisturbed_p50_us"`
	UndisturbedMax  float64 `json:"undisturbed_max_us"`
	IntervalSeconds float64 `json:"interval_seconds"`
}

// multicastEngine is a deployment of groups and clients. It drives the workload's clients.
type multicastEngine interface {
	// start starts all replicas and clients.
	start() error
	// failed returns the first failure since the start, or nil.
	failed() error
	// live lists the replicas that did not crash.
	live() []order.Replica
	// close stops all replicas and clients, and waits for them.
	close() error
}

// led is a multicastEngine whose groups have leaders.
type led interface {
	// change makes every group follow another server as its leader.
	change()
	// crash ends the leader of a group.
	crash(group order.GroupID)
}

// RunMulticast measures an atomic multicast, with all replicas and clients in this process. It
// needs MulticastParameters.Hosts hosts that know each other; the caller closes them. The error
// wraps ErrParameters, ErrServer, ErrDiverged or ctx's cause. The logger gets the logs of the
// groups' drivers.
func RunMulticast(ctx context.Context, p MulticastParameters, hosts []rdmanet.Host,
	logger *slog.Logger) (result MulticastResult, err error) {
	if err := p.Validate(); err != nil {
		return MulticastResult{}, err
	}
	regions := make([]rdmanet.RegionHost, len(hosts))
	for i, host := range hosts {
		var has bool
		if regions[i], has = host.(rdmanet.RegionHost); !has {
			return MulticastResult{},
				fmt.Errorf("%w: the hosts of fabric %s have no one-sided memory", ErrParameters,
					p.Fabric)
		}
	}
	if len(regions) != p.Hosts() {
		return MulticastResult{}, fmt.Errorf("%w: %d hosts, want %d", ErrParameters, len(regions),
			p.Hosts())
	}
	load := newMulticastLoad(p)
	row, _ := multicastRowOf(p.Engine)
	engine, err := row.make(p, regions, load, logger)
	if err != nil {
		return MulticastResult{}, err
	}
	closed := false
	defer func() {
		if !closed {
			err = errors.Join(err, engine.close())
		}
	}()
	if err := engine.start(); err != nil {
		return MulticastResult{}, err
	}
	load.start()
	if err := load.running(ctx, engine); err != nil {
		return MulticastResult{}, err
	}
	if err := pause(ctx, warmUp(p.For)); err != nil {
		return MulticastResult{}, err
	}
	cpuBefore, err := cpuTime()
	if err != nil {
		return MulticastResult{}, err
	}
	load.begin()
	failovers, err := disturb(ctx, p, load, engine)
	if err != nil {
		return MulticastResult{}, err
	}
	window, latency := load.end()
	cpuAfter, err := cpuTime()
	if err != nil {
		return MulticastResult{}, err
	}
	if err := load.settle(ctx, engine); err != nil {
		return MulticastResult{}, err
	}
	closed = true
	if err := errors.Join(engine.failed(), engine.close()); err != nil {
		return MulticastResult{}, err
	}
	compared, err := load.compare(engine.live())
	if err != nil {
		return MulticastResult{}, err
	}
	// What began before the window has no latency.
	if latency.total() == 0 {
		return MulticastResult{},
			fmt.Errorf("%w: nothing began and was delivered within %.3f s; measure for longer",
				ErrServer, window.Seconds)
	}
	return MulticastResult{
		MulticastParameters: p,
		Seconds:             window.Seconds,
		RequestsPerSecond:   float64(window.Requests) / window.Seconds,
		DeliveriesPerSecond: float64(window.Requests) * float64(p.Destinations) / window.Seconds,
		GbitPerSecond:       float64(window.Bytes) * 8 / 1e9 / window.Seconds,
		LatencyP50:          float64(latency.Quantile(0.50)) / 1e3,
		LatencyP99:          float64(latency.Quantile(0.99)) / 1e3,
		CPUSeconds:          (cpuAfter - cpuBefore).Seconds(),
		ComparedDeliveries:  compared,
		Failovers:           failovers,
	}, nil
}

// failoversMax limits how often leaders are taken away in one run.
const failoversMax = 10

// disturb waits for the end of the window. If a failover is asked for, it takes leaders away in the
// meantime. Each failover comes between two intervals of equal length: one to compare with, and one
// to observe the effect.
func disturb(ctx context.Context, p MulticastParameters, load *multicastLoad,
	engine multicastEngine) (*Failovers, error) {
	leaders, have := engine.(led)
	if p.Failover == "" || !have {
		return nil, pause(ctx, p.For)
	}
	count := failoversMax
	if p.Failover == FailoverCrash {
		count = min(count, p.Groups*((p.Replicas-1)/2))
	}
	interval := p.For / time.Duration(2*count)
	var without, undisturbed Histogram
	f := &Failovers{Count: count, IntervalSeconds: interval.Seconds()}
	watch := func(watched []order.GroupID, into *Histogram, longest *float64) error {
		if err := pause(ctx, interval); err != nil {
			return err
		}
		gap := load.longestGap(watched)
		into.Add(gap)
		*longest = max(*longest, float64(gap.Nanoseconds())/1e3)
		return nil
	}
	all := p.Shape.Reach(p.Shape.Root())
	for i := range count {
		watched := all
		if p.Failover == FailoverCrash {
			watched = []order.GroupID{order.GroupID(i % p.Groups)}
		}
		load.watch()
		if err := watch(watched, &undisturbed, &f.UndisturbedMax); err != nil {
			return nil, err
		}
		load.watch()
		if p.Failover == FailoverCrash {
			leaders.crash(watched[0])
		} else {
			leaders.change()
		}
		if err := watch(watched, &without, &f.WithoutMax); err != nil {
			return nil, err
		}
	}
	f.WithoutP50 = float64(without.Quantile(0.5)) / 1e3
	f.UndisturbedP50 = float64(undisturbed.Quantile(0.5)) / 1e3
	return f, nil
}
