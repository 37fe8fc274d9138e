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
	Memory     Kind = "memory"
	P2P        Kind = "p2p"
	P2PTrusted Kind = "p2p-trusted"
	Verbs      Kind = "verbs"
)

// Errors of this package; match them with errors.Is.
var (
	// ErrKind says that there is no fabric of that name.
	ErrKind = errors.New("no such fabric")
	// ErrOneProcess says that the memory fabric leads nowhere but within one process.
	ErrOneProcess = errors.New("the memory fabric is within one process")
	// ErrUnusable says what a fabric misses on this machine.
	ErrUnusable = errors.New("this fabric cannot be used here")
)

// Kinds are all kinds, the simplest first.
func Kinds() []Kind { return []Kind{Memory, P2P, P2PTrusted, Verbs} }

// Names are the names of all kinds, for completion.
func Names() []string {
	var names []string
	for _, kind := range Kinds() {
		names = append(names, string(kind))
	}
	return names
}

// Parse reads a kind's name. ErrKind, with the names that there are.
func Parse(name string) (Kind, error) {
	for _, kind := range Kinds() {
		if string(kind) == name {
			return kind, nil
		}
	}
	return "", fmt.Errorf("%w: %q, want %s", ErrKind, name, strings.Join(Names(), ", "))
}

// Options of a host that is to be opened. Key and Listen have to be given.
type Options struct {
	// Key is the host's identity.
	Key ed25519.PrivateKey
	// Listen is where the others find this host, host:port; port 0 takes a free one, see
	// Host.Address.
	Listen string
	// Members are those who get in, and their addresses. SetMembers replaces them.
	Members map[rdmanet.PeerID]string
	// Device and GID choose an RDMA device and its address, for Verbs. Where they are empty,
	// LEDGERD_VERBS_DEVICE and LEDGERD_VERBS_GID do, and else the first that is active.
	Device, GID string
	// MendTimeout is how long a lane may be broken before it counts as lost; 0 stands for the
	// provider's default.
	MendTimeout time.Duration
	// Logger gets what operators want to know; nil: nothing is logged.
	Logger *slog.Logger
}

// Host is a host between processes.
type Host interface {
	rdmanet.Host
	// Address is where it listens, host:port.
	Address() string
	// SetMembers replaces the member set: identities, and where they are.
	SetMembers(members map[rdmanet.PeerID]string) error
}

// Open opens a host between processes. ErrKind, ErrOneProcess for Memory, ErrUnusable with what is
// missing, or the provider's own error.
func Open(kind Kind, options Options) (Host, error) {
	plane := p2p.Options{
		PrivateKey: options.Key, Listen: options.Listen, Members: options.Members,
		MendTimeout: options.MendTimeout, Logger: options.Logger, Trusted: kind == P2PTrusted,
	}
	switch kind {
	case P2P, P2PTrusted:
		host, err := p2p.New(plane)
		if err != nil {
			return nil, err // and no host: a nil pointer in an interface is not nil
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

// Check tells whether nodes in several processes can use a kind on this machine: the errors of Open
// that are known beforehand.
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

// unusable is ErrUnusable with all that is missing.
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
