//go:build verbs

package verbs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/rdmanet/internal/lane"
	"github.com/ledgerd/ledgerd/rdmanet/p2p"
)

// closeGrace is how long Close waits at least for goroutines that only have to notice the end. If
// they take longer, it waits until its context ends.
const closeGrace = time.Second

// host is this process's end of the fabric; it implements Host.
type host struct {
	id          rdmanet.PeerID
	incarnation rdmanet.Incarnation
	mendTimeout time.Duration
	ringBytes   int
	log         *slog.Logger
	p2p         *p2p.Host
	control     *control
	engine      *engine
	lanes       *lane.Lanes
	number      atomic.Uint64 // number of attachments so far

	goroutines sync.WaitGroup
	alive      context.Context // ends when the host is dead
	die        context.CancelFunc
	members    atomic.Pointer[map[rdmanet.PeerID]bool]
	sources    atomic.Pointer[[]source]

	telling  sync.Mutex // held while watchers are called
	watchers []func(rdmanet.PeerEvent)

	mu          sync.Mutex
	closing     bool // nothing new is accepted
	dead        bool // no new goroutine
	regions     map[string]*region
	exposing    map[string]bool
	attachments map[uint64]*attachment
	queues      map[*queue]struct{}
	senders     map[*sender]struct{}                   // connected, or about to be
	streams     map[*inboundStream]struct{}            // that run
	newest      map[rdmanet.PeerID]rdmanet.Incarnation // of peers that restarted

	closeOnce sync.Once
	closeErr  error
}

var (
	_ Host                     = (*host)(nil)
	_ rdmanet.IntroductionHost = (*host)(nil)
)

// errEnded: the receiver reported that its end of a lane's queue pair is over.
var errEnded = errors.New("the receiver's end is over")

// source is registered memory of this host, as a range of addresses.
type source struct {
	from, to uint64
	key      uint32
}

// Start starts a host on an RDMA device, and its control plane. It returns ErrNoDevice, the errors
// of p2p.New, or the device's error.
func Start(options Options) (Host, error) { return start(options, (*engine).prove) }

// start is Start with a check of the methods of withdrawing permissions. prove returns an error if
// a method does not hold.
func start(options Options, prove func(*engine, Permissions) error) (Host, error) {
	options = options.withDefaults()
	if err := options.check(); err != nil {
		return nil, fmt.Errorf("verbs host: %w", err)
	}
	e, err := newEngine(options)
	if err != nil {
		return nil, fmt.Errorf("verbs host: %w", err)
	}
	if err := e.try(options.Permissions, prove); err != nil {
		return nil, errors.Join(fmt.Errorf("verbs host: RDMA device %s with GID %s: %w",
			e.context.Name(), e.gid.Address, err), e.close())
	}
	plane, err := p2p.New(options.plane())
	if err != nil {
		return nil, errors.Join(fmt.Errorf("verbs host: %w", err), e.close())
	}
	log := options.Control.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	alive, die := context.WithCancel(context.Background())
	h := &host{
		id: plane.ID(), incarnation: plane.Incarnation(), mendTimeout: options.Control.MendTimeout,
		log: log,
		p2p: plane, control: newControl(plane, options.Control.MendTimeout), engine: e,
		alive: alive, die: die,
		regions: make(map[string]*region), exposing: make(map[string]bool),
		attachments: make(map[uint64]*attachment),
		ringBytes:   options.RingBytes, senders: make(map[*sender]struct{}),
		streams: make(map[*inboundStream]struct{}),
		queues:  make(map[*queue]struct{}), newest: make(map[rdmanet.PeerID]rdmanet.Incarnation),
	}
	h.lanes = lane.New(lane.Config{
		Self: rdmanet.Peer{ID: h.id, Incarnation: h.incarnation}, Limits: options.limits(),
		MendTimeout: h.mendTimeout,
		Peers:       (*lanePeers)(h), Member: h.isMember, Dial: h.dial, Log: log,
	})
	h.control.here = h.answer
	h.control.note = func(m message) { h.spawn(func() { h.handle(h.control.self, m) }) }
	h.sources.Store(&[]source{})
	h.noteMembers()
	plane.Watch(h.event)
	if err := plane.Receive(controlLane, h.receive); err != nil {
		return nil, errors.Join(fmt.Errorf("verbs host: %w", err), h.Close(context.Background()))
	}
	log.Info("RDMA device", "device", e.context.Name(), "port", e.port.Number, "gid",
		e.gid.Address.String(), "type", e.gid.Type.String(), "permissions", e.method)
	for _, err := range e.refused {
		log.Debug("permissions", "error", err)
	}
	return h, nil
}

// ID implements rdmanet.Host.
func (h *host) ID() rdmanet.PeerID { return h.id }

// Incarnation implements rdmanet.Host.
func (h *host) Incarnation() rdmanet.Incarnation { return h.incarnation }

// Address implements Host.
func (h *host) Address() string { return h.p2p.Address() }

// Members implements Host.
func (h *host) Members() []rdmanet.PeerID { return h.p2p.Members() }

// SetMembers implements Host.
func (h *host) SetMembers(members map[rdmanet.PeerID]string) error {
	if err := h.p2p.SetMembers(members); err != nil {
		return err
	}
	before := *h.members.Load()
	h.noteMembers()
	for peer := range before {
		if !h.isMember(peer) {
			h.lanes.Expel(peer)
		}
	}
	for _, r := range h.openRegions() {
		r.retain(func(peer rdmanet.Peer) bool { return h.isMember(peer.ID) })
	}
	for _, a := range h.attachmentsWhere(func(a *attachment) bool {
		return !h.isMember(a.peer.ID)
	}) {
		a.end(rdmanet.ErrNotMember)
	}
	return nil
}

// Introduced implements rdmanet.IntroductionHost. Strangers come to the control plane's port.
func (h *host) Introduced(take func(from string, read func() ([]byte, error)) ([]byte,
	error)) error {
	return h.p2p.Introduced(take)
}

// Introduce implements rdmanet.IntroductionHost.
func (h *host) Introduce(ctx context.Context, peer rdmanet.PeerID, introduction []byte) ([]byte,
	error) {
	return h.p2p.Introduce(ctx, peer, introduction)
}

func (h *host) noteMembers() {
	set := map[rdmanet.PeerID]bool{h.id: true}
	for _, id := range h.p2p.Members() {
		set[id] = true
	}
	h.members.Store(&set)
}

func (h *host) isMember(id rdmanet.PeerID) bool { return (*h.members.Load())[id] }

func (h *host) isClosing() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.closing
}

func (h *host) openRegions() []*region {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Collect(maps.Values(h.regions))
}

func (h *host) attachmentsWhere(is func(*attachment) bool) []*attachment {
	h.mu.Lock()
	defer h.mu.Unlock()
	var found []*attachment
	for _, a := range h.attachments {
		if is(a) {
			found = append(found, a)
		}
	}
	return found
}

// sourcesLocked lists the memory from and to which this host's operations need no copy.
func (h *host) sourcesLocked() {
	list := make([]source, 0, len(h.regions))
	for _, r := range h.regions {
		from := address(r.memory.Bytes())
		list = append(list, source{from: from, to: from + uint64(r.memory.Size()),
			key: r.local.LocalKey()})
	}
	h.sources.Store(&list)
}

// source returns the key of the registered memory that contains the bytes, if any does.
func (h *host) source(bytes []byte) (key uint32, ok bool) {
	at := address(bytes)
	for _, s := range *h.sources.Load() {
		if at >= s.from && at+uint64(len(bytes)) <= s.to {
			return s.key, true
		}
	}
	return 0, false
}

// spawn runs work in a goroutine, unless the host is dead.
func (h *host) spawn(work func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.dead {
		h.goroutines.Go(work)
	}
}

// Watch implements rdmanet.Host.
func (h *host) Watch(watch func(rdmanet.PeerEvent)) {
	h.telling.Lock()
	defer h.telling.Unlock()
	h.watchers = append(h.watchers, watch)
}

// lanePeers implements lane.Peers for a host. The control plane tracks which peers are there, and
// their incarnations.
type lanePeers host

// Up implements lane.Peers.
func (p *lanePeers) Up(rdmanet.Peer) error { return nil }

// Down implements lane.Peers.
func (p *lanePeers) Down(rdmanet.Peer) {}

// Seen implements lane.Peers.
func (p *lanePeers) Seen(rdmanet.Peer) error { return nil }

// Tell implements lane.Peers.
func (p *lanePeers) Tell(event rdmanet.PeerEvent) { (*host)(p).tell(event) }

func (h *host) tell(event rdmanet.PeerEvent) {
	h.telling.Lock()
	defer h.telling.Unlock()
	for _, watch := range h.watchers {
		watch(event)
	}
}

// event handles an event that the control plane reports about a peer.
func (h *host) event(event rdmanet.PeerEvent) {
	peer := event.Peer
	switch event.Kind {
	case rdmanet.PeerUnreachable:
		if event.Lane == controlLane {
			h.control.fail(peer.ID, fmt.Errorf("%w: %w", rdmanet.ErrUnreachable, event.Cause))
			h.spawn(func() { h.lanes.Unreachable(peer.ID, event.Cause) })
			return
		}
	case rdmanet.LaneReset:
		if event.Lane == controlLane {
			// The lost messages may include a reply.
			h.control.fail(peer.ID, fmt.Errorf("%w: the peer gave up messages", rdmanet.ErrReset))
			return
		}
	case rdmanet.PeerRestarted:
		h.restarted(peer)
	case rdmanet.PeerConnected:
		h.lanes.ReconnectNow(peer.ID)
	case rdmanet.PeerRefused:
		event.Lane = ""
	}
	h.tell(event)
}

// restarted ends everything that belongs to earlier incarnations of a peer.
func (h *host) restarted(peer rdmanet.Peer) {
	h.control.fail(peer.ID, fmt.Errorf("%w: it restarted as incarnation %s", rdmanet.ErrReset,
		peer.Incarnation))
	h.mu.Lock()
	h.newest[peer.ID] = peer.Incarnation
	h.mu.Unlock()
	h.lanes.Restarted(peer)
	// Destroying queue pairs takes too long for a watcher.
	h.spawn(func() {
		older := func(other rdmanet.Peer) bool {
			return other.ID == peer.ID && other.Incarnation < peer.Incarnation
		}
		for _, a := range h.attachmentsWhere(func(a *attachment) bool { return older(a.peer) }) {
			a.end(fmt.Errorf("%w: it restarted as incarnation %s", rdmanet.ErrReset,
				peer.Incarnation))
		}
		for _, r := range h.openRegions() {
			r.retain(func(other rdmanet.Peer) bool { return !older(other) })
		}
	})
}

// receive handles the control plane's messages.
func (h *host) receive(from rdmanet.Peer, frames [][]byte) {
	for _, frame := range frames {
		m, err := parseMessage(frame)
		if err != nil {
			h.log.Warn("message dropped", "peer", from.String(), "error", err)
			continue
		}
		h.handle(from, m)
	}
}

// handle handles one message of a peer or of this host.
func (h *host) handle(from rdmanet.Peer, m message) {
	switch m.kind {
	case messageReply:
		h.control.answered(from, m)
	case messageLane:
		h.control.tell(from.ID, h.open(from, m))
	case messageAttach, messageAsk:
		h.control.tell(from.ID, h.answer(from, m))
	case messageRevoked:
		h.mu.Lock()
		a := h.attachments[m.attachment]
		h.mu.Unlock()
		if a != nil && a.peer == from {
			h.spawn(func() {
				a.end(fmt.Errorf("%w: the owner changed the permission", rdmanet.ErrAccess))
			})
		}
	case messageDetach:
		if r := h.region(m.name); r != nil {
			r.detach(from, m.attachment)
		}
	case messageEnded:
		h.ended(from.ID, m.name, m.endpoint.number)
	}
}

// answer returns the reply to a request.
func (h *host) answer(from rdmanet.Peer, m message) message {
	r := h.region(m.name)
	reply := message{kind: messageReply, call: m.call, status: statusAccess}
	switch {
	case m.kind == messageAttach && r == nil:
		reply.status = statusNoRegion
	case m.kind == messageAttach:
		reply = r.serve(from, m)
	case r != nil && r.stands(from, m.attachment):
		reply.status = statusWelcome
	}
	return reply
}

func (h *host) region(name string) *region {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.regions[name]
}

// Lane implements rdmanet.Host.
func (h *host) Lane(peer rdmanet.PeerID, name string) (rdmanet.Lane, error) {
	return h.lanes.Open(peer, name)
}

// Sever implements Host.
func (h *host) Sever(peer rdmanet.PeerID) error {
	h.lanes.Sever(peer)
	return h.p2p.Sever(peer)
}

// Close implements rdmanet.Host. If ctx has ended already, the peers see the same as after a crash:
// no goodbye.
func (h *host) Close(ctx context.Context) error {
	h.closeOnce.Do(func() { h.closeErr = h.shutDown(ctx) })
	return h.closeErr
}

func (h *host) shutDown(ctx context.Context) error {
	h.mu.Lock()
	h.closing = true
	h.mu.Unlock()
	err := h.lanes.Flush(ctx)
	if ctx.Err() == nil {
		h.lanes.Settle(ctx)
		h.part(ctx)
	}
	// The control plane's goodbye also serves the lanes.
	err = errors.Join(err, h.p2p.Close(ctx))
	h.mu.Lock()
	attachments, regions, queues := slices.Collect(maps.Values(h.attachments)),
		slices.Collect(maps.Values(h.regions)), slices.Collect(maps.Keys(h.queues))
	h.mu.Unlock()
	h.die()
	h.lanes.End()
	for _, a := range attachments {
		a.end(rdmanet.ErrClosed)
	}
	for _, r := range regions {
		err = errors.Join(err, r.Close())
	}
	for _, q := range queues {
		_ = q.Close() // it has no error
	}
	h.mu.Lock()
	h.dead = true
	h.mu.Unlock()
	ended := make(chan struct{})
	go func() {
		h.lanes.Wait()
		h.goroutines.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(closeGrace):
		select {
		case <-ended:
		case <-ctx.Done():
			err = errors.Join(err, fmt.Errorf("host %s: a goroutine does not end: %w", h.id,
				ctx.Err()))
		}
	}
	return errors.Join(err, h.engine.close())
}
