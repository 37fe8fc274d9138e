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

// Environment variables that supply values missing in Options.
const (
	// EnvironmentDevice names the device, as ibv_devices lists it.
	EnvironmentDevice = "LEDGERD_VERBS_DEVICE"
	// EnvironmentGID is the index of the port's GID, or the GID itself: an IP address for RoCE v2.
	EnvironmentGID = "LEDGERD_VERBS_GID"
	// EnvironmentPermissions is the method of withdrawing permissions, one of the values of
	// Permissions.
	EnvironmentPermissions = "LEDGERD_VERBS_PERMISSIONS"
)

var (
	// ErrNotBuilt: this program was built without verbs.
	ErrNotBuilt = errors.New("this program was built without RDMA verbs: build it with -tags " +
		"verbs, cgo and libibverbs (Debian: apt-get install libibverbs-dev)")
	// ErrNoDevice: the machine has no usable RDMA device, or not the requested one.
	ErrNoDevice = errors.New("no RDMA device")
)

// Host is the verbs provider's host.
type Host interface {
	rdmanet.RegionHost
	// Address returns the address on which the control plane listens, as host:port.
	Address() string
	// Members returns the identities of the members, sorted.
	Members() []rdmanet.PeerID
	// SetMembers replaces the member set, as p2p.Host does. A removed peer also loses its
	// permissions.
	SetMembers(members map[rdmanet.PeerID]string) error
	// Sever breaks the connections and the lanes' queue pairs to a peer, as a broken network would.
	// It is meant for tests and for operators who doubt a connection.
	Sever(peer rdmanet.PeerID) error
}

// Device is an RDMA device of this machine.
type Device struct {
	Name string
	// Active reports whether one of its ports is active.
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

// Permissions is the method by which an owner withdraws a permission, so that nothing lands once
// Revoke has returned.
type Permissions string

// The methods. A trial at startup decides whether the chosen method holds on the device. If it does
// not, PermissionsQueuePair is used.
const (
	// PermissionsAuto chooses the fastest method that holds on the device.
	PermissionsAuto Permissions = "auto"
	// PermissionsQueuePair destroys the queue pair, which holds on every device. With every method
	// a new attachment gets a new queue pair.
	PermissionsQueuePair Permissions = "queue-pair"
	// PermissionsAccessFlags clears the access flags of the queue pair.
	PermissionsAccessFlags Permissions = "access-flags"
	// PermissionsMemoryWindow invalidates the type 2 memory window through which the peer reaches
	// the region.
	PermissionsMemoryWindow Permissions = "memory-window"
)

// Options configure a host. Control is required.
type Options struct {
	// Control configures the control plane: identity, members, listening address. Its windows,
	// frame bound and mend timeout apply to the lanes.
	Control p2p.Options
	// Device and GID choose the device and its address. If a field is empty, the environment
	// (EnvironmentDevice, EnvironmentGID) chooses. The default is the first active device and its
	// first RoCE v2 address of IPv4, or else its first address.
	Device, GID string
	// RingBytes is the size of a lane's ring at the receiver, a power of two of at least 4 KiB. The
	// default is 256 KiB.
	RingBytes int
	// Permissions is the method of withdrawing permissions. If it is empty, the environment
	// (EnvironmentPermissions) chooses. The default is PermissionsAuto.
	Permissions Permissions
}

// The default and the bounds of the ring's size, in bytes.
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
