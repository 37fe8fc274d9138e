package dare

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/order"
)

// fullRounds makes a configuration one of full rounds.
func fullRounds(c *Config) {
	c.Shard, c.FullRounds = len(c.Peers), true
}

// solicited is a message that a server has for others which wait for it.
const solicited = "-"

// full checks that a round of a server has a message of each server that did not crash, if the
// group has full rounds. Their messages have to be in the rounds that were foretold. A round has an
// empty message of a server without one, and no other.
func (g *group) full(i int, d order.Delivery) {
	if !g.servers[i].config.FullRounds || g.partial {
		return
	}
	for _, m := range d.Messages {
		if g.down[m.Origin] {
			continue
		}
		if len(m.Payload) == 0 {
			g.breaks("round %d has no message of %d", d.Round, m.Origin)
		}
		var server, number, round int
		_, err := fmt.Sscanf(string(m.Payload), "%d.%d.%d", &server, &number, &round)
		if err == nil && round != int(d.Round) {
			g.breaks("a message of %d for round %d is in round %d", m.Origin, round, d.Round)
		}
	}
}

// TestFullRounds is TestServersAgree with rounds that have the messages of all servers.
func TestFullRounds(t *testing.T) {
	t.Parallel()
	storms(t, fullRounds)
}

// TestMissingServersHaveNoPart: full rounds go on without a server that a detector suspects, and
// wait for its message again when it is not missing any more.
func TestMissingServersHaveNoPart(t *testing.T) {
	t.Parallel()
	g := newGroup(t, 1, 3, func(c *Config) {
		fullRounds(c)
		c.Timeout = time.Hour
	})
	leader := g.servers[0]
	leader.Campaign()
	quiet := func(servers ...int) {
		end := g.network.Now() + 2*time.Millisecond
		g.work(func() bool { return g.network.Now() > end }, servers...)
	}
	say := func(i int) {
		if err := g.servers[i].Broadcast([]byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	want := func(what string, sizes ...int) {
		t.Helper()
		var got []int
		for _, d := range g.rounds[0] {
			said := 0
			for _, m := range d.Messages {
				said += min(len(m.Payload), 1)
			}
			got = append(got, said)
		}
		if !slices.Equal(got, sizes) {
			t.Fatalf("%s: rounds of %v messages, want %v", what, got, sizes)
		}
	}
	if !g.work(leader.Leading, 0, 1, 2) {
		t.Fatalf("server 0 does not lead: %v", leader)
	}
	say(0)
	quiet(0, 1)
	want("one server says nothing")
	leader.Missing(2, true)
	quiet(0, 1)
	want("it is missing", 2)
	leader.Missing(2, false)
	say(1)
	quiet(0, 1)
	want("it is not missing any more", 2)
	quiet(0, 1, 2)
	want("it works again", 2, 3)
	for i, s := range g.servers {
		if s.Waiting() || s.Solicited() {
			t.Errorf("server %d still waits: %v", i, s)
		}
	}
}

// TestOpinionsComeAndGo: a detector that errs all the time, campaigns and cuts cost full rounds no
// message, and lead to few rounds without one. Afterwards a message is in the round that was
// foretold.
func TestOpinionsComeAndGo(t *testing.T) {
	t.Parallel()
	seeds := uint64(60)
	if testing.Short() {
		seeds = 12
	}
	for seed := range seeds {
		opinionsComeAndGo(t, seed, 2+int(seed%4))
		if t.Failed() {
			return
		}
	}
}

func opinionsComeAndGo(t *testing.T, seed uint64, size int) {
	g := newGroup(t, seed, size, fullRounds)
	g.partial = true
	random := rand.New(rand.NewPCG(seed, 2))
	sent, events := make([]int, size), 0
	var cut [2]int
	say := func(i int) {
		if err := g.servers[i].Broadcast([]byte("x")); err != nil {
			t.Fatal(err)
		}
		events++
	}
	mend := func() { g.network.Mend(g.hosts[cut[0]].ID(), g.hosts[cut[1]].ID()) }
	for range 80 {
		i := random.IntN(size)
		s := g.servers[i]
		switch random.IntN(12) {
		case 0:
			s.Campaign()
			events++
		case 1:
			mend()
			if cut = [2]int{i, (i + 1) % size}; cut[0] != cut[1] {
				g.network.Cut(g.hosts[cut[0]].ID(), g.hosts[cut[1]].ID())
			}
			events++
		case 2, 3, 4, 5, 6, 7:
			s.Missing(order.ServerID(random.IntN(size)), random.IntN(2) == 0)
			events++
		default:
			if s.CanBroadcast() {
				say(i)
			}
		}
		g.run(random, time.Duration(random.IntN(60_000)))
	}
	mend()
	for _, s := range g.servers {
		for other := range size {
			s.Missing(order.ServerID(other), false)
		}
	}
	rest := func() {
		t.Helper()
		for range 60 {
			if g.run(random, time.Millisecond); g.broken != "" || g.settled(sent) {
				break
			}
		}
		g.agree()
		if g.broken != "" || !g.settled(sent) {
			t.Errorf("seed %d, %d servers: %s: %v", seed, size, g.broken, g.servers)
		}
	}
	rest()
	if rounds := g.servers[0].rounds; rounds > uint64(events) {
		t.Errorf("seed %d, %d servers: %d rounds after %d events", seed, size, rounds, events)
	}
	// A leader may have asked for rounds that no later one had. They come with the next message.
	for range 2 * size {
		say(random.IntN(size))
		rest()
	}
	g.partial = false
	rounds := g.servers[0].rounds
	for n := range 5 {
		i := random.IntN(size)
		foretold := g.servers[i].NextRound()
		say(i)
		rest()
		if got := g.servers[0].rounds - rounds; got != uint64(n+1) {
			t.Errorf("seed %d, %d servers: %d rounds after %d messages", seed, size, got, n+1)
		}
		last := g.rounds[i][len(g.rounds[i])-1]
		if last.Round != foretold || string(last.Messages[i].Payload) != "x" {
			t.Errorf("seed %d: a message for round %d of %d: %v", seed, foretold, i, last)
		}
	}
}

// TestStatusNamesAwaitedServers: a server says whose messages lack for a full round that has begun,
// as far as it knows.
func TestStatusNamesAwaitedServers(t *testing.T) {
	t.Parallel()
	for _, full := range []bool{true, false} {
		g := newGroup(t, 1, 3, func(c *Config) {
			if full {
				fullRounds(c)
			}
			c.Timeout = time.Hour
		})
		leader := g.servers[0]
		leader.Campaign()
		if !g.work(leader.Leading, 0, 1, 2) {
			t.Fatalf("server 0 does not lead: %v", leader)
		}
		awaits := func(when string, servers ...order.ServerID) {
			t.Helper()
			end := g.network.Now() + 2*time.Millisecond
			g.work(func() bool { return g.network.Now() > end }, 0, 1)
			for i, s := range g.servers[:2] {
				if got := s.Status().Awaited; !slices.Equal(got, servers) {
					t.Errorf("full rounds %v, %s: %d awaits %v, want %v", full, when, i, got,
						servers)
				}
			}
		}
		awaits("nobody has said anything")
		if err := leader.Broadcast([]byte("x")); err != nil {
			t.Fatal(err)
		}
		if full {
			awaits("server 2 is silent", 2)
			g.servers[1].Missing(2, true)
			leader.Missing(2, true)
		}
		awaits("nobody is needed")
	}
}

// TestLeadersAsk: messages that were left out of a round, and found no answer, are in one when
// their server has a part again, because the leader asks for the others' messages.
func TestLeadersAsk(t *testing.T) {
	t.Parallel()
	for fault, asks := range map[Fault]bool{FaultNone: true, FaultNeverAsks: false} {
		g := newGroup(t, 1, 3, func(c *Config) {
			fullRounds(c)
			c.Timeout, c.Fault = time.Hour, fault
		})
		leader, late := g.servers[0], g.servers[2]
		leader.Campaign()
		if !g.work(leader.Leading, 0, 1, 2) {
			t.Fatalf("server 0 does not lead: %v", leader)
		}
		end := g.network.Now() + time.Millisecond
		g.work(func() bool { return g.network.Now() > end }, 0, 1, 2)
		g.network.Cut(g.hosts[2].ID(), g.hosts[0].ID())
		if err := late.Broadcast([]byte("late")); err != nil {
			t.Fatal(err)
		}
		leader.Missing(2, true)
		// Server 1 answers what server 0 has not.
		if !g.work(func() bool { return g.servers[1].applied == 1 }, 0, 1, 2) {
			t.Fatalf("no round without a server that is missing: %v", g.servers[1])
		}
		leader.Missing(2, false)
		g.network.Mend(g.hosts[2].ID(), g.hosts[0].ID())
		done := func() bool { return g.servers[1].numbers[2] == 1 && g.servers[1].applied == 2 }
		if got := g.work(done, 0, 1, 2); got != asks {
			t.Errorf("%v: message of the late server A-delivered: %v, want %v: %v", fault, got,
				asks, leader)
		}
	}
}

// TestQuestionsEndWithTheTerm: a leader that lost rounds with an earlier term, and leads again,
// does not ask for messages for their numbers once more.
func TestQuestionsEndWithTheTerm(t *testing.T) {
	t.Parallel()
	g := newGroup(t, 1, 3, func(c *Config) {
		fullRounds(c)
		c.Timeout = time.Hour
	})
	leader := g.servers[0]
	leader.asks(20)
	quiet := func() {
		end := g.network.Now() + 2*time.Millisecond
		g.work(func() bool { return g.network.Now() > end }, 0, 1, 2)
	}
	quiet()
	leader.Campaign()
	if !g.work(leader.Leading, 0, 1, 2) {
		t.Fatalf("server 0 does not lead: %v", leader)
	}
	quiet()
	if leader.rounds > 0 {
		t.Errorf("%d rounds, and nobody has anything to say", leader.rounds)
	}
}

// TestSolicited: a server is solicited once for each message that another one has for a round to
// come. Its own messages do not solicit it.
func TestSolicited(t *testing.T) {
	t.Parallel()
	g := newGroup(t, 1, 2, func(c *Config) {
		fullRounds(c)
		c.Fault = FaultNeverAsks
	})
	a, b := g.servers[0], g.servers[1]
	for range 2 {
		if err := a.Broadcast(nil); err != nil {
			t.Fatal(err)
		}
	}
	g.network.After(time.Millisecond, func() {})
	times := 0
	for end := g.network.Now() + 5*time.Millisecond; g.network.Now() < end; {
		g.network.After(2*time.Microsecond, func() {})
		g.network.Step()
		a.Poll(g.network.Now())
		b.Poll(g.network.Now())
		g.attach(0)
		g.attach(1)
		for b.Solicited() {
			if round := b.NextRound(); round != order.Round(7+times) {
				t.Errorf("message %d is for round %d", times, round)
			}
			if err := b.Broadcast(nil); err != nil {
				t.Fatal(err)
			}
			times++
		}
		if a.Solicited() {
			t.Fatal("a server is solicited by its own messages")
		}
	}
	if got := len(a.Deliveries()); times != 2 || got != 2 {
		t.Errorf("solicited %d times, %d rounds, want 2", times, got)
	}
	b.want, b.role = b.rounds+1, leading
	if !b.Solicited() {
		t.Error("a leader that lacks its own message is not solicited")
	}
	if b.ended = true; b.Solicited() {
		t.Error("a server is solicited though its run has ended")
	}
}
