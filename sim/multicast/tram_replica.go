package multicast

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/protected"
	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/tram/replica"
)

// goneAfter is the time without work after which a group gives up a replica. It is longer than any
// hang that ends, and than any pace.
const goneAfter = 10 * time.Millisecond

// tramReplicas is TRAM as in the paper: tram/replica on regions.
type tramReplicas struct {
	world   *World
	servers map[order.Replica]*replica.Replica
	clients map[order.Replica]*tramClient
	// worked is when each replica last worked. It serves as a detector of permanently lost replicas
	// that never errs, which a log of finite length needs besides the leader oracle.
	worked map[order.Replica]time.Duration
}

// tramClient is a client, with the messages that it had no room for.
type tramClient struct {
	*replica.Client
	waiting []order.Multicast
}

// tramPlants names the bugs that can be planted, and that seeds show. Others show only between two
// words of an entry, or if a fabric is late with completions: the tests of package replica plant
// them, and look at every instant.
func tramPlants() []string {
	var names []string
	for _, fault := range replica.Faults() {
		switch fault {
		case replica.FaultRewrittenInPlace, replica.FaultFirstHole, replica.FaultOwnMarkKept,
			replica.FaultLentReused:
		default:
			names = append(names, fault.String())
		}
	}
	return names
}

func newTRAMReplicas(world *World, plant string) (Form, error) {
	d := world.Deployment()
	t := &tramReplicas{world: world, servers: map[order.Replica]*replica.Replica{},
		clients: map[order.Replica]*tramClient{}, worked: map[order.Replica]time.Duration{}}
	options := replica.Options{
		Tree: d.Tree, Replicas: make([][]rdmanet.Peer, d.Groups()), PayloadMax: d.PayloadMax,
		BufferSlots: d.Slots, Window: max(d.Slots/2, 1), LogSlots: 2 * max(d.Slots/2, 1) * 2,
		Patience: d.Patience, Quiet: d.Patience / 8,
	}
	for _, fault := range replica.Faults() {
		if plant == fault.String() {
			options.Fault = fault
		}
	}
	for _, process := range d.Processes() {
		host, err := world.Host(process)
		if err != nil {
			return nil, err
		}
		peer := rdmanet.Peer{ID: host.ID(), Incarnation: host.Incarnation()}
		if process.Group == order.Clients {
			options.Clients = append(options.Clients, peer)
		} else {
			options.Replicas[process.Group] = append(options.Replicas[process.Group], peer)
		}
	}
	for _, process := range d.Processes() {
		host, err := world.Host(process)
		if err != nil {
			return nil, err
		}
		own := options
		own.Note = func(format string, arguments ...any) {
			world.Note(process, format, arguments...)
		}
		if process.Group == order.Clients {
			client, err := replica.NewClient(own, process.Server, host)
			if err != nil {
				return nil, err
			}
			t.clients[process] = &tramClient{Client: client}
			continue
		}
		if t.servers[process], err = replica.New(own, process, host); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// Submit makes the client multicast, now or when it has room.
func (t *tramReplicas) Submit(client order.Replica, m order.Multicast) {
	c := t.clients[client]
	c.waiting = append(c.waiting, m)
	c.submit()
}

func (c *tramClient) submit() {
	for len(c.waiting) > 0 {
		err := c.Multicast(c.waiting[0])
		switch {
		case errors.Is(err, order.ErrNotNow):
			return
		case err != nil:
			panic(fmt.Sprintf("a client refuses a message: %v", err))
		}
		c.waiting = c.waiting[1:]
	}
}

// Lead sets a replica's leader.
func (t *tramReplicas) Lead(at order.Replica, leader order.ServerID) { t.servers[at].Lead(leader) }

// Poll makes a process work.
func (t *tramReplicas) Poll(at order.Replica) {
	host, err := t.world.Host(at)
	if err != nil {
		panic(fmt.Sprintf("the host of %v: %v", at, err))
	}
	if c := t.clients[at]; c != nil {
		c.Complete(t.world.Now())
		c.submit()
		c.Poll(t.world.Now())
		attachWanted(host, c)
		return
	}
	r := t.servers[at]
	t.worked[at] = t.world.Now()
	for _, member := range t.world.Deployment().Members(at.Group) {
		if t.world.Now()-t.worked[member] > goneAfter {
			r.Exclude(member.Server)
		}
	}
	r.Poll(t.world.Now())
	attachWanted(host, r)
	for _, m := range r.Delivered() {
		t.world.Deliver(at, m)
	}
}

// attachWanted makes the attachments that a machine wants. That takes no time here.
func attachWanted(host rdmanet.RegionHost, machine interface {
	Wanted() []protected.Want
	Attached(number uint64, attachment rdmanet.Attachment, err error)
}) {
	for _, want := range machine.Wanted() {
		attachment, err := host.Attach(context.Background(), want.Peer, want.Region)
		machine.Attached(want.Number, attachment, err)
	}
}

// copiedReplica is the saved state of a replica.
type copiedReplica struct {
	machine *replica.Replica
	worked  time.Duration
}

// Copy returns a copy of a process's state.
func (t *tramReplicas) Copy(at order.Replica) any {
	if c := t.clients[at]; c != nil {
		return c.copy()
	}
	return copiedReplica{t.servers[at].Copy(), t.worked[at]}
}

func (c *tramClient) copy() *tramClient {
	return &tramClient{Client: c.Client.Copy(), waiting: slices.Clip(c.waiting)}
}

// PutBack restores a process's state. Its reads under way lead to its new memory.
func (t *tramReplicas) PutBack(at order.Replica, copied any) {
	redirect := func(tag uint64, into []byte) { t.world.redirect(at, tag, into) }
	switch known := copied.(type) {
	case *tramClient:
		t.clients[at] = known.copy()
		t.clients[at].Reads(redirect)
	case copiedReplica:
		t.servers[at], t.worked[at] = known.machine.Copy(), known.worked
		t.servers[at].Reads(redirect)
	}
}

// Complete makes a process handle its completions.
func (t *tramReplicas) Complete(at order.Replica) {
	if c := t.clients[at]; c != nil {
		c.Client.Complete(t.world.Now())
		return
	}
	t.servers[at].Complete(t.world.Now())
}

// Awaits reports whether a process waits for a completion.
func (t *tramReplicas) Awaits(at order.Replica, tag uint64) bool {
	if c := t.clients[at]; c != nil {
		return c.Client.Awaits(tag)
	}
	return t.servers[at].Awaits(tag)
}

// AppendOperation appends a description of an operation of a process.
func (t *tramReplicas) AppendOperation(state []byte, at order.Replica, tag uint64) []byte {
	if c := t.clients[at]; c != nil {
		return c.Client.AppendOperation(state, tag)
	}
	return t.servers[at].AppendOperation(state, tag)
}

// AppendState appends the process's state. Whether it is given up follows from when it last worked.
func (t *tramReplicas) AppendState(state []byte, at order.Replica) []byte {
	now := t.world.Now()
	if c := t.clients[at]; c != nil {
		for _, m := range c.waiting {
			state = replica.AppendMessage(state, m)
		}
		return c.Client.AppendState(state, now)
	}
	state = binary.AppendUvarint(state, uint64(min(now-t.worked[at], goneAfter+1)))
	return t.servers[at].AppendState(state, now)
}

// Describe describes the process's state.
func (t *tramReplicas) Describe(at order.Replica) string {
	if c := t.clients[at]; c != nil {
		return c.String()
	}
	return t.servers[at].String()
}
