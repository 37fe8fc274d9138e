package bench

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/ledgerd/ledgerd/node/fabric"
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/protected"
	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/tram/replica"
)

// Parameters of driving the processes of a tramDeployment.
const (
	attachTimeout = 5 * time.Second
	processInputs = 1024
	// idleMemory is the number of polls without work before a process parks, over the memory
	// fabric. There a poll only yields to other processes.
	idleMemory = 100
	// idleElsewhere is the same over other fabrics, which need the processor too.
	idleElsewhere = 20
	// parkUnderWay is how long a process parks while it has operations under way.
	parkUnderWay   = 20 * time.Microsecond
	parkIdle       = 500 * time.Microsecond // the same while it has none
	patienceMemory = 5 * time.Millisecond
	patienceWire   = 20 * time.Millisecond
)

// tramMachine is the common interface of a replica and a client.
type tramMachine interface {
	Poll(now time.Duration) bool
	Wanted() []protected.Want
	Attached(number uint64, attachment rdmanet.Attachment, err error)
	Outstanding() int
	String() string
	Close() error
}

// tramProcess drives a replica or a client with a goroutine of its own.
type tramProcess struct {
	name    order.Replica
	host    rdmanet.RegionHost
	machine tramMachine
	replica *replica.Replica // nil for a client
	client  *replica.Client  // nil for a replica
	load    *multicastClient // nil for a replica

	inputs  chan func() // run between polls
	ringing chan struct{}
	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup
}

// tramDeployment is a set of groups with leaders, and clients. Each process has a goroutine.
type tramDeployment struct {
	load      *multicastLoad
	began     time.Time
	idle      int
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
	d := &tramDeployment{load: load, began: time.Now(), idle: idleElsewhere,
		groups: make([][]*tramProcess, p.Groups), leaders: make([]order.ServerID, p.Groups),
		crashed: map[*tramProcess]bool{}}
	options := replica.Options{Tree: p.Shape, Replicas: make([][]rdmanet.Peer, p.Groups),
		PayloadMax: max(p.Size, 1), Patience: patienceWire}
	if p.Fabric == fabric.Memory {
		options.Patience, d.idle = patienceMemory, idleMemory
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
		process := &tramProcess{host: host, inputs: make(chan func(), processInputs),
			ringing: make(chan struct{}, 1)}
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
			client.wake = process.ring
		}
		process.ctx, process.cancel = context.WithCancel(context.Background())
		d.processes = append(d.processes, process)
	}
	return d, nil
}

func (d *tramDeployment) start() error {
	for _, p := range d.processes {
		if p.replica != nil {
			for _, region := range p.replica.Regions() {
				p.running.Go(func() {
					_ = region.Await(p.ctx, func() bool { // until the process ends
						p.ring()
						return false
					})
				})
			}
		}
		p.running.Go(func() { d.drive(p) })
	}
	for group := range d.groups {
		d.lead(order.GroupID(group), 0)
	}
	return nil
}

func (p *tramProcess) ring() {
	select {
	case p.ringing <- struct{}{}:
	default:
	}
}

// do runs input between two polls.
func (p *tramProcess) do(input func()) {
	select {
	case p.inputs <- input:
		p.ring()
	case <-p.ctx.Done():
	}
}

// drive runs a process until it ends.
func (d *tramDeployment) drive(p *tramProcess) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for idle := 0; p.ctx.Err() == nil; {
		if d.turn(p) {
			idle = 0
		}
		if idle++; idle < d.idle {
			runtime.Gosched()
			continue
		}
		span := parkIdle
		if p.machine.Outstanding() > 0 {
			span = parkUnderWay
		}
		timer.Reset(span)
		select {
		case <-p.ringing:
		case <-timer.C:
		case <-p.ctx.Done():
		}
	}
}

// turn lets a process work once, and reports whether there was anything to do.
func (d *tramDeployment) turn(p *tramProcess) (busy bool) {
	for more := true; more; {
		select {
		case input := <-p.inputs:
			input()
			busy = true
		default:
			more = false
		}
	}
	if p.client != nil && d.multicast(p) {
		busy = true
	}
	if p.machine.Poll(time.Since(d.began)) {
		busy = true
	}
	for _, want := range p.machine.Wanted() {
		p.running.Go(func() {
			ctx, cancel := context.WithTimeout(p.ctx, attachTimeout)
			defer cancel()
			attachment, err := p.host.Attach(ctx, want.Peer, want.Region)
			p.do(func() { p.machine.Attached(want.Number, attachment, err) })
		})
	}
	if p.replica != nil {
		for _, m := range p.replica.Delivered() {
			d.load.deliver(p.name, m)
			busy = true
		}
	}
	return busy
}

// multicast passes a client's messages on, and reports whether there were any.
func (d *tramDeployment) multicast(p *tramProcess) (some bool) {
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
		p.do(func() { p.replica.Lead(server) })
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
	gone.cancel()
	gone.running.Wait() // its memory is removed next
	d.closing.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		defer cancel()
		if err := gone.host.Close(ctx); err != nil {
			d.fail(fmt.Errorf("bench: close %v: %w", gone.name, err))
		}
	})
	for _, p := range d.groups[group] {
		p.do(func() { p.replica.Exclude(leader) })
	}
	d.lead(group, leader+1)
}

func (d *tramDeployment) close() (err error) {
	for _, p := range d.processes {
		p.cancel()
	}
	for _, p := range d.processes {
		p.running.Wait()
	}
	d.closing.Wait()
	for _, p := range d.processes {
		if closed := p.machine.Close(); !d.crashed[p] {
			err = errors.Join(err, closed)
		}
	}
	return err
}
