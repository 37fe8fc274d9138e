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

// settleTimeout limits the time until the first message is delivered, and until the last messages
// are delivered everywhere.
const settleTimeout = 20 * time.Second

// settlePause is the pause between two checks for that.
const settlePause = time.Millisecond

// multicastLoad holds all clients' messages, and all replicas' deliveries.
type multicastLoad struct {
	p        MulticastParameters
	payload  []byte
	clients  []*multicastClient
	groups   []groupDeliveries
	replicas [][]replicaDeliveries // by group and server
}

// groupDeliveries records the gaps between the deliveries of a group. A message counts when the
// first replica delivers it.
type groupDeliveries struct {
	mu      sync.Mutex
	last    time.Time
	longest time.Duration
}

// replicaDeliveries are the deliveries of a replica since its start.
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

// multicastClient makes one client's messages. Its engine asks for the next message from one
// goroutine. Deliveries come from other goroutines.
type multicastClient struct {
	load   *multicastLoad
	name   order.Replica
	random *rand.Rand
	wake   func() // makes the engine ask again

	mu        sync.Mutex
	on        bool
	sequence  uint64
	sent      []uint64         // messages to each group
	ready     *order.Multicast // made, but not taken yet
	slots     []multicastSlot  // the slot of message n is n modulo the number of slots
	completed uint64           // messages delivered in all their destinations
	begun     time.Time        // the beginning of the window, zero outside of it
	window    Window
}

// multicastSlot is the slot of a message under way.
type multicastSlot struct {
	sequence uint64
	started  time.Time
	// lacking are the destinations that have not delivered it. It is empty if the slot is free.
	lacking []order.GroupID
}

// next returns the message that the client multicasts now, or false if there is none. It returns
// the same message again until taken is called.
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

// taken records that the engine took the last message that next returned.
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

// deliver records that a replica delivers a message.
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

// deliver records that some replica of a group delivers a message of this client.
func (c *multicastClient) deliver(group order.GroupID, sequence uint64) {
	c.mu.Lock()
	slot := &c.slots[sequence%uint64(len(c.slots))]
	place := -1
	if slot.sequence == sequence {
		place = slices.Index(slot.lacking, group)
	}
	if place < 0 { // another replica delivered it before
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

// watch starts a new measurement of the gaps between deliveries.
func (l *multicastLoad) watch() {
	for i := range l.groups {
		g := &l.groups[i]
		g.mu.Lock()
		g.last, g.longest = time.Now(), 0
		g.mu.Unlock()
	}
}

// longestGap returns the longest time since watch in which one of the groups delivered nothing.
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

// start lets the clients multicast.
func (l *multicastLoad) start() {
	for _, c := range l.clients {
		c.mu.Lock()
		c.on = true
		c.mu.Unlock()
		c.wake()
	}
}

// running waits until a message of each client has been delivered.
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

// await waits until lacking returns "".
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

// begin opens the measured window. end closes it.
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

// settle waits until all live replicas have delivered all messages for their groups.
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

// compare checks that the live replicas of a group delivered the same messages in the same order,
// and as many as were multicast to the group. It returns the number of compared deliveries.
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
