package driver_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/allconcur"
	"github.com/ledgerd/ledgerd/node/driver"
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/rdmanet/memory"
)

// changing returns a batch that changes the group.
func changing(number int) []byte { return append([]byte("change"), byte(number)) }

func isChange(d order.Delivery) bool {
	return slices.ContainsFunc(d.Messages, func(m order.Message) bool {
		return bytes.HasPrefix(m.Payload, []byte("change"))
	})
}

// newEons makes a cluster whose servers move from eon to eon by themselves. The members of eon k
// are plan[k].
func newEons(t *testing.T, test eonsTest, servers int, plan [][]order.ServerID) *cluster {
	t.Helper()
	var c *cluster
	ready := make(chan struct{})
	next := func(self order.ServerID, group driver.Group) {
		<-ready
		n := c.nodes[self]
		eon := int(group.Run&0xffff) + 1
		if eon >= len(plan) || !slices.Contains(plan[eon], self) {
			n.detector.Deactivate()
			return
		}
		c.activateFrom(group.Run+1, n.driver.Status().Engine.Round+1, []int{int(self)},
			plan[eon]...)
	}
	options := clusterOptions{engine: test.engine, servers: servers, memory: test.memory,
		change: isChange, ended: next, fault: test.fault}
	if test.driver != nil {
		test.driver(&options.driver)
	}
	c = newCluster(t, options)
	close(ready)
	return c
}

// eonsTest configures a test of eons: the engine, the fabric, and planted faults.
type eonsTest struct {
	engine string
	memory memory.Options
	driver func(*driver.Config)
	fault  func(self order.ServerID, d *order.Delivery)
}

// run lets members come and go under load, eon after eon. It returns errors of the order in which
// the members of an eon deliver.
func (test eonsTest) run(t *testing.T) (wrong []string) {
	t.Helper()
	plan := [][]order.ServerID{{0, 1, 2, 3, 4}, {0, 1, 2, 3, 4, 5}, {0, 1, 2, 4, 5},
		{0, 1, 2, 4, 5, 6}, {0, 1, 2, 4, 5, 6}}
	c := newEons(t, test, 7, plan)
	run := uint64(3 << 16)
	c.activateFrom(run, 1, []int{0, 1, 2, 3, 4}, plan[0]...)
	load := c.flow([]int{0, 1, 2, 4}) // the last server changes its place in the group
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
				return status.Group.Run == run+uint64(eon)
			})
		}
		if slices.Contains(plan[eon-1], 3) && !slices.Contains(plan[eon], 3) {
			// The others do not wait for the leaving server: its last round may still be on its
			// way.
			eventually(t, "the one that leaves ends its run", func() bool {
				status := c.nodes[3].driver.Status()
				return !status.Running && status.Engine.Ended && status.Halted == ""
			})
		}
		for _, i := range plan[eon] {
			if slices.Contains(plan[eon-1], i) {
				continue
			}
			// It got the earlier rounds elsewhere.
			c.nodes[i].book.begin(c.nodes[0].book, first)
			c.activateFrom(run+uint64(eon), first, []int{int(i)}, plan[eon]...)
		}
		before := c.nodes[0].book.count()
		eventually(t, "the eon runs", func() bool { return c.nodes[0].book.count() > before+30 })
	}
	sent := load.end() + len(plan) - 1
	last := []int{0, 1, 2, 4, 5, 6}
	for _, i := range last {
		eventually(t, fmt.Sprintf("server %d delivers all", i), func() bool {
			return c.nodes[i].book.count() == sent
		})
		if got := c.nodes[i].book.removals(); len(got) > 0 {
			t.Errorf("server %d removed %v", i, got)
		}
	}
	if got := c.nodes[3].ends(); !slices.Equal(got,
		[]string{fmt.Sprintf("run %d: [0 1 2 3 4]", run),
			fmt.Sprintf("run %d: [0 1 2 3 4 5]", run+1)}) {
		t.Errorf("ends %q", got)
	}
	if test.engine == allconcur.EngineAllConcurPlus {
		c.trusting(last)
	}
	for i, n := range c.nodes {
		if broken := n.book.misdelivered(); broken != "" {
			wrong = append(wrong, fmt.Sprintf("server %d: %s", i, broken))
		}
	}
	if differ := c.difference(last, sent); differ != "" {
		wrong = append(wrong, differ)
	}
	left, all := c.nodes[3].book.pages(), c.nodes[0].book.pages()
	if len(left) == 0 || len(left) > len(all) || !slices.Equal(all[:len(left)], left) {
		wrong = append(wrong, "the one that left delivered something else")
	}
	return wrong
}

// Members come and go under load, eon after eon, and all members of an eon deliver the same in it.
// A server that begins an eon late finds the frames that the others sent.
func TestEons(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]eonsTest{
		"allconcur+": {engine: allconcur.EngineAllConcurPlus},
		"allconcur":  {engine: allconcur.EngineAllConcur},
		"hardly any window": {engine: allconcur.EngineAllConcurPlus,
			memory: memory.Options{WindowFrames: 2},
			driver: func(c *driver.Config) { c.InboxFrames, c.HeldFrames = 1, 1 }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, wrong := range test.run(t) {
				t.Error(wrong)
			}
		})
	}
}

// The checks of TestEons detect one server, or every server, that delivers wrongly.
func TestEonsNoticeFaults(t *testing.T) {
	t.Parallel()
	batches := func(d *order.Delivery) (places []int) {
		for i, message := range d.Messages {
			if len(message.Payload) >= 12 {
				places = append(places, i)
			}
		}
		return places
	}
	at := func(server order.ServerID, fault func(*order.Delivery)) func(order.ServerID,
		*order.Delivery) {
		return func(self order.ServerID, d *order.Delivery) {
			if self == server {
				fault(d)
			}
		}
	}
	// Swap the first two of at least two batches of a round.
	swapped := func(d *order.Delivery) {
		if which := batches(d); len(which) >= 2 {
			d.Messages[which[0]], d.Messages[which[1]] = d.Messages[which[1]], d.Messages[which[0]]
		}
	}
	for name, test := range map[string]struct {
		fault func(order.ServerID, *order.Delivery)
		says  string
	}{
		"another order at one":                 {at(2, swapped), "server 2"},
		"another order at who joined":          {at(6, swapped), "server 6"},
		"another order at the one that leaves": {at(3, swapped), "the one that left"},
		"the names of places in the group, everywhere": {func(_ order.ServerID, d *order.Delivery) {
			for i := range d.Messages {
				if d.Messages[i].Origin == 4 {
					d.Messages[i].Origin = 3
				}
			}
		}, "as one of server 3"},
		"a batch of each server again and again, everywhere": {func(_ order.ServerID,
			d *order.Delivery) {
			for _, i := range batches(d) {
				d.Messages[i].Payload = batch(int(d.Messages[i].Origin), 7, 100)
			}
		}, "after batch 7"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wrong := eonsTest{engine: allconcur.EngineAllConcurPlus, fault: test.fault}.run(t)
			if !slices.ContainsFunc(wrong, func(text string) bool {
				return strings.Contains(text, test.says)
			}) {
				t.Errorf("found %q, and nothing of %q", wrong, test.says)
			}
		})
	}
}

// An ended run's unsent frames for a slow member are sent before the next run's frames.
func TestEndedRunIsSentToItsEnd(t *testing.T) {
	t.Parallel()
	plan := [][]order.ServerID{{0, 1, 2}, {0, 1, 2}}
	c := newEons(t, eonsTest{engine: allconcur.EngineAllConcurPlus,
		memory: memory.Options{WindowFrames: 1},
		driver: func(config *driver.Config) {
			config.InboxFrames, config.HeldFrames = 1, 1
		}}, 3, plan)
	c.activateFrom(1<<16, 1, c.all(), plan[0]...)
	c.deliverSome(c.all(), 0, 5)
	// It stops reading while the others end the eon, as far as they get without it.
	open := c.nodes[2].book.close()
	c.nodes[0].pool.submit(changing(1))
	eventually(t, "the others wait", func() bool {
		return c.nodes[0].driver.Status().Stalled(time.Now()) > 50*time.Millisecond
	})
	open()
	c.deliverSome(c.all(), 16, 5)
	c.sameBooks(c.all(), 31)
	for i, n := range c.nodes {
		eventually(t, "its status", func() bool {
			return n.driver.Status().Group.Run == 1<<16+1
		})
		if ends := n.ends(); len(ends) != 1 {
			t.Errorf("server %d: %q", i, ends)
		}
	}
}

// A peer that becomes known later gets its place, and the run that includes it begins.
func TestPeersThatComeAndGo(t *testing.T) {
	t.Parallel()
	c := newCluster(t, clusterOptions{engine: allconcur.EngineAllConcurPlus, servers: 4,
		timing: eventualTiming})
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
	if err := c.nodes[0].driver.Activate(driver.Group{Run: 1,
		Members: []order.ServerID{0, 3}}); err == nil {
		t.Fatal("a group with nobody in it")
	}
	c.activate(1, []int{0, 1, 2}, 0, 1, 2)
	c.deliverSome([]int{0, 1, 2}, 0, 10)
	known(p[0], p[1], p[2], p[3])
	c.activateFrom(2, 100, c.all(), 0, 1, 2, 3)
	c.nodes[3].pool.submit(batch(3, 1, 100))
	for i, n := range c.nodes[:3] {
		eventually(t, fmt.Sprintf("server %d delivers", i), func() bool {
			return n.book.count() == 31
		})
	}
	known(p[0], "", p[2], p[3]) // and yet it is in the current run
	c.nodes[1].pool.submit(batch(1, 99, 100))
	for i, n := range c.nodes[:3] {
		eventually(t, fmt.Sprintf("server %d delivers", i), func() bool {
			return n.book.count() == 32
		})
	}
	c.activateFrom(3, 200, []int{0, 2, 3}, 0, 2, 3)
	c.nodes[3].pool.submit(batch(3, 2, 100))
	eventually(t, "the last run delivers", func() bool {
		return c.nodes[0].book.count() == 33 && c.nodes[2].book.count() == 33
	})
	for _, peers := range [][]rdmanet.PeerID{nil, {p[1], p[0]}, {p[0], p[1], p[1]}} {
		if c.nodes[0].driver.SetPeers(peers) == nil || c.nodes[0].detector.SetPeers(peers) == nil {
			t.Errorf("%v is taken", peers)
		}
	}
}
