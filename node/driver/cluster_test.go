package driver_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ledgerd/ledgerd/allconcur"
	"github.com/ledgerd/ledgerd/digraph"
	"github.com/ledgerd/ledgerd/node/detector"
	"github.com/ledgerd/ledgerd/node/driver"
	"github.com/ledgerd/ledgerd/node/rounds"
	"github.com/ledgerd/ledgerd/node/wire"
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/rdmanet/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a condition may take on a busy machine.
const patience = time.Minute

func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !holds() {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", patience, what)
		}
		time.Sleep(time.Millisecond)
	}
}

// pool is a Source of given batches.
type pool struct {
	ready chan struct{}

	mu      sync.Mutex
	batches [][]byte
	// repeat, if set, returns what goes into a round that takes place anyway.
	repeat func(round uint64) []byte
}

func newPool() *pool { return &pool{ready: make(chan struct{}, 1)} }

func (p *pool) submit(batches ...[]byte) {
	p.mu.Lock()
	p.batches = append(p.batches, batches...)
	p.mu.Unlock()
	select {
	case p.ready <- struct{}{}:
	default:
	}
}

func (p *pool) Next(maxBytes int) []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.batches) == 0 || len(p.batches[0]) > maxBytes {
		return nil
	}
	batch := p.batches[0]
	p.batches = p.batches[1:]
	return batch
}

func (p *pool) NextIn(round func() uint64, due func() bool, maxBytes int) []byte {
	if batch := p.Next(maxBytes); batch != nil {
		return batch
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.repeat == nil || !due() {
		return nil
	}
	return p.repeat(round())
}

func (p *pool) Ready() <-chan struct{} { return p.ready }

func (p *pool) waiting() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.batches)
}

// book is a Sink that keeps its input. While its gate is closed it takes nothing.
type book struct {
	mu       sync.Mutex
	gate     chan struct{} // nil: open
	rounds   []order.Delivery
	payloads int // not empty
	removed  []order.ServerID
	tries    int // calls of TryDeliver

	delivered func()                // if set, called for each payload
	fault     func(*order.Delivery) // planted fault: changes the delivery
}

func (b *book) Deliver(ctx context.Context, deliveries []order.Delivery) error {
	b.mu.Lock()
	gate := b.gate
	b.mu.Unlock()
	if gate != nil {
		select {
		case <-gate:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, delivery := range deliveries {
		if b.fault != nil {
			b.fault(&delivery)
		}
		b.rounds = append(b.rounds, delivery)
		b.removed = append(b.removed, delivery.Removed...)
		for _, message := range delivery.Messages {
			if len(message.Payload) > 0 {
				b.payloads++
				if b.delivered != nil {
					b.delivered()
				}
			}
		}
	}
	return nil
}

// TryDeliver implements driver.PromptSink. At times it has no room.
func (b *book) TryDeliver(deliveries []order.Delivery) (bool, error) {
	b.mu.Lock()
	b.tries++
	full := b.gate != nil || b.tries%5 == 0
	b.mu.Unlock()
	if full {
		return false, nil
	}
	return true, b.Deliver(context.Background(), deliveries)
}

// begin copies another book's rounds before the given one.
func (b *book) begin(other *book, before order.Round) {
	other.mu.Lock()
	defer other.mu.Unlock()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, round := range other.rounds {
		if round.Round >= before {
			return
		}
		b.rounds = append(b.rounds, round)
		for _, message := range round.Messages {
			if len(message.Payload) > 0 {
				b.payloads++
			}
		}
	}
}

func (b *book) close() (open func()) {
	gate := make(chan struct{})
	b.mu.Lock()
	b.gate = gate
	b.mu.Unlock()
	return func() {
		b.mu.Lock()
		b.gate = nil
		b.mu.Unlock()
		close(gate)
	}
}

func (b *book) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.payloads
}

// said returns the origins of messages of a size, by round.
func (b *book) said(size int) map[order.Round][]order.ServerID {
	b.mu.Lock()
	defer b.mu.Unlock()
	said := map[order.Round][]order.ServerID{}
	for _, round := range b.rounds {
		for _, message := range round.Messages {
			if len(message.Payload) == size {
				said[round.Round] = append(said[round.Round], message.Origin)
			}
		}
	}
	return said
}

func (b *book) removals() []order.ServerID {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]order.ServerID(nil), b.removed...)
}

// pages returns the deliveries as comparable text: round, origins and payloads.
func (b *book) pages() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var pages []string
	for _, round := range b.rounds {
		for _, message := range round.Messages {
			if len(message.Payload) > 0 {
				pages = append(pages, fmt.Sprintf("round %d: %d says %x", round.Round,
					message.Origin, message.Payload[:min(16, len(message.Payload))]))
			}
		}
	}
	return pages
}

// cluster is some servers over one fabric.
type cluster struct {
	t       testing.TB
	network *memory.Network
	engine  string
	peers   []rdmanet.PeerID
	nodes   []*node
}

type node struct {
	host     rdmanet.Host
	control  *wire.Datagrams
	driver   *driver.Driver
	detector *detector.Detector
	pool     *pool
	book     *book

	mu     sync.Mutex
	lost   []order.ServerID
	halted []string
	ended  []string // "run 1: members"

	greeted map[rdmanet.PeerID]bool // peers from which kindHello came
}

// kindHello is a message that shows that one server can reach another.
const kindHello wire.Kind = 200

// connected waits until every server can reach every other one, and no frame that a cut link held
// up is still on its way.
func (c *cluster) connected() {
	c.t.Helper()
	for i, n := range c.nodes {
		n.mu.Lock()
		clear(n.greeted)
		n.mu.Unlock()
		for k, other := range c.nodes {
			if k == i {
				continue
			}
			eventually(c.t, fmt.Sprintf("server %d hears server %d", i, k), func() bool {
				_ = other.control.Send(c.peers[i], kindHello, nil) // again, until it gets through
				n.mu.Lock()
				defer n.mu.Unlock()
				return n.greeted[c.peers[k]]
			})
		}
	}
}

func (n *node) ends() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return append([]string(nil), n.ended...)
}

type clusterOptions struct {
	engine  string
	servers int
	memory  memory.Options
	driver  driver.Config // bounds and linger
	payload int
	timing  detector.Timing // calmTiming unless it says otherwise
	hosts   []rdmanet.Host  // instead of memory's
	change  func(order.Delivery) bool
	ended   func(self order.ServerID, group driver.Group)
	fault   func(self order.ServerID, d *order.Delivery)
	rounds  *rounds.Recorder // of server 0
}

func newCluster(t testing.TB, options clusterOptions) *cluster {
	t.Helper()
	if options.timing == (detector.Timing{}) {
		options.timing = calmTiming
	}
	c := &cluster{t: t, network: memory.NewNetwork(options.memory), engine: options.engine}
	for i := range options.servers {
		if options.hosts != nil {
			c.peers = append(c.peers, options.hosts[i].ID())
			continue
		}
		c.peers = append(c.peers, rdmanet.PeerID(fmt.Sprintf("server-%d", i)))
	}
	for i, peer := range c.peers {
		var host rdmanet.Host
		if options.hosts != nil {
			host = options.hosts[i]
		} else {
			memoryHost, err := c.network.Host(peer)
			if err != nil {
				t.Fatal(err)
			}
			host = memoryHost
		}
		c.nodes = append(c.nodes, c.start(host, order.ServerID(i), options))
	}
	t.Cleanup(c.close)
	return c
}

func (c *cluster) start(host rdmanet.Host, self order.ServerID, options clusterOptions) *node {
	c.t.Helper()
	n := &node{host: host, pool: newPool(), book: &book{}, greeted: map[rdmanet.PeerID]bool{}}
	if options.fault != nil {
		n.book.fault = func(d *order.Delivery) { options.fault(self, d) }
	}
	config := options.driver
	config.Host, config.Self, config.Peers = host, self, c.peers
	config.Source, config.Sink = n.pool, n.book
	config.FrameRun, config.FrameHead = allconcur.FrameGeneration, allconcur.HeadOf
	config.NewEngine = func(group driver.Group, place order.ServerID) (order.Broadcaster, error) {
		return allconcur.New(allconcur.Config{Engine: options.engine, Self: place,
			Servers: len(group.Members), Reliable: reliable(c.t, len(group.Members)),
			Generation: group.Run, FirstRound: group.FirstRound,
			MaxPayload: max(options.payload, 1024), Change: options.change})
	}
	if self == 0 {
		config.Rounds = options.rounds
	}
	config.Ended = func(group driver.Group, members []order.ServerID) {
		n.mu.Lock()
		n.ended = append(n.ended, fmt.Sprintf("run %d: %v", group.Run, members))
		n.mu.Unlock()
		if options.ended != nil {
			options.ended(self, group)
		}
	}
	config.Logger = slog.New(slog.DiscardHandler)
	config.Lost = func(generation uint64, server order.ServerID, cause error) {
		n.mu.Lock()
		n.lost = append(n.lost, server)
		n.mu.Unlock()
		n.detector.Lost(generation, server, cause)
	}
	config.Removed = func(generation uint64, servers []order.ServerID) {
		n.detector.Removed(generation, servers)
	}
	config.Halted = func(_ driver.Group, reason string) {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.halted = append(n.halted, reason)
	}
	var err error
	if n.driver, err = driver.New(config); err != nil {
		c.t.Fatal(err)
	}
	shared, err := wire.NewDatagrams(host, config.Logger)
	if err != nil {
		c.t.Fatal(err)
	}
	if err := shared.Register(kindHello, func(from rdmanet.Peer, _ []byte) {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.greeted[from.ID] = true
	}); err != nil {
		c.t.Fatal(err)
	}
	n.control = shared
	n.detector, err = detector.New(detector.Config{Host: host, Control: shared, Self: self,
		Peers: c.peers, Suspect: n.driver.Suspect, Trust: n.driver.Trust,
		Timing: options.timing, Logger: config.Logger})
	if err != nil {
		c.t.Fatal(err)
	}
	return n
}

func reliable(t testing.TB, n int) *digraph.Digraph {
	t.Helper()
	g, err := digraph.Reliable(n, digraph.Target{})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// activate starts a generation at some servers. Without members, all servers are members.
func (c *cluster) activate(generation uint64, at []int, members ...order.ServerID) {
	c.t.Helper()
	c.activateFrom(generation, 1, at, members...)
}

func (c *cluster) activateFrom(generation uint64, first order.Round, at []int,
	members ...order.ServerID) {
	c.t.Helper()
	if members == nil {
		for i := range c.nodes {
			members = append(members, order.ServerID(i))
		}
	}
	for _, i := range at {
		err := c.nodes[i].detector.Activate(detector.Group{Generation: generation, Members: members,
			Reliable: reliable(c.t, len(members))})
		if err != nil {
			c.t.Fatal(err)
		}
		group := driver.Group{Run: generation, FirstRound: first, Members: members}
		if err := c.nodes[i].driver.Activate(group); err != nil {
			c.t.Fatal(err)
		}
	}
}

func (c *cluster) all() []int {
	all := make([]int, len(c.nodes))
	for i := range all {
		all[i] = i
	}
	return all
}

func (c *cluster) close() {
	for i, n := range c.nodes {
		if c.t.Failed() {
			c.t.Logf("server %d delivered %d batches, %d wait: %+v", i, n.book.count(),
				n.pool.waiting(), *n.driver.Status())
		}
	}
	for _, n := range c.nodes {
		n.detector.Close()
		n.driver.Close()
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var closing sync.WaitGroup
	for _, n := range c.nodes {
		closing.Go(func() {
			if err := n.host.Close(ctx); err != nil {
				c.t.Error(err)
			}
		})
	}
	closing.Wait()
}

// batch returns a batch that equals no other.
func batch(server, number, size int) []byte {
	b := bytes.Repeat([]byte{byte(server)}, max(size, 12))
	binary.BigEndian.PutUint32(b, uint32(server))
	binary.BigEndian.PutUint64(b[4:], uint64(number))
	return b
}

// sameBooks checks that the servers delivered the same, and how much.
func (c *cluster) sameBooks(servers []int, payloads int) {
	c.t.Helper()
	if wrong := c.difference(servers, payloads); wrong != "" {
		c.t.Fatal(wrong)
	}
}

// difference returns where servers did not deliver the same, or not the given number of payloads.
func (c *cluster) difference(servers []int, payloads int) string {
	want := c.nodes[servers[0]].book.pages()
	if len(want) != payloads {
		return fmt.Sprintf("server %d delivered %d batches, want %d", servers[0], len(want),
			payloads)
	}
	for _, i := range servers {
		got := c.nodes[i].book.pages()
		for k := range want {
			if k >= len(got) || got[k] != want[k] {
				return fmt.Sprintf("batch %d: server %d delivered %q, server %d %q", k, servers[0],
					want[k], i, got[min(k, len(got)-1)])
			}
		}
		if len(got) != len(want) {
			return fmt.Sprintf("server %d delivered %d batches, server %d %d", i, len(got),
				servers[0], len(want))
		}
	}
	return ""
}

// misdelivered returns an error of one book by itself: a batch under another server's name, or not
// once each in the order in which its server submitted.
func (b *book) misdelivered() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	last := map[order.ServerID]uint64{}
	for _, round := range b.rounds {
		for _, message := range round.Messages {
			if len(message.Payload) < 12 {
				continue // empty, or not made by batch
			}
			from, number := order.ServerID(binary.BigEndian.Uint32(message.Payload)),
				binary.BigEndian.Uint64(message.Payload[4:])
			if from != message.Origin {
				return fmt.Sprintf("round %d has a batch of server %d as one of server %d",
					round.Round, from, message.Origin)
			}
			if before, known := last[from]; known && number <= before {
				return fmt.Sprintf("round %d has batch %d of server %d, after batch %d",
					round.Round, number, from, before)
			}
			last[from] = number
		}
	}
	return ""
}
