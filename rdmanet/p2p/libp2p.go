package p2p

import (
	"errors"
	"fmt"

	libp2pcrypto "github.com/libp2p/go-libp2p/core/crypto"
	libp2phost "github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/peerstore"
	"github.com/libp2p/go-libp2p/core/sec"
	basichost "github.com/libp2p/go-libp2p/p2p/host/basic"
	"github.com/libp2p/go-libp2p/p2p/host/eventbus"
	"github.com/libp2p/go-libp2p/p2p/host/peerstore/pstoremem"
	libp2pyamux "github.com/libp2p/go-libp2p/p2p/muxer/yamux"
	"github.com/libp2p/go-libp2p/p2p/net/connmgr"
	"github.com/libp2p/go-libp2p/p2p/net/swarm"
	"github.com/libp2p/go-libp2p/p2p/net/upgrader"
	"github.com/libp2p/go-libp2p/p2p/security/noise"
	"github.com/multiformats/go-multiaddr"
)

// libp2pConfig is what newLibp2p needs.
type libp2pConfig struct {
	key        libp2pcrypto.PrivKey
	listen     multiaddr.Multiaddr
	gate       *gater
	tickets    *ticketRegistry
	door       *door
	membersMax int
	local      bool // listen for UNIX sockets, too
}

// newLibp2p starts the part of libp2p that is used: TCP, Noise, yamux, and the connection gater. It
// assembles the parts itself, because the constructor of package libp2p brings in every transport
// that libp2p has: QUIC, WebSocket, WebTransport and WebRTC.
func newLibp2p(config libp2pConfig) (node libp2phost.Host, err error) {
	var started []func() error // what to close if a later step fails
	defer func() {
		if err == nil {
			return
		}
		failures := []error{err}
		for i := len(started) - 1; i >= 0; i-- {
			failures = append(failures, started[i]())
		}
		err = errors.Join(failures...)
	}()

	resources, err := newResourceManager(config.membersMax)
	if err != nil {
		return nil, err
	}
	started = append(started, resources.Close)
	conns := config.membersMax * connsPerMember
	trimmer, err := connmgr.NewConnManager(conns, conns+strangersMax)
	if err != nil {
		return nil, fmt.Errorf("connection manager: %w", err)
	}
	started = append(started, trimmer.Close)
	id, known, err := newPeerstore(config.key)
	if err != nil {
		return nil, fmt.Errorf("peerstore: %w", err)
	}
	started = append(started, known.Close)
	bus := eventbus.NewBus()
	connections, err := swarm.NewSwarm(id, known, bus,
		swarm.WithConnectionGater(config.gate),
		swarm.WithResourceManager(resources),
		swarm.WithDialTimeout(handshakeTimeout),
		swarm.WithDialTimeoutLocal(handshakeTimeout),
		swarm.WithDialRanker(swarm.NoDelayDialRanker))
	if err != nil {
		return nil, fmt.Errorf("swarm: %w", err)
	}
	started = append(started, connections.Close)

	muxers := []upgrader.StreamMuxer{{ID: libp2pyamux.ID, Muxer: newMuxer()}}
	security, err := noise.New(noise.ID, config.key, muxers)
	if err != nil {
		return nil, fmt.Errorf("noise: %w", err)
	}
	upgrade, err := upgrader.New([]sec.SecureTransport{security}, muxers, nil, resources,
		config.gate)
	if err != nil {
		return nil, fmt.Errorf("upgrader: %w", err)
	}
	transport, err := newSharedTransport(upgrade, resources, id, config)
	if err != nil {
		return nil, err
	}
	if err := connections.AddTransport(transport); err != nil {
		return nil, fmt.Errorf("TCP: %w", err)
	}

	host, err := basichost.NewHost(connections, &basichost.HostOpts{
		EventBus:    bus,
		ConnManager: trimmer,
		// The addresses of members are configured. Announce none to peers.
		AddrsFactory: func([]multiaddr.Multiaddr) []multiaddr.Multiaddr { return nil },
		UserAgent:    "ledgerd",
	})
	if err != nil {
		return nil, fmt.Errorf("host: %w", err)
	}
	started = []func() error{host.Close} // which closes everything above
	host.Start()
	if err := connections.Listen(config.listen); err != nil {
		return nil, err
	}
	return host, nil
}

// newPeerstore returns a peerstore that has this host's keys, and the host's id.
func newPeerstore(key libp2pcrypto.PrivKey) (id peer.ID, known peerstore.Peerstore, err error) {
	if id, err = peer.IDFromPublicKey(key.GetPublic()); err != nil {
		return "", nil, err
	}
	if known, err = pstoremem.NewPeerstore(); err != nil {
		return "", nil, err
	}
	if err := errors.Join(known.AddPrivKey(id, key),
		known.AddPubKey(id, key.GetPublic())); err != nil {
		return "", nil, errors.Join(err, known.Close())
	}
	return id, known, nil
}
