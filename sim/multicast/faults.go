package multicast

import (
	"fmt"
	"strings"
)

// Faults is a set of kinds of fault that a run may have.
type Faults uint8

// The kinds of fault.
const (
	// FaultCrash ends replicas, leaders above all, at any step of the protocol, within what each
	// group tolerates.
	FaultCrash Faults = 1 << iota
	// FaultClient ends clients: before, between and after their writes.
	FaultClient
	// FaultSuspect makes leader oracles err: for a while, or until the next error, they name
	// another leader, each replica's oracle independently. Several replicas lead at once, and take
	// permissions from each other.
	FaultSuspect
	// FaultSlow holds operations and letters on wires between processes for less than the operation
	// timeout.
	FaultSlow
	// FaultHang stops a process's program, for a while or for good. Its memory remains readable and
	// writable.
	FaultHang
	// FaultPartition cuts wires for longer than the operation timeout: operations end with an error
	// and may land afterwards.
	FaultPartition
	// FaultOverwhelm ends more replicas of a group than it tolerates. Then only safety is judged.
	FaultOverwhelm
	faultsEnd

	// FaultsAll is every kind.
	FaultsAll = faultsEnd - 1
)

// faultNames are the names on the command line, in the order of the bits.
var faultNames = []string{"crash", "client", "suspect", "slow", "hang", "partition", "overwhelm"}

// FaultNames lists the kinds of fault as ParseFaults reads them.
func FaultNames() []string { return append([]string(nil), faultNames...) }

// ParseFaults reads a list of kinds separated by commas, or "none" or "all" alone. The error wraps
// ErrOptions.
func ParseFaults(list string) (Faults, error) {
	switch list {
	case "none", "":
		return 0, nil
	case "all":
		return FaultsAll, nil
	}
	var faults Faults
next:
	for name := range strings.SplitSeq(list, ",") {
		for bit, known := range faultNames {
			if strings.TrimSpace(name) == known {
				faults |= 1 << bit
				continue next
			}
		}
		return 0, fmt.Errorf("%w: no such fault as %q; use some of %s, or all, or none", ErrOptions,
			name, strings.Join(faultNames, ","))
	}
	return faults, nil
}

// String lists the kinds as ParseFaults reads them.
func (f Faults) String() string {
	switch f {
	case 0:
		return "none"
	case FaultsAll:
		return "all"
	}
	var names []string
	for bit, name := range faultNames {
		if f&(1<<bit) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, ",")
}
