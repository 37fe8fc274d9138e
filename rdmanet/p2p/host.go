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

	libp2pcrypto "github.com/libp2p/go-libp2p/core/crypto"
	libp2phost "github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/peerstore"
	"github.com/libp2p/go-libp2p/p2p/net/swarm"
	manet "github.com/multiformats/go-multiaddr/net"

	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/rdmanet/internal/lane"
	"github.com/ledgerd/ledgerd/rdmanet/internal/peers"
)

// protocolID identifies the lane protocol and its version to libp2p.
const protocolID = "/ledgerd/lane/2"

const (
	// connectTimeout bounds a lane's first attempt to connect, negotiate and get an answer. It
	// doubles when an attempt times out.
	connectTimeout = 5 * time.Second
	// handshakeTimeout bounds libp2p's part of an attempt, and the time until a stream's hello
	// arrives.
	handshakeTimeout = 30 * time.Second
	// farewellTimeout bounds how long Close waits for peers to take the goodbye.
	farewellTimeout = 500 * time.Millisecond
	// closeGrace is how long Close waits, after its context has ended, for goroutines that only
	// have to notice the end.
	closeGrace = time.Second
)

// memberTag protects members' connections in libp2p's connection manager.
const memberTag = "member"

// Host is this process's end of the fabric; it implements rdmanet.Host.
type Host struct {
	id          rdmanet.PeerID
	incarnation rdmanet.Incarnation
	mendTimeout time.Duration
	log         *slog.Logger

	libp2p libp2phost.Host
	swarm  *swarm.Swarm
	gater  *gater
	door   *door
	peers  *peers.Tracker
	lanes  *lane.Lanes
	poller *poller // nil if there is none

	trusted bool
	local   bool // direct connections within the machine are UNIX sockets
	tickets *ticketRegistry

	// One-sided memory: this host's regions and its links to those of others.
	regions    *regions
	goroutines sync.WaitGroup  // inbound streams
	closing    chan struct{}   // closed when acknowledgements wait no longer
	leaving    chan struct{}   // closed when inbound streams must say goodbye
	alive      context.Context // ends when the host is dead
	die        context.CancelFunc

	members sync.Mutex // held while the member set is replaced
	mu      sync.Mutex
	dead    bool // no new goroutine
	streams map[*inboundStream]struct{}
	directs map[*directConn]struct{}
	// The newest incarnation of each restarted peer. No agent serves an older one.
	newest    map[rdmanet.PeerID]rdmanet.Incarnation
	closeOnce sync.Once
	closeErr  error
	closeDone chan struct{}
}

var (
	_ rdmanet.PromptHost       = (*Host)(nil)
	_ rdmanet.IntroductionHost = (*Host)(nil)
)

// New starts a host that listens and admits its members.
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
	tickets, door := newTicketOffice(), new(door)
	node, err := newLibp2p(libp2pConfig{key: key, listen: listen, gate: gate, tickets: tickets,
		door: door, membersMax: options.MembersMax, local: options.Local})
	if err != nil {
		return nil, fmt.Errorf("p2p host on %s: %w", options.Listen, err)
	}
	alive, die := context.WithCancel(context.Background())
	h := &Host{
		id:          rdmanet.PeerID(node.ID().String()),
		incarnation: options.Incarnation,
		mendTimeout: options.MendTimeout,
		log:         options.Logger,
		libp2p:      node,
		swarm:       node.Network().(*swarm.Swarm),
		gater:       gate,
		door:        door,
		trusted:     options.Trusted,
		local:       options.Local,
		tickets:     tickets,
		closing:     make(chan struct{}),
		leaving:     make(chan struct{}),
		alive:       alive,
		die:         die,
		streams:     make(map[*inboundStream]struct{}),
		directs:     make(map[*directConn]struct{}),
		newest:      make(map[rdmanet.PeerID]rdmanet.Incarnation),
		closeDone:   make(chan struct{}),
	}
	h.regions = newRegions(h)
	h.peers = peers.New(h.restarted)
	h.lanes = lane.New(lane.Config{
		Self:           rdmanet.Peer{ID: h.id, Incarnation: h.incarnation},
		Limits:         options.limits(),
		MendTimeout:    h.mendTimeout,
		AttemptTimeout: connectTimeout,
		Peers:          h.peers,
		Member:         h.isMember,
		Dial:           h.dial,
		Log:            h.log,
		Poison:         options.Poison,
	})
	if !options.NoPoller {
		if h.poller, err = newPoller(); err != nil {
			die()
			return nil, errors.Join(fmt.Errorf("p2p host on %s: %w", options.Listen, err),
				node.Close())
		}
		if options.Local && h.poller != nil {
			if err := h.poller.useRings(); err != nil {
				die()
				h.poller.close()
				return nil, errors.Join(fmt.Errorf("p2p host on %s: %w", options.Listen, err),
					node.Close())
			}
		}
	}
	h.replaceMembers(members)
	h.swarm.Notify(&network.NotifyBundle{ConnectedF: h.connected})
	node.SetStreamHandler(protocolID, h.serve)
	node.SetStreamHandler(regionProtocolID, h.serveRegions)
	return h, nil
}

// ID implements rdmanet.Host.
func (h *Host) ID() rdmanet.PeerID { return h.id }

// Incarnation implements rdmanet.Host.
func (h *Host) Incarnation() rdmanet.Incarnation { return h.incarnation }

// Watch implements rdmanet.Host.
func (h *Host) Watch(watch func(rdmanet.PeerEvent)) { h.peers.Watch(watch) }

// Address returns the address on which the host listens, as host:port.
func (h *Host) Address() string {
	for _, address := range h.swarm.ListenAddresses() {
		if _, dial, err := manet.DialArgs(address); err == nil {
			return dial
		}
	}
	return ""
}

// Members returns the identities of the members, sorted.
func (h *Host) Members() []rdmanet.PeerID {
	var ids []rdmanet.PeerID
	for id := range *h.gater.members.Load() {
		ids = append(ids, rdmanet.PeerID(id.String()))
	}
	slices.Sort(ids)
	return ids
}

// SetMembers replaces the member set. A removed peer loses its connections, and lanes to it break
// with ErrNotMember. If the peer is added again, the frames that its lanes had not delivered are
// lost, and its end reports ErrReset.
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
		if was, ok := old[id]; ok && (was == nil) == (address == nil) &&
			(was == nil || was.Equal(address)) {
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

// expel ends everything to and from a peer that is no longer a member.
func (h *Host) expel(id peer.ID) {
	name := rdmanet.PeerID(id.String())
	h.regions.expel(name)
	h.lanes.Expel(name)
	// Ignore an error: the connection is gone in either case.
	_ = h.swarm.ClosePeer(id)
}

// Receive implements rdmanet.Host.
func (h *Host) Receive(name string, receive rdmanet.ReceiveFunc) error {
	return h.lanes.Receive(name, receive, false)
}

// ReceiveLent is like Receive, for a function that keeps no frame. The frames, too, are only lent
// until the function returns, and their memory is reused. Bulk that is copied or only counted moves
// twice as fast this way, because new memory is the largest cost of keeping frames.
func (h *Host) ReceiveLent(name string, receive rdmanet.ReceiveFunc) error {
	return h.lanes.Receive(name, receive, true)
}

// Lane implements rdmanet.Host.
func (h *Host) Lane(to rdmanet.PeerID, name string) (rdmanet.Lane, error) {
	return h.lanes.Open(to, name)
}

// isMember reports whether a peer may have lanes to and from this host.
func (h *Host) isMember(id rdmanet.PeerID) bool {
	decoded, err := peer.Decode(string(id))
	return err == nil && h.gater.isMember(decoded)
}

// restarted is the tracker's hook. It ends everything to and from older incarnations of the peer.
func (h *Host) restarted(peer rdmanet.Peer) {
	h.mu.Lock()
	h.newest[peer.ID] = peer.Incarnation
	h.mu.Unlock()
	h.lanes.Restarted(peer)
	h.regions.restarted(peer)
}

// connected makes lanes and links that pause between attempts connect at once.
func (h *Host) connected(_ network.Network, conn network.Conn) {
	from := rdmanet.PeerID(conn.RemotePeer().String())
	h.regions.connected(from)
	h.lanes.ReconnectNow(from)
}

// heardLately reports whether the peer gave a sign of life on any lane within half the mend
// timeout.
func (h *Host) heardLately(id rdmanet.PeerID) bool { return h.lanes.HeardRecently(id) }

// Sever closes the connections to a peer, as a broken network would. Lanes are mended if the peer
// is still there. It is meant for tests and for operators who doubt a connection.
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
			// The connection's lane detects this and removes it from the set.
			err = errors.Join(err, c.sever())
		}
	}
	return err
}

// Close implements rdmanet.Host. If ctx has ended already, the peers see the same as after a crash:
// no goodbye.
func (h *Host) Close(ctx context.Context) error {
	h.closeOnce.Do(func() {
		h.closeErr = h.shutDown(ctx)
		close(h.closeDone)
	})
	<-h.closeDone
	return h.closeErr
}

func (h *Host) shutDown(ctx context.Context) error {
	close(h.closing)
	err := h.lanes.Flush(ctx)
	h.farewell(ctx)
	h.mu.Lock()
	h.dead = true
	streams := slices.Collect(maps.Keys(h.streams))
	h.mu.Unlock()
	h.lanes.End()
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
		h.lanes.Wait()
		h.goroutines.Wait()
		if h.poller != nil {
			h.poller.close()
		}
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

// farewell tells the peers whose lanes end here how many frames this host's program has taken, and
// that this incarnation ends. Otherwise they would have to time out.
func (h *Host) farewell(ctx context.Context) {
	if ctx.Err() != nil {
		return
	}
	h.lanes.Settle(ctx)
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
