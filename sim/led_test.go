package sim

import (
	"fmt"
	"testing"

	"github.com/ledgerd/ledgerd/allconcur"
	"github.com/ledgerd/ledgerd/dare"
	"github.com/ledgerd/ledgerd/order"
)

// led returns a group of package dare.
func led(servers int, faults Faults) Group {
	return Group{Engine: dare.EngineName, Servers: servers, Faults: faults}
}

// TestLeadersLiveOn is the conformance suite of package dare in shards that live on, with
// generations, eons and all kinds of fault.
func TestLeadersLiveOn(t *testing.T) {
	t.Parallel()
	for _, servers := range []int{1, 2, 3, 4, 5, 7} {
		t.Run(fmt.Sprint(servers), func(t *testing.T) {
			t.Parallel()
			rounds, crashes := passSeeds(t, led(servers, FaultsAll).options(t), 1,
				share(200/servers))
			t.Logf("%d rounds, %d crashes", rounds, crashes)
		})
	}
}

// TestLeadersLiveOnWithEachKindOfFault runs each kind alone.
func TestLeadersLiveOnWithEachKindOfFault(t *testing.T) {
	t.Parallel()
	for bit, name := range faultNames {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			passSeeds(t, led(5, 1<<bit).options(t), 1, share(20))
		})
	}
}

// TestLeadersLiveOnWithFullRounds is TestLeadersLiveOn with rounds in which all members take part,
// and with changes of the engine.
func TestLeadersLiveOnWithFullRounds(t *testing.T) {
	t.Parallel()
	for _, servers := range []int{1, 2, 3, 5, 7} {
		for _, changes := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d servers, changes %v", servers, changes), func(t *testing.T) {
				t.Parallel()
				group := led(servers, FaultsAll)
				group.FullRounds, group.EngineChanges = true, changes
				passSeeds(t, group.options(t), 1, share(60/servers))
			})
		}
	}
}

// TestPlantedBugsOfLeadersAreCaught plants the bugs that lives show, of package dare and of
// generations that go on from frozen logs.
func TestPlantedBugsOfLeadersAreCaught(t *testing.T) {
	t.Parallel()
	const strokes = FaultCrash | FaultPartition | FaultSuspect | FaultPause
	for _, c := range []struct {
		fault   dare.Fault
		plant   Plant
		servers int
		faults  Faults
		limit   int
		breaks  order.Property
	}{
		{dare.FaultLateNeverGranted, PlantNone, 3, strokes, 200, Progress},
		{dare.FaultVoteWithoutCheck, PlantNone, 3, strokes, 400, order.SetAgreement},
		{dare.FaultTailBeforeEntries, PlantNone, 3, strokes, 20, Contract},
		{dare.FaultZombieVotes, PlantNone, 3, strokes, 200, order.SetAgreement},
		{dare.FaultLogKept, PlantNone, 3, strokes, 200, Ordered},
		{dare.FaultNone, PlantTailByLength, 3, FaultPartition, 50, Ordered},
		{dare.FaultNone, PlantTailByLength, 5, FaultPartition, 200, Ordered},
		{dare.FaultNone, PlantTailOfMinority, 3, FaultPartition, 50, Ordered},
		{dare.FaultFreezeKeepsLog, PlantNone, 5, FaultPartition | FaultSuspect, 300, Ordered},
		{dare.FaultFreezeKeepsLog, PlantNone, 7, FaultPartition | FaultSuspect, 200, Ordered},
	} {
		if raceEnabled && c.limit > 100 {
			continue
		}
		t.Run(fmt.Sprintf("%v and %v in %d", c.fault, c.plant, c.servers), func(t *testing.T) {
			t.Parallel()
			group := led(c.servers, c.faults)
			group.LedFault, group.Plant = c.fault, c.plant
			mustBreak(t, group, c.limit, []order.Property{c.breaks})
		})
	}
}

// TestLeadersReplay runs seeds twice, once with a trace, and expects the same hash.
func TestLeadersReplay(t *testing.T) {
	t.Parallel()
	group := led(3, FaultsAll)
	group.EngineChanges = true
	options := group.options(t)
	for options.Seed = range uint64(share(20)) {
		mustReplay(t, options)
	}
}

// TestLeadersNeedLives refuses what engines with a leader cannot do.
func TestLeadersNeedLives(t *testing.T) {
	t.Parallel()
	for name, group := range map[string]Group{
		"a perfect detector": {Faults: FaultCrash, Detector: perfectly},
		"engines alone":      {Faults: FaultSuspect, EngineAlone: true},
		"records":            {Records: true},
		"prompt delivery":    {Prompt: true},
		"another's bug":      {Fault: allconcur.FaultSetsIgnored},
		"too many servers":   {Faults: FaultJoin, Servers: dare.ServersMax},
	} {
		group.Engine, group.Servers = dare.EngineName, max(group.Servers, 3)
		if _, err := group.Options(); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
	if _, err := (&Group{Engine: engines[1], Servers: 3, FullRounds: true}).Options(); err == nil {
		t.Error("full rounds of an engine that has no others: taken")
	}
}
