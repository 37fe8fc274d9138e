package replica_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/protected"
	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/tram"
	"github.com/ledgerd/ledgerd/tram/replica"
)

// machine is the common interface of a replica and a client.
type machine interface {
	Poll(now time.Duration) bool
	Wanted() []protected.Want
	Attached(number uint64, attachment rdmanet.Attachment, err error)
	Outstanding() int
	String() string
	Close() error
}

// process drives a machine with a goroutine of its own.
type process struct {
	name    order.Replica
	host    rdmanet.RegionHost
	machine machine
	client  *replica.Client
	replica *replica.Replica

	inputs  chan func() // done between polls
	wake    chan struct{}
	cancel  context.CancelFunc
	ctx     context.Context
	running sync.WaitGroup
	spin    int // polls with nothing to do before it parks
}

// deployment is groups and clients on a fabric, each process with a goroutine.
type deployment struct {
	options   replica.Options
	start     time.Time
	processes []*process
	delivered func(at order.Replica, m order.Multicast) // called by the replicas' goroutines
}

// newDeployment starts groups of the given size, and clients. hosts are their hosts, and spin is
// process.spin.
func newDeployment(tb testing.TB, tree *tram.Tree, size, clients int, options replica.Options,
	hosts []rdmanet.RegionHost, spin int) *deployment {
	tb.Helper()
	d := &deployment{options: options, start: time.Now(),
		delivered: func(order.Replica, order.Multicast) {}}
	d.options.Tree = tree
	d.options.Replicas = make([][]rdmanet.Peer, tree.Groups())
	var names []order.Replica
	for group := range tree.Groups() {
		for server := range size {
			names = append(names, order.Replica{Group: order.GroupID(group),
				Server: order.ServerID(server)})
		}
	}
	for client := range clients {
		names = append(names, order.Replica{Group: order.Clients, Server: order.ServerID(client)})
	}
	for i, name := range names {
		peer := rdmanet.Peer{ID: hosts[i].ID(), Incarnation: hosts[i].Incarnation()}
		if name.Group == order.Clients {
			d.options.Clients = append(d.options.Clients, peer)
		} else {
			d.options.Replicas[name.Group] = append(d.options.Replicas[name.Group], peer)
		}
	}
	for i, name := range names {
		p := &process{name: name, host: hosts[i], inputs: make(chan func(), 1024),
			wake: make(chan struct{}, 1), spin: spin}
		var err error
		if name.Group == order.Clients {
			p.client, err = replica.NewClient(d.options, name.Server, hosts[i])
			p.machine = p.client
		} else {
			p.replica, err = replica.New(d.options, name, hosts[i])
			p.machine = p.replica
		}
		if err != nil {
			tb.Fatal(err)
		}
		p.ctx, p.cancel = context.WithCancel(context.Background())
		d.processes = append(d.processes, p)
	}
	tb.Cleanup(d.stop)
	return d
}

// run starts the goroutines.
func (d *deployment) run() {
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
}

func (p *process) ring() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// do runs a function between polls.
func (p *process) do(input func()) {
	select {
	case p.inputs <- input:
		p.ring()
	case <-p.ctx.Done():
	}
}

func (d *deployment) drive(p *process) {
	idle := 0
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for p.ctx.Err() == nil {
	inputs:
		for {
			select {
			case input := <-p.inputs:
				input()
				idle = 0
			default:
				break inputs
			}
		}
		if p.machine.Poll(time.Since(d.start)) {
			idle = 0
		}
		for _, want := range p.machine.Wanted() {
			p.running.Go(func() {
				ctx, cancel := context.WithTimeout(p.ctx, 5*time.Second)
				defer cancel()
				attachment, err := p.host.Attach(ctx, want.Peer, want.Region)
				p.do(func() { p.machine.Attached(want.Number, attachment, err) })
			})
		}
		if p.replica != nil {
			for _, m := range p.replica.Delivered() {
				d.delivered(p.name, m)
				idle = 0
			}
		}
		if idle++; idle < p.spin {
			runtime.Gosched()
			continue
		}
		span := 500 * time.Microsecond
		if p.machine.Outstanding() > 0 {
			span = 20 * time.Microsecond
		}
		timer.Reset(span)
		select {
		case <-p.wake:
		case input := <-p.inputs:
			input()
		case <-timer.C:
		case <-p.ctx.Done():
		}
	}
}

// stop ends all processes.
func (d *deployment) stop() {
	for _, p := range d.processes {
		p.cancel()
	}
	for _, p := range d.processes {
		p.running.Wait()
	}
	for _, p := range d.processes {
		_ = p.machine.Close() // some were killed
	}
}

// halt stops a process's goroutines, and leaves the machine as it is.
func (p *process) halt() {
	p.cancel()
	p.running.Wait()
}

func (d *deployment) at(name order.Replica) *process {
	return d.processes[slices.IndexFunc(d.processes, func(p *process) bool {
		return p.name == name
	})]
}

// members returns the processes of a group.
func (d *deployment) members(group order.GroupID) []*process {
	var members []*process
	for _, p := range d.processes {
		if p.name.Group == group {
			members = append(members, p)
		}
	}
	return members
}

// lead tells all replicas of a group their leader.
func (d *deployment) lead(group order.GroupID, server order.ServerID) {
	for _, p := range d.members(group) {
		p.do(func() { p.replica.Lead(server) })
	}
}

// record is a history that several goroutines write.
type record struct {
	mu        sync.Mutex
	history   *order.History
	delivered map[order.MessageID]map[order.Replica]bool
}

func newRecord(tree *tram.Tree, size int) *record {
	sizes := make([]int, tree.Groups())
	for i := range sizes {
		sizes[i] = size
	}
	return &record{history: order.NewHistory(sizes...),
		delivered: make(map[order.MessageID]map[order.Replica]bool)}
}

func (r *record) submit(id order.MessageID, to []order.GroupID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.history.Submit(id, to...)
	r.delivered[id] = make(map[order.Replica]bool)
}

func (r *record) deliver(at order.Replica, m order.Multicast) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.history.Deliver(at, m.ID)
	r.delivered[m.ID][at] = true
}

// lacking returns what a replica lacks, or "".
func (r *record) lacking(sent map[order.MessageID][]order.GroupID, size int,
	gone map[order.Replica]bool) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, to := range sent {
		for _, group := range to {
			for server := range size {
				at := order.Replica{Group: group, Server: order.ServerID(server)}
				if !gone[at] && !r.delivered[id][at] {
					return fmt.Sprintf("%v lacks %v to %v", at, id, to)
				}
			}
		}
	}
	return ""
}

// multicast makes a client multicast, waiting for room.
func (d *deployment) multicast(ctx context.Context, client *process, m order.Multicast) error {
	for {
		done := make(chan error, 1)
		client.do(func() { done <- client.client.Multicast(m) })
		select {
		case err := <-done:
			if !errors.Is(err, order.ErrNotNow) {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
		select {
		case <-time.After(100 * time.Microsecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// describe describes all processes. The goroutines have ended.
func (d *deployment) describe() string {
	var text strings.Builder
	for _, p := range d.processes {
		fmt.Fprintf(&text, "%v: %v\n", p.name, p.machine)
	}
	return text.String()
}
