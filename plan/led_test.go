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

// group is a group of DARE's servers on the timed fabric, with the accesses of a deployment.
type group struct {
	t       *testing.T
	remote  remote
	payload []byte
	network *fabric.Network
	hosts   []*fabric.Host
	servers []*dare.Server
	places  map[rdmanet.PeerID]int
	waking  []bool
	// began has the instants at which each server A-broadcast its messages, and delivered those at
	// which each server A-delivered them, by server and origin.
	began     [][]time.Duration
	delivered [][][]time.Duration
	// wire counts the bytes on all links.
	wire int
}

// Operation implements fabric.Timing. The distances come in addition.
func (g *group) Operation(_ rdmanet.OperationKind, bytes int, _ bool) fabric.Cost {
	g.wire += g.remote.wire(bytes)
	return fabric.Cost{Overhead: g.remote.post, Bytes: g.remote.bytes(bytes),
		Target: g.remote.target}
}

// Poll implements fabric.Timing.
func (g *group) Poll() time.Duration { return g.remote.poll }

func newLed(t *testing.T, d Deployment, servers, payload, window int) *group {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	g := &group{t: t, payload: make([]byte, payload),
		places: map[rdmanet.PeerID]int{}, waking: make([]bool, servers),
		began: make([][]time.Duration, servers)}
	var err error
	g.remote, err = newRemote(d, servers)
	must(err)
	g.network = fabric.New(fabric.Options{Timing: g, OperationTimeout: time.Hour,
		Distance: func(from, to rdmanet.PeerID) time.Duration {
			return g.remote.way(g.places[from], g.places[to])
		}})
	t.Cleanup(g.network.Close)
	// The leader looks at most once a beat at what the others need of the log.
	config := dare.Config{FirstRound: 1, PayloadMax: payload, LogSlots: max(64, 16*window),
		Window: window, Timeout: time.Hour, Beat: 4 * g.remote.way(0, servers-1),
		Patience: time.Hour}
	for i := range servers {
		host, err := g.network.Start(rdmanet.PeerID(fmt.Sprint(i)))
		must(err)
		g.hosts, g.places[host.ID()] = append(g.hosts, host), i
		config.Peers = append(config.Peers, host.Peer())
		g.delivered = append(g.delivered, make([][]time.Duration, servers))
	}
	for i, host := range g.hosts {
		config.Self = order.ServerID(i)
		server, err := dare.New(config, host)
		must(err)
		g.servers = append(g.servers, server)
	}
	g.servers[0].Campaign()
	return g
}

// work makes a server work while its processor is free.
func (g *group) work(i int) {
	s, host := g.servers[i], g.hosts[i]
	for {
		now := g.network.Now()
		if until := host.BusyUntil(); until > now {
			if !g.waking[i] {
				g.waking[i] = true
				g.network.After(until-now, func() { g.waking[i] = false })
			}
			return
		}
		for s.CanBroadcast() {
			if err := s.Broadcast(g.payload); err != nil {
				g.t.Fatal(err)
			}
			g.began[i] = append(g.began[i], now)
		}
		busy := s.Poll(now)
		for _, want := range s.Wanted() {
			attachment, err := host.Attach(context.Background(), want.Peer, want.Region)
			s.Attached(want.Number, attachment, err)
			busy = true
		}
		for _, delivery := range s.Deliveries() {
			for _, message := range delivery.Messages {
				if message.Payload != nil {
					of := &g.delivered[i][message.Origin]
					*of = append(*of, now)
				}
			}
		}
		if s.Halted() != "" {
			g.t.Fatalf("server %d halts: %s", i, s.Halted())
		}
		if !busy {
			return
		}
	}
}

// run runs the group until every server A-delivered a number of messages of each.
func (g *group) run(messages int) {
	for {
		least := messages
		for i := range g.servers {
			g.work(i)
			for origin := range g.servers {
				least = min(least, len(g.delivered[i][origin]))
			}
		}
		if least >= messages {
			return
		}
		if !g.network.Step() {
			g.t.Fatalf("the group stands still: %v", g.servers[0])
		}
	}
}

// count returns the number of messages that the leader A-delivered.
func (g *group) count() int {
	count := 0
	for _, of := range g.delivered[0] {
		count += len(of)
	}
	return count
}

// latencies returns the mean times from a message's A-broadcast to its A-delivery at its own server
// and at the last one, and the longest of them, without the first messages of each server.
func (g *group) latencies(first int) (own, all, worst time.Duration) {
	count := time.Duration(0)
	for origin := range g.servers {
		for k := first; k < len(g.began[origin]); k++ {
			end := time.Duration(0)
			for s := range g.servers {
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

// runLed runs a group with a number of messages of each server outstanding.
func runLed(t *testing.T, d Deployment, servers, payload, window int) (run engineRun) {
	t.Helper()
	const first, last = 4, 12
	g := newLed(t, d, servers, payload, window)
	g.run(first * window)
	from, wire, before := g.network.Now(), g.wire, g.count()
	g.run(last * window)
	count := float64(g.count() - before)
	run.messages = count / (g.network.Now() - from).Seconds()
	run.wire = float64(g.wire-wire) / (count * float64(payload))
	run.latency, run.all, run.worst = g.latencies(first * window)
	return run
}
