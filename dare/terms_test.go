package dare

import (
	"fmt"
	"math/rand/v2"
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
		work := g.work
		// lead makes a server lead with the vote of server 2, which then gives its log to nobody
		// else. Whatever an earlier leader still wants to write there arrives too late.
		lead := func(i int) bool {
			g.network.Mend(g.hosts[i].ID(), g.hosts[2].ID())
			quiet := g.network.Now() + time.Millisecond
			work(func() bool { return g.network.Now() > quiet }, 2)
			g.servers[2].Suspect()
			for g.servers[i].term < g.servers[2].term {
				g.servers[i].advance(g.servers[i].term + 1)
			}
			g.servers[i].Campaign()
			return work(g.servers[i].Leading, i, 2)
		}
		// alone makes a leader append an entry in its own log.
		alone := func(i int, payload string) {
			g.network.Cut(g.hosts[i].ID(), g.hosts[2].ID())
			if err := g.servers[i].Broadcast([]byte(payload)); err != nil {
				t.Fatal(err)
			}
			work(func() bool { return g.servers[i].tail() == 1 }, i)
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

// work makes servers work in turn until something is so. It reports whether that came.
func (g *group) work(until func() bool, servers ...int) bool {
	for end := g.network.Now() + 20*time.Millisecond; g.network.Now() < end; {
		due := false
		g.network.After(2*time.Microsecond, func() { due = true })
		for !due {
			g.network.Step()
			if until() {
				return true
			}
		}
		for _, i := range servers {
			g.poll(i)
		}
	}
	return false
}

// TestEntriesThatAreTheSameStay plays the schedule that breaks a leader that rewrites what it finds
// in order (G16). Servers 0 and 1 have entry 1, and server 0 commits it. Server 0 leads again, and
// ends in the middle of adjusting the log of 1. Server 1 leads with the vote of 2.
func TestEntriesThatAreTheSameStay(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		fault Fault
		bad   bool
	}{{FaultNone, false}, {FaultAdjustToCommit, true}} {
		shown := ""
		for seed := range uint64(60) {
			g := newGroup(t, seed, 3, func(config *Config) {
				config.Fault = c.fault
				config.Timeout = time.Hour
			})
			g.network.Cut(g.hosts[0].ID(), g.hosts[2].ID())
			first, second := g.servers[0], g.servers[1]
			first.Campaign()
			if err := first.Broadcast([]byte("x")); err != nil {
				t.Fatal(err)
			}
			if !g.work(func() bool { return first.applied == 1 }, 0, 1) {
				t.Fatalf("%v: server 0 does not commit: %v", c.fault, first)
			}
			second.Suspect()
			first.advance(first.term)
			first.Campaign()
			quiet := g.network.Now() + 200*time.Microsecond
			g.work(func() bool {
				return second.tail() == 0 || g.network.Now() > quiet
			}, 0, 1)
			g.down[0] = true
			g.network.Crash(g.hosts[0].ID())
			quiet = g.network.Now() + time.Millisecond
			g.work(func() bool { return g.network.Now() > quiet }, 1, 2)
			second.Suspect()
			second.Campaign()
			g.work(func() bool { return second.applied == 1 || g.broken != "" }, 1, 2)
			if g.broken != "" && shown == "" {
				shown = fmt.Sprintf("seed %d: %s", seed, g.broken)
			}
			if second.applied == 0 && g.broken == "" {
				t.Errorf("%v, seed %d: server 1 does not lead: %v", c.fault, seed, second)
			}
		}
		if bad := shown != ""; bad != c.bad {
			t.Errorf("%v: %q", c.fault, shown)
		}
		t.Logf("%v: %s", c.fault, shown)
	}
}

// TestCandidatesThatCannotWin leaves servers 0 and 2 of three. Only server 2 has the last entry, so
// only it can lead, and it has learned to wait longer than server 0 does.
func TestCandidatesThatCannotWin(t *testing.T) {
	t.Parallel()
	for _, fault := range []Fault{FaultNone, FaultRefusalWaits} {
		g := newGroup(t, 1, 3, func(c *Config) {
			c.Fault = fault
			c.Timeout = 100 * time.Microsecond
		})
		last := g.servers[2]
		last.Campaign()
		if !g.work(last.Leading, 0, 1, 2) {
			t.Fatalf("%v: server 2 does not lead: %v", fault, last)
		}
		g.network.Cut(g.hosts[0].ID(), g.hosts[2].ID())
		g.network.Cut(g.hosts[1].ID(), g.hosts[2].ID())
		if err := last.Broadcast([]byte("x")); err != nil {
			t.Fatal(err)
		}
		g.work(func() bool { return last.tail() == 1 }, 2)
		g.down[1] = true
		g.network.Crash(g.hosts[1].ID())
		last.advance(last.term)
		last.timeout *= 8
		last.deadline = g.network.Now() + 2*last.timeout
		quiet := g.network.Now() + time.Millisecond
		g.work(func() bool { return g.network.Now() > quiet }, 0)
		g.network.Mend(g.hosts[0].ID(), g.hosts[2].ID())
		led := g.work(func() bool { return last.applied == 1 && g.servers[0].applied == 1 }, 0, 2)
		if led != (fault == FaultNone) || g.broken != "" {
			t.Errorf("%v: x is A-delivered: %v, %s: %v, %v", fault, led, g.broken, g.servers[0],
				last)
		}
	}
}

// TestAWrongExclusion excludes a server that works and is cut off. The others go on, and do not
// halt when it comes back. It catches up, or halts because it was left behind.
func TestAWrongExclusion(t *testing.T) {
	t.Parallel()
	halted, all := 0, 60
	for seed := range uint64(all) {
		g := newGroup(t, seed, 3, func(config *Config) { config.LogSlots = 4 })
		random := rand.New(rand.NewPCG(seed, 2))
		send := func(count int) {
			for range count {
				if i := random.IntN(2); g.servers[i].CanBroadcast() {
					if err := g.servers[i].Broadcast([]byte{1}); err != nil {
						t.Fatal(err)
					}
				}
				g.run(random, time.Duration(random.IntN(200_000)))
			}
		}
		send(random.IntN(12))
		g.network.Cut(g.hosts[2].ID(), g.hosts[0].ID())
		g.network.Cut(g.hosts[2].ID(), g.hosts[1].ID())
		send(random.IntN(8))
		g.servers[0].Exclude(2)
		g.servers[1].Exclude(2)
		send(random.IntN(16))
		g.broken = "" // the third may halt from here on
		g.network.Mend(g.hosts[2].ID(), g.hosts[0].ID())
		g.network.Mend(g.hosts[2].ID(), g.hosts[1].ID())
		for range 200 {
			g.broken = ""
			g.run(random, 200*time.Microsecond)
		}
		g.broken = ""
		g.agree()
		if g.broken != "" || g.servers[0].Halted() != "" || g.servers[1].Halted() != "" {
			t.Fatalf("seed %d: %s\n%v\n%v\n%v", seed, g.broken, g.servers[0], g.servers[1],
				g.servers[2])
		}
		if g.servers[0].numbers[0] < g.servers[0].sent || g.servers[1].numbers[1] <
			g.servers[1].sent {
			t.Fatalf("seed %d: no progress: %v\n%v\n%v", seed, g.servers[0], g.servers[1],
				g.servers[2])
		}
		if g.servers[2].Halted() != "" {
			halted++
		} else if g.servers[2].applied < g.servers[0].applied {
			t.Fatalf("seed %d: server 2 does not catch up: %v\n%v", seed, g.servers[2],
				g.servers[0])
		}
	}
	if halted == 0 || halted == all {
		t.Errorf("%d of %d halt, want some", halted, all)
	}
}
