package comparator

import (
	"errors"
	"fmt"

	"github.com/ledgerd/ledgerd/order"
)

const (
	// ServersMax is the maximum number of servers in a group.
	ServersMax = 1 << 14
	// MaxPayloadDefault is the maximum size of a message's payload if Config.MaxPayload is 0, in
	// bytes.
	MaxPayloadDefault = 4 << 20
	// AcceptorsDefault is the number of acceptors of Paxos [Poke19, section 6.5], if there are that
	// many servers.
	AcceptorsDefault = 5
	// OutstandingMax is the largest Config.Outstanding.
	OutstandingMax = 256
	// acceptorsMax is how many acceptors fit the sets of this package.
	acceptorsMax = 64
)

// ErrConfig is returned for a Config that describes no comparator. Match it with errors.Is.
var ErrConfig = errors.New("comparator: wrong configuration")

// Config describes one server. All servers of a group have the same Config except for Self.
type Config struct {
	// Self is this server, below Servers.
	Self order.ServerID
	// Servers is n, 1 to ServersMax. Servers are numbered 0 to n-1.
	Servers int
	// MaxPayload is the maximum size of a message's payload, in bytes. 0 means MaxPayloadDefault.
	MaxPayload int
	// Ring is the order of the servers in LCR's ring, each once. nil is 0 to n-1. Between
	// datacentres the paper orders them so that few edges of the ring leave one. The slice is kept
	// and not changed.
	Ring []order.ServerID
	// Acceptors is how many servers, from 0 on, are acceptors of Paxos, up to 64. 0 means
	// AcceptorsDefault, or all servers if there are fewer.
	Acceptors int
	// BlockSize is how many bytes each server contributes to a round of unreliable agreement. All
	// ranks of MPI_Allgather must know it, and it decides the algorithm. Payloads of other sizes
	// work too. The other three comparators ignore it.
	BlockSize int
	// Outstanding is how many of its own messages a server of LCR may have under way, up to
	// OutstandingMax. 0 means 1, as in the dissertation. More of them fill the links. The other
	// comparators ignore it.
	Outstanding int
	// Fault plants a bug, to prove that a checker finds it. Measurements leave it FaultNone.
	Fault Fault
}

// Fault is a bug that is planted on purpose.
type Fault uint8

const (
	// FaultNone is the correct algorithm.
	FaultNone Fault = iota
	// FaultDroppedRelay does not forward what other servers need. All four comparators support it.
	FaultDroppedRelay
	// FaultEarlyDelivery delivers a round without its last message (AllGather, unreliable
	// agreement), a message before it is stable (LCR), or the server's own message before it has an
	// instance (Paxos).
	FaultEarlyDelivery
	// FaultUnordered sequences messages in the order of arrival instead of by their clocks (LCR).
	FaultUnordered
	faultEnd
)

// String returns the name of the fault.
func (f Fault) String() string {
	names := [faultEnd]string{"none", "dropped-relay", "early-delivery", "unordered"}
	if f < faultEnd {
		return names[f]
	}
	return fmt.Sprintf("fault(%d)", uint8(f))
}

// validate returns an error that wraps ErrConfig if the configuration is wrong.
func (c Config) validate() error {
	switch {
	case c.Servers < 1 || c.Servers > ServersMax:
		return fmt.Errorf("%w: a group of %d servers, want 1 to %d", ErrConfig, c.Servers,
			ServersMax)
	case uint64(c.Self) >= uint64(c.Servers):
		return fmt.Errorf("%w: server %d is none of 0 to %d", ErrConfig, c.Self, c.Servers-1)
	case c.MaxPayload < 0:
		return fmt.Errorf("%w: a payload bound of %d bytes", ErrConfig, c.MaxPayload)
	case c.Acceptors < 0 || c.Acceptors > min(c.Servers, acceptorsMax):
		return fmt.Errorf("%w: %d acceptors among %d servers, want at most all of them and at "+
			"most %d", ErrConfig, c.Acceptors, c.Servers, acceptorsMax)
	case c.BlockSize < 0:
		return fmt.Errorf("%w: blocks of %d bytes", ErrConfig, c.BlockSize)
	case c.Outstanding < 0 || c.Outstanding > OutstandingMax:
		return fmt.Errorf("%w: %d messages of a server under way, want 1 to %d", ErrConfig,
			c.Outstanding, OutstandingMax)
	case c.Fault >= faultEnd:
		return fmt.Errorf("%w: no such fault as %d", ErrConfig, c.Fault)
	case c.Ring != nil && len(c.Ring) != c.Servers:
		return fmt.Errorf("%w: a ring of %d for %d servers", ErrConfig, len(c.Ring), c.Servers)
	}
	seen := make([]bool, c.Servers)
	for _, s := range c.Ring {
		if int(s) >= c.Servers || seen[s] {
			return fmt.Errorf("%w: server %d is twice in the ring, or is none", ErrConfig, s)
		}
		seen[s] = true
	}
	return nil
}

func (c Config) withDefaults() Config {
	if c.MaxPayload == 0 {
		c.MaxPayload = MaxPayloadDefault
	}
	if c.Acceptors == 0 {
		c.Acceptors = min(AcceptorsDefault, c.Servers)
	}
	if c.Outstanding == 0 {
		c.Outstanding = 1
	}
	return c
}

// can returns an error for a fault that an algorithm does not support.
func (c Config) can(algorithm string, faults ...Fault) error {
	if c.Fault == FaultNone {
		return nil
	}
	for _, f := range faults {
		if f == c.Fault {
			return nil
		}
	}
	return fmt.Errorf("%w: %s does not support the fault %v", ErrConfig, algorithm, c.Fault)
}
