package fabric

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/rdmanet/p2p"
	"github.com/ledgerd/ledgerd/rdmanet/verbs"
)

// Kind is a provider's name, as operators write it.
type Kind string

// The kinds of fabrics.
const (
	Memory       Kind = "memory"
	P2P          Kind = "p2p"
	P2PTrusted   Kind = "p2p-trusted"
	SharedMemory Kind = "shm"
	Verbs        Kind = "verbs"
)

// Errors of this package; match them with errors.Is.
var (
	// ErrKind reports that there is no fabric of that name.
	ErrKind = errors.New("no such fabric")
	// ErrOneProcess reports that the memory fabric works only within one process.
	ErrOneProcess = errors.New("the memory fabric works only within one process")
	// ErrUnusable reports what a fabric lacks on this machine.
	ErrUnusable = errors.New("this fabric cannot be used here")
)

// Kinds returns all kinds, the simplest first.
func Kinds() []Kind { return []Kind{Memory, P2P, P2PTrusted, SharedMemory, Verbs} }

// Names returns the names of all kinds, for completion.
func Names() []string {
	var names []string
	for _, kind := range Kinds() {
		names = append(names, string(kind))
	}
	return names
}

// Parse reads a kind's name. It returns ErrKind, with the valid names, for any other name.
func Parse(name string) (Kind, error) {
	for _, kind := range Kinds() {
		if string(kind) == name {
			return kind, nil
		}
	}
	return "", fmt.Errorf("%w: %q, want %s", ErrKind, name, strings.Join(Names(), ", "))
}

// Options configure a host. Key and Listen are required.
type Options struct {
	// Key is the host's identity.
	Key ed25519.PrivateKey
	// Listen is the address, host:port, at which others reach this host. Port 0 takes a free port;
	// see Host.Address.
	Listen string
	// Members are the admitted peers and their addresses. SetMembers replaces them.
	Members map[rdmanet.PeerID]string
	// Device and GID choose an RDMA device and its address, for Verbs. If they are empty,
	// LEDGERD_VERBS_DEVICE and LEDGERD_VERBS_GID choose; else the first active one is used.
	Device, GID string
	// MendTimeout is how long a lane may be broken before it counts as lost. 0 means the provider's
	// default.
	MendTimeout time.Duration
	// NoPoller has a goroutine of its own read each lane of P2P, P2PTrusted and SharedMemory, as on
	// systems other than Linux. It is for measurements.
	NoPoller bool
	// Logger logs events for operators. If it is nil, nothing is logged.
	Logger *slog.Logger
}

// Host is a host between processes.
type Host interface {
	rdmanet.Host
	// Address returns the address at which it listens, host:port.
	Address() string
	// SetMembers replaces the members: their identities and addresses.
	SetMembers(members map[rdmanet.PeerID]string) error
}

// Open opens a host between processes. Errors: ErrKind, ErrOneProcess for Memory, ErrUnusable with
// everything that is missing, or the provider's own.
func Open(kind Kind, options Options) (Host, error) {
	plane := p2p.Options{
		PrivateKey: options.Key, Listen: options.Listen, Members: options.Members,
		MendTimeout: options.MendTimeout, Logger: options.Logger,
		Trusted: kind == P2PTrusted || kind == SharedMemory, Local: kind == SharedMemory,
		NoPoller: options.NoPoller,
	}
	switch kind {
	case P2P, P2PTrusted, SharedMemory:
		host, err := p2p.New(plane)
		if err != nil {
			return nil, err // and a nil interface: a nil pointer in an interface is not nil
		}
		return host, nil
	case Verbs:
		if missing := missingForVerbs(); len(missing) > 0 {
			return nil, unusable(kind, missing)
		}
		host, err := verbs.Start(verbs.Options{Control: plane, Device: options.Device,
			GID: options.GID})
		if err != nil {
			return nil, err
		}
		return host, nil
	case Memory:
		return nil, ErrOneProcess
	}
	_, err := Parse(string(kind))
	return nil, err
}

// Check reports whether nodes in several processes can use a kind on this machine. It returns the
// errors of Open that are known in advance.
func Check(kind Kind) error {
	switch kind {
	case Memory:
		return ErrOneProcess
	case Verbs:
		if missing := missingForVerbs(); len(missing) > 0 {
			return unusable(kind, missing)
		}
	}
	_, err := Parse(string(kind))
	return err
}

// unusable returns ErrUnusable with everything that is missing.
func unusable(kind Kind, missing []Missing) error {
	var text strings.Builder
	for i, m := range missing {
		if i > 0 {
			text.WriteString("; ")
		}
		fmt.Fprintf(&text, "%s (%s)", m.What, m.Remedy)
	}
	return fmt.Errorf("%w: %s: %s", ErrUnusable, kind, &text)
}
