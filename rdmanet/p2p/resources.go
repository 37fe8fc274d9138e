package p2p

import (
	"fmt"
	"math"

	"github.com/libp2p/go-libp2p/core/network"
	rcmgr "github.com/libp2p/go-libp2p/p2p/host/resource-manager"
	libp2pyamux "github.com/libp2p/go-libp2p/p2p/muxer/yamux"
	"github.com/libp2p/go-libp2p/x/rate"
)

// The resources that one member may use. Two members that call each other at the same time briefly
// hold two connections. A restarted member may connect before its old connection is known to be
// dead.
const (
	connsPerMember   = 8
	streamsPerMember = 256       // in each direction: lanes, and streams being replaced
	memoryPerMember  = 256 << 20 // bytes, the receive windows of its streams
	// strangersMax bounds the connections whose handshake has not yet proved the caller's identity.
	strangersMax = 256
)

// A stream's yamux window, in bytes. It starts at streamWindowMin and grows with the traffic up to
// streamWindowMax.
const (
	streamWindowMin = 256 << 10
	streamWindowMax = 16 << 20
)

// newResourceManager limits connections, streams and memory by the size of the member set. There is
// no limit per address.
func newResourceManager(membersMax int) (network.ResourceManager, error) {
	perMember := rcmgr.ResourceLimits{
		Streams:         2 * streamsPerMember,
		StreamsInbound:  streamsPerMember,
		StreamsOutbound: streamsPerMember,
		Conns:           connsPerMember,
		ConnsInbound:    connsPerMember,
		ConnsOutbound:   connsPerMember,
		FD:              connsPerMember,
		Memory:          memoryPerMember,
	}
	conns := membersMax*connsPerMember + strangersMax
	streams := membersMax * streamsPerMember
	system := rcmgr.ResourceLimits{
		Streams:         rcmgr.LimitVal(2 * streams),
		StreamsInbound:  rcmgr.LimitVal(streams),
		StreamsOutbound: rcmgr.LimitVal(streams),
		Conns:           rcmgr.LimitVal(conns),
		ConnsInbound:    rcmgr.LimitVal(conns),
		ConnsOutbound:   rcmgr.LimitVal(conns),
		FD:              rcmgr.LimitVal(conns),
		Memory:          rcmgr.LimitVal64(int64(membersMax) * memoryPerMember),
	}
	// Until the handshake is over, a member's connection counts as a stranger's.
	transient := system
	transient.Conns = rcmgr.LimitVal(membersMax + strangersMax)
	transient.ConnsInbound, transient.ConnsOutbound, transient.FD = transient.Conns,
		transient.Conns, transient.Conns
	limits := rcmgr.PartialLimitConfig{System: system, Transient: transient, PeerDefault: perMember}
	everywhere := []rcmgr.ConnLimitPerSubnet{{PrefixLength: 0, ConnCount: math.MaxInt}}
	manager, err := rcmgr.NewResourceManager(
		rcmgr.NewFixedLimiter(limits.Build(rcmgr.InfiniteLimits)),
		rcmgr.WithLimitPerSubnet(everywhere, everywhere),
		rcmgr.WithConnRateLimiters(&rate.Limiter{}),
		rcmgr.WithMetricsDisabled(),
	)
	if err != nil {
		return nil, fmt.Errorf("resource limits: %w", err)
	}
	return manager, nil
}

// noiseSegmentBytes is the payload of one Noise segment, which is 65,535 bytes with its
// authentication tag. A yamux message of this size fills exactly one segment.
const noiseSegmentBytes = 65535 - 16

// newMuxer returns yamux with messages that fit Noise's segments.
func newMuxer() *libp2pyamux.Transport {
	muxer := *libp2pyamux.DefaultTransport
	muxer.MaxMessageSize = noiseSegmentBytes
	muxer.InitialStreamWindowSize = streamWindowMin
	muxer.MaxStreamWindowSize = streamWindowMax
	return &muxer
}
