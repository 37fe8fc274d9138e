package sim

import (
	"fmt"
	"testing"

	"github.com/ledgerd/ledgerd/order"
)

// TestPlantsAreCaught plants each bug of the life around the engines, and each false reason, and
// bounds the lives until an oracle finds it. Bugs that need a schedule of their own are in
// TestScenarios.
func TestPlantsAreCaught(t *testing.T) {
	t.Parallel()
	partitions := FaultSuspect | FaultPartition | FaultPause
	cases := []struct {
		plant         Plant
		faults        Faults
		byConsequence bool
		servers       []int
		limit         int
		breaks        []order.Property
	}{
		{PlantPromiseNotPersisted, FaultsAll, false, []int{3, 5}, 5, []order.Property{Persistence}},
		{PlantSaveAfterSend, FaultsAll, false, []int{3, 5}, 5, []order.Property{Persistence}},
		{PlantPromiseNotFrozen, partitions, false, []int{3, 5, 7},
			300, []order.Property{Freeze, Durable, Ordered}},
		{PlantOwnMedian, FaultClock | FaultPartition, false, []int{3, 5},
			60, []order.Property{Time}},
		{PlantUnboundedStep, FaultClock, false, []int{1, 3, 5}, 20, []order.Property{Time}},
		{PlantOwnClockCounts, FaultClock | FaultPartition, false, []int{3, 5}, 60,
			[]order.Property{Time}},
		{PlantLostDiskIgnored, FaultsAll, false, []int{3, 7}, 700,
			[]order.Property{Durable, Ordered, order.SetAgreement, Reason, Progress}},
	}
	for plant := PlantReasonUnreachable; plant <= PlantReasonWhileOrdering; plant++ {
		c := cases[0]
		c.plant, c.limit, c.breaks = plant, 200, []order.Property{Reason}
		cases = append(cases, c)
	}
	for _, c := range cases {
		for _, servers := range c.servers {
			if raceEnabled && c.limit > 100 {
				continue
			}
			t.Run(fmt.Sprintf("%v in %d", c.plant, servers), func(t *testing.T) {
				t.Parallel()
				group := Group{Engine: engines[1], Servers: servers, Faults: c.faults,
					Plant: c.plant, ByConsequence: c.byConsequence}
				mustBreak(t, group, c.limit, c.breaks)
			})
		}
	}
}
