package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ledgerd/ledgerd/node/fabric"
	"github.com/ledgerd/ledgerd/node/poller"
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/protected"
	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/tram/replica"
)

// Parameters of driving the processes of a tramDeployment.
const (
	// yieldsMemory is the number of polls without work before a process parks, over the memory
	// fabric. There a poll only yields to other processes.
	yieldsMemory   = 100
	patienceMemory = 5 * time.Millisecond
	patienceWire   = 20 * time.Millisecond
)

// tramProcess is a replica or a client, and the poller that drives it.
type tramProcess struct {
	name    order.Replica
	host    rdmanet.RegionHost
	machine protected.Machine
	replica *replica.Replica // nil for a client
	client  *replica.Client  // nil for a replica
	load    *multicastClient // nil for a replica
	poller  *poller.Poller
}

// tramDeployment is a set of groups with leaders, and clients. Each process has a goroutine.
type tramDeployment struct {
	load      *multicastLoad
	processes []*tramProcess
	groups    [][]*tramProcess
	leaders   []order.ServerID
	closing   sync.WaitGroup // of the hosts of crashed replicas

	mu      sync.Mutex
	crashed map[*tramProcess]bool
	failure error
}

func newTRAM(p MulticastParameters, hosts []rdmanet.RegionHost,
	load *multicastLoad) (_ *tramDeployment, err error) {
	d := &tramDeployment{load: load, groups: make([][]*tramProcess, p.Groups),
		leaders: make([]order.ServerID, p.Groups), crashed: map[*tramProcess]bool{}}
	yields := poller.YieldsDefault
	options := replica.Options{Tree: p.Shape, Replicas: make([][]rdmanet.Peer, p.Groups),
		PayloadMax: max(p.Size, 1), Patience: patienceWire}
	if p.Fabric == fabric.Memory {
		options.Patience, yields = patienceMemory, yieldsMemory
	}
	for i, host := range hosts {
		peer := rdmanet.Peer{ID: host.ID(), Incarnation: host.Incarnation()}
		if group := i / p.Replicas; group < p.Groups {
			options.Replicas[group] = append(options.Replicas[group], peer)
		} else {
			options.Clients = append(options.Clients, peer)
		}
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.close())
		}
	}()
	for i, host := range hosts {
		process := &tramProcess{host: host}
		if group := i / p.Replicas; group < p.Groups {
			process.name = order.Replica{Group: order.GroupID(group),
				Server: order.ServerID(i % p.Replicas)}
			if process.replica, err = replica.New(options, process.name, host); err != nil {
				return nil, fmt.Errorf("bench: replica %v: %w", process.name, err)
			}
			process.machine = process.replica
			d.groups[group] = append(d.groups[group], process)
		} else {
			client := load.clients[i-p.Groups*p.Replicas]
			process.name, process.load = client.name, client
			if process.client, err = replica.NewClient(options, client.name.Server,
				host); err != nil {
				return nil, fmt.Errorf("bench: client %d: %w", client.name.Server, err)
			}
			process.machine = process.client
		}
		process.poller = poller.New(poller.Config{Host: host, Machine: process.machine,
			Feed:  func() bool { return d.multicast(process) },
			Drain: func() bool { return d.take(process) }, Yields: yields})
		if process.load != nil {
			process.load.wake = process.poller.Ring
		}
		d.processes = append(d.processes, process)
	}
	return d, nil
}

func (d *tramDeployment) start() error {
	for _, p := range d.processes {
		p.poller.Start()
	}
	for group := range d.groups {
		d.lead(order.GroupID(group), 0)
	}
	return nil
}

// take takes what a replica delivered, and reports whether there was any.
func (d *tramDeployment) take(p *tramProcess) (some bool) {
	if p.replica == nil {
		return false
	}
	for _, m := range p.replica.Delivered() {
		d.load.deliver(p.name, m)
		some = true
	}
	return some
}

// multicast passes a client's messages on, and reports whether there were any.
func (d *tramDeployment) multicast(p *tramProcess) (some bool) {
	if p.client == nil {
		return false
	}
	for {
		m, there := p.load.next()
		if !there {
			return some
		}
		switch err := p.client.Multicast(m); {
		case errors.Is(err, order.ErrNotNow):
			return some
		case err != nil:
			d.fail(fmt.Errorf("%w: client %d: %w", ErrServer, p.name.Server, err))
			return some
		}
		p.load.taken()
		some = true
	}
}

func (d *tramDeployment) fail(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.failure == nil {
		d.failure = err
	}
}

func (d *tramDeployment) failed() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.failure
}

func (d *tramDeployment) live() (live []order.Replica) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, p := range d.processes {
		if p.replica != nil && !d.crashed[p] {
			live = append(live, p.name)
		}
	}
	return live
}

// lead tells all members of a group which server leads it.
func (d *tramDeployment) lead(group order.GroupID, server order.ServerID) {
	d.leaders[group] = server
	for _, p := range d.groups[group] {
		p.poller.Do(func() { p.replica.Lead(server) })
	}
}

func (d *tramDeployment) change() {
	for group, leader := range d.leaders {
		d.lead(order.GroupID(group), (leader+1)%order.ServerID(len(d.groups[group])))
	}
}

func (d *tramDeployment) crash(group order.GroupID) {
	leader := d.leaders[group]
	gone := d.groups[group][leader]
	d.mu.Lock()
	d.crashed[gone] = true
	d.mu.Unlock()
	gone.poller.Stop() // its memory is removed next
	d.closing.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		defer cancel()
		if err := gone.host.Close(ctx); err != nil {
			d.fail(fmt.Errorf("bench: close %v: %w", gone.name, err))
		}
	})
	for _, p := range d.groups[group] {
		p.poller.Do(func() { p.replica.Exclude(leader) })
	}
	d.lead(group, leader+1)
}

func (d *tramDeployment) close() (err error) {
	for _, p := range d.processes {
		p.poller.Stop()
	}
	d.closing.Wait()
	for _, p := range d.processes {
		if closed := p.machine.Close(); !d.crashed[p] {
			err = errors.Join(err, closed)
		}
	}
	return err
}
