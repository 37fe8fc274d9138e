package driver_test

import (
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/allconcur"
	"github.com/ledgerd/ledgerd/node/detector"
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/rdmanet/memory"
	"github.com/ledgerd/ledgerd/rdmanet/p2p"
)

// flow keeps a cluster under load. It submits a batch at each server whenever its last one was
// delivered there. It counts the submitted batches.
type flow struct {
	stop chan struct{}
	work sync.WaitGroup
	sent int
}

func (c *cluster) flow(servers []int) *flow {
	f := &flow{stop: make(chan struct{})}
	f.work.Go(func() {
		for number := 0; ; number++ {
			before := c.nodes[servers[0]].book.count()
			for _, i := range servers {
				c.nodes[i].pool.submit(batch(i, 1_000_000+number, 100))
				f.sent++
			}
			for c.nodes[servers[0]].book.count() == before {
				select {
				case <-f.stop:
					return
				case <-time.After(time.Millisecond):
				}
			}
		}
	})
	return f
}

func (f *flow) end() int {
	close(f.stop)
	f.work.Wait()
	return f.sent
}

// calmTiming is for tests in which no server fails: even a machine that is busy for long causes no
// suspicions.
var calmTiming = detector.Timing{Heartbeat: 100 * time.Millisecond, Timeout: patience,
	Grace: patience}

// eventualTiming suspects soon because of a connection that is down. It suspects because of silence
// within the tests' patience, but later than a busy machine needs for a heartbeat.
var eventualTiming = detector.Timing{Heartbeat: 20 * time.Millisecond, Timeout: 4 * time.Second,
	Grace: 100 * time.Millisecond}

// trusting waits until the servers run unreliable rounds without suspicions.
func (c *cluster) trusting(servers []int) {
	c.t.Helper()
	for _, i := range servers {
		eventually(c.t, fmt.Sprintf("server %d is in unreliable mode and suspects nobody",
			i), func() bool {
			status := c.nodes[i].driver.Status()
			return status.Running && !status.Engine.Reliable && len(status.Engine.Suspected) == 0
		})
	}
}

// reliable waits until a server runs reliable rounds.
func (c *cluster) reliable(server int) {
	c.t.Helper()
	eventually(c.t, fmt.Sprintf("server %d runs reliable rounds", server), func() bool {
		return c.nodes[server].driver.Status().Engine.Reliable
	})
}

// A wrong suspicion is taken back, no server is removed, and the group returns to unreliable
// rounds.
func TestFalseSuspicionIsRevoked(t *testing.T) {
	t.Parallel()
	for _, servers := range []int{3, 5, 8} {
		t.Run(fmt.Sprint(servers), func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, clusterOptions{engine: allconcur.EngineAllConcurPlus,
				servers: servers})
			c.activate(1, c.all())
			load := c.flow(c.all())
			suspect := reliable(t, servers).Predecessors(0)[0]
			for range 3 {
				c.nodes[0].driver.Suspect(1, order.ServerID(suspect), errors.New("a mistake"))
				c.reliable(1)
				c.nodes[0].driver.Trust(1, order.ServerID(suspect))
				c.trusting(c.all())
			}
			sent := load.end()
			for i, n := range c.nodes {
				eventually(t, fmt.Sprintf("server %d delivers all", i), func() bool {
					return n.book.count() == sent
				})
				if removed := n.book.removals(); len(removed) > 0 {
					t.Errorf("server %d removed %v", i, removed)
				}
			}
			c.sameBooks(c.all(), sent)
		})
	}
}

// A link that is cut for longer than the grace makes both ends suspect each other. When it is back
// before its lanes are given up, they trust each other again.
func TestCutLinkIsForgiven(t *testing.T) {
	t.Parallel()
	c := newCluster(t, clusterOptions{engine: allconcur.EngineAllConcurPlus, servers: 5,
		timing: eventualTiming, memory: memory.Options{MendTimeout: time.Hour}})
	c.activate(1, c.all())
	load := c.flow(c.all())
	eventually(t, "rounds run", func() bool { return c.nodes[0].book.count() > 50 })
	c.network.Cut(c.peers[1], c.peers[2])
	c.reliable(0)
	before := c.nodes[3].book.count()
	eventually(t, "the group goes on around the cut", func() bool {
		return c.nodes[3].book.count() > before+50 && c.nodes[1].book.count() > before+50
	})
	c.network.Mend(c.peers[1], c.peers[2])
	c.trusting(c.all())
	sent := load.end()
	for i, n := range c.nodes {
		eventually(t, fmt.Sprintf("server %d delivers all", i), func() bool {
			return n.book.count() == sent
		})
		if removed := n.book.removals(); len(removed) > 0 {
			t.Errorf("server %d removed %v", i, removed)
		}
	}
	c.sameBooks(c.all(), sent)
}

// A minority that is cut off stops, says so, and continues when the link is back. No server decided
// anything without the other side's majority.
func TestPartitionStopsTheMinority(t *testing.T) {
	t.Parallel()
	c := newCluster(t, clusterOptions{engine: allconcur.EngineAllConcurPlus, servers: 5,
		timing: eventualTiming, memory: memory.Options{MendTimeout: time.Hour}})
	c.activate(1, c.all())
	c.deliverSome(c.all(), 0, 10)
	minority, majority := []int{3, 4}, []int{0, 1, 2}
	for _, i := range minority {
		for _, k := range majority {
			c.network.Cut(c.peers[i], c.peers[k])
		}
	}
	for number := range 10 {
		c.nodes[0].pool.submit(batch(0, 100+number, 100))
	}
	for _, i := range majority {
		eventually(t, fmt.Sprintf("server %d goes on", i), func() bool {
			return c.nodes[i].book.count() >= 60
		})
		if got := c.nodes[i].book.removals(); !slices.Equal(got, []order.ServerID{3, 4}) {
			t.Errorf("server %d removed %v", i, got)
		}
	}
	c.nodes[3].pool.submit(batch(3, 200, 100))
	for _, i := range minority {
		eventually(t, fmt.Sprintf("server %d sees that it is outside of the majority",
			i), func() bool {
			status := c.nodes[i].driver.Status()
			return status.OutsideMajority && status.Stalled(time.Now()) > 200*time.Millisecond
		})
		if got := c.nodes[i].book.count(); got != 50 {
			t.Errorf("server %d delivered %d", i, got)
		}
	}
	c.sameBooks(majority, 60)
	c.cutAll(false)
}

// Every link is cut for longer than lanes are mended. The run is lost everywhere, and the next run
// works over fresh lanes.
func TestNextRunAfterALongPartition(t *testing.T) {
	t.Parallel()
	c := newCluster(t, clusterOptions{engine: allconcur.EngineAllConcurPlus, servers: 4,
		memory: memory.Options{MendTimeout: time.Second}})
	c.activate(1<<16, c.all())
	c.deliverSome(c.all(), 0, 10)
	c.cutAll(true)
	c.nodes[0].pool.submit(batch(0, 100, 100))
	c.nextRunAfterPartition(func() { c.cutAll(false) })
}

func (c *cluster) cutAll(cut bool) {
	for i, a := range c.peers {
		for _, b := range c.peers[i+1:] {
			if cut {
				c.network.Cut(a, b)
			} else {
				c.network.Mend(a, b)
			}
		}
	}
}

// nextRunAfterPartition waits until all servers lost each other, heals, and continues with a run in
// which everything works.
func (c *cluster) nextRunAfterPartition(heal func()) {
	t := c.t
	t.Helper()
	servers := len(c.nodes)
	already := c.nodes[0].book.count()
	for i, n := range c.nodes {
		n.pool.submit(batch(i, 500, 100)) // so that each has something to send
		eventually(t, fmt.Sprintf("server %d lost the others", i), func() bool {
			return len(n.driver.Status().Lost) == servers-1
		})
		eventually(t, fmt.Sprintf("server %d is stalled", i), func() bool {
			return n.driver.Status().Stalled(time.Now()) > 100*time.Millisecond
		})
	}
	for i, n := range c.nodes {
		remains := n.driver.Freeze()
		for _, vote := range remains.Votes {
			for _, message := range vote.Delivery.Messages {
				// There is no synod here to find out what became of it.
				if len(message.Payload) > 0 {
					t.Fatalf("server %d: %+v", i, vote)
				}
			}
		}
		n.detector.Deactivate()
	}
	heal()
	c.connected()
	waiting := 0 // of the batches that are not lost with the run
	for _, n := range c.nodes {
		waiting += n.pool.waiting()
	}
	c.activateFrom(2<<16, 1000, c.all())
	c.deliverSome(c.all(), already+waiting, 10)
	c.sameBooks(c.all(), already+waiting+10*servers)
	c.trusting(c.all())
	for i, n := range c.nodes {
		if status := n.driver.Status(); len(status.Lost) > 0 {
			t.Errorf("server %d: %+v", i, status)
		}
	}
}

// overP2P makes hosts that know each other. They mend their lanes as long as a test waits.
func overP2P(t *testing.T, servers int) ([]*p2p.Host, map[rdmanet.PeerID]string) {
	t.Helper()
	hosts := make([]*p2p.Host, servers)
	members := make(map[rdmanet.PeerID]string)
	for i := range hosts {
		key, err := p2p.NewIdentity(rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		if hosts[i], err = p2p.New(p2p.Options{PrivateKey: key, Listen: "127.0.0.1:0",
			MendTimeout: patience}); err != nil {
			t.Fatal(err)
		}
		members[hosts[i].ID()] = hosts[i].Address()
	}
	for _, host := range hosts {
		if err := host.SetMembers(members); err != nil {
			t.Fatal(err)
		}
	}
	return hosts, members
}

func TestNextRunAfterALongPartitionOverP2P(t *testing.T) {
	t.Parallel()
	hosts, members := overP2P(t, 3)
	options := clusterOptions{engine: allconcur.EngineAllConcurPlus, servers: 3}
	for _, host := range hosts {
		options.hosts = append(options.hosts, host)
	}
	c := newCluster(t, options)
	c.activate(1<<16, c.all())
	c.deliverSome(c.all(), 0, 10)
	for _, host := range hosts {
		if err := host.SetMembers(map[rdmanet.PeerID]string{host.ID(): host.Address()}); err !=
			nil {
			t.Fatal(err)
		}
	}
	c.nextRunAfterPartition(func() {
		for _, host := range hosts {
			if err := host.SetMembers(members); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// Connections that break under load are mended, and no suspicion lasts.
func TestSeveredConnections(t *testing.T) {
	t.Parallel()
	hosts, _ := overP2P(t, 3)
	options := clusterOptions{engine: allconcur.EngineAllConcurPlus, servers: 3}
	for _, host := range hosts {
		options.hosts = append(options.hosts, host)
	}
	c := newCluster(t, options)
	c.activate(1, c.all())
	load := c.flow(c.all())
	for turn := range 9 {
		before := c.nodes[0].book.count()
		if err := hosts[turn%3].Sever(hosts[(turn+1)%3].ID()); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the group goes on", func() bool {
			return c.nodes[0].book.count() > before+9
		})
	}
	c.trusting(c.all())
	sent := load.end()
	for i, n := range c.nodes {
		eventually(t, fmt.Sprintf("server %d delivers all", i), func() bool {
			return n.book.count() == sent
		})
		if status := n.driver.Status(); len(status.Lost) > 0 || len(n.book.removals()) > 0 {
			t.Errorf("server %d: %+v", i, status)
		}
	}
	c.sameBooks(c.all(), sent)
}

// One link is cut for good while all rounds are reliable. The frames that wait on its lanes exceed
// every bound. Its ends give each other up, and the group continues with all its members.
func TestOneLinkIsGivenUp(t *testing.T) {
	t.Parallel()
	c := newCluster(t, clusterOptions{engine: allconcur.EngineAllConcur, servers: 5,
		timing: eventualTiming,
		memory: memory.Options{MendTimeout: time.Hour, WindowFrames: 16}})
	c.activate(1, c.all())
	c.network.Cut(c.peers[1], c.peers[2])
	load := c.flow(c.all())
	for i, other := range map[int]order.ServerID{1: 2, 2: 1} {
		eventually(t, fmt.Sprintf("server %d gives server %d up", i, other), func() bool {
			return slices.Equal(c.nodes[i].driver.Status().Lost, []order.ServerID{other})
		})
	}
	before := c.nodes[0].book.count()
	eventually(t, "the group goes on", func() bool { return c.nodes[0].book.count() > before+100 })
	c.network.Mend(c.peers[1], c.peers[2])
	sent := load.end()
	for i, n := range c.nodes {
		eventually(t, fmt.Sprintf("server %d delivers all", i), func() bool {
			return n.book.count() == sent
		})
		if status := n.driver.Status(); !status.Running || len(n.book.removals()) > 0 {
			t.Errorf("server %d: %+v", i, status)
		}
	}
	c.sameBooks(c.all(), sent)
}
