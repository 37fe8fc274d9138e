package p2p

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"time"

	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/rdmanet/internal/window"
)

// The names under which operators choose this fabric: Trusted off and on.
const (
	Fabric        = "p2p"
	FabricTrusted = "p2p-trusted"
)

// fabricName gives the name of a setting of Trusted.
func fabricName(trusted bool) string {
	if trusted {
		return FabricTrusted
	}
	return Fabric
}

// Defaults of Options.
const (
	MendTimeoutDefault = 10 * time.Second
	MembersMaxDefault  = 1024
)

// Options of a host. Only PrivateKey and Listen have to be given.
type Options struct {
	// PrivateKey is the host's identity.
	PrivateKey ed25519.PrivateKey
	// Listen is where to listen, host:port or a multiaddr; port 0 takes a free one, see
	// Host.Address.
	Listen string
	// Members are the peers that get in and their addresses, host:port or multiaddr; an empty
	// address stands for a member that only calls. The host's own identity may be among them.
	Members map[rdmanet.PeerID]string
	// MembersMax sizes the resource limits: 1,024 members, or as many as Members has.
	MembersMax int
	// WindowBytes and WindowFrames bound what a lane holds unacknowledged: 32 MiB and 65,536
	// frames.
	WindowBytes, WindowFrames int
	// FrameMax bounds a frame, in bytes: 16 MiB, or the window if that is smaller. The same on all
	// members.
	FrameMax int
	// MendTimeout is how long a lane may be broken before it counts as lost: 10 seconds.
	MendTimeout time.Duration
	// Trusted says that nobody listens on the network between the members: data goes over TCP
	// connections as it is, neither encrypted nor authenticated byte for byte, and libp2p only
	// proves who the ends are. The same on all members.
	Trusted bool
	// Incarnation of this host; it must grow from start to start. The default is the time, in
	// nanoseconds since 1970.
	Incarnation rdmanet.Incarnation
	// Logger gets what operators want to know; nothing is logged by default.
	Logger *slog.Logger
}

func (o Options) withDefaults() Options {
	if o.MembersMax == 0 {
		o.MembersMax = MembersMaxDefault
	}
	o.MembersMax = max(o.MembersMax, len(o.Members))
	if o.MendTimeout == 0 {
		o.MendTimeout = MendTimeoutDefault
	}
	if o.Incarnation == 0 {
		o.Incarnation = rdmanet.Incarnation(time.Now().UnixNano())
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

func (o Options) limits() window.Limits {
	return window.Limits{Bytes: o.WindowBytes, Frames: o.WindowFrames,
		FrameBytes: o.FrameMax}.WithDefaults()
}

func (o Options) check() error {
	limits := o.limits()
	switch {
	case len(o.PrivateKey) != ed25519.PrivateKeySize:
		return errors.New("a private key is needed")
	case o.MendTimeout < 0:
		return fmt.Errorf("a mend timeout of %s", o.MendTimeout)
	case o.MembersMax < 0:
		return fmt.Errorf("at most %d members", o.MembersMax)
	case limits.Bytes > math.MaxUint32 || limits.Frames > math.MaxUint32:
		return fmt.Errorf("a window of %d bytes and %d frames: want less than 4 Gi", limits.Bytes,
			limits.Frames)
	}
	return limits.Check()
}
