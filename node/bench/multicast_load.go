package bench

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/ledgerd/ledgerd/order"
)

// settleTimeout is how long the last messages may take to be delivered everywhere, and the first
// anywhere.
const settleTimeout = 20 * time.Second

// settlePause is how often it is looked whether they were.
const settlePause = time.Millisecond

// multicastLoad is what all clients multicast, and what all replicas deliver.
type multicastLoad struct {
	p        MulticastParameters
	payload  []byte
	clients  []*multicastClient
	groups   []groupDeliveries
	replicas [][]replicaDeliveries // by group and server
}

// groupDeliveries is when a group last delivered something first, by any of its replicas, for who
// watches the gaps.
type groupDeliveries struct {
	mu      sync.Mutex
	last    time.Time
	longest time.Duration
}

// replicaDeliveries is what a replica delivered since its start.
type replicaDeliveries struct {
	mu    sync.Mutex
	count uint64
	hash  *xxhash.Digest
}

func newMulticastLoad(p MulticastParameters) *multicastLoad {
	l := &multicastLoad{p: p, payload: make([]byte, p.Size),
		groups: make([]groupDeliveries, p.Groups), replicas: make([][]replicaDeliveries, p.Groups)}
	for i := range l.payload {
		l.payload[i] = byte(i * 31)
	}
	for group := range l.replicas {
		l.replicas[group] = make([]replicaDeliveries, p.Replicas)
		for server := range l.replicas[group] {
			l.replicas[group][server].hash = xxhash.New()
		}
	}
	for client := range p.Clients {
		l.clients = append(l.clients, &multicastClient{load: l,
			name:  order.Replica{Group: order.Clients, Server: order.ServerID(client)},
			slots: make([]multicastSlot, p.Outstanding), sent: make([]uint64, p.Groups),
			random: rand.New(rand.NewPCG(uint64(client), 0)), wake: func() {}})
	}
	return l
}

// multicastClient makes one client's messages. Its engine asks for the next one from one goroutine;
// deliveries come from others.
type multicastClient struct {
	load   *multicastLoad
	name   order.Replica
	random *rand.Rand
	wake   func() // has the engine ask again

	mu        sync.Mutex
	on        bool
	sequence  uint64
	sent      []uint64         // messages to each group
	ready     *order.Multicast // made, and not taken yet
	slots     []multicastSlot  // the message of number n is in slot n modulo their number
	completed uint64           // messages delivered in all their destinations
	begun     time.Time        // the window's beginning, zero outside of it
	window    Window
}

// multicastSlot is a message under way.
type multicastSlot struct {
	sequence uint64
	started  time.Time
	// destinations that have not delivered it; empty where the slot is free
	lacking []order.GroupID
}

// next gives the message that the client multicasts now, false while there is none. It gives the
// same again until taken is called.
func (c *multicastClient) next() (order.Multicast, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ready == nil {
		slot := &c.slots[(c.sequence+1)%uint64(len(c.slots))]
		if !c.on || len(slot.lacking) > 0 {
			return order.Multicast{}, false
		}
		c.sequence++
		m := &order.Multicast{ID: order.MessageID{Sender: c.name, Sequence: c.sequence},
			To: c.destinations(), Payload: c.load.payload}
		slot.sequence, slot.lacking = c.sequence, append(slot.lacking[:0], m.To...)
		for _, group := range m.To {
			c.sent[group]++
		}
		c.ready = m
	}
	c.slots[c.ready.ID.Sequence%uint64(len(c.slots))].started = time.Now()
	return *c.ready, true
}

// taken says that the engine took what next gave last.
func (c *multicastClient) taken() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ready = nil
}

// destinations draws a destination set.
func (c *multicastClient) destinations() []order.GroupID {
	to := make([]order.GroupID, 0, c.load.p.Destinations)
	for left, group := c.load.p.Destinations, 0; left > 0; group++ {
		if c.random.IntN(c.load.p.Groups-group) < left {
			to = append(to, order.GroupID(group))
			left--
		}
	}
	return to
}

// deliver notes that a replica delivers a message.
func (l *multicastLoad) deliver(at order.Replica, m order.Multicast) {
	var name [12]byte
	binary.LittleEndian.PutUint32(name[:], uint32(m.ID.Sender.Server))
	binary.LittleEndian.PutUint64(name[4:], m.ID.Sequence)
	r := &l.replicas[at.Group][at.Server]
	r.mu.Lock()
	r.count++
	_, _ = r.hash.Write(name[:]) // a hash never fails
	r.mu.Unlock()
	if int(m.ID.Sender.Server) < len(l.clients) {
		l.clients[m.ID.Sender.Server].deliver(at.Group, m.ID.Sequence)
	}
}

// deliver notes that some replica of a group delivers a message of this client.
func (c *multicastClient) deliver(group order.GroupID, sequence uint64) {
	c.mu.Lock()
	slot := &c.slots[sequence%uint64(len(c.slots))]
	place := -1
	if slot.sequence == sequence {
		place = slices.Index(slot.lacking, group)
	}
	if place < 0 { // another replica did before
		c.mu.Unlock()
		return
	}
	now := time.Now()
	slot.lacking = slices.Delete(slot.lacking, place, place+1)
	done := len(slot.lacking) == 0
	if done {
		c.completed++
		if !c.begun.IsZero() {
			c.window.Requests++
			c.window.Bytes += uint64(c.load.p.Size)
			if slot.started.After(c.begun) {
				c.window.Latency.Add(now.Sub(slot.started))
			}
		}
	}
	c.mu.Unlock()
	c.load.groups[group].delivered(now)
	if done {
		c.wake()
	}
}

func (g *groupDeliveries) delivered(now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if gap := now.Sub(g.last); gap > 0 {
		g.last, g.longest = now, max(g.longest, gap)
	}
}

// watch has the gaps between deliveries count from now on.
func (l *multicastLoad) watch() {
	for i := range l.groups {
		g := &l.groups[i]
		g.mu.Lock()
		g.last, g.longest = time.Now(), 0
		g.mu.Unlock()
	}
}

// longestGap is the longest time since watch in which one of the groups delivered nothing.
func (l *multicastLoad) longestGap(groups []order.GroupID) (longest time.Duration) {
	now := time.Now()
	for _, group := range groups {
		g := &l.groups[group]
		g.mu.Lock()
		longest = max(longest, g.longest, now.Sub(g.last))
		g.mu.Unlock()
	}
	return longest
}

// start has the clients multicast.
func (l *multicastLoad) start() {
	for _, c := range l.clients {
		c.mu.Lock()
		c.on = true
		c.mu.Unlock()
		c.wake()
	}
}

// running waits until each client had a message delivered.
func (l *multicastLoad) running(ctx context.Context, engine multicastEngine) error {
	return l.await(ctx, engine, func() string {
		for _, c := range l.clients {
			c.mu.Lock()
			completed := c.completed
			c.mu.Unlock()
			if completed == 0 {
				return fmt.Sprintf("no message of client %d is delivered", c.name.Server)
			}
		}
		return ""
	})
}

// await waits until nothing is lacking.
func (l *multicastLoad) await(ctx context.Context, engine multicastEngine,
	lacking func() string) error {
	for began := time.Now(); ; {
		if err := engine.failed(); err != nil {
			return err
		}
		what := lacking()
		if what == "" {
			return nil
		}
		if time.Since(began) > settleTimeout {
			return fmt.Errorf("%w: %s within %v", ErrServer, what, settleTimeout)
		}
		if err := pause(ctx, settlePause); err != nil {
			return err
		}
	}
}

// begin opens the measured window, end closes it.
func (l *multicastLoad) begin() {
	now := time.Now()
	for _, c := range l.clients {
		c.mu.Lock()
		c.begun = now
		c.mu.Unlock()
	}
}

func (l *multicastLoad) end() (total Window, latency Histogram) {
	now := time.Now()
	for _, c := range l.clients {
		c.mu.Lock()
		total.Seconds = now.Sub(c.begun).Seconds()
		c.begun, c.on = time.Time{}, false
		total.Requests += c.window.Requests
		total.Bytes += c.window.Bytes
		latency.Merge(c.window.Latency)
		c.mu.Unlock()
	}
	return total, latency
}

// settle waits until all that was multicast is delivered by all live replicas of its destinations.
func (l *multicastLoad) settle(ctx context.Context, engine multicastEngine) error {
	return l.await(ctx, engine, func() string {
		for _, c := range l.clients {
			c.mu.Lock()
			completed, sequence := c.completed, c.sequence
			c.mu.Unlock()
			if completed < sequence {
				return fmt.Sprintf("of client %d's %d messages, %d are not delivered",
					c.name.Server, sequence, sequence-completed)
			}
		}
		most := make([]uint64, l.p.Groups)
		live := engine.live()
		for _, at := range live {
			most[at.Group] = max(most[at.Group], l.delivered(at))
		}
		for _, at := range live {
			if count := l.delivered(at); count < most[at.Group] {
				return fmt.Sprintf("replica %v delivers %d messages of %d", at, count,
					most[at.Group])
			}
		}
		return ""
	})
}

func (l *multicastLoad) delivered(at order.Replica) uint64 {
	r := &l.replicas[at.Group][at.Server]
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.count
}

// compare checks that the live replicas of a group delivered the same in the same order, and as
// many messages as were multicast to it, and tells how many deliveries that were.
func (l *multicastLoad) compare(live []order.Replica) (compared uint64, err error) {
	first := make([]*replicaDeliveries, l.p.Groups)
	sent := make([]uint64, l.p.Groups)
	for _, c := range l.clients {
		for group, count := range c.sent {
			sent[group] += count
		}
	}
	for _, at := range live {
		r := &l.replicas[at.Group][at.Server]
		compared += r.count
		if r.count != sent[at.Group] {
			return 0, fmt.Errorf("%w: replica %v has %d deliveries, of %d messages to its group",
				ErrDiverged, at, r.count, sent[at.Group])
		}
		if first[at.Group] == nil {
			first[at.Group] = r
		}
		if want := first[at.Group]; r.count != want.count || r.hash.Sum64() != want.hash.Sum64() {
			return 0, fmt.Errorf("%w: replica %v has %d deliveries with hash %016x, another of "+
				"its group %d with %016x", ErrDiverged, at, r.count, r.hash.Sum64(), want.count,
				want.hash.Sum64())
		}
	}
	return compared, nil
}
