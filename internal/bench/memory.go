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
	network := memory.NewNetwork()
	peers := make([]rdmanet.PeerID, p.Servers)
	for i := range peers {
		peers[i] = rdmanet.PeerID(fmt.Sprintf("server-%d", i))
	}
	servers := make([]*server, 0, p.Servers)
	defer func() {
		for _, s := range servers {
			err = errors.Join(err, s.close())
		}
	}()
	for i, peer := range peers {
		host, err := network.Host(peer)
		if err != nil {
			return Result{}, fmt.Errorf("bench: host %s: %w", peer, err)
		}
		s, err := newServer(p, host, order.ServerID(i), peers, logger)
		if err != nil {
			return Result{}, errors.Join(err, host.Close(ctx))
		}
		servers = append(servers, s)
	}
	for _, s := range servers {
		if err := s.driver.Activate(s.group); err != nil {
			return Result{}, err
		}
	}
	for _, s := range servers {
		s.workload.start()
	}
	for _, s := range servers {
		if err := s.workload.running(ctx); err != nil {
			return Result{}, err
		}
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
	reports := make([]report, len(servers))
	for i, s := range servers {
		reports[i] = s.report(windows[i])
	}
	return combine(p, reports, after.since(before), counted)
}
