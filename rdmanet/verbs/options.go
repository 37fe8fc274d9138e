package verbs

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/rdmanet/internal/window"
	"github.com/ledgerd/ledgerd/rdmanet/p2p"
)

// Environment variables that choose where Options do not.
const (
	// EnvironmentDevice names the device, as ibv_devices lists it.
	EnvironmentDevice = "LEDGERD_VERBS_DEVICE"
	// EnvironmentGID is the index of the port's GID, or the GID itself: an IP address for RoCE v2.
	EnvironmentGID = "LEDGERD_VERBS_GID"
	// EnvironmentPermissions is how permissions are taken back, as Permissions has it.
	EnvironmentPermissions = "LEDGERD_VERBS_PERMISSIONS"
)

var (
	// ErrNotBuilt: this program was built without verbs.
	ErrNotBuilt = errors.New("this program was built without RDMA verbs: build it with -tags " +
		"verbs, cgo and libibverbs (Debian: apt-get install libibverbs-dev)")
	// ErrNoDevice: the machine has no RDMA device that can be used, or not the one asked for.
	ErrNoDevice = errors.New("no RDMA device")
)

// Host is the verbs provider's host.
type Host interface {
	rdmanet.RegionHost
	// Address is where the control plane listens, as host:port.
	Address() string
	// Members are the identities that get in, in their order.
	Members() []rdmanet.PeerID
	// SetMembers replaces the member set, as p2p.Host does; who is no member any more loses its
	// permissions too.
	SetMembers(members map[rdmanet.PeerID]string) error
	// Sever breaks the connections and the lanes' queue pairs to a peer, as a broken wire would,
	// for tests and for operators who doubt them.
	Sever(peer rdmanet.PeerID) error
}

// Device is an RDMA device of this machine.
type Device struct {
	Name string
	// Active tells whether one of its ports is.
	Active bool
	// GIDs are the addresses of its first active port.
	GIDs []GID
}

// GID is an address of a port.
type GID struct {
	Index   int
	Address string
	// Type is "RoCE v2", "RoCE v1" or "InfiniBand".
	Type string
}

// Permissions is how an owner takes a permission back, so that nothing lands once Revoke has
// returned.
type Permissions string

// The methods. Whatever is chosen, a trial at the start decides whether it holds on the device, and
// PermissionsQueuePair takes the place of what does not.
const (
	// PermissionsAuto is the quickest that holds on the device.
	PermissionsAuto Permissions = "auto"
	// PermissionsQueuePair destroys the queue pair, which holds on every device; a new attachment
	// has a new one with every method.
	PermissionsQueuePair Permissions = "queue-pair"
	// PermissionsAccessFlags takes the access flags off the queue pair.
	PermissionsAccessFlags Permissions = "access-flags"
	// PermissionsMemoryWindow invalidates the memory window by which the peer reaches the region,
	// of type 2.
	PermissionsMemoryWindow Permissions = "memory-window"
)

// Options of a host. Control has to be given.
type Options struct {
	// Control is the control plane: identity, members, where to listen. Its windows, frame bound
	// and mend timeout are those of the lanes.
	Control p2p.Options
	// Device and GID choose the device and its address; where they are empty the environment does
	// (EnvironmentDevice, EnvironmentGID), and else the first active device and its first RoCE v2
	// address of IPv4, or the first address.
	Device, GID string
	// RingBytes is the size of a lane's ring at the receiver, a power of two from 4 KiB: 256 KiB.
	RingBytes int
	// Permissions is how permissions are taken back; where it is empty the environment says
	// (EnvironmentPermissions), and else it is PermissionsAuto.
	Permissions Permissions
}

// Bounds of the ring, in bytes.
const (
	ringDefault = 256 << 10
	ringMin     = 4 << 10
	ringMax     = 1 << 28
)

func (o Options) withDefaults() Options {
	if o.Device == "" {
		o.Device = os.Getenv(EnvironmentDevice)
	}
	if o.GID == "" {
		o.GID = os.Getenv(EnvironmentGID)
	}
	if o.Permissions == "" {
		o.Permissions = Permissions(os.Getenv(EnvironmentPermissions))
	}
	if o.Permissions == "" {
		o.Permissions = PermissionsAuto
	}
	if o.RingBytes == 0 {
		o.RingBytes = ringDefault
	}
	if o.Control.MendTimeout == 0 {
		o.Control.MendTimeout = p2p.MendTimeoutDefault
	}
	if o.Control.Incarnation == 0 {
		o.Control.Incarnation = rdmanet.Incarnation(time.Now().UnixNano())
	}
	return o
}

func (o Options) limits() window.Limits {
	return window.Limits{Bytes: o.Control.WindowBytes, Frames: o.Control.WindowFrames,
		FrameBytes: o.Control.FrameMax}.WithDefaults()
}

func (o Options) check() error {
	if o.RingBytes < ringMin || o.RingBytes > ringMax || o.RingBytes&(o.RingBytes-1) != 0 {
		return fmt.Errorf("a ring of %d bytes: want a power of two from %d to %d", o.RingBytes,
			ringMin, ringMax)
	}
	switch o.Permissions {
	case PermissionsAuto, PermissionsQueuePair, PermissionsAccessFlags, PermissionsMemoryWindow:
	default:
		return fmt.Errorf("permissions by %q: want %s, %s, %s or %s", o.Permissions,
			PermissionsAuto, PermissionsQueuePair, PermissionsAccessFlags, PermissionsMemoryWindow)
	}
	return o.limits().Check()
}
