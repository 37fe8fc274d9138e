package bench

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/rdmanet/memory"
)

// runMemory runs all servers in this process.
func runMemory(ctx context.Context, p Parameters, logger *slog.Logger) (result Result, err error) {
	servers, err := startMemory(ctx, p, memory.NewNetwork(), logger)
	defer func() {
		for _, s := range servers {
			err = errors.Join(err, s.close())
		}
	}()
	if err != nil {
		return Result{}, err
	}
	if err := pause(ctx, warmUp(p.For)); err != nil {
		return Result{}, err
	}
	for _, s := range servers {
		s.workload.begin()
	}
	before, err := processUse()
	if err != nil {
		return Result{}, err
	}
	if err := pause(ctx, p.For); err != nil {
		return Result{}, err
	}
	after, err := processUse()
	if err != nil {
		return Result{}, err
	}
	windows := make([]Window, len(servers))
	for i, s := range servers {
		windows[i] = s.workload.end()
	}
	counting := beginCalls(func() (sum uint64) {
		for _, s := range servers {
			sum += s.workload.messages()
		}
		return sum
	})
	if err := pause(ctx, countingTime(p.For)); err != nil {
		return Result{}, errors.Join(err, counting.close())
	}
	counted := counting.end()
	for _, s := range servers {
		s.workload.stop()
	}
	reports := make([]report, len(servers))
	for i, s := range servers {
		reports[i] = s.report(windows[i])
	}
	return combine(p, reports, after.since(before), counted)
}

// startMemory makes all servers in this process, and waits until each has delivered. The caller
// closes the servers, also those that come with an error.
func startMemory(ctx context.Context, p Parameters, network *memory.Network,
	logger *slog.Logger) (servers []*server, err error) {
	peers := make([]rdmanet.Peer, p.Servers)
	hosts := make([]rdmanet.RegionHost, p.Servers)
	for i := range hosts {
		host, err := network.Host(rdmanet.PeerID(fmt.Sprintf("server-%d", i)))
		if err != nil {
			return nil, fmt.Errorf("bench: %w", err)
		}
		hosts[i], peers[i] = host, rdmanet.Peer{ID: host.ID(), Incarnation: host.Incarnation()}
	}
	for i, host := range hosts {
		s, err := newServer(p, host, order.ServerID(i), peers, logger)
		if err != nil {
			return servers, errors.Join(err, closeHost(host))
		}
		servers = append(servers, s)
	}
	for _, s := range servers {
		if err := s.ordering.start(); err != nil {
			return servers, err
		}
	}
	for _, s := range servers {
		s.workload.start()
	}
	for _, s := range servers {
		if err := s.workload.running(ctx); err != nil {
			return servers, err
		}
	}
	return servers, nil
}
