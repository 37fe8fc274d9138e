package replica_test

import (
	"context"
	"crypto/ed25519"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/rdmanet/memory"
	"github.com/ledgerd/ledgerd/rdmanet/p2p"
	"github.com/ledgerd/ledgerd/tram"
	"github.com/ledgerd/ledgerd/tram/replica"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memoryHosts starts hosts in this process. kill ends one as a crash does.
func memoryHosts(tb testing.TB, count int) (hosts []rdmanet.RegionHost, kill func(int)) {
	tb.Helper()
	network := memory.NewNetwork(memory.Options{MendTimeout: 50 * time.Millisecond})
	for i := range count {
		host, err := network.Host(rdmanet.PeerID("host-" + strconv.Itoa(i)))
		if err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(func() { closeHost(tb, host) })
		hosts = append(hosts, host)
	}
	return hosts, func(i int) { network.Kill(hosts[i].ID()) }
}

func closeHost(tb testing.TB, host rdmanet.Host) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := host.Close(ctx); err != nil {
		tb.Errorf("close %s: %v", host.ID(), err)
	}
}

// p2pHosts starts hosts on loopback. kill closes one.
func p2pHosts(tb testing.TB, count int) (hosts []rdmanet.RegionHost, kill func(int)) {
	tb.Helper()
	members := map[rdmanet.PeerID]string{}
	var all []*p2p.Host
	for i := range count {
		seed := make([]byte, ed25519.SeedSize)
		seed[0], seed[1] = byte(i), 77
		host, err := p2p.New(p2p.Options{PrivateKey: ed25519.NewKeyFromSeed(seed),
			Listen: "127.0.0.1:0", MembersMax: count, MendTimeout: time.Second})
		if err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(func() { closeHost(tb, host) })
		members[host.ID()] = host.Address()
		all = append(all, host)
		hosts = append(hosts, host)
	}
	for _, host := range all {
		if err := host.SetMembers(members); err != nil {
			tb.Fatal(err)
		}
	}
	return hosts, func(i int) { closeHost(tb, hosts[i]) }
}

// TestFabrics runs groups with a goroutine for each process on real fabrics, while a leader crashes
// and another is replaced.
func TestFabrics(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name     string
		tree     *tram.Tree
		hosts    func(testing.TB, int) ([]rdmanet.RegionHost, func(int))
		clients  int
		messages int // of each client
		payload  int
		options  replica.Options
	}{
		{"memory, breadth", tram.Breadth(4), memoryHosts, 2, 300, 64, replica.Options{}},
		{"memory, chain, small buffers", tram.Chain(3), memoryHosts, 3, 300,
			300, replica.Options{BufferSlots: 4, Window: 2, LogSlots: 8}},
		{"p2p", tram.Chain(2), p2pHosts, 1, 100, 200,
			replica.Options{Patience: 20 * time.Millisecond}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			const size = 3
			// a busy machine
			ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
			defer cancel()
			groups := test.tree.Groups()
			hosts, kill := test.hosts(t, groups*size+test.clients)
			d := newDeployment(t, test.tree, size, test.clients, test.options, hosts, 20)
			record := newRecord(test.tree, size)
			d.delivered = record.deliver
			d.run()
			for group := range groups {
				d.lead(order.GroupID(group), 0)
			}
			sent := make([]map[order.MessageID][]order.GroupID, test.clients)
			var clients sync.WaitGroup
			half := make(chan struct{}, test.clients)
			for client := range test.clients {
				sent[client] = map[order.MessageID][]order.GroupID{}
				clients.Go(func() {
					random := rand.New(rand.NewPCG(uint64(client), 1))
					p := d.at(order.Replica{Group: order.Clients, Server: order.ServerID(client)})
					for sequence := range test.messages {
						var to []order.GroupID
						for _, group := range random.Perm(groups)[:1+random.IntN(groups)] {
							to = append(to, order.GroupID(group))
						}
						slices.Sort(to)
						m := order.Multicast{ID: order.MessageID{Sender: p.name,
							Sequence: uint64(sequence + 1)}, To: to,
							Payload: make([]byte, random.IntN(test.payload+1))}
						record.submit(m.ID, to)
						sent[client][m.ID] = to
						if err := d.multicast(ctx, p, m); err != nil {
							t.Errorf("client %d, message %d: %v", client, sequence+1, err)
							return
						}
						if sequence == test.messages/2 {
							half <- struct{}{}
						}
					}
				})
			}
			// The root's leader crashes, and the last group's is replaced.
			select {
			case <-half:
			case <-ctx.Done():
			}
			gone := order.Replica{}
			d.at(gone).halt()
			kill(0)
			record.mu.Lock()
			record.history.Fail(gone)
			record.mu.Unlock()
			for _, p := range d.members(0)[1:] {
				p.do(func() {
					p.replica.Lead(1)
					p.replica.Exclude(0)
				})
			}
			d.lead(order.GroupID(groups-1), 2)
			clients.Wait()
			all := map[order.MessageID][]order.GroupID{}
			for _, own := range sent {
				for id, to := range own {
					all[id] = to
				}
			}
			lacking := ""
			for {
				if lacking = record.lacking(all, size,
					map[order.Replica]bool{gone: true}); lacking == "" {
					break
				}
				select {
				case <-time.After(time.Millisecond):
					continue
				case <-ctx.Done():
				}
				break
			}
			for _, p := range d.processes {
				p.halt()
			}
			if lacking != "" {
				t.Errorf("%s\n%s", lacking, d.describe())
			}
			for _, broken := range record.history.Judge(order.AtRest) {
				t.Error(broken)
			}
		})
	}
}
