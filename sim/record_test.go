package sim

import (
	"slices"
	"testing"

	"github.com/ledgerd/ledgerd/order"
)

// TestLivesWithRecords is TestShardsLiveOn with processes that record complete rounds, or not, as
// the seed draws.
func TestLivesWithRecords(t *testing.T) {
	t.Parallel()
	liveOnWith(t, Group{Records: true})
}

// TestPlantedBugsOfRecordsAreCaught plants each bug of the records.
func TestPlantedBugsOfRecordsAreCaught(t *testing.T) {
	t.Parallel()
	rough := FaultCrash | FaultPower | FaultSuspect | FaultPartition
	for _, c := range []struct {
		plant   Plant
		faults  Faults
		servers int
		limit   int
		likely  uint64
		breaks  []order.Property
	}{
		{PlantRecordAnnouncedEarly, FaultsAll, 3, 2500, 1152, []order.Property{Durable}},
		{PlantRecordNotPromised, rough, 3, 400, 176, []order.Property{Persistence}},
		{PlantRecordLastOnly, FaultsAll, 3, 2500, 1568, []order.Property{Durable}},
		{PlantRecordOfAnyValue, rough, 5, 1000, 462, []order.Property{Durable}},
		{PlantRecordsIgnored, FaultsAll, 3, 200, 87, []order.Property{Durable}},
	} {
		if raceEnabled && c.limit > 500 {
			continue
		}
		t.Run(c.plant.String(), func(t *testing.T) {
			t.Parallel()
			mustBreakBy(t, c.likely, Group{Engine: engines[1], Servers: c.servers, Faults: c.faults,
				Plant: c.plant, Records: true}, c.limit, c.breaks)
		})
	}
}

// TestRareBugsOfRecordsAreCaught runs one seed for each bug that is rare in lives. Without the bug
// it breaks nothing.
func TestRareBugsOfRecordsAreCaught(t *testing.T) {
	t.Parallel()
	for _, group := range []struct {
		planted Group
		seed    uint64
	}{
		// A member sets a block aside for a decision whose tail has it, and hears meanwhile that
		// the others made it durable.
		{Group{Servers: 4, Faults: FaultsAll, Plant: PlantDurableSetAside}, 12044},
	} {
		planted := group.planted
		planted.Engine, planted.Records = engines[1], true
		sound := planted
		sound.Plant, sound.TurnFault = PlantNone, 0
		for _, g := range []Group{sound, planted} {
			options := g.options(t)
			options.Seed = group.seed
			result, err := Check(options)
			if err != nil {
				t.Fatal(err)
			}
			breaks := slices.ContainsFunc(result.Violations, func(v *order.Violation) bool {
				return v.Property == Durable
			})
			if breaks != (g != sound) {
				t.Errorf("seed %d of %+v: %v", group.seed, g, result.Violations)
			}
		}
	}
}

// TestReasonsOfLivesWithRecords runs lives in which members once gave a false reason.
func TestReasonsOfLivesWithRecords(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		servers int
		seed    uint64
	}{
		// A member promised with a damaged disk, and fetched since what it lacks. Then a majority
		// was away, so that nobody asked it for another promise.
		"had perhaps more, and has it again": {5, 3141},
		// A member fetched the block that let it in, and sets it aside.
		"sets aside the block that let it in": {5, 118},
	} {
		options := Group{Engine: engines[1], Servers: c.servers, Faults: FaultsAll,
			Records: true}.options(t)
		options.Seed = c.seed
		result, err := Check(options)
		if err != nil || len(result.Violations) > 0 {
			t.Errorf("%s: %v, %v", name, result.Violations, err)
		}
	}
}
