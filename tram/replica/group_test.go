package replica

import (
	"context"
	"fmt"
	"testing"

	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/protected"
	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/sim/fabric"
	"github.com/ledgerd/ledgerd/tram"
)

// group is one group of replicas in virtual time, polled by the test.
type group struct {
	network  *fabric.Network
	hosts    []rdmanet.RegionHost
	replicas []*Replica
}

func newGroup(t *testing.T, seed uint64, size int, options Options) *group {
	t.Helper()
	same := func(_ int, host rdmanet.RegionHost) rdmanet.RegionHost { return host }
	return newGroupOn(t, seed, size, options, same)
}

// newGroupOn returns a group on what wrap makes of the hosts.
func newGroupOn(t *testing.T, seed uint64, size int, options Options,
	wrap func(number int, host rdmanet.RegionHost) rdmanet.RegionHost) *group {
	t.Helper()
	g := &group{network: fabric.New(fabric.Options{Seed: seed})}
	t.Cleanup(g.network.Close)
	options.Tree, options.Replicas = tram.Breadth(1), make([][]rdmanet.Peer, 1)
	for i := range size + 1 { // the last is a client's
		host, err := g.network.Start(rdmanet.PeerID(fmt.Sprint(i)))
		if err != nil {
			t.Fatal(err)
		}
		g.hosts = append(g.hosts, wrap(i, host))
		if i == size {
			options.Clients = []rdmanet.Peer{host.Peer()}
		} else {
			options.Replicas[0] = append(options.Replicas[0], host.Peer())
		}
	}
	for i := range size {
		r, err := New(options, order.Replica{Server: order.ServerID(i)}, g.hosts[i])
		if err != nil {
			t.Fatal(err)
		}
		g.replicas = append(g.replicas, r)
	}
	return g
}

// poll makes all replicas work, and makes the attachments that they want.
func (g *group) poll() {
	for i, r := range g.replicas {
		r.Poll(g.network.Now())
		attach(g.hosts[i], r)
	}
}

// attach makes the attachments that a machine wants.
func attach(host rdmanet.RegionHost, machine protected.Machine) {
	for _, want := range machine.Wanted() {
		attachment, err := host.Attach(context.Background(), want.Peer, want.Region)
		machine.Attached(want.Number, attachment, err)
	}
}

// TestOptions checks that inconsistent options are refused with the reason.
func TestOptions(t *testing.T) {
	t.Parallel()
	good := func() Options {
		return Options{Tree: tram.Breadth(1),
			Replicas: [][]rdmanet.Peer{{{ID: "0", Incarnation: 1}}}}
	}
	network := fabric.New(fabric.Options{})
	t.Cleanup(network.Close)
	host, err := network.Start("0")
	if err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*Options){
		"no tree":          func(o *Options) { o.Tree = nil },
		"too few groups":   func(o *Options) { o.Tree = tram.Breadth(2) },
		"an empty group":   func(o *Options) { o.Replicas = [][]rdmanet.Peer{{}} },
		"one buffer slot":  func(o *Options) { o.BufferSlots = 1 },
		"a wide window":    func(o *Options) { o.Window, o.LogSlots = 10, 19 },
		"no window":        func(o *Options) { o.Window = -1 },
		"a huge region":    func(o *Options) { o.PayloadMax, o.LogSlots = 1<<20, 1<<20 },
		"a span below 0":   func(o *Options) { o.Patience = -1 },
		"a payload beyond": func(o *Options) { o.PayloadMax = rdmanet.RegionSizeMax },
	} {
		o := good()
		spoil(&o)
		if _, err := New(o, order.Replica{}, host); err == nil {
			t.Errorf("%s passes", name)
		}
	}
	for _, self := range []order.Replica{{Server: 1}, {Group: 1}, {Group: order.Clients}} {
		if _, err := New(good(), self, host); err == nil {
			t.Errorf("replica %v passes", self)
		}
	}
	if _, err := NewClient(good(), 0, host); err == nil {
		t.Error("a client that there is none of passes")
	}
	r, err := New(good(), order.Replica{}, host)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}
