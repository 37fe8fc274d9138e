// Package group runs the servers of one group in this process, for the examples: an engine for each
// server, which package node/driver drives over the memory fabric. The frames travel between
// goroutines as they would between machines. No server crashes here, so nothing detects crashes.
// See package node/detector for that.
package group

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/ledgerd/ledgerd/allconcur"
	"github.com/ledgerd/ledgerd/digraph"
	"github.com/ledgerd/ledgerd/node/driver"
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/rdmanet/memory"
)

// closeTimeout bounds the time that a host has to hand over its last frames.
const closeTimeout = 10 * time.Second

// Application is one server's part of a program: the source of the messages that the server
// A-broadcasts, and the sink of the rounds that it A-delivers.
type Application interface {
	driver.Source
	driver.Sink
}

// Group is a running group.
type Group struct {
	hosts   []*memory.Host
	drivers []*driver.Driver
	halted  chan error
}

// Start starts a group with a server for each application. The engine is one of allconcur's. If
// Start fails, nothing is left running.
func Start[A Application](engine string, applications []A) (g *Group, err error) {
	servers := len(applications)
	overlay, err := digraph.Reliable(servers, digraph.Target{})
	if err != nil {
		return nil, err
	}
	g = &Group{halted: make(chan error, servers)}
	defer func() {
		if err != nil {
			err = errors.Join(err, g.Close())
		}
	}()
	network := memory.NewNetwork()
	var peers []rdmanet.PeerID
	run := driver.Group{Run: 1, FirstRound: 1}
	for i := range servers {
		peers = append(peers, rdmanet.PeerID(fmt.Sprintf("server-%d", i)))
		run.Members = append(run.Members, order.ServerID(i))
	}
	for i, application := range applications {
		host, err := network.Host(peers[i])
		if err != nil {
			return nil, err
		}
		g.hosts = append(g.hosts, host)
		d, err := driver.New(driver.Config{
			Host: host, Self: order.ServerID(i), Peers: peers,
			Source: application, Sink: application,
			FrameRun: allconcur.FrameGeneration,
			NewEngine: func(run driver.Group, self order.ServerID) (order.Broadcaster, error) {
				return allconcur.New(allconcur.Config{Engine: engine, Self: self,
					Servers: len(run.Members), Reliable: overlay, Generation: run.Run,
					FirstRound: run.FirstRound})
			},
			Halted: func(_ driver.Group, reason string) {
				g.halted <- fmt.Errorf("server %d halted: %s", i, reason)
			},
			Logger: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			return nil, err
		}
		g.drivers = append(g.drivers, d)
	}
	for _, d := range g.drivers {
		if err := d.Activate(run); err != nil {
			return nil, err
		}
	}
	return g, nil
}

// Halted receives the reason of each server that stops delivering.
func (g *Group) Halted() <-chan error { return g.halted }

// Close stops all servers. Once it has returned, no application gets anything more.
func (g *Group) Close() error {
	for _, d := range g.drivers {
		d.Close()
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	var failures []error
	for _, host := range g.hosts {
		failures = append(failures, host.Close(ctx))
	}
	return errors.Join(failures...)
}
