package p2p

import (
	"context"
	"net"

	"github.com/libp2p/go-libp2p"
	libp2pcrypto "github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/p2p/transport/tcp"
	"github.com/multiformats/go-multiaddr"
)

// DirectNetworks returns the networks of the direct connections, "tcp" or "unix".
func (h *Host) DirectNetworks() (networks []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for c := range h.directs {
		networks = append(networks, c.socket.LocalAddr().Network())
	}
	return networks
}

// dialFunc is a dialer for libp2p.
type dialFunc func(ctx context.Context, kind, address string) (net.Conn, error)

// DialContext implements tcp.ContextDialer.
func (d dialFunc) DialContext(ctx context.Context, kind, address string) (net.Conn, error) {
	return d(ctx, kind, address)
}

// RogueTransport makes a plain libp2p host show a member's pass to the ports that it dials. To
// returns the identity of that port.
func RogueTransport(key libp2pcrypto.PrivKey, to func() peer.ID) libp2p.Option {
	dial := func(ctx context.Context, kind, address string) (net.Conn, error) {
		ctx = context.WithValue(ctx, dialledKey{}, to())
		return passDialer{key}.DialContext(ctx, kind, address)
	}
	return libp2p.Transport(tcp.NewTCPTransport, tcp.DisableReuseport(),
		tcp.WithDialerForAddr(func(multiaddr.Multiaddr) (tcp.ContextDialer, error) {
			return dialFunc(dial), nil
		}))
}
