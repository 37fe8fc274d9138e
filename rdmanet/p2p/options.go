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

// The names by which operators choose this fabric, with Trusted off and on.
const (
	Fabric        = "p2p"
	FabricTrusted = "p2p-trusted"
)

// fabricName returns the name of the fabric for a setting of Trusted.
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

// Options configure a host. Only PrivateKey and Listen are required.
type Options struct {
	// PrivateKey is the host's identity.
	PrivateKey ed25519.PrivateKey
	// Listen is the address to listen on, as host:port or a multiaddr. Port 0 takes a free port:
	// see Host.Address.
	Listen string
	// Members are the peers that are admitted, with their addresses as host:port or multiaddr. A
	// member with an empty address can only call this host. The host's own identity may be among
	// them.
	Members map[rdmanet.PeerID]string
	// MembersMax sizes the resource limits. The default is 1,024 members. It is raised to the size
	// of Members if that is larger.
	MembersMax int
	// WindowBytes and WindowFrames bound the unacknowledged frames of a lane. The defaults are 32
	// MiB and 65,536 frames.
	WindowBytes, WindowFrames int
	// FrameMax bounds a frame, in bytes. The default is 16 MiB, or the window if that is smaller.
	// It must be the same on all members.
	FrameMax int
	// MendTimeout is how long a lane may be broken before it counts as lost. The default is 10
	// seconds.
	MendTimeout time.Duration
	// Trusted states that the network between the members has no eavesdroppers. Data goes over TCP
	// connections in plain text, neither encrypted nor authenticated. libp2p only proves the
	// identities of the ends. Trusted must be the same on all members.
	Trusted bool
	// NoPoller makes one goroutine read each lane, also those of prompt receivers. Systems other
	// than Linux have no poller in any case.
	NoPoller bool
	// Poison overwrites the memory of lent frames (rdmanet.Loan) once nobody holds them, so that
	// programs which read them later fail. It is for tests.
	Poison bool
	// Local makes direct connections to hosts of the same user and machine UNIX sockets, and lanes
	// with prompt receivers rings in shared memory, if these hosts have it set, too. It needs
	// Trusted. On systems other than Linux it changes nothing.
	Local bool
	// Incarnation is this host's incarnation. It must grow from start to start. The default is the
	// time, in nanoseconds since 1970.
	Incarnation rdmanet.Incarnation
	// Logger receives messages for operators. By default nothing is logged.
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
		return fmt.Errorf("a mend timeout of %s: want 0 or more", o.MendTimeout)
	case o.Local && !o.Trusted:
		return errors.New("connections within a machine are not encrypted: set Trusted with Local")
	case o.MembersMax < 0:
		return fmt.Errorf("at most %d members: want 0 or more", o.MembersMax)
	case limits.Bytes > math.MaxUint32 || limits.Frames > math.MaxUint32:
		return fmt.Errorf("a window of %d bytes and %d frames: want less than 4 Gi", limits.Bytes,
			limits.Frames)
	}
	return limits.Check()
}
