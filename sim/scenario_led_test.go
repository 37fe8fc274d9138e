package sim

import (
	"testing"

	"github.com/ledgerd/ledgerd/dare"
	"github.com/ledgerd/ledgerd/order"
)

// around returns a partition around a leader, which begins as soon as there is one.
func around(kind lead, from, while Instant) disturbance {
	return disturbance{kind: FaultPartition, at: from * second, patience: (from + 10) * second,
		while: while * second, lead: kind, text: "around a leader"}
}

// TestScenariosOfLeaders runs schedules in which a generation goes on from frozen logs, with the
// networks and users of some seeds, and then with a bug.
func TestScenariosOfLeaders(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		servers int
		around  disturbance
		plant   Plant
		fault   dare.Fault
	}{
		// The first leader is cut off, and appends what its users submit. The second one A-delivers
		// a block, and is cut off before its follower knows. The follower and the first leader
		// promise. The log of the first one is at least as long, and less recent.
		"the longer log is less recent": {3, around(leadSucceeded, 7, 8), PlantTailByLength, 0},
		// The same, or a follower is cut off, and lacks what the leader A-delivers.
		"one log of two has the block": {3, around(leadSucceeded, 7, 8), PlantTailOfMinority, 0},
		// A leader that hears nothing of a promise writes to the log of a follower that gave it.
		// The users are silent before, so the follower stalls.
		"a leader writes to a log that was reported": {5, around(leadBridged, 10, 12), PlantNone,
			dare.FaultFreezeKeepsLog},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			options := led(c.servers, FaultPartition|FaultSuspect).options(t)
			options.script = []disturbance{c.around}
			passSeeds(t, options, 1, 30)
			options.group.Plant, options.group.LedFault = c.plant, c.fault
			mustBreakWith(t, options, 30, []order.Property{Ordered})
		})
	}
}
