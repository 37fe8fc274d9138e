package p2p

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p"
	libp2pcrypto "github.com/libp2p/go-libp2p/core/crypto"
	libp2phost "github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/peerstore"
	libp2pyamux "github.com/libp2p/go-libp2p/p2p/muxer/yamux"
	"github.com/libp2p/go-libp2p/p2p/net/connmgr"
	"github.com/libp2p/go-libp2p/p2p/net/swarm"
	"github.com/libp2p/go-libp2p/p2p/security/noise"
	"github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"

	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/rdmanet/internal/peers"
	"github.com/ledgerd/ledgerd/rdmanet/internal/window"
)

// protocolID names the lane protocol and its version to libp2p.
const protocolID = "/ledgerd/lane/2"

const (
	// connectTimeout bounds a lane's first attempt to connect, to negotiate and to be answered; it doubles while attempts
	// run out of it.
	connectTimeout = 5 * time.Second
	// handshakeTimeout bounds libp2p's part of it, and how long a stream may be without its hello.
	handshakeTimeout = 30 * time.Second
	// owedTimeout bounds how long Close waits for receive functions to return, to acknowledge what they got.
	owedTimeout = 5 * time.Second
	// farewellTimeout bounds how long Close waits for peers to take the goodbye.
	farewellTimeout = 500 * time.Millisecond
	// closeGrace is how long Close waits, after its context ended, for goroutines that only have to notice it.
	closeGrace = time.Second
)

// memberTag protects members' connections in libp2p's connection manager.
const memberTag = "member"

// Host is this process's end of the fabric; it implements rdmanet.Host.
type Host struct {
	id          rdmanet.PeerID
	incarnation rdmanet.Incarnation
	limits      window.Limits
	mendTimeout time.Duration
	log         *slog.Logger

	libp2p libp2phost.Host
	swarm  *swarm.Swarm
	gater  *gater
	peers  *peers.Tracker

	trusted bool
	tickets *ticketOffice

	regions    *regions        // one-sided memory: this host's, and its ways to that of others
	goroutines sync.WaitGroup  // lanes and inbound streams
	leaving    chan struct{}   // closed when inbound streams are to say goodbye
	alive      context.Context // ends when the host is dead
	die        context.CancelFunc

	members   sync.Mutex // held while the member set is replaced
	mu        sync.Mutex
	closing   bool // no new lane, receiver or frame
	dead      bool // no new goroutine
	receivers map[string]receiver
	lanes     map[laneKey]*lane
	openings  map[laneKey]uint64
	lost      map[laneKey]lostFrames
	inbound   map[laneKey]*inboundLane
	streams   map[*inboundStream]struct{}
	directs   map[*directConn]struct{}
	newest    map[rdmanet.PeerID]rdmanet.Incarnation // of peers that restarted: no stream of an older one is served
	closeOnce sync.Once
	closeErr  error
	closeDone chan struct{}
}

var _ rdmanet.Host = (*Host)(nil)

// receiver is what a program takes a lane's frames with.
type receiver struct {
	call rdmanet.ReceiveFunc
	lent bool // it keeps none of them
}

// laneKey names a lane among those to, or those from, all peers.
type laneKey struct {
	peer rdmanet.PeerID
	name string
}

// lostFrames are frames that earlier openings of a lane gave up on their way to an incarnation, or to whoever it would have been
// (0), and that no answered hello has told of.
type lostFrames struct {
	incarnation rdmanet.Incarnation
	frames      uint64
}

// New starts a host that listens and lets its members in.
func New(options Options) (*Host, error) {
	options = options.withDefaults()
	if err := options.check(); err != nil {
		return nil, fmt.Errorf("p2p host: %w", err)
	}
	key, err := libp2pcrypto.UnmarshalEd25519PrivateKey(options.PrivateKey)
	if err != nil {
		return nil, fmt.Errorf("p2p host: private key: %w", err)
	}
	listen, err := parseAddress(options.Listen)
	if err != nil {
		return nil, fmt.Errorf("p2p host: listen: %w", err)
	}
	members, err := parseMembers(options.Members)
	if err != nil {
		return nil, fmt.Errorf("p2p host: %w", err)
	}
	gate := &gater{log: options.Logger}
	gate.members.Store(&memberSet{})
	tickets := newTicketOffice()
	node, err := newLibp2p(key, listen, gate, tickets, options.MembersMax)
	if err != nil {
		return nil, fmt.Errorf("p2p host on %s: %w", options.Listen, err)
	}
	alive, die := context.WithCancel(context.Background())
	h := &Host{
		id:          rdmanet.PeerID(node.ID().String()),
		incarnation: options.Incarnation,
		limits:      options.limits(),
		mendTimeout: options.MendTimeout,
		log:         options.Logger,
		libp2p:      node,
		swarm:       node.Network().(*swarm.Swarm),
		gater:       gate,
		trusted:     options.Trusted,
		tickets:     tickets,
		leaving:     make(chan struct{}),
		alive:       alive,
		die:         die,
		receivers:   make(map[string]receiver),
		lanes:       make(map[laneKey]*lane),
		openings:    make(map[laneKey]uint64),
		lost:        make(map[laneKey]lostFrames),
		inbound:     make(map[laneKey]*inboundLane),
		streams:     make(map[*inboundStream]struct{}),
		directs:     make(map[*directConn]struct{}),
		newest:      make(map[rdmanet.PeerID]rdmanet.Incarnation),
		closeDone:   make(chan struct{}),
	}
	h.regions = newRegions(h)
	h.peers = peers.New(h.restarted)
	h.replaceMembers(members)
	h.swarm.Notify(&network.NotifyBundle{ConnectedF: h.connected})
	node.SetStreamHandler(protocolID, h.serve)
	node.SetStreamHandler(regionProtocolID, h.serveRegions)
	return h, nil
}

// newLibp2p starts the part of libp2p that is used: TCP, Noise, yamux, and who may connect.
func newLibp2p(key libp2pcrypto.PrivKey, listen multiaddr.Multiaddr, gate *gater, tickets *ticketOffice, membersMax int) (libp2phost.Host, error) {
	resources, err := newResourceManager(membersMax)
	if err != nil {
		return nil, err
	}
	conns := membersMax * connsPerMember
	trimmer, err := connmgr.NewConnManager(conns, conns+strangersMax)
	if err != nil {
		return nil, fmt.Errorf("connection manager: %w", err)
	}
	node, err := libp2p.New(
		libp2p.Identity(key),
		libp2p.NoListenAddrs,
		// Members' addresses are given; nobody is told of any other.
		libp2p.AddrsFactory(func([]multiaddr.Multiaddr) []multiaddr.Multiaddr { return nil }),
		libp2p.Transport(newSharedTransport(tickets)),
		libp2p.Security(noise.ID, noise.New),
		libp2p.Muxer(libp2pyamux.ID, newMuxer()),
		libp2p.ConnectionGater(gate),
		libp2p.ConnectionManager(trimmer),
		libp2p.ResourceManager(resources),
		libp2p.SwarmOpts(swarm.WithDialTimeout(handshakeTimeout), swarm.WithDialTimeoutLocal(handshakeTimeout),
			swarm.WithDialRanker(swarm.NoDelayDialRanker)),
		libp2p.DisableRelay(),
		libp2p.DisableIdentifyAddressDiscovery(),
		libp2p.DisableMetrics(),
		libp2p.ForceReachabilityPrivate(),
		libp2p.Ping(false),
		libp2p.UserAgent("ledgerd"),
	)
	if err != nil {
		return nil, errors.Join(err, trimmer.Close(), resources.Close())
	}
	// Listening is the one step that fails in real life, and libp2p.New would leave goroutines behind.
	if err := node.Network().Listen(listen); err != nil {
		return nil, errors.Join(err, node.Close())
	}
	return node, nil
}

// ID implements rdmanet.Host.
func (h *Host) ID() rdmanet.PeerID { return h.id }

// Incarnation implements rdmanet.Host.
func (h *Host) Incarnation() rdmanet.Incarnation { return h.incarnation }

// Watch implements rdmanet.Host.
func (h *Host) Watch(watch func(rdmanet.PeerEvent)) { h.peers.Watch(watch) }

// Address is where the host listens, as host:port.
func (h *Host) Address() string {
	for _, address := range h.swarm.ListenAddresses() {
		if _, dial, err := manet.DialArgs(address); err == nil {
			return dial
		}
	}
	return ""
}

// Members are the identities that get in, in their order.
func (h *Host) Members() []rdmanet.PeerID {
	var ids []rdmanet.PeerID
	for id := range *h.gater.members.Load() {
		ids = append(ids, rdmanet.PeerID(id.String()))
	}
	slices.Sort(ids)
	return ids
}

// SetMembers replaces the member set. Who is no member any more loses its connections, and lanes to it break with ErrNotMember. When
// it becomes a member again, what its lanes had not delivered is lost, visibly: ErrReset at its end.
func (h *Host) SetMembers(members map[rdmanet.PeerID]string) error {
	set, err := parseMembers(members)
	if err != nil {
		return err
	}
	h.replaceMembers(set)
	return nil
}

func (h *Host) replaceMembers(set memberSet) {
	h.members.Lock()
	defer h.members.Unlock()
	old := *h.gater.members.Load()
	h.gater.members.Store(&set)
	manager, addresses := h.libp2p.ConnManager(), h.libp2p.Peerstore()
	for id, address := range set {
		if was, ok := old[id]; ok && (was == nil) == (address == nil) && (was == nil || was.Equal(address)) {
			continue
		}
		addresses.ClearAddrs(id)
		if address != nil {
			addresses.AddAddr(id, address, peerstore.PermanentAddrTTL)
		}
		manager.Protect(id, memberTag)
	}
	for id := range old {
		if _, ok := set[id]; !ok {
			manager.Unprotect(id, memberTag)
			addresses.ClearAddrs(id)
			h.expel(id)
		}
	}
}

// expel ends everything to and from a peer that is no member any more.
func (h *Host) expel(id peer.ID) {
	name := rdmanet.PeerID(id.String())
	h.regions.expel(name)
	h.mu.Lock()
	for key, l := range h.lanes {
		if key.peer == name {
			l.end(rdmanet.ErrNotMember)
		}
	}
	for key, in := range h.inbound {
		if key.peer == name {
			in.supersede(nil)
			delete(h.inbound, key)
		}
	}
	h.mu.Unlock()
	// An error of closing is of no interest: the connection is gone one way or the other.
	_ = h.swarm.ClosePeer(id)
}

// Receive implements rdmanet.Host.
func (h *Host) Receive(name string, receive rdmanet.ReceiveFunc) error {
	return h.register(name, receiver{call: receive})
}

// ReceiveLent is Receive for a function that keeps no frame: the frames, too, are only lent to it until it returns, and their memory is
// used again. Bulk that is copied on or counted moves twice as fast so, for it is new memory that costs most when frames are kept.
func (h *Host) ReceiveLent(name string, receive rdmanet.ReceiveFunc) error {
	return h.register(name, receiver{call: receive, lent: true})
}

func (h *Host) register(name string, receive receiver) error {
	if err := rdmanet.CheckLaneName(name); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.closing:
		return fmt.Errorf("host %s: %w", h.id, rdmanet.ErrClosed)
	case h.receivers[name].call != nil:
		return fmt.Errorf("receiver of lane %q: %w", name, rdmanet.ErrDuplicate)
	}
	h.receivers[name] = receive
	return nil
}

// Lane implements rdmanet.Host.
func (h *Host) Lane(to rdmanet.PeerID, name string) (rdmanet.Lane, error) {
	if err := rdmanet.CheckLaneName(name); err != nil {
		return nil, err
	}
	id, err := peer.Decode(string(to))
	if err != nil || to == h.id || !h.gater.isMember(id) {
		return nil, fmt.Errorf("lane %q to %q: %w", name, to, rdmanet.ErrNotMember)
	}
	key := laneKey{to, name}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closing {
		return nil, fmt.Errorf("host %s: %w", h.id, rdmanet.ErrClosed)
	}
	if l := h.lanes[key]; l != nil {
		if !l.window.Broken() {
			return l, nil
		}
		h.retireLocked(l)
	}
	h.openings[key]++
	l := newLane(h, id, key, h.openings[key], h.lost[key])
	h.lanes[key] = l
	h.goroutines.Add(1)
	go l.run()
	return l, nil
}

// retire takes a lane that broke out of the host and remembers what it gave up.
func (h *Host) retire(l *lane) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.retireLocked(l)
}

func (h *Host) retireLocked(l *lane) {
	if h.lanes[l.key] != l {
		return
	}
	delete(h.lanes, l.key)
	// What was lost before this lane is news until its hello was answered.
	lost := l.lost
	if bound := l.bound(); bound != 0 {
		lost = lostFrames{incarnation: bound}
	}
	lost.frames += uint64(l.window.Pending())
	if lost.frames > 0 {
		h.lost[l.key] = lost
	} else {
		delete(h.lost, l.key)
	}
}

// restarted is the tracker's hook: everything to and from older incarnations of the peer ends.
func (h *Host) restarted(peer rdmanet.Peer) {
	defer h.regions.restarted(peer)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.newest[peer.ID] = peer.Incarnation
	for key, l := range h.lanes {
		if bound := l.bound(); key.peer == peer.ID && bound != 0 && bound < peer.Incarnation {
			l.end(fmt.Errorf("%w: it restarted as incarnation %s", rdmanet.ErrReset, peer.Incarnation))
		}
	}
	for key, in := range h.inbound {
		if key.peer == peer.ID {
			in.supersedeOlder(peer.Incarnation)
		}
	}
}

// connected spares lanes that wait to connect the rest of their pause.
func (h *Host) connected(_ network.Network, conn network.Conn) {
	from := rdmanet.PeerID(conn.RemotePeer().String())
	h.regions.connected(from)
	h.mu.Lock()
	defer h.mu.Unlock()
	for key, l := range h.lanes {
		if key.peer == from {
			l.hurry()
		}
	}
}

// heardLately reports whether the peer gave a sign of life on any lane within half the mend timeout.
func (h *Host) heardLately(id rdmanet.PeerID) bool {
	since := time.Now().Add(-h.mendTimeout / 2).UnixNano()
	h.mu.Lock()
	defer h.mu.Unlock()
	for key, l := range h.lanes {
		if key.peer == id && l.heard.Load() > since {
			return true
		}
	}
	return false
}

// Sever closes the connections to a peer, as a broken wire would: lanes are mended if the peer is still there. It is there for tests and
// for operators who doubt a connection.
func (h *Host) Sever(id rdmanet.PeerID) error {
	decoded, err := peer.Decode(string(id))
	if err != nil {
		return fmt.Errorf("sever %q: %w", id, err)
	}
	err = h.swarm.ClosePeer(decoded)
	h.mu.Lock()
	defer h.mu.Unlock()
	for c := range h.directs {
		if c.peer == id {
			// Its lane finds out, and takes it out of the set.
			err = errors.Join(err, c.tcp.Close())
		}
	}
	return err
}

// Close implements rdmanet.Host. With a context that has ended already it is what a crash would be to the peers: no goodbye.
func (h *Host) Close(ctx context.Context) error {
	h.closeOnce.Do(func() {
		h.closeErr = h.shutDown(ctx)
		close(h.closeDone)
	})
	<-h.closeDone
	return h.closeErr
}

func (h *Host) shutDown(ctx context.Context) error {
	err := h.flush(ctx)
	h.farewell(ctx)
	h.mu.Lock()
	h.dead = true
	lanes := slices.Collect(maps.Values(h.lanes))
	streams := slices.Collect(maps.Keys(h.streams))
	h.mu.Unlock()
	for _, l := range lanes {
		l.end(rdmanet.ErrClosed)
	}
	for _, s := range streams {
		s.stop()
	}
	h.regions.close()
	h.die()
	if closeErr := h.libp2p.Close(); err == nil && closeErr != nil {
		err = fmt.Errorf("host %s: %w", h.id, closeErr)
	}
	ended := make(chan struct{})
	go func() {
		h.goroutines.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		return err
	case <-ctx.Done():
	}
	select {
	case <-ended:
		return err
	case <-time.After(closeGrace):
		return fmt.Errorf("host %s: a receive function does not return: %w", h.id, ctx.Err())
	}
}

// flush refuses further frames and waits for those that were sent.
func (h *Host) flush(ctx context.Context) error {
	h.mu.Lock()
	h.closing = true
	lanes := slices.Collect(maps.Values(h.lanes))
	h.mu.Unlock()
	for _, l := range lanes {
		l.window.Seal(l.wrap(rdmanet.ErrClosed))
	}
	for _, l := range lanes {
		// A lane's own end is no reason to wait longer, and is told to whoever sends.
		if err := l.window.Flushed(ctx); err != nil && ctx.Err() != nil {
			return fmt.Errorf("host %s: frames are left unsent: %w", h.id, ctx.Err())
		}
	}
	return nil
}

// settle hands nothing more over and waits for the receive functions that run, so that what is owed to the peers is known.
func (h *Host) settle(ctx context.Context) {
	h.mu.Lock()
	lanes := slices.Collect(maps.Values(h.inbound))
	h.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, owedTimeout)
	defer cancel()
	for _, in := range lanes {
		select {
		case <-in.seal():
		case <-ctx.Done():
		}
	}
}

// farewell tells the peers whose lanes end here what this host's program has taken, and that this incarnation is over, so that they need not find out.
func (h *Host) farewell(ctx context.Context) {
	if ctx.Err() != nil {
		return
	}
	h.settle(ctx)
	close(h.leaving)
	h.mu.Lock()
	streams := slices.Collect(maps.Keys(h.streams))
	h.mu.Unlock()
	timeout := time.NewTimer(farewellTimeout)
	defer timeout.Stop()
	for _, s := range streams {
		select {
		case <-s.ended:
		case <-timeout.C:
			return
		case <-ctx.Done():
			return
		}
	}
}
