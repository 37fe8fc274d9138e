package sim

import (
	"fmt"
	"strings"
)

// Faults is a set of the kinds of fault that a run may have.
type Faults uint16

// The kinds of fault.
const (
	// FaultCrash ends servers at the worst of moments.
	FaultCrash Faults = 1 << iota
	// FaultSuspect has detectors suspect servers that work, for a while.
	FaultSuspect
	// FaultPartition cuts links, of one server or between halves, both ways or one way, or leaves a
	// member alone with one whose blocks were given up. What is sent waits and arrives, in order,
	// when the cut heals.
	FaultPartition
	// FaultJoin brings new servers, and servers that crashed or left come back as new incarnations.
	FaultJoin
	// FaultLeave takes servers out of the membership.
	FaultLeave
	// FaultPause stops servers for a while: they take no input, and afterwards all of it at once.
	FaultPause
	// FaultPower cuts the power of servers, one, some or all: what is not synced is lost, and the
	// last group of the log may be torn, or damaged although it was synced.
	FaultPower
	// FaultDisk fills disks for a while, and loses data, promises, or both; old disks and older
	// copies come back, for a while, also after the chain counts others. Never does a majority
	// forget.
	FaultDisk
	// FaultBreak breaks connections of two servers that work: the frames under way are lost, both
	// ways.
	FaultBreak
	// FaultClock moves clocks, by up to decades, while servers run or are down: for a while or for
	// good, back and forth, or ever further.
	FaultClock
	faultsEnd

	// FaultsAll is every kind.
	FaultsAll = faultsEnd - 1
)

// faultNames are the names on a command line, in the order of the bits.
var faultNames = []string{"crash", "suspect", "partition", "join", "leave", "pause", "power",
	"disk", "break",
	"clock"}

// FaultNames lists the kinds of fault as ParseFaults takes them.
func FaultNames() []string { return append([]string(nil), faultNames...) }

// ParseFaults reads a list of kinds with commas between them; "none" and "all" stand alone. The
// error wraps ErrOptions.
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
		return 0, fmt.Errorf("%w: no such fault as %q, use some of %s", ErrOptions,
			name, strings.Join(faultNames, ","))
	}
	return faults, nil
}

// Has tells whether the set has all of some kinds.
func (f Faults) Has(kinds Faults) bool { return f&kinds == kinds }

// String lists the kinds as ParseFaults takes them.
func (f Faults) String() string {
	if f == 0 {
		return "none"
	}
	var names []string
	for bit, name := range faultNames {
		if f&(1<<bit) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, ",")
}
