package sim

import (
	"fmt"
	"slices"
	"testing"

	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/shard/turn"
)

// TestLivesWithRecords is TestShardsLiveOn with processes that record complete rounds, or not, as
// the seed draws.
func TestLivesWithRecords(t *testing.T) {
	t.Parallel()
	for servers := 1; servers <= 9; servers++ {
		t.Run(fmt.Sprintf("%s of %d", engines[1], servers), func(t *testing.T) {
			t.Parallel()
			seeds := max(2, int(float64(livingSeeds())/5*weight(servers)))
			rounds, crashes := passSeeds(t, Group{Engine: engines[1], Servers: servers,
				Faults: FaultsAll, Records: true}.options(t), 1, seeds)
			t.Logf("%d seeds: %d rounds, %d crashes", seeds, rounds, crashes)
		})
	}
}

// TestPlantedBugsOfRecordsAreCaught plants each bug of the records.
func TestPlantedBugsOfRecordsAreCaught(t *testing.T) {
	t.Parallel()
	rough := FaultCrash | FaultPower | FaultSuspect | FaultPartition
	for _, c := range []struct {
		plant   Plant
		fault   turn.Fault
		faults  Faults
		servers int
		limit   int
		breaks  []order.Property
	}{
		{PlantRecordAnnouncedEarly, 0, FaultsAll, 3, 400, []order.Property{Durable}},
		{PlantRecordNotPromised, 0, rough, 3, 400, []order.Property{Persistence}},
		{PlantRecordLastOnly, 0, FaultsAll, 3, 2500, []order.Property{Durable}},
		{PlantRecordOfAnyValue, 0, rough, 5, 1000, []order.Property{Durable}},
		{PlantRecordsIgnored, 0, FaultsAll, 3, 200, []order.Property{Durable}},
		{PlantNone, turn.FaultRecordsAnyGroup, rough, 3, 5000, []order.Property{Durable}},
	} {
		if raceEnabled && c.limit > 500 {
			continue
		}
		t.Run(fmt.Sprintf("%v, %v", c.plant, c.fault), func(t *testing.T) {
			t.Parallel()
			mustBreak(t, Group{Engine: engines[1], Servers: c.servers, Faults: c.faults,
				Plant: c.plant, TurnFault: c.fault, Records: true}, c.limit, c.breaks)
		})
	}
}

// seedPlants are bugs that few seeds show, each with one that does.
var seedPlants = []struct {
	plant   Plant
	servers int
	seed    uint64
}{
	// A member sets a block aside for a decision whose tail has it, and hears meanwhile that the
	// others made it durable.
	{PlantDurableSetAside, 4, 1421},
}

// TestRareBugsOfRecordsAreCaught runs one seed for each bug that is rare in lives. Without the bug
// it breaks nothing.
func TestRareBugsOfRecordsAreCaught(t *testing.T) {
	t.Parallel()
	for _, c := range seedPlants {
		for _, plant := range []Plant{PlantNone, c.plant} {
			options := Group{Engine: engines[1], Servers: c.servers, Faults: FaultsAll,
				Plant: plant, Records: true}.options(t)
			options.Seed = c.seed
			result, err := Check(options)
			if err != nil {
				t.Fatal(err)
			}
			breaks := slices.ContainsFunc(result.Violations, func(v *order.Violation) bool {
				return v.Property == Durable
			})
			if breaks != (plant != PlantNone) {
				t.Errorf("seed %d with %v: %v", c.seed, plant, result.Violations)
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
