package sim

import (
	"fmt"
	"testing"

	"github.com/ledgerd/ledgerd/allconcur"
	"github.com/ledgerd/ledgerd/order"
)

// TestLivesWithPrompt is TestShardsLiveOn with prompt delivery.
func TestLivesWithPrompt(t *testing.T) {
	t.Parallel()
	liveOnWith(t, Group{Prompt: true})
}

// TestPlantedBugsOfPromptAreCaught plants bugs of prompt delivery that come up in lives. The others
// are too rare there: sim/search and the engines' own tests find them.
func TestPlantedBugsOfPromptAreCaught(t *testing.T) {
	t.Parallel()
	rough := FaultCrash | FaultPartition | FaultPause
	for _, c := range []struct {
		fault  allconcur.Fault
		plant  Plant
		faults Faults
		limit  int
		likely uint64
		breaks []order.Property
	}{
		{allconcur.FaultPromptUnheld, PlantNone, rough, 400, 155,
			[]order.Property{order.SetAgreement}},
		{allconcur.FaultPromptRerunEpoch, PlantNone, FaultsAll, 200, 57,
			[]order.Property{order.SetAgreement}},
		{allconcur.FaultNone, PlantVouchedIgnored, rough, 2500, 1530, []order.Property{Ordered}},
	} {
		if raceEnabled && c.limit > 500 {
			continue
		}
		t.Run(fmt.Sprintf("%v, %v", c.fault, c.plant), func(t *testing.T) {
			t.Parallel()
			mustBreakBy(t, c.likely, Group{Engine: engines[1], Servers: 3, Faults: c.faults,
				Fault: c.fault, Plant: c.plant}, c.limit, c.breaks)
		})
	}
}

// TestPromptExcludesRecords: a recorded value is named by an epoch that prompt delivery does not
// tell.
func TestPromptExcludesRecords(t *testing.T) {
	t.Parallel()
	group := Group{Engine: engines[1], Servers: 3, Prompt: true, Records: true}
	if _, err := group.Options(); err == nil {
		t.Error("a group has both")
	}
}

// TestPromiseHasWhatWasHeld: in this life, only a promise's held content shows what a third server
// A-delivers promptly after a pause.
func TestPromiseHasWhatWasHeld(t *testing.T) {
	t.Parallel()
	passSeeds(t, Group{Engine: engines[1], Servers: 3, Prompt: true,
		Faults: FaultCrash | FaultPartition | FaultPause}.options(t), 1530, 1)
}
