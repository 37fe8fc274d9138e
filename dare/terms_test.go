package dare

import (
	"fmt"
	"testing"
	"time"
)

// TestOldTermsByCounting plays the schedule that breaks the paper's rule for commit (G1). Server 0
// leads term 1 and has x in its own log only. Server 1 leads with the vote of 2, and has y in its
// own log only. Server 0 leads again with the vote of 2, and writes x to 2, so that a majority has
// it. Server 1 leads again with the vote of 2, if y counts as more recent than x, and takes x away.
func TestOldTermsByCounting(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		fault Fault
		bad   bool
	}{{FaultNone, false}, {FaultCommitsOldTerms, true}} {
		g := newGroup(t, 1, 3, func(config *Config) {
			config.Fault = c.fault
			config.Timeout = time.Hour
		})
		work := func(until func() bool, servers ...int) bool {
			for end := g.network.Now() + 20*time.Millisecond; g.network.Now() < end; {
				due := false
				g.network.After(2*time.Microsecond, func() { due = true })
				for !due {
					g.network.Step()
				}
				for _, i := range servers {
					g.poll(i)
				}
				if until() {
					return true
				}
			}
			return false
		}
		// lead makes a server lead with the vote of server 2. Then it appends alone: it is cut off.
		lead := func(i int) bool {
			for _, s := range g.servers {
				s.Suspect()
			}
			if g.servers[2].term > g.servers[i].term {
				g.servers[i].advance(g.servers[2].term)
			}
			g.servers[i].Campaign()
			return work(g.servers[i].Leading, i, 2)
		}
		alone := func(i int, payload string) {
			g.network.Cut(g.hosts[i].ID(), g.hosts[2].ID())
			if err := g.servers[i].Broadcast([]byte(payload)); err != nil {
				t.Fatal(err)
			}
			work(func() bool { return g.servers[i].tail() == 1 }, i)
			g.servers[i].advance(g.servers[i].term) // what it posted does not land any more
			g.network.Mend(g.hosts[i].ID(), g.hosts[2].ID())
		}
		if !lead(0) {
			t.Fatalf("%v: server 0 does not lead: %v", c.fault, g.servers[0])
		}
		alone(0, "x")
		if !lead(1) {
			t.Fatalf("%v: server 1 does not lead: %v", c.fault, g.servers[1])
		}
		alone(1, "y")
		if !lead(0) || !work(func() bool { return g.servers[0].applied == 1 }, 0, 2) {
			t.Fatalf("%v: x is not A-delivered: %v", c.fault, g.servers[0])
		}
		if led := lead(1); led {
			work(func() bool { return g.servers[1].applied == 1 || g.broken != "" }, 1, 2)
		} else if c.bad {
			t.Errorf("%v: server 1 does not lead again: %v", c.fault, g.servers[1])
		}
		g.agree()
		if bad := g.broken != ""; bad != c.bad {
			t.Errorf("%v: %q, rounds %s", c.fault, g.broken, fmt.Sprint(g.rounds))
		}
		t.Logf("%v: %s", c.fault, g.broken)
	}
}
