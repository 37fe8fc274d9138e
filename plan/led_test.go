package plan

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/dare"
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/sim/fabric"
)

// remoteGroup is a group of servers on the timed fabric, with the accesses of a deployment. Their
// engine is DARE or TRAM.
type remoteGroup struct {
	t       *testing.T
	remote  remote
	payload []byte
	network *fabric.Network
	hosts   []*fabric.Host
	places  map[rdmanet.PeerID]int
	waking  []bool
	// turn makes a server do what it can do now. It reports whether there was anything.
	turn func(i int, now time.Duration) (busy bool)
	// describe describes the group when it stands still.
	describe func() string
	// began has the instants at which each server A-broadcast its messages, and delivered those at
	// which each server A-delivered them, by server and origin.
	began     [][]time.Duration
	delivered [][][]time.Duration
	// wire counts the bytes on all links. posted are those of the operation that is being posted.
	wire, posted int
}

// Operation implements fabric.Timing. The distances come in addition.
func (g *remoteGroup) Operation(_ rdmanet.OperationKind, bytes int, _ bool) fabric.Cost {
	g.posted = g.remote.wire(bytes)
	return fabric.Cost{Overhead: g.remote.post, Bytes: g.remote.bytes(bytes),
		Target: g.remote.target}
}

// Poll implements fabric.Timing.
func (g *remoteGroup) Poll() time.Duration { return g.remote.poll }

// must fails the test with an error.
func (g *remoteGroup) must(err error) {
	g.t.Helper()
	if err != nil {
		g.t.Fatal(err)
	}
}

// newRemoteGroup returns a group without an engine.
func newRemoteGroup(t *testing.T, d Deployment, servers, payload int) *remoteGroup {
	t.Helper()
	g := &remoteGroup{t: t, payload: make([]byte, payload),
		places: map[rdmanet.PeerID]int{}, waking: make([]bool, servers),
		began: make([][]time.Duration, servers)}
	var err error
	g.remote, err = newRemote(d, servers)
	g.must(err)
	g.network = fabric.New(fabric.Options{Timing: g, OperationTimeout: time.Hour,
		Distance: func(from, to rdmanet.PeerID) time.Duration {
			if from == to {
				g.posted = 0 // it takes no link to the own memory
				return 0
			}
			g.wire += g.posted
			g.posted = 0
			return g.remote.way(g.places[from], g.places[to])
		}})
	t.Cleanup(g.network.Close)
	for i := range servers {
		host, err := g.network.Start(rdmanet.PeerID(fmt.Sprint(i)))
		g.must(err)
		g.hosts, g.places[host.ID()] = append(g.hosts, host), i
		g.delivered = append(g.delivered, make([][]time.Duration, servers))
	}
	return g
}

// newLed returns a group of DARE's servers, the first of which campaigns.
func newLed(t *testing.T, d Deployment, servers, payload, window int) *remoteGroup {
	t.Helper()
	g := newRemoteGroup(t, d, servers, payload)
	// The leader looks at most once a beat at what the others need of the log.
	config := dare.Config{FirstRound: 1, PayloadMax: payload, LogSlots: max(64, 16*window),
		Window: window, Timeout: time.Hour, Beat: 4 * g.remote.way(0, servers-1),
		Patience: time.Hour}
	for _, host := range g.hosts {
		config.Peers = append(config.Peers, host.Peer())
	}
	var made []*dare.Server
	for i, host := range g.hosts {
		config.Self = order.ServerID(i)
		server, err := dare.New(config, host)
		g.must(err)
		made = append(made, server)
	}
	g.turn = func(i int, now time.Duration) bool { return g.turnLed(made[i], i, now) }
	g.describe = func() string { return made[0].String() }
	made[0].Campaign()
	return g
}

// turnLed makes a server of DARE do what it can do now.
func (g *remoteGroup) turnLed(s *dare.Server, i int, now time.Duration) bool {
	for s.CanBroadcast() {
		g.must(s.Broadcast(g.payload))
		g.began[i] = append(g.began[i], now)
	}
	busy := s.Poll(now)
	for _, want := range s.Wanted() {
		attachment, err := g.hosts[i].Attach(context.Background(), want.Peer, want.Region)
		s.Attached(want.Number, attachment, err)
		busy = true
	}
	for _, delivery := range s.Deliveries() {
		for _, message := range delivery.Messages {
			if message.Payload != nil {
				g.deliver(i, message.Origin, now)
			}
		}
	}
	if s.Halted() != "" {
		g.t.Fatalf("server %d halts: %s", i, s.Halted())
	}
	return busy
}

// deliver notes that a server A-delivers the next message of an origin.
func (g *remoteGroup) deliver(i int, origin order.ServerID, now time.Duration) {
	of := &g.delivered[i][origin]
	*of = append(*of, now)
}

// work makes a server work while its processor is free.
func (g *remoteGroup) work(i int) {
	for busy := true; busy; {
		now := g.network.Now()
		if until := g.hosts[i].BusyUntil(); until > now {
			if !g.waking[i] {
				g.waking[i] = true
				g.network.After(until-now, func() { g.waking[i] = false })
			}
			return
		}
		busy = g.turn(i, now)
	}
}

// run runs the group until every server A-delivered a number of messages of each.
func (g *remoteGroup) run(messages int) {
	for {
		least := messages
		for i := range g.hosts {
			g.work(i)
			for _, of := range g.delivered[i] {
				least = min(least, len(of))
			}
		}
		if least >= messages {
			return
		}
		if !g.network.Step() {
			g.t.Fatalf("the group stands still: %s", g.describe())
		}
	}
}

// count returns the number of messages that the leader A-delivered.
func (g *remoteGroup) count() int {
	count := 0
	for _, of := range g.delivered[0] {
		count += len(of)
	}
	return count
}

// latencies returns the mean times from a message's A-broadcast to its A-delivery at its own server
// and at the last one, and the longest of them, without the first messages of each server.
func (g *remoteGroup) latencies(first int) (own, all, worst time.Duration) {
	count := time.Duration(0)
	for origin := range g.hosts {
		for k := first; k < len(g.began[origin]); k++ {
			end := time.Duration(0)
			for s := range g.hosts {
				if k >= len(g.delivered[s][origin]) {
					end = 0
					break
				}
				end = max(end, g.delivered[s][origin][k])
			}
			if end == 0 {
				break
			}
			began := g.began[origin][k]
			own += g.delivered[origin][origin][k] - began
			all += end - began
			worst = max(worst, end-began)
			count++
		}
	}
	return own / count, all / count, worst
}

// measure measures a group with a number of messages of each server outstanding.
func (g *remoteGroup) measure(window int) (run engineRun) {
	const first, last = 4, 12
	g.run(first * window)
	from, wire, before := g.network.Now(), g.wire, g.count()
	g.run(last * window)
	count := float64(g.count() - before)
	run.messages = count / (g.network.Now() - from).Seconds()
	run.wire = float64(g.wire-wire) / (count * float64(len(g.payload)))
	run.latency, run.all, run.worst = g.latencies(first * window)
	return run
}
