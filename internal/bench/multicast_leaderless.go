package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/ledgerd/ledgerd/allconcur"
	"github.com/ledgerd/ledgerd/node/driver"
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/tram"
	"github.com/ledgerd/ledgerd/tram/replica"
	tramstream "github.com/ledgerd/ledgerd/tram/stream"
)

// Settings that the members of a leaderlessDeployment share.
const (
	leaderlessBatchMax = 4 << 20 // bytes of a batch
	streamEntries      = 1024
	streamStretch      = 64
	streamDepth        = 64
	streamRingEntries  = 64                    // at least, of the largest size
	streamRingMin      = 256 << 10             // bytes
	streamPatience     = 50 * time.Millisecond // after which other members take over
	// streamTick is the length of a stream's tick.
	streamTick = time.Microsecond
	// streamLook is the longest pause between two looks at the streams, even if nothing rings.
	streamLook = 2 * time.Millisecond
)

// itemHeader is the size of the header before each item of a batch: the item's number in the
// parent's stream, 0 if it entered here, and the length of its message.
const itemHeader = 12

// leaderlessDeployment is a set of groups that run AllConcur+, with streams between them.
type leaderlessDeployment struct {
	p       MulticastParameters
	members [][]*leaderlessMember // by group and server
	began   time.Time
	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup
	turns   []sync.Mutex // by client; held while a goroutine takes the client's messages

	mu      sync.Mutex
	failure error
}

// leaderlessMember is one server of one group: the source and the sink of its driver, and its part
// of the stream from the parent and of the streams to the children.
type leaderlessMember struct {
	deployment *leaderlessDeployment
	name       order.Replica
	host       rdmanet.RegionHost
	load       *multicastLoad
	driver     *driver.Driver
	ready      chan struct{} // for driver.Source
	ringing    chan struct{} // makes carry look at the streams
	queue      rdmanet.Queue
	carrier    *tramstream.Carrier // nil at the root
	rings      []rdmanet.Region
	outlets    []*streamOutlet // to the children
	feedback   []rdmanet.Attachment
	reporting  int // feedback under way

	mu      sync.Mutex // guards the fields below, and the carrier
	relay   *tram.Relay
	entered []order.Multicast // from the clients beside this member, for the next batch
}

// streamOutlet is a member's part of the stream to one child.
type streamOutlet struct {
	child   order.GroupID
	writer  *tramstream.Writer
	board   rdmanet.Region // feedback of the child's members
	to      []rdmanet.Attachment
	waiting []tramstream.Entry // not yet offered to the writer; guarded by the member's lock
}

// Tags of operations identify the origin of a completion.
const (
	tagFeedback = 1 << 32
	tagOutlet   = 1 << 16 // times the index of the outlet, plus the carrier
)

func newLeaderless(p MulticastParameters, hosts []rdmanet.RegionHost, load *multicastLoad,
	logger *slog.Logger) (_ *leaderlessDeployment, err error) {
	d := &leaderlessDeployment{p: p, members: make([][]*leaderlessMember, p.Groups),
		began: time.Now(), turns: make([]sync.Mutex, p.Clients)}
	d.ctx, d.cancel = context.WithCancel(context.Background())
	defer func() {
		if err != nil {
			err = errors.Join(err, d.close())
		}
	}()
	for i, host := range hosts {
		name := order.Replica{Group: order.GroupID(i / p.Replicas),
			Server: order.ServerID(i % p.Replicas)}
		m := &leaderlessMember{deployment: d, name: name, host: host, load: load,
			ready: make(chan struct{}, 1), ringing: make(chan struct{}, 1),
			relay: tram.NewRelay(p.Shape, name.Group)}
		d.members[name.Group] = append(d.members[name.Group], m)
		if err := m.open(hosts[int(name.Group)*p.Replicas:][:p.Replicas], logger); err != nil {
			return nil, fmt.Errorf("bench: replica %v: %w", name, err)
		}
	}
	for _, client := range load.clients {
		client.wake = func() { d.multicast(client) }
	}
	return d, nil
}

// open makes a member's driver and queue.
func (m *leaderlessMember) open(group []rdmanet.RegionHost, logger *slog.Logger) error {
	p := m.deployment.p
	g, err := reliableDigraph(p.Replicas)
	if err != nil {
		return err
	}
	peers := make([]rdmanet.PeerID, len(group))
	for i, host := range group {
		peers[i] = host.ID()
	}
	if m.queue, err = m.host.Queue(min(rdmanet.QueueDepthMax,
		2*p.Replicas*(1+streamDepth*len(p.Shape.Children(m.name.Group))))); err != nil {
		return err
	}
	m.driver, err = driver.New(driver.Config{
		Host: m.host, Self: m.name.Server, Peers: peers,
		NewEngine: func(run driver.Group, place order.ServerID) (order.Broadcaster, error) {
			return allconcur.New(allconcur.Config{Engine: allconcur.EngineAllConcurPlus,
				Self: place, Servers: len(run.Members), Reliable: g, Generation: run.Run,
				FirstRound: run.FirstRound, MaxPayload: leaderlessBatchMax})
		},
		FrameRun: allconcur.FrameGeneration,
		Source:   m, Sink: m, MaxBatch: leaderlessBatchMax,
		Halted: func(_ driver.Group, reason string) {
			m.deployment.fail(fmt.Errorf("%w: replica %v halted: %s", ErrServer, m.name, reason))
		},
		Logger: logger,
	})
	return err
}

// streamConfig returns the settings that the members of two groups share.
func (m *leaderlessMember) streamConfig() tramstream.Config {
	p := m.deployment.p
	members := make([]order.ServerID, p.Replicas)
	for i := range members {
		members[i] = order.ServerID(i)
	}
	entry := len(replica.AppendMessage(nil, order.Multicast{To: make([]order.GroupID, p.Groups),
		Payload: m.load.payload}))
	ring := max(streamRingMin, streamRingEntries*tramstream.RecordSize(entry))
	return tramstream.Config{Writers: members, Carriers: members, Self: m.name.Server,
		Stretch: streamStretch, Patience: uint64(streamPatience / streamTick),
		Entries:  streamEntries,
		EntryMax: entry, RingSize: (ring + rdmanet.WordSize - 1) / rdmanet.WordSize * rdmanet.
				WordSize, Depth: streamDepth}
}

// expose makes the memory that the members of the other groups write: a ring for each writer, and a
// board for each child.
func (m *leaderlessMember) expose() (err error) {
	d := m.deployment
	config := m.streamConfig()
	grant := func(region rdmanet.Region, to *leaderlessMember) error {
		return region.Grant(rdmanet.Peer{ID: to.host.ID(), Incarnation: to.host.Incarnation()},
			rdmanet.PermissionReadWrite)
	}
	if parent, has := d.p.Shape.Parent(m.name.Group); has {
		if m.carrier, err = tramstream.NewCarrier(config, 0, 0); err != nil {
			return err
		}
		for _, writer := range d.members[parent] {
			ring, err := m.host.Expose(ringName(writer.name.Server), config.RingSize)
			if err != nil {
				return err
			}
			if err := m.carrier.Attach(writer.name.Server, 1, ring); err != nil {
				return err
			}
			if err := grant(ring, writer); err != nil {
				return err
			}
			m.rings = append(m.rings, ring)
		}
	}
	for _, child := range d.p.Shape.Children(m.name.Group) {
		outlet := &streamOutlet{child: child}
		if outlet.writer, err = tramstream.NewWriter(config); err != nil {
			return err
		}
		if outlet.board, err = m.host.Expose(boardName(child),
			len(config.Carriers)*tramstream.FeedbackSize); err != nil {
			return err
		}
		for _, carrier := range d.members[child] {
			if err := grant(outlet.board, carrier); err != nil {
				return err
			}
		}
		m.outlets = append(m.outlets, outlet)
	}
	return nil
}

func ringName(writer order.ServerID) string { return fmt.Sprintf("multicast/ring/%d", writer) }

func boardName(child order.GroupID) string { return fmt.Sprintf("multicast/board/%d", child) }

// attach connects to the memory of the other groups, which is all exposed by then.
func (m *leaderlessMember) attach() error {
	const timeout = 5 * time.Second
	d := m.deployment
	ctx, cancel := context.WithTimeout(d.ctx, timeout)
	defer cancel()
	for _, outlet := range m.outlets {
		for _, carrier := range d.members[outlet.child] {
			ring, err := m.host.Attach(ctx, carrier.host.ID(), ringName(m.name.Server))
			if err != nil {
				return err
			}
			outlet.to = append(outlet.to, ring)
			if err := outlet.writer.Attach(carrier.name.Server, 1, 0); err != nil {
				return err
			}
		}
	}
	if parent, has := d.p.Shape.Parent(m.name.Group); has {
		for _, writer := range d.members[parent] {
			board, err := m.host.Attach(ctx, writer.host.ID(), boardName(m.name.Group))
			if err != nil {
				return err
			}
			m.feedback = append(m.feedback, board)
		}
	}
	return nil
}

func (d *leaderlessDeployment) start() error {
	members := make([]order.ServerID, d.p.Replicas)
	for i := range members {
		members[i] = order.ServerID(i)
	}
	for _, step := range []func(*leaderlessMember) error{
		(*leaderlessMember).expose,
		(*leaderlessMember).attach,
		func(m *leaderlessMember) error {
			return m.driver.Activate(driver.Group{Run: 1, FirstRound: 1, Members: members})
		},
		(*leaderlessMember).run,
	} {
		for _, group := range d.members {
			for _, m := range group {
				if err := step(m); err != nil {
					return fmt.Errorf("bench: replica %v: %w", m.name, err)
				}
			}
		}
	}
	return nil
}

// run starts the goroutines that move the streams.
func (m *leaderlessMember) run() error {
	d := m.deployment
	regions := m.rings
	for _, outlet := range m.outlets {
		regions = append(regions[:len(regions):len(regions)], outlet.board)
	}
	for _, region := range regions {
		d.running.Go(func() {
			_ = region.Await(d.ctx, func() bool { // until the run ends
				ring(m.ringing)
				return false
			})
		})
	}
	if len(regions) > 0 {
		d.running.Go(m.carry)
	}
	return nil
}

func ring(bell chan struct{}) {
	select {
	case bell <- struct{}{}:
	default:
	}
}

// multicast hands a client's messages to a member of the group where each message enters.
func (d *leaderlessDeployment) multicast(client *multicastClient) {
	turn := &d.turns[client.name.Server]
	turn.Lock()
	defer turn.Unlock()
	for {
		message, there := client.next()
		if !there {
			return
		}
		m := d.members[d.p.Shape.LCA(message.To)][int(client.name.Server)%d.p.Replicas]
		m.mu.Lock()
		m.entered = append(m.entered, message)
		m.mu.Unlock()
		client.taken()
		ring(m.ready)
	}
}

// Next implements driver.Source: the messages of clients first, then the entries from the parent.
func (m *leaderlessMember) Next(maxBytes int) (batch []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	add := func(number uint64, put func([]byte) []byte) {
		begin := len(batch)
		batch = binary.LittleEndian.AppendUint64(batch, number)
		batch = put(append(batch, 0, 0, 0, 0))
		binary.LittleEndian.PutUint32(batch[begin+itemHeader-4:],
			uint32(len(batch)-begin-itemHeader))
	}
	largest := itemHeader + len(m.load.payload) + m.load.p.Groups*4 + 64
	taken := 0
	for taken < len(m.entered) && len(batch)+largest <= maxBytes/2 {
		add(0, func(b []byte) []byte { return replica.AppendMessage(b, m.entered[taken]) })
		taken++
	}
	m.entered = m.entered[:copy(m.entered, m.entered[taken:])]
	if m.carrier != nil {
		if room := maxBytes - len(batch) - streamEntries*itemHeader; room >= largest {
			for _, entry := range m.carrier.Propose(room) {
				add(entry.Number, func(b []byte) []byte { return append(b, entry.Payload...) })
			}
		}
	}
	return batch
}

// Ready implements driver.Source.
func (m *leaderlessMember) Ready() <-chan struct{} { return m.ready }

// Deliver implements driver.Sink. It passes the group's log through the relay.
func (m *leaderlessMember) Deliver(_ context.Context, deliveries []order.Delivery) error {
	var delivered []order.Multicast
	m.mu.Lock()
	for _, delivery := range deliveries {
		for _, message := range delivery.Messages {
			for batch := message.Payload; len(batch) >= itemHeader; {
				number, length := binary.LittleEndian.Uint64(batch),
					int(binary.LittleEndian.Uint32(batch[itemHeader-4:]))
				if length > len(batch)-itemHeader {
					m.mu.Unlock()
					return fmt.Errorf("%w: a batch of %v ends amid an item", ErrServer,
						message.Origin)
				}
				entry := batch[itemHeader : itemHeader+length]
				batch = batch[itemHeader+length:]
				multicast, err := replica.DecodeMessage(entry)
				if err != nil {
					m.mu.Unlock()
					return fmt.Errorf("%w: a batch of %v: %w", ErrServer, message.Origin, err)
				}
				outcome := m.relay.Order(tram.Item{Number: number, Message: multicast})
				if outcome.Delivered {
					delivered = append(delivered, multicast)
				}
				for _, forward := range outcome.Forwards {
					for _, outlet := range m.outlets {
						if outlet.child == forward.Child {
							outlet.waiting = append(outlet.waiting,
								tramstream.Entry{Number: forward.Number, Payload: entry})
						}
					}
				}
			}
		}
	}
	m.mu.Unlock()
	ring(m.ringing)
	for _, multicast := range delivered {
		m.load.deliver(m.name, multicast) // may make a client multicast, so do not hold the lock
	}
	return nil
}

// carry moves the streams until the run ends.
func (m *leaderlessMember) carry() {
	ticker := time.NewTicker(streamLook)
	defer ticker.Stop()
	completions := make([]rdmanet.Completion, streamDepth)
	for m.deployment.ctx.Err() == nil {
		busy, err := m.look(completions)
		if err != nil {
			m.deployment.fail(fmt.Errorf("%w: replica %v: %w", ErrServer, m.name, err))
			return
		}
		if busy {
			continue
		}
		if m.queue.Outstanding() > 0 { // completions do not ring
			ctx, cancel := context.WithTimeout(m.deployment.ctx, streamLook)
			n, err := m.queue.Wait(ctx, completions)
			cancel()
			if err == nil {
				if err := m.completed(completions[:n]); err != nil {
					m.deployment.fail(fmt.Errorf("%w: replica %v: %w", ErrServer, m.name, err))
					return
				}
				continue
			}
		}
		select {
		case <-m.ringing:
		case <-ticker.C:
		case <-m.deployment.ctx.Done():
		}
	}
}

// look advances the streams, and reports whether there was anything to do.
func (m *leaderlessMember) look(completions []rdmanet.Completion) (busy bool, err error) {
	n := m.queue.Poll(completions)
	if err := m.completed(completions[:n]); err != nil {
		return false, err
	}
	now := uint64(time.Since(m.deployment.began) / streamTick)
	var operations []rdmanet.Operation
	m.mu.Lock()
	for place, outlet := range m.outlets {
		for carrier := range outlet.to {
			outlet.writer.Feedback(order.ServerID(carrier),
				tramstream.FeedbackAt(outlet.board, carrier*tramstream.FeedbackSize))
		}
		outlet.writer.Tick(now)
		offered := 0
		for offered < len(outlet.waiting) && err == nil {
			entry := outlet.waiting[offered]
			// An entry below Next is at the child already: other members were quicker.
			if entry.Number >= outlet.writer.Next() {
				err = outlet.writer.Offer(entry.Number, entry.Payload)
			}
			if err == nil {
				offered++
			}
		}
		if errors.Is(err, tramstream.ErrFull) {
			err = nil
		}
		outlet.waiting = outlet.waiting[offered:]
		for _, write := range outlet.writer.Writes() {
			operations = append(operations, rdmanet.Operation{To: outlet.to[write.Carrier],
				Kind: rdmanet.OperationWrite, Offset: write.Offset, Bytes: write.Bytes, Ring: true,
				Tag: uint64(place)*tagOutlet + uint64(write.Carrier)})
		}
	}
	propose := false
	if m.carrier != nil {
		busy = m.carrier.Poll()
		m.carrier.Advance(m.relay.Position(), m.relay.Position())
		m.carrier.Tick(now)
		propose = m.carrier.Pending()
		if _, reasons := m.carrier.Broken(); err == nil && len(reasons) > 0 {
			err = errors.Join(reasons...)
		}
		if m.reporting == 0 {
			for _, report := range m.carrier.Reports() {
				operations = append(operations, rdmanet.Operation{To: m.feedback[report.Writer],
					Kind:   rdmanet.OperationWrite,
					Offset: int(m.name.Server) * tramstream.FeedbackSize,
					Bytes:  report.Feedback.Append(nil), Ring: true, Tag: tagFeedback})
				m.reporting++
			}
		}
	}
	m.mu.Unlock()
	if err != nil {
		return false, err
	}
	if propose {
		ring(m.ready)
	}
	if len(operations) > 0 {
		busy = true
		err = m.queue.Post(operations...)
	}
	return busy || n > 0, err
}

// completed processes completions.
func (m *leaderlessMember) completed(completions []rdmanet.Completion) error {
	for _, completion := range completions {
		if completion.Err != nil {
			return fmt.Errorf("write to %s: %w", completion.Peer, completion.Err)
		}
		if completion.Tag == tagFeedback {
			m.reporting--
			continue
		}
		m.outlets[completion.Tag/tagOutlet].writer.Completed(
			order.ServerID(completion.Tag % tagOutlet))
	}
	return nil
}

func (d *leaderlessDeployment) fail(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.failure == nil && d.ctx.Err() == nil {
		d.failure = err
	}
}

func (d *leaderlessDeployment) failed() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.failure
}

func (d *leaderlessDeployment) live() (live []order.Replica) {
	for _, group := range d.members {
		for _, m := range group {
			live = append(live, m.name)
		}
	}
	return live
}

// close stops all members. The hosts' memory goes with the hosts.
func (d *leaderlessDeployment) close() (err error) {
	d.cancel()
	d.running.Wait()
	for _, group := range d.members {
		for _, m := range group {
			if m.driver != nil {
				m.driver.Close()
			}
			if m.queue != nil {
				err = errors.Join(err, m.queue.Close())
			}
		}
	}
	return err
}
