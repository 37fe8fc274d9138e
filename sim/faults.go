package sim

import (
	"fmt"
	"slices"

	"github.com/ledgerd/ledgerd/sim/faults"
)

// Faults is a set of kinds of fault that a run may have.
type Faults uint16

// The kinds of fault.
const (
	// FaultCrash crashes servers at the worst moments.
	FaultCrash Faults = 1 << iota
	// FaultSuspect makes detectors suspect working servers for a while.
	FaultSuspect
	// FaultPartition cuts links: of one server or between parts, both ways or one way. It may also
	// leave a member alone with a server whose blocks were given up, or follow the steps of a
	// leader. Frames wait and arrive, in order, when the cut heals.
	FaultPartition
	// FaultJoin adds new servers to the membership.
	FaultJoin
	// FaultLeave removes servers from the membership.
	FaultLeave
	// FaultPause pauses servers for a while: they take no input, and then take all of it at once.
	FaultPause
	// FaultPower cuts the power of one, some or all servers: unsynced data are lost, and the last
	// group of the log may be torn, or damaged although it was synced.
	FaultPower
	// FaultDisk fills disks for a while, and loses data, promises, or both. Old disks and older
	// copies come back for a while, even after the chain counts others. A majority never forgets.
	FaultDisk
	// FaultBreak breaks connections between working servers: the frames under way are lost in both
	// directions.
	FaultBreak
	// FaultClock moves clocks, by up to decades, while servers run or are down: for a while or for
	// good, back and forth, or further and further.
	FaultClock
	faultsEnd

	// FaultsAll is every kind.
	FaultsAll = faultsEnd - 1

	// engineChange is no fault: the operator changes the engine (Group.EngineChanges).
	engineChange = faultsEnd
)

// faultNames are the names on the command line, in the order of the bits.
var faultNames = faults.Names[Faults]{"crash", "suspect", "partition", "join", "leave", "pause",
	"power", "disk", "break", "clock"}

// FaultNames lists the kinds of fault as ParseFaults reads them.
func FaultNames() []string { return slices.Clone(faultNames) }

// ParseFaults reads a list of kinds separated by commas, or "none" or "all" alone. The error wraps
// ErrOptions.
func ParseFaults(list string) (Faults, error) {
	set, err := faultNames.Parse(list)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", ErrOptions, err)
	}
	return set, nil
}

// Has reports whether the set has all of some kinds.
func (f Faults) Has(kinds Faults) bool { return f&kinds == kinds }

// String lists the kinds as ParseFaults reads them.
func (f Faults) String() string { return faultNames.Format(f) }
