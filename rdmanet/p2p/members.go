package p2p

import (
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"time"

	"github.com/libp2p/go-libp2p/core/connmgr"
	"github.com/libp2p/go-libp2p/core/control"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/multiformats/go-multiaddr"

	"github.com/ledgerd/ledgerd/rdmanet"
)

// memberSet maps the identity of each member to its address, nil if it has none. It is immutable.
type memberSet map[peer.ID]multiaddr.Multiaddr

// parseMembers checks every identity and address. An empty address stands for a member that only
// calls this host.
func parseMembers(members map[rdmanet.PeerID]string) (memberSet, error) {
	set := make(memberSet, len(members))
	for id, address := range members {
		decoded, err := peer.Decode(string(id))
		if err != nil {
			return nil, fmt.Errorf("member %q: %w", id, err)
		}
		if address == "" {
			set[decoded] = nil
			continue
		}
		parsed, err := parseAddress(address)
		if err != nil {
			return nil, fmt.Errorf("member %s: %w", id, err)
		}
		set[decoded] = parsed
	}
	return set, nil
}

// parseAddress parses host:port, with an IP address or a DNS name, or a multiaddr.
func parseAddress(address string) (multiaddr.Multiaddr, error) {
	if strings.HasPrefix(address, "/") {
		parsed, err := multiaddr.NewMultiaddr(address)
		if err != nil {
			return nil, fmt.Errorf("address %q: %w", address, err)
		}
		transport, _ := peer.SplitAddr(parsed)
		if transport == nil {
			return nil, fmt.Errorf("address %q: no host and port", address)
		}
		return transport, nil
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("address %q: %w", address, err)
	}
	kind := "dns"
	if ip, err := netip.ParseAddr(host); err == nil {
		kind = "ip6"
		if ip.Is4() {
			kind = "ip4"
		}
	} else if host == "" {
		return nil, fmt.Errorf("address %q: no host", address)
	}
	parsed, err := multiaddr.NewMultiaddr("/" + kind + "/" + host + "/tcp/" + port)
	if err != nil {
		return nil, fmt.Errorf("address %q: %w", address, err)
	}
	return parsed, nil
}

// gater admits members and no other peer.
type gater struct {
	members atomic.Pointer[memberSet]
	log     *slog.Logger
	// quietUntil limits the log lines that strangers can cause. It is in nanoseconds since 1970.
	quietUntil atomic.Int64
}

var _ connmgr.ConnectionGater = (*gater)(nil)

// strangerLogPause is the minimum time between two log lines about refused strangers.
const strangerLogPause = time.Second

func (g *gater) isMember(id peer.ID) bool {
	_, ok := (*g.members.Load())[id]
	return ok
}

// InterceptPeerDial implements connmgr.ConnectionGater.
func (g *gater) InterceptPeerDial(id peer.ID) bool { return g.isMember(id) }

// InterceptAddrDial implements connmgr.ConnectionGater.
func (g *gater) InterceptAddrDial(id peer.ID, _ multiaddr.Multiaddr) bool { return g.isMember(id) }

// InterceptAccept implements connmgr.ConnectionGater. The caller's identity is known only after the
// handshake.
func (g *gater) InterceptAccept(network.ConnMultiaddrs) bool { return true }

// InterceptSecured implements connmgr.ConnectionGater. The handshake has proved the peer's
// identity.
func (g *gater) InterceptSecured(direction network.Direction, id peer.ID,
	addresses network.ConnMultiaddrs) bool {
	if g.isMember(id) {
		return true
	}
	g.refused(id.String(), direction.String(), addresses.RemoteMultiaddr().String())
	return false
}

// refused logs that a connection was refused, at most once in strangerLogPause.
func (g *gater) refused(id, direction, address string) {
	now := time.Now().UnixNano()
	if quiet := g.quietUntil.Load(); now >= quiet &&
		g.quietUntil.CompareAndSwap(quiet, now+int64(strangerLogPause)) {
		g.log.Warn("connection refused: not a member", "peer", id, "direction", direction,
			"address", address)
	}
}

// InterceptUpgraded implements connmgr.ConnectionGater.
func (g *gater) InterceptUpgraded(conn network.Conn) (bool, control.DisconnectReason) {
	return g.isMember(conn.RemotePeer()), 0
}
