package driver_test

import (
	"encoding/binary"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/allconcur"
	"github.com/ledgerd/ledgerd/node/detector"
	"github.com/ledgerd/ledgerd/node/driver"
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/rdmanet/memory"
)

func TestServersDeliverTheSame(t *testing.T) {
	t.Parallel()
	const batches = 40
	for _, engine := range []string{allconcur.EngineAllConcurPlus, allconcur.EngineAllConcur} {
		for servers := 1; servers <= 7; servers++ {
			t.Run(fmt.Sprintf("%s/%d", engine, servers), func(t *testing.T) {
				t.Parallel()
				c := newCluster(t, clusterOptions{engine: engine, servers: servers})
				c.activate(1, c.all())
				c.deliverSome(c.all(), 0, batches)
				c.sameBooks(c.all(), servers*batches)
			})
		}
	}
}

// deliverSome submits that many batches at every server and waits until all of them deliver them.
func (c *cluster) deliverSome(servers []int, already, batches int) {
	c.t.Helper()
	for _, i := range servers {
		for number := range batches {
			c.nodes[i].pool.submit(batch(i, number, 100))
		}
	}
	for _, i := range servers {
		eventually(c.t, fmt.Sprintf("server %d delivers all", i), func() bool {
			return c.nodes[i].book.count() >= already+len(servers)*batches
		})
	}
}

// An idle group is silent. A single transaction in it is delivered everywhere without another one
// after it.
func TestLastTransactionIsNotStuck(t *testing.T) {
	t.Parallel()
	// A linger of an hour: the server that A-broadcast it must not wait for that.
	c := newCluster(t, clusterOptions{engine: allconcur.EngineAllConcurPlus, servers: 5,
		driver: driver.Config{Linger: time.Hour}})
	c.activate(1, c.all())
	for number := 1; number <= 20; number++ {
		c.nodes[number%5].pool.submit(batch(number%5, number, 64))
		for i, n := range c.nodes {
			eventually(t, fmt.Sprintf("server %d delivers transaction %d", i, number), func() bool {
				return n.book.count() == number
			})
		}
	}
	c.sameBooks(c.all(), 20)
	for i, n := range c.nodes {
		eventually(t, "the last status", func() bool {
			return n.driver.Status().Traffic.Messages == 20
		})
		if traffic := n.driver.Status().Traffic; traffic.Broadcasts > 20*4 {
			t.Errorf("server %d A-broadcast %d messages for 20 transactions one after the other", i,
				traffic.Broadcasts)
		}
	}
}

// Batches that a source has only for rounds that take place anyway go into those, with the numbers
// that it is told. They begin no rounds, and the rounds that deliver them come to an end.
func TestRoundSource(t *testing.T) {
	t.Parallel()
	c := newCluster(t, clusterOptions{engine: allconcur.EngineAllConcurPlus, servers: 3,
		driver: driver.Config{Linger: time.Hour}})
	for _, n := range c.nodes {
		n.pool.repeat = func(round uint64) []byte {
			if round%4 != 0 {
				return nil
			}
			return binary.BigEndian.AppendUint64(nil, round)
		}
	}
	c.activate(1, c.all())
	const batches = 20
	for number := 1; number <= batches; number++ {
		c.nodes[0].pool.submit(batch(0, number, 64))
		eventually(t, fmt.Sprintf("transaction %d is delivered", number), func() bool {
			return len(c.nodes[1].book.said(64)) == number
		})
	}
	rounds, changed := uint64(0), time.Now()
	eventually(t, "rounds come to an end", func() bool {
		if now := c.nodes[1].driver.Status().Traffic.Rounds; now != rounds {
			rounds, changed = now, time.Now()
		}
		return rounds > 0 && time.Since(changed) > 5*driver.StatusInterval
	})
	if rounds > 6*batches {
		t.Errorf("%d rounds for %d batches", rounds, batches)
	}
	shared := 0
	for round, origins := range c.nodes[1].book.said(8) {
		if round%4 != 0 {
			t.Errorf("servers %d repeat in round %d", origins, round)
		}
		if len(origins) >= 2 {
			shared++
		}
	}
	if shared == 0 {
		t.Error("no two servers repeat in one round")
	}
}

func TestCrash(t *testing.T) {
	t.Parallel()
	for _, engine := range []string{allconcur.EngineAllConcurPlus, allconcur.EngineAllConcur} {
		for _, servers := range []int{3, 4, 5, 7} {
			t.Run(fmt.Sprintf("%s/%d", engine, servers), func(t *testing.T) {
				t.Parallel()
				c := newCluster(t, clusterOptions{engine: engine, servers: servers,
					memory: memory.Options{MendTimeout: time.Second},
					timing: detector.Timing{Heartbeat: 50 * time.Millisecond,
						Timeout: 20 * time.Second, Grace: 100 * time.Millisecond}})
				c.activate(1, c.all())
				c.deliverSome(c.all(), 0, 10)
				dead := servers - 1
				for number := range 20 { // under load
					c.nodes[0].pool.submit(batch(0, 100+number, 100))
				}
				c.network.Kill(c.peers[dead])
				alive := c.all()[:dead]
				for _, i := range alive {
					eventually(t, fmt.Sprintf("server %d removes server %d", i, dead), func() bool {
						return slices.Equal(c.nodes[i].book.removals(),
							[]order.ServerID{order.ServerID(dead)})
					})
				}
				c.deliverSome(alive, servers*10+20, 10)
				c.sameBooks(alive, servers*10+20+len(alive)*10)
				status := c.nodes[0].driver.Status()
				if !status.Running || status.Halted != "" {
					t.Errorf("status %+v", status)
				}
			})
		}
	}
}

// A Sink that takes nothing stops its server, and so the group, with bounded memory. Once it takes
// rounds again, all continue.
func TestSlowSink(t *testing.T) {
	t.Parallel()
	const servers, batches = 4, 500
	c := newCluster(t, clusterOptions{engine: allconcur.EngineAllConcurPlus, servers: servers})
	open := c.nodes[1].book.close()
	c.activate(1, c.all())
	for i, n := range c.nodes {
		for number := range batches {
			n.pool.submit(batch(i, number, 100))
		}
	}
	eventually(t, "the others deliver the round that the slow one is in", func() bool {
		return c.nodes[0].book.count() > 0
	})
	for i, n := range c.nodes {
		// A server is at most two rounds behind or ahead of another, and A-broadcasts one batch a
		// round.
		if sent := batches - n.pool.waiting(); sent > 8 {
			t.Errorf("server %d A-broadcast %d batches although server 1 delivers nothing", i, sent)
		}
	}
	if c.nodes[1].book.count() != 0 {
		t.Error("the closed book has entries")
	}
	open()
	for i, n := range c.nodes {
		eventually(t, fmt.Sprintf("server %d delivers all", i), func() bool {
			return n.book.count() == servers*batches
		})
	}
	c.sameBooks(c.all(), servers*batches)
}

// Windows and inboxes hold hardly more than one frame. All servers constantly wait for each other's
// room, and nothing stops or is lost.
func TestTinyWindows(t *testing.T) {
	t.Parallel()
	const size = 4096
	for _, engine := range []string{allconcur.EngineAllConcurPlus, allconcur.EngineAllConcur} {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, clusterOptions{engine: engine, servers: 7, payload: size,
				memory: memory.Options{WindowFrames: 2, WindowBytes: size + 512,
					FrameMax: size + 512},
				driver: driver.Config{InboxFrames: 1, InboxBytes: size, ParkedBytes: 1,
					ParkedPatience: patience}})
			c.activate(1, c.all())
			const batches = 60
			for i, n := range c.nodes {
				for number := range batches {
					n.pool.submit(batch(i, number, size))
				}
			}
			for i, n := range c.nodes {
				eventually(t, fmt.Sprintf("server %d delivers all", i), func() bool {
					return n.book.count() == 7*batches
				})
			}
			c.sameBooks(c.all(), 7*batches)
			for i, n := range c.nodes {
				if len(n.driver.Status().Lost) > 0 || n.driver.Status().Halted != "" {
					t.Errorf("server %d: %+v", i, n.driver.Status())
				}
			}
		})
	}
}

// Servers activate a generation one after the other. Frames of the early ones are held for the late
// ones.
func TestGenerations(t *testing.T) {
	t.Parallel()
	c := newCluster(t, clusterOptions{engine: allconcur.EngineAllConcurPlus, servers: 4})
	// A server that gets a message of round 1 before it has a batch A-broadcasts an empty message,
	// and its batch waits for round 2. So submit the batches first.
	for i := range c.nodes {
		c.nodes[i].pool.submit(batch(i, 3, 100))
	}
	c.activate(3, []int{0, 2})
	eventually(t, "the early ones A-broadcast", func() bool {
		return c.nodes[0].pool.waiting() == 0 && c.nodes[2].pool.waiting() == 0
	})
	c.activate(3, []int{3})
	c.activate(3, []int{1})
	for i, n := range c.nodes {
		eventually(t, fmt.Sprintf("server %d delivers generation 3", i), func() bool {
			return n.book.count() == 4
		})
	}
	c.sameBooks(c.all(), 4)

	// The next generation excludes server 1. Server 0 begins it before the others have frozen.
	members := []order.ServerID{0, 2, 3}
	c.activate(4, []int{0}, members...)
	c.nodes[0].pool.submit(batch(0, 4, 100))
	c.nodes[1].driver.Freeze()
	c.activate(4, []int{2, 3}, members...)
	for _, i := range []int{0, 2, 3} {
		eventually(t, fmt.Sprintf("server %d delivers generation 4", i), func() bool {
			return c.nodes[i].book.count() == 5
		})
		if got := c.nodes[i].book.pages()[4]; got != fmt.Sprintf("round 1: 0 says %x",
			batch(0, 4, 100)[:16]) && i == 0 {
			t.Errorf("server 0 delivered %s", got)
		}
		eventually(t, "its status", func() bool {
			status := c.nodes[i].driver.Status()
			return status.Group.Run == 4 && slices.Equal(status.Engine.Members, members)
		})
	}
	c.sameBooks([]int{0, 2, 3}, 5)
	if c.nodes[1].book.count() != 4 {
		t.Error("a frozen server delivered")
	}
	if status := c.nodes[1].driver.Status(); status.Running || status.Halted != "" {
		t.Errorf("frozen: %+v", status)
	}
}

func TestOverP2P(t *testing.T) {
	t.Parallel()
	const servers = 3
	options := clusterOptions{engine: allconcur.EngineAllConcurPlus, servers: servers}
	hosts, _ := overP2P(t, servers)
	for _, host := range hosts {
		options.hosts = append(options.hosts, host)
	}
	c := newCluster(t, options)
	c.activate(1, c.all())
	c.deliverSome(c.all(), 0, 100)
	c.sameBooks(c.all(), servers*100)
}

// BenchmarkSingleRequest measures the time from a submission to an idle group until its delivery at
// the same server.
func BenchmarkSingleRequest(b *testing.B) {
	for _, engine := range []string{allconcur.EngineAllConcurPlus, allconcur.EngineAllConcur} {
		for _, servers := range []int{4, 5, 8} {
			b.Run(fmt.Sprintf("%s/%d servers", engine, servers), func(b *testing.B) {
				c := newCluster(b, clusterOptions{engine: engine, servers: servers})
				c.activate(1, c.all())
				delivered := make(chan struct{}, 1)
				c.nodes[0].book.delivered = func() { delivered <- struct{}{} }
				request := batch(0, 0, 64)
				for b.Loop() {
					c.nodes[0].pool.submit(request)
					<-delivered
				}
			})
		}
	}
}
