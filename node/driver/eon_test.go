package driver_test

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/allconcur"
	"github.com/ledgerd/ledgerd/node/detector"
	"github.com/ledgerd/ledgerd/node/driver"
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/rdmanet/memory"
)

// changing is a batch that changes the group.
func changing(number int) []byte { return append([]byte("change"), byte(number)) }

func isChange(d order.Delivery) bool {
	return slices.ContainsFunc(d.Messages, func(m order.Message) bool { return bytes.HasPrefix(m.Payload, []byte("change")) })
}

// newEons is a cluster whose servers go from eon to eon by themselves: the members of eon k are plan[k].
func newEons(t *testing.T, engine string, servers int, plan [][]order.ServerID, memoryOptions memory.Options, change func(*driver.Config)) *cluster {
	t.Helper()
	var c *cluster
	ready := make(chan struct{})
	next := func(self order.ServerID, group driver.Group) {
		<-ready
		n := c.nodes[self]
		eon := int(group.Generation&0xffff) + 1
		if eon >= len(plan) || !slices.Contains(plan[eon], self) {
			n.detector.Deactivate()
			return
		}
		c.activateFrom(group.Generation+1, n.driver.Status().Engine.Round+1, []int{int(self)}, plan[eon]...)
	}
	options := clusterOptions{engine: engine, servers: servers, memory: memoryOptions, change: isChange, ended: next,
		timing: detector.Timing{Heartbeat: 100 * time.Millisecond, Timeout: 20 * time.Second, Grace: 10 * time.Second}}
	if change != nil {
		change(&options.driver)
	}
	c = newCluster(t, options)
	close(ready)
	return c
}

// Members come and go under load, eon after eon, and everybody who is in an eon delivers the same in it. Who begins an eon late finds what the others sent.
func TestEons(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, engine string
		memory       memory.Options
		driver       func(*driver.Config)
	}{
		{"allconcur+", allconcur.EngineAllConcurPlus, memory.Options{}, nil},
		{"allconcur", allconcur.EngineAllConcur, memory.Options{}, nil},
		{"hardly any window", allconcur.EngineAllConcurPlus, memory.Options{WindowFrames: 2}, func(c *driver.Config) { c.InboxFrames, c.HeldFrames = 1, 1 }},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			plan := [][]order.ServerID{{0, 1, 2, 3, 4}, {0, 1, 2, 3, 4, 5}, {0, 1, 2, 4, 5}, {0, 1, 2, 4, 5, 6}, {0, 1, 2, 4, 5, 6}}
			c := newEons(t, test.engine, 7, plan, test.memory, test.driver)
			run := uint64(3 << 16)
			c.activateFrom(run, 1, []int{0, 1, 2, 3, 4}, plan[0]...)
			load := c.flow([]int{0, 1, 2})
			for eon := 1; eon < len(plan); eon++ {
				c.nodes[1].pool.submit(changing(eon))
				first := order.Round(0)
				for _, i := range plan[eon-1] {
					if !slices.Contains(plan[eon], i) {
						continue
					}
					eventually(t, fmt.Sprintf("server %d begins eon %d", i, eon), func() bool {
						status := c.nodes[i].driver.Status()
						first = max(first, status.Group.FirstRound)
						return status.Group.Generation == run+uint64(eon)
					})
				}
				if slices.Contains(plan[eon-1], 3) && !slices.Contains(plan[eon], 3) {
					// The others do not wait for the one that leaves: its last round may still be on its way.
					eventually(t, "the one that leaves ends its run", func() bool {
						status := c.nodes[3].driver.Status()
						return !status.Running && status.Engine.Ended && status.Halted == ""
					})
				}
				for _, i := range plan[eon] {
					if slices.Contains(plan[eon-1], i) {
						continue
					}
					// It holds what came before from elsewhere.
					c.nodes[i].book.begin(c.nodes[0].book, first)
					c.activateFrom(run+uint64(eon), first, []int{int(i)}, plan[eon]...)
				}
				before := c.nodes[0].book.count()
				eventually(t, "the eon runs", func() bool { return c.nodes[0].book.count() > before+30 })
			}
			sent := load.end() + len(plan) - 1
			last := []int{0, 1, 2, 4, 5, 6}
			for _, i := range last {
				eventually(t, fmt.Sprintf("server %d delivers all", i), func() bool { return c.nodes[i].book.count() == sent })
				if got := c.nodes[i].book.removals(); len(got) > 0 {
					t.Errorf("server %d removed %v", i, got)
				}
			}
			c.sameBooks(last, sent)
			left := c.nodes[3].book.pages()
			if got := c.nodes[0].book.pages()[:len(left)]; !slices.Equal(got, left) {
				t.Error("the one that left delivered something else")
			}
			if got := c.nodes[3].ends(); !slices.Equal(got, []string{fmt.Sprintf("run %d: [0 1 2 3 4]", run), fmt.Sprintf("run %d: [0 1 2 3 4 5]", run+1)}) {
				t.Errorf("ends %q", got)
			}
			if test.engine == allconcur.EngineAllConcurPlus {
				c.trusting(last)
			}
		})
	}
}

// What an ended run has yet to send to a slow member goes out before the next run's frames.
func TestEndedRunIsSentToItsEnd(t *testing.T) {
	t.Parallel()
	plan := [][]order.ServerID{{0, 1, 2}, {0, 1, 2}}
	c := newEons(t, allconcur.EngineAllConcurPlus, 3, plan, memory.Options{WindowFrames: 1}, func(config *driver.Config) { config.InboxFrames, config.HeldFrames = 1, 1 })
	c.activateFrom(1<<16, 1, c.all(), plan[0]...)
	c.deliverSome(c.all(), 0, 5)
	open := c.nodes[2].book.close() // it stops reading while the others end the eon, as far as they get without it
	c.nodes[0].pool.submit(changing(1))
	eventually(t, "the others wait", func() bool { return c.nodes[0].driver.Status().Stalled(time.Now()) > 50*time.Millisecond })
	open()
	c.deliverSome(c.all(), 16, 5)
	c.sameBooks(c.all(), 31)
	for i, n := range c.nodes {
		eventually(t, "its status", func() bool { return n.driver.Status().Group.Generation == 1<<16+1 })
		if ends := n.ends(); len(ends) != 1 {
			t.Errorf("server %d: %q", i, ends)
		}
	}
}

// A peer that is known only later takes its place, and the run that it is in begins.
func TestPeersThatComeAndGo(t *testing.T) {
	t.Parallel()
	c := newCluster(t, clusterOptions{engine: allconcur.EngineAllConcurPlus, servers: 4, timing: eventualTiming})
	known := func(peers ...rdmanet.PeerID) {
		t.Helper()
		for i, n := range c.nodes {
			if i < len(peers) && peers[i] != "" {
				if err := n.driver.SetPeers(peers); err != nil {
					t.Fatal(err)
				}
				if err := n.detector.SetPeers(peers); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	p := c.peers
	known(p[0], p[1], p[2])
	if err := c.nodes[0].driver.Activate(driver.Group{Generation: 1, Members: []order.ServerID{0, 3}}); err == nil {
		t.Fatal("a group with nobody in it")
	}
	c.activate(1, []int{0, 1, 2}, 0, 1, 2)
	c.deliverSome([]int{0, 1, 2}, 0, 10)
	known(p[0], p[1], p[2], p[3])
	c.activateFrom(2, 100, c.all(), 0, 1, 2, 3)
	c.nodes[3].pool.submit(batch(3, 1, 100))
	for i, n := range c.nodes[:3] {
		eventually(t, fmt.Sprintf("server %d delivers", i), func() bool { return n.book.count() == 31 })
	}
	known(p[0], "", p[2], p[3]) // and yet it is in the run that runs
	c.nodes[1].pool.submit(batch(1, 99, 100))
	for i, n := range c.nodes[:3] {
		eventually(t, fmt.Sprintf("server %d delivers", i), func() bool { return n.book.count() == 32 })
	}
	c.activateFrom(3, 200, []int{0, 2, 3}, 0, 2, 3)
	c.nodes[3].pool.submit(batch(3, 2, 100))
	eventually(t, "the last run delivers", func() bool { return c.nodes[0].book.count() == 33 && c.nodes[2].book.count() == 33 })
	for _, peers := range [][]rdmanet.PeerID{nil, {p[1], p[0]}, {p[0], p[1], p[1]}} {
		if c.nodes[0].driver.SetPeers(peers) == nil || c.nodes[0].detector.SetPeers(peers) == nil {
			t.Errorf("%v is taken", peers)
		}
	}
}
