// Package faults names the kinds of fault that a simulated run may have, as the command line lists
// them. Each simulator has kinds of its own, as the bits of a set:
//
//	var names = faults.Names[Faults]{"crash", "partition"} // of the bits 1 and 2
//	set, err := names.Parse("partition,crash")
//	names.Format(set)                                      // "crash,partition"
//
// What a kind does to a run is the simulator's own, and so is the plan of the faults that a seed
// draws. In package sim, faults hit the servers of one group, their links, disks and clocks. In
// package sim/multicast, they hit the replicas and clients of several groups, their wires and
// leader oracles, and many wait for steps of their victim. The two have neither victims nor moments
// in common, and the runs of all seeds depend on the order in which each draws its plan.
package faults

import (
	"fmt"
	"strings"
)

// Names are the names of a simulator's kinds of fault, in the order of the bits of a set S.
type Names[S ~uint8 | ~uint16] []string

// Parse reads a list of names separated by commas, or "none" or "all" alone. "" is none.
func (n Names[S]) Parse(list string) (S, error) {
	switch list {
	case "none", "":
		return 0, nil
	case "all":
		return 1<<len(n) - 1, nil
	}
	var set S
next:
	for name := range strings.SplitSeq(list, ",") {
		for bit, known := range n {
			if strings.TrimSpace(name) == known {
				set |= 1 << bit
				continue next
			}
		}
		return 0, fmt.Errorf("no such fault as %q; use some of %s", name, strings.Join(n, ","))
	}
	return set, nil
}

// Format lists the names of a set as Parse reads them, one by one even if it has all kinds.
func (n Names[S]) Format(set S) string {
	if set == 0 {
		return "none"
	}
	var names []string
	for bit, name := range n {
		if set&(1<<bit) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, ",")
}
