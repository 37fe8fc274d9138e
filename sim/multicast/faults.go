package multicast

import (
	"fmt"
	"slices"

	"github.com/ledgerd/ledgerd/sim/faults"
)

// Faults is a set of kinds of fault that a run may have.
type Faults uint16

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
	// FaultRestart ends a replica and starts it again after a while, as its next incarnation with
	// empty memory. It counts as one that its group lost.
	FaultRestart
	// FaultReconfigure makes a group smaller: its last replica leaves, for good, or until it starts
	// again after a while and joins. It counts as one that its group lost.
	FaultReconfigure
	faultsEnd

	// faultsOfChange are the kinds that only an engine has whose groups change.
	faultsOfChange = FaultRestart | FaultReconfigure

	// FaultsAll is every kind.
	FaultsAll = faultsEnd - 1
)

// faultNames are the names on the command line, in the order of the bits.
var faultNames = faults.Names[Faults]{"crash", "client", "suspect", "slow", "hang",
	"partition", "overwhelm", "restart", "reconfigure"}

// FaultNames lists the kinds of fault as ParseFaults reads them.
func FaultNames() []string { return slices.Clone(faultNames) }

// ParseFaults reads a list of kinds separated by commas, or "none" or "all" alone. The error wraps
// ErrOptions.
func ParseFaults(list string) (Faults, error) {
	set, err := faultNames.Parse(list)
	if err != nil {
		return 0, fmt.Errorf("%w: %w, or all, or none", ErrOptions, err)
	}
	return set, nil
}

// String lists the kinds as ParseFaults reads them.
func (f Faults) String() string {
	if f == FaultsAll {
		return "all"
	}
	return faultNames.Format(f)
}
