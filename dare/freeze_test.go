package dare

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/protected"
	"github.com/ledgerd/ledgerd/rdmanet"
)

// changing makes the servers of a group end their run with a round that has a message "+".
func changing(c *Config) {
	c.Change = func(d order.Delivery) bool {
		return slices.ContainsFunc(d.Messages, func(m order.Message) bool {
			return string(m.Payload) == "+"
		})
	}
}

// send A-broadcasts a payload at a server.
func (g *group) send(t *testing.T, i int, payload string) {
	t.Helper()
	if err := g.servers[i].Broadcast([]byte(payload)); err != nil {
		t.Fatal(err)
	}
}

// TestNothingLandsInAFrozenLog freezes a follower. The others go on. Its log stays as it was when
// it was read, so what it reports binds the leader. With the log kept, it counts for entries that
// it did not report.
func TestNothingLandsInAFrozenLog(t *testing.T) {
	t.Parallel()
	for _, fault := range []Fault{FaultNone, FaultFreezeKeepsLog} {
		g := newGroup(t, 1, 3, func(c *Config) { c.Fault = fault })
		random := rand.New(rand.NewPCG(1, 1))
		g.servers[0].Campaign()
		g.send(t, 0, "a")
		for g.servers[1].applied == 0 {
			g.run(random, 50*time.Microsecond)
		}
		log, err := g.servers[1].Freeze()
		if err != nil || log.Index < 1 || log.Stamp != g.servers[0].term ||
			log.RoundsMax != g.servers[1].layout.slots {
			t.Fatalf("%+v, %v", log, err)
		}
		if g.servers[1].CanBroadcast() || g.servers[1].Broadcast(nil) == nil {
			t.Error("a frozen server A-broadcasts")
		}
		g.down[1] = true // it works no more, and its memory is there
		for k := range 4 {
			g.send(t, 0, fmt.Sprint("b", k))
			g.run(random, 200*time.Microsecond)
		}
		for g.servers[0].applied < 5 && g.broken == "" {
			g.run(random, 50*time.Microsecond)
		}
		if landed := g.servers[1].tail() != log.Index; landed != (fault != FaultNone) {
			t.Errorf("%v: the log ends at %d, and was frozen at %d", fault, g.servers[1].tail(),
				log.Index)
		}
		if err := g.servers[1].Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestWhatAFreezeReturns freezes servers that lack commits: the log has the rounds, with the stamp
// of the leader.
func TestWhatAFreezeReturns(t *testing.T) {
	t.Parallel()
	g := newGroup(t, 3, 3, changing)
	random := rand.New(rand.NewPCG(1, 1))
	g.servers[0].Campaign()
	for !g.servers[0].Leading() {
		g.run(random, 20*time.Microsecond)
	}
	g.network.Cut(g.hosts[0].ID(), g.hosts[1].ID())
	g.network.Cut(g.hosts[0].ID(), g.hosts[2].ID())
	for k := range 3 {
		g.send(t, 0, fmt.Sprint(k))
	}
	g.work(func() bool { return g.servers[0].tail() > 0 }, 0)
	g.poll(0)
	log, err := g.servers[0].Freeze()
	if err != nil || len(log.Rounds) == 0 || log.Rounds[0].Round != 7 ||
		log.Index != uint64(len(log.Rounds)) || log.Stamp != g.servers[0].term ||
		string(log.Rounds[0].Messages[0].Payload) != "0" || len(log.Rounds[0].Messages) != 3 {
		t.Errorf("%+v, %v", log, err)
	}
	empty, err := g.servers[1].Freeze()
	if err != nil || len(empty.Rounds) > 0 || empty.Index != 0 || empty.Stamp != 0 {
		t.Errorf("of an empty log: %+v, %v", empty, err)
	}
	// A log that is not whole is an error, and no report.
	g.servers[0].held.Region.Store(logTail, 50)
	if log, err := g.servers[0].Freeze(); err == nil {
		t.Errorf("of a log that lacks entries: %+v", log)
	}
}

// TestRunsEnd lets groups A-broadcast a change among other messages, through crashes and campaigns.
// All servers A-deliver the same rounds, and the one with the change, or that takes a server out,
// is the last.
func TestRunsEnd(t *testing.T) {
	t.Parallel()
	for seed := range uint64(60) {
		if broken := endRun(t, seed, FaultNone); broken != "" {
			t.Fatalf("seed %d: %s", seed, broken)
		}
	}
	for seed := range uint64(60) {
		if broken := endRun(t, seed, FaultAppendsPastEnd); broken != "" {
			t.Logf("with entries behind the end, seed %d: %s", seed, broken)
			return
		}
	}
	t.Error("nobody notices entries behind the end")
}

// endRun plays one seed of TestRunsEnd. It returns what is wrong, or "".
func endRun(t *testing.T, seed uint64, fault Fault) string {
	t.Helper()
	size := 1 + int(seed%5)
	g := newGroup(t, seed, size, func(c *Config) {
		changing(c)
		c.Fault = fault
	})
	random := rand.New(rand.NewPCG(seed, 5))
	crashes := (size - 1) / 2
	for k := range 30 {
		i := random.IntN(size)
		payload := fmt.Sprint(k)
		if k == 12 {
			payload = "+"
		}
		switch {
		case g.down[i]:
		case random.IntN(8) == 0:
			g.servers[i].Campaign()
		case k > 9 && crashes > 0 && random.IntN(8) == 0:
			crashes--
			g.down[i] = true
			g.network.Crash(g.hosts[i].ID())
			for _, s := range g.servers {
				s.Missing(order.ServerID(i), true)
			}
		case g.servers[i].CanBroadcast():
			g.send(t, i, payload)
		}
		g.run(random, time.Duration(random.IntN(60_000)))
	}
	ended := func() bool {
		for i, s := range g.servers {
			if !g.down[i] && !s.Status().Ended {
				return false
			}
		}
		return true
	}
	for k := 0; k < 200 && g.broken == "" && !ended(); k++ {
		for i, s := range g.servers { // the change may have crashed with its server
			if !g.down[i] && !s.Status().Ended && s.CanBroadcast() {
				g.send(t, i, "+")
			}
		}
		g.run(random, 200*time.Microsecond)
	}
	g.agree()
	if g.broken != "" || !ended() {
		return fmt.Sprintf("%s, ended %v", g.broken, ended())
	}
	last := -1
	for i, s := range g.servers {
		rounds := g.rounds[i]
		for k, d := range rounds {
			if s.ends(d) && k < len(rounds)-1 {
				return fmt.Sprintf("server %d A-delivers %d rounds behind a change", i,
					len(rounds)-1-k)
			}
		}
		if g.down[i] {
			continue
		}
		if s.Waiting() || last >= 0 && len(rounds) != last {
			return fmt.Sprintf("server %d waits: %v; it has %d rounds of %d", i, s.Waiting(),
				len(rounds), last)
		}
		last = len(rounds)
	}
	return ""
}

// TestMissingServersAreTakenOut stops a server of a group under load. While nobody says that it is
// missing, the others stop with a full log. Then the run ends without it, if a majority of the
// shard is left, however full the log is.
func TestMissingServersAreTakenOut(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		shard int
		out   bool
	}{"a majority is left": {3, true}, "none is left": {5, false}} {
		g := newGroup(t, 9, 3, func(config *Config) {
			changing(config)
			config.Shard = c.shard
		})
		random := rand.New(rand.NewPCG(2, 2))
		g.servers[0].Campaign()
		g.send(t, 1, "x")
		for g.servers[2].applied == 0 {
			g.run(random, 50*time.Microsecond)
		}
		g.down[2] = true
		g.network.Crash(g.hosts[2].ID())
		for range 200 {
			if g.servers[1].CanBroadcast() {
				g.send(t, 1, "y")
			}
			g.run(random, 20*time.Microsecond)
		}
		before := g.servers[0].applied
		if c.out && (!g.servers[1].Waiting() || len(g.servers[0].Status().Awaited) != 1) {
			t.Errorf("%s: %+v, and server 1 waits: %v", name, g.servers[0].Status(),
				g.servers[1].Waiting())
		}
		g.servers[0].Missing(2, true)
		g.servers[0].Missing(0, true) // of itself, and of nobody: nothing
		g.servers[0].Missing(7, true)
		g.run(random, 2*time.Millisecond)
		g.agree()
		for i := range 2 {
			rounds := g.rounds[i]
			last, status := rounds[len(rounds)-1], g.servers[i].Status()
			if out := slices.Equal(last.Removed, []order.ServerID{2}); out != c.out ||
				status.Ended != c.out || out && (len(last.Messages) != 2 ||
				len(status.Members) != 2) {
				t.Errorf("%s: the last round is %v, %+v", name, last, status)
			}
		}
		if !c.out && g.servers[0].applied != before || g.broken != "" {
			t.Errorf("%s: %q, %d rounds after %d", name, g.broken, g.servers[0].applied, before)
		}
	}
}

// TestMissingServersAreTakenOutAtRest: nobody has anything to order, so no log fills. The run ends
// all the same without a server that is missing, and not without one that works.
func TestMissingServersAreTakenOutAtRest(t *testing.T) {
	t.Parallel()
	for name, gone := range map[string]bool{"it is gone": true, "it works": false} {
		g := newGroup(t, 9, 3, func(config *Config) {
			changing(config)
			config.LogSlots = 63
		})
		random := rand.New(rand.NewPCG(2, 2))
		g.servers[0].Campaign()
		g.send(t, 1, "x")
		for g.servers[2].applied == 0 {
			g.run(random, 50*time.Microsecond)
		}
		g.run(random, 2*time.Millisecond)
		if gone {
			g.down[2] = true
			g.network.Crash(g.hosts[2].ID())
		}
		g.servers[0].Missing(2, true)
		g.run(random, 4*restBeats*g.servers[0].config.Beat)
		g.agree()
		for i := range 2 {
			last := g.rounds[i][len(g.rounds[i])-1]
			if out := slices.Equal(last.Removed, []order.ServerID{2}); out != gone ||
				g.servers[i].Ended() != gone {
				t.Errorf("%s: the last round of server %d is %v, ended %v", name, i, last,
					g.servers[i].Ended())
			}
		}
		if entries := g.servers[0].tail(); g.broken != "" || entries > 8 {
			t.Errorf("%s: %q, %d entries", name, g.broken, entries)
		}
	}
}

// TestServersThatWorkStay: a detector says wrongly, and for long, that a server is missing. It
// stays, whenever there is something to order, and also when another server becomes the leader.
func TestServersThatWorkStay(t *testing.T) {
	t.Parallel()
	g := newGroup(t, 9, 3, func(config *Config) {
		changing(config)
		config.LogSlots, config.Window = 31, 8
		config.Timeout, config.Beat = 4*time.Millisecond, 500*time.Microsecond
	})
	random := rand.New(rand.NewPCG(2, 2))
	g.servers[0].Campaign()
	g.run(random, 2*time.Millisecond)
	beat := g.servers[0].config.Beat
	g.servers[0].Missing(2, true)
	for i := range 64 {
		for range 1 + i%6 {
			if g.servers[1].CanBroadcast() {
				g.send(t, 1, "y")
			}
			g.run(random, beat/50)
		}
		g.run(random, restBeats*beat+time.Duration(i)*beat/16)
	}
	g.servers[1].Missing(2, true)
	g.run(random, 2*restBeats*beat)
	g.servers[1].Campaign()
	g.run(random, 4*restBeats*beat)
	g.agree()
	if g.servers[0].Ended() || g.broken != "" || !g.servers[1].Leading() {
		t.Errorf("%q, %v\n%v; the last round is %v", g.broken, g.servers[0], g.servers[1],
			g.rounds[0][len(g.rounds[0])-1])
	}
}

// TestAMissingLeaderIsFollowedNoMore: a detector outside is quicker than heartbeats.
func TestAMissingLeaderIsFollowedNoMore(t *testing.T) {
	t.Parallel()
	g := newGroup(t, 4, 3, func(c *Config) { c.Timeout = time.Hour })
	random := rand.New(rand.NewPCG(2, 2))
	g.servers[0].Campaign()
	for {
		if leader, known := g.servers[1].Leader(); known && leader == 0 {
			break
		}
		g.run(random, 20*time.Microsecond)
	}
	g.servers[1].Missing(2, true)
	if _, known := g.servers[1].Leader(); !known {
		t.Error("another server is missing, and the leader is not followed")
	}
	g.servers[1].Missing(0, true)
	if leader, known := g.servers[1].Leader(); known {
		t.Errorf("it follows %d", leader)
	}
	if g.servers[2].Missing(0, true); g.servers[2].deadline <= g.network.Now() {
		t.Error("a server campaigns at once that is not the first one")
	}
	g.down[0] = true
	g.network.Crash(g.hosts[0].ID())
	g.servers[1].Missing(2, false)
	quick := g.network.Now() + 2*time.Millisecond // and not after an hour
	for g.network.Now() < quick && !g.servers[1].Leading() {
		g.run(random, 20*time.Microsecond)
	}
	if !g.servers[1].Leading() {
		t.Errorf("the first server does not lead: %v", g.servers[1])
	}
	g.servers[1].Missing(2, true)
	g.servers[1].Missing(0, false)
	if suspected := g.servers[1].Status().Suspected; !slices.Equal(suspected, []order.ServerID{2}) {
		t.Errorf("suspects %v", suspected)
	}
}

// TestEntriesHaveRoomForSomeMessages: where an entry has not room for the messages of all, they
// take turns, and all are A-delivered.
func TestEntriesHaveRoomForSomeMessages(t *testing.T) {
	t.Parallel()
	g := newGroup(t, 5, 3, func(c *Config) { c.MessagesMax = 150 })
	random := rand.New(rand.NewPCG(2, 2))
	g.servers[0].Campaign()
	sent := make([]int, 3)
	for range 40 {
		for i, s := range g.servers {
			if s.CanBroadcast() {
				g.send(t, i, string(bytes.Repeat([]byte{byte('a' + i)}, 60+random.IntN(41))))
				sent[i]++
			}
		}
		g.run(random, 100*time.Microsecond)
	}
	for k := 0; k < 50 && !g.settled(sent); k++ {
		g.run(random, 200*time.Microsecond)
	}
	g.agree()
	if g.broken != "" || !g.settled(sent) {
		t.Fatalf("%q, sent %v: %v", g.broken, sent, g.servers[0])
	}
	for _, d := range g.rounds[0] {
		bytes := 0
		for _, m := range d.Messages {
			bytes += len(m.Payload)
		}
		if bytes > 150+protected.Word {
			t.Errorf("a round has %d bytes", bytes)
		}
	}
}

// TestMajoritiesAreThoseOfTheShard compares majorities of groups with their meaning.
func TestMajoritiesAreThoseOfTheShard(t *testing.T) {
	t.Parallel()
	for servers := 1; servers <= 5; servers++ {
		for shard := servers; shard <= 70; shard++ {
			config := Config{Shard: shard, Peers: make([]rdmanet.Peer, servers)}
			for i := range config.Peers {
				config.Peers[i] = rdmanet.Peer{ID: "x", Incarnation: rdmanet.Incarnation(1 + i)}
			}
			c, q := firstConfiguration(config.Peers, servers, config.size()), shard/2+1
			for k := range servers + 1 {
				if most := c.most(func(seat int) bool { return seat < k }); most != (k >= q) {
					t.Errorf("%d servers of a shard of %d are a majority: %v", k, shard, most)
				}
			}
			want := uint64(0)
			if q <= servers {
				want = uint64(10 * (servers - q + 1)) // q servers have as many, or more
			}
			reached := c.reached(func(seat int) uint64 { return uint64(10 * (seat + 1)) })
			if reached != want {
				t.Errorf("%d servers of a shard of %d reached %d, want %d", servers, shard, reached,
					want)
			}
		}
	}
}
