package replica

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/protected"
	"github.com/ledgerd/ledgerd/protected/protectedtest"
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
		protectedtest.Attach(g.hosts[i], r)
	}
}

// leave puts entry 1 into a replica's log, as if an earlier leader had left it behind.
func (g *group) leave(server int, counter uint64, number uint64, message []byte) {
	g.leaveEntry(server, counter, 1, number, message)
}

// leaveAt puts an entry into a replica's log, whose number is its index.
func (g *group) leaveAt(server int, counter, index uint64, message []byte) {
	g.leaveEntry(server, counter, index, index, message)
}

func (g *group) leaveEntry(server int, counter, index, number uint64, message []byte) {
	g.replicas[server].put(header{timestamp: protected.MakeTimestamp(counter, 9),
		source: sourceClients, length: len(message), number: number, index: index}, message)
}

// TestRewrittenEntries makes a leader take over a group in which two replicas hold different
// entries of one index, and one holds the same entry as the leader. At no instant is an entry in
// any log a mix of two, and a message that stays is never gone: a revocation may come at any
// instant, and the entry must be intact then.
func TestRewrittenEntries(t *testing.T) {
	t.Parallel()
	stays, goes := slices.Repeat([]byte("stays"), 100),
		slices.Repeat([]byte("goes, and is longer"), 30)
	run := func(seed uint64, fault Fault) error {
		g := newGroup(t, seed, 3, Options{PayloadMax: 700, Fault: fault})
		g.leave(0, 2, 2, stays)
		g.leave(1, 1, 1, goes)
		g.leave(2, 2, 2, stays)
		g.replicas[0].Lead(0)
		done := func() bool {
			return g.replicas[0].Status().Ordered >= 2 &&
				g.replicas[1].at(1).timestamp == g.replicas[2].at(1).timestamp
		}
		var tick func() // so that there is always a next event
		tick = func() { g.network.After(5*time.Microsecond, tick) }
		tick()
		for g.network.Now() < 50*time.Millisecond && !done() {
			g.network.Step()
			g.poll()
			for server, r := range g.replicas {
				h := r.at(1)
				if h.index == 0 && server != 1 {
					return fmt.Errorf("replica %d: a message that may be ordered is gone", server)
				}
				if h.index == 0 {
					continue
				}
				if message := string(r.message(h)); message != string(stays) &&
					message != string(goes) {
					return fmt.Errorf("replica %d: entry %+v is neither of the two: %.60q...",
						server, h, message)
				}
			}
		}
		if !done() {
			return fmt.Errorf("not done: %v", g.replicas[0])
		}
		return nil
	}
	for seed := range uint64(30) {
		if err := run(seed, FaultNone); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
	for seed := range uint64(30) {
		if err := run(seed, FaultRewrittenInPlace); err != nil {
			t.Logf("planted: %v", err)
			return
		}
	}
	t.Error("entries that are rewritten in place are not noticed")
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
