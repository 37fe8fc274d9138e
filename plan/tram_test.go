package plan

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/protected"
	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/tram"
	"github.com/ledgerd/ledgerd/tram/replica"
)

// tramServers is a group of TRAM's replicas, each with a client on its host.
type tramServers struct {
	*remoteGroup
	window   int
	replicas []*replica.Replica
	clients  []*replica.Client
}

// newTRAM returns such a group, which the first replica leads. Each client has a number of messages
// outstanding.
func newTRAM(t *testing.T, d Deployment, servers, payload, window int) *remoteGroup {
	t.Helper()
	g := &tramServers{remoteGroup: newRemoteGroup(t, d, servers, payload), window: window}
	options := replica.Options{Tree: tram.Chain(1), PayloadMax: payload, Window: servers * window,
		BufferSlots: max(8, 4*window), LogSlots: max(64, 8*servers*window), Patience: time.Hour}
	var peers []rdmanet.Peer
	for _, host := range g.hosts {
		peers = append(peers, host.Peer())
	}
	options.Replicas, options.Clients = [][]rdmanet.Peer{peers}, peers
	for i, host := range g.hosts {
		r, err := replica.New(options, order.Replica{Server: order.ServerID(i)}, host)
		g.must(err)
		c, err := replica.NewClient(options, order.ServerID(i), host)
		g.must(err)
		g.replicas, g.clients = append(g.replicas, r), append(g.clients, c)
		r.Lead(0)
	}
	g.remoteGroup.turn = g.turn
	g.describe = func() string { return fmt.Sprint(g.replicas[0], g.clients[0]) }
	return g.remoteGroup
}

// turn makes a replica and its client do what they can do now.
func (g *tramServers) turn(i int, now time.Duration) bool {
	r, c := g.replicas[i], g.clients[i]
	busy := c.Complete(now)
	for len(g.began[i])-len(g.delivered[i][i]) < g.window {
		err := c.Multicast(order.Multicast{ID: order.MessageID{Sender: order.Replica{
			Group: order.Clients, Server: order.ServerID(i)},
			Sequence: uint64(len(g.began[i]) + 1)}, To: []order.GroupID{0}, Payload: g.payload})
		if err != nil {
			break
		}
		g.began[i] = append(g.began[i], now)
	}
	busy = c.Poll(now) || busy
	busy = r.Poll(now) || busy
	for _, machine := range []protected.Machine{r, c} {
		for _, want := range machine.Wanted() {
			attachment, err := g.hosts[i].Attach(context.Background(), want.Peer, want.Region)
			machine.Attached(want.Number, attachment, err)
			busy = true
		}
	}
	for _, message := range r.Delivered() {
		g.deliver(i, message.ID.Sender.Server, now)
		busy = true
	}
	if halted := r.Status().Halted; halted != "" {
		g.t.Fatalf("replica %d halts: %s", i, halted)
	}
	return busy
}
