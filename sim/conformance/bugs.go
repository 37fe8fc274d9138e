package conformance

import (
	"fmt"

	"github.com/ledgerd/ledgerd/allconcur"
	"github.com/ledgerd/ledgerd/allconcur/interleave"
	"github.com/ledgerd/ledgerd/dare"
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/shard/turn"
	"github.com/ledgerd/ledgerd/sim"
	"github.com/ledgerd/ledgerd/sim/multicast"
	"github.com/ledgerd/ledgerd/trains"
)

// broadcastBug is a bug that breaks a property first, before all others, in one run.
type broadcastBug struct {
	property order.Property
	// plant is a fault of an engine, of what drives it, or of the life around it.
	plant   fmt.Stringer
	servers int
	seed    uint64
	faults  sim.Faults
}

// place is an engine in a setting.
type place struct {
	engine  string
	setting setting
}

// broadcastBugs has the bugs of each part. A property without one is broken only after another one,
// which the run then reports: if two servers A-deliver rounds in different orders, they differ
// about the content of a round before.
var broadcastBugs = map[place][]broadcastBug{
	{allconcur.EngineAllConcurPlus, eventual}: {
		{sim.Progress, allconcur.FaultDroppedForward, 5, 1, sim.FaultCrash},
		{order.SetAgreement, allconcur.FaultEarlyDelivery, 5, 4, sim.FaultCrash},
		{sim.Tolerance, allconcur.FaultToleratedNotMajority, 5, 57, sim.FaultCrash},
		{sim.Contract, allconcur.FaultStaleEon, 5, 6, sim.FaultCrash},
		{order.Integrity, allconcur.FaultStaleEon, 5, 49, sim.FaultsAll},
		{sim.Persistence, sim.PlantPromiseNotPersisted, 5, 1, sim.FaultCrash},
		{sim.Freeze, sim.PlantPromiseNotFrozen, 5, 17, sim.FaultsAll},
		{sim.Ordered, sim.PlantPromiseNotFrozen, 5, 43, sim.FaultsAll},
		{sim.Time, sim.PlantOwnMedian, 5, 16, sim.FaultsAll},
		{sim.Reason, sim.PlantReasonUnreachable, 5, 15, sim.FaultCrash},
		{sim.Durable, sim.PlantRecordsIgnored, 3, 47, sim.FaultsAll},
	},
	{allconcur.EngineAllConcur, eventual}: {
		{sim.Progress, allconcur.FaultDroppedForward, 5, 5, sim.FaultsAll},
		{order.SetAgreement, allconcur.FaultNoForwardBackward, 5, 2, sim.FaultsAll},
		{sim.Tolerance, allconcur.FaultToleratedNotMajority, 5, 57, sim.FaultCrash},
		{sim.Contract, allconcur.FaultStaleEon, 5, 6, sim.FaultCrash},
		{sim.Persistence, sim.PlantPromiseNotPersisted, 5, 1, sim.FaultCrash},
		{sim.Freeze, sim.PlantPromiseNotFrozen, 5, 17, sim.FaultsAll},
		{sim.Ordered, sim.PlantPromiseNotFrozen, 5, 43, sim.FaultsAll},
		{sim.Time, sim.PlantOwnMedian, 5, 16, sim.FaultsAll},
		{sim.Reason, sim.PlantReasonUnreachable, 5, 15, sim.FaultCrash},
	},
	{allconcur.EngineAllConcurPlus, promptly}: {
		{sim.Progress, allconcur.FaultDroppedForward, 5, 5, sim.FaultsAll},
		{order.SetAgreement, allconcur.FaultNoForwardBackward, 5, 6, sim.FaultsAll},
		{sim.Contract, allconcur.FaultStaleEon, 5, 6, sim.FaultCrash},
		{sim.Persistence, sim.PlantPromiseNotPersisted, 5, 1, sim.FaultCrash},
		{sim.Ordered, sim.PlantPromiseNotFrozen, 5, 43, sim.FaultsAll},
		{sim.Time, sim.PlantOwnMedian, 5, 16, sim.FaultsAll},
		{sim.Reason, sim.PlantReasonUnreachable, 5, 15, sim.FaultCrash},
	},
	{allconcur.EngineAllConcurPlus, recording}: {
		{sim.Progress, allconcur.FaultDroppedForward, 5, 1, sim.FaultCrash},
		{order.SetAgreement, allconcur.FaultEarlyDelivery, 5, 4, sim.FaultCrash},
		{sim.Tolerance, allconcur.FaultToleratedNotMajority, 5, 57, sim.FaultCrash},
		{sim.Contract, allconcur.FaultStaleEon, 5, 6, sim.FaultCrash},
		{order.Integrity, allconcur.FaultStaleEon, 5, 49, sim.FaultsAll},
		{sim.Persistence, sim.PlantPromiseNotPersisted, 5, 1, sim.FaultCrash},
		{sim.Freeze, sim.PlantPromiseNotFrozen, 5, 17, sim.FaultsAll},
		{sim.Ordered, sim.PlantPromiseNotFrozen, 5, 43, sim.FaultsAll},
		{sim.Time, sim.PlantOwnMedian, 5, 16, sim.FaultsAll},
		{sim.Reason, sim.PlantReasonUnreachable, 5, 15, sim.FaultCrash},
		{sim.Durable, sim.PlantRecordsIgnored, 3, 47, sim.FaultsAll},
	},
	{allconcur.EngineAllConcur, recording}: {
		{sim.Progress, allconcur.FaultDroppedForward, 5, 5, sim.FaultsAll},
		{order.SetAgreement, allconcur.FaultNoForwardBackward, 5, 2, sim.FaultsAll},
		{sim.Tolerance, allconcur.FaultToleratedNotMajority, 5, 57, sim.FaultCrash},
		{sim.Contract, allconcur.FaultStaleEon, 5, 6, sim.FaultCrash},
		{sim.Persistence, sim.PlantPromiseNotPersisted, 5, 1, sim.FaultCrash},
		{sim.Freeze, sim.PlantPromiseNotFrozen, 5, 17, sim.FaultsAll},
		{sim.Ordered, sim.PlantPromiseNotFrozen, 5, 43, sim.FaultsAll},
		{sim.Time, sim.PlantOwnMedian, 5, 16, sim.FaultsAll},
		{sim.Reason, sim.PlantReasonUnreachable, 5, 15, sim.FaultCrash},
	},
	{allconcur.EngineAllConcurPlus, perfect}: {
		{order.Validity, allconcur.FaultDroppedForward, 5, 1, sim.FaultCrash},
		{order.SetAgreement, allconcur.FaultDroppedForward, 5, 12, sim.FaultCrash},
		{order.RoundForm, allconcur.FaultEarlyDelivery, 5, 4, sim.FaultCrash},
	},
	{allconcur.EngineAllConcur, perfect}: {
		{order.SetAgreement, allconcur.FaultDroppedForward, 5, 4, sim.FaultCrash},
		{sim.Progress, allconcur.FaultPrunedTooSoon, 5, 42, sim.FaultCrash},
		{order.Validity, allconcur.FaultPrunedTooSoon, 3, 13, sim.FaultCrash},
		{order.Agreement, allconcur.FaultPrunedTooSoon, 3, 17, sim.FaultCrash},
	},
	{trains.EngineName, eventual}: {
		{sim.Contract, trains.FaultJoinerDelivers, 5, 1, sim.FaultCrash},
		{sim.Tolerance, trains.FaultSuspicionBelieved, 5, 3, sim.FaultCrash},
		{order.SetAgreement, trains.FaultSuspicionBelieved, 3, 22, sim.FaultsAll},
		{sim.Progress, trains.FaultSuspicionIgnored, 5, 2, sim.FaultsAll},
		{sim.Persistence, sim.PlantPromiseNotPersisted, 5, 1, sim.FaultCrash},
		{sim.Freeze, sim.PlantPromiseNotFrozen, 5, 174, sim.FaultsAll},
		{sim.Durable, sim.PlantPromiseNotFrozen, 5, 347, sim.FaultsAll},
		{sim.Ordered, sim.PlantPromiseNotFrozen, 5, 91, sim.FaultCrash},
		{sim.Time, sim.PlantOwnMedian, 5, 16, sim.FaultsAll},
		{sim.Reason, sim.PlantReasonUnreachable, 5, 262, sim.FaultCrash},
	},
	{dare.EngineName, eventual}: {
		{order.SetAgreement, dare.FaultVoteWithoutCheck, 3, 69, sim.FaultCrash |
			sim.FaultPartition | sim.FaultSuspect | sim.FaultPause},
		{sim.Ordered, sim.PlantTailOfMinority, 3, 1, sim.FaultPartition},
	},
	{trains.EngineName, perfect}: {
		{order.SetAgreement, trains.FaultFilterByView, 5, 5, sim.FaultCrash},
		{sim.Progress, trains.FaultStaleAnswered, 5, 5, sim.FaultCrash},
		{sim.Accuracy, trains.FaultClockNotStrict, 5, 2, sim.FaultCrash},
		{sim.Contract, trains.FaultClockNotStrict, 5, 11, sim.FaultCrash},
		{order.Integrity, trains.FaultWagonUnderTrain, 3, 9, sim.FaultCrash},
		{order.Validity, trains.FaultResendSome, 5, 2, sim.FaultCrash},
	},
	{allconcur.EngineAllConcurPlus, inFlight}: {
		{order.Validity, allconcur.FaultDroppedForward, 5, 1, sim.FaultCrash},
		{order.SetAgreement, allconcur.FaultDroppedForward, 5, 15, sim.FaultCrash},
		{order.Integrity, allconcur.FaultEarlyDelivery, 5, 12, sim.FaultCrash},
		{sim.Progress, interleave.FaultOneEngineSuspects, 5, 23, sim.FaultCrash},
		{order.Agreement, interleave.FaultOneEngineSuspects, 5, 39, sim.FaultCrash},
		{order.RoundForm, interleave.FaultRemovedSpeaks, 5, 10, sim.FaultCrash},
	},
	{allconcur.EngineAllConcur, inFlight}: {
		{order.SetAgreement, allconcur.FaultDroppedForward, 5, 4, sim.FaultCrash},
		{order.Validity, allconcur.FaultPrunedTooSoon, 5, 13, sim.FaultCrash},
		{sim.Progress, allconcur.FaultPrunedTooSoon, 5, 42, sim.FaultCrash},
		{order.Agreement, allconcur.FaultPrunedTooSoon, 3, 18, sim.FaultCrash},
	},
}

// plantIn puts a bug into a group.
func plantIn(group *sim.Group, plant fmt.Stringer) {
	switch bug := plant.(type) {
	case allconcur.Fault:
		group.Fault = bug
	case interleave.Fault:
		group.InterleaveFault = bug
	case turn.Fault:
		group.TurnFault = bug
	case sim.Plant:
		group.Plant = bug
	case trains.Fault:
		group.TrainsFault = bug
	case dare.Fault:
		group.LedFault = bug
	default:
		panic(fmt.Sprintf("conformance: no group has a bug of %T", plant))
	}
}

// options returns the run that shows the bug.
func (b broadcastBug) options(p place) (sim.Options, error) {
	group := p.setting.group()
	group.Engine, group.Servers, group.Faults = p.engine, b.servers, b.faults
	plantIn(&group, b.plant)
	return group.Options()
}

// of returns what the table says of the bug.
func (b broadcastBug) of(p place) *Bug {
	return &Bug{Plant: b.plant.String(), Replay: fmt.Sprintf("ledgerd sim check --engine %s "+
		"--servers %d --seeds 1 --seed %d --faults %s%s --plant %v", p.engine, b.servers, b.seed,
		flagOf(b.faults), p.setting.flags(), b.plant)}
}

// multicastBug is the same for atomic multicast. The seed draws the groups, and all kinds of fault.
type multicastBug struct {
	property order.Property
	plant    string
	seed     uint64
}

// multicastBugs has the bugs of each engine of atomic multicast.
var multicastBugs = map[string][]multicastBug{
	multicast.EngineDARE: {
		{multicast.Invariant, "tail-before-entries", 1},
		{order.Validity, "late-never-granted", 2},
		{order.Agreement, "late-never-granted", 16},
	},
	multicast.EngineTRAM: {
		{order.Validity, "slot-reused-early", 7},
		{order.PrefixOrder, "no-group-catch-up", 10},
		{order.Integrity, "no-group-catch-up", 144},
	},
	multicast.EngineLeaderless: {
		{order.Validity, "lone-writer", 2},
		{order.Agreement, "lone-writer", 54},
		{order.Integrity, "out-of-turn", 2},
	},
}

func (b multicastBug) options(engine string) multicast.Options {
	return multicast.Options{Engine: engine, Plant: b.plant, Faults: multicast.FaultsAll}
}

func (b multicastBug) of(engine string) *Bug {
	return &Bug{Plant: b.plant, Replay: fmt.Sprintf("ledgerd sim multicast --engine %s --seeds 1 "+
		"--seed %d --plant %s", engine, b.seed, b.plant)}
}
