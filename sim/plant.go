package sim

import (
	"github.com/ledgerd/ledgerd/allconcur/generation"
	"github.com/ledgerd/ledgerd/clock"
)

// Plant is a bug to plant in the life of a shard, to prove that an oracle finds it: in the machine,
// or in what surrounds it.
type Plant uint8

// The bugs.
const (
	PlantNone Plant = iota
	// PlantPromiseNotPersisted has the disk forget what was promised.
	PlantPromiseNotPersisted
	// PlantSaveAfterSend writes what was promised only after the promise is sent.
	PlantSaveAfterSend
	// PlantIdentityBeside keeps a disk's identity beside the data only: lost data go unnoticed.
	PlantIdentityBeside
	// PlantDurableNotPersisted forgets with the process which blocks are durable.
	PlantDurableNotPersisted
	// PlantCopyUnrecognised takes an older copy of a home for the home.
	PlantCopyUnrecognised
	// PlantPromiseNotFrozen lets a server that promised a generation go on in the one before.
	PlantPromiseNotFrozen
	// PlantLostDiskIgnored counts disks that were lost.
	PlantLostDiskIgnored
	// PlantOwnMedian dates a block by the proposers' clocks alone: one proposer is its own median.
	PlantOwnMedian
	// PlantUnboundedStep takes a step of any size without the clocks of a majority.
	PlantUnboundedStep
	// PlantOwnClockCounts lets a server propose its clock, whatever the others' show.
	PlantOwnClockCounts
	// The others have servers give false reasons (plant_reason.go).
	PlantReasonUnreachable
	PlantReasonSilent
	PlantReasonForgot
	PlantReasonNotNamed
	PlantReasonRecover
	PlantReasonFull
	PlantReasonNotFull
	PlantReasonLearner
	PlantReasonRemoved
	PlantReasonBench
	PlantReasonEntering
	PlantReasonKept
	PlantReasonMissing
	PlantReasonWhileOrdering
	plantsEnd
)

// plantNames are the names on a command line.
var plantNames = [...]string{"none", "promise-not-persisted", "save-after-send", "identity-beside",
	"durable-not-persisted",
	"copy-unrecognised", "promise-not-frozen", "lost-disk-ignored",
	"own-median", "unbounded-step", "own-clock-counts",
	"reason-unreachable", "reason-silent", "reason-forgot", "reason-not-named", "reason-recover",
	"reason-full", "reason-not-full", "reason-learner", "reason-removed", "reason-bench",
	"reason-entering", "reason-kept", "reason-missing", "reason-while-ordering"}

// String names the bug as a command line would.
func (p Plant) String() string { return plantNames[p] }

// Plants lists the bugs.
func Plants() []Plant {
	var all []Plant
	for p := PlantNone + 1; p < plantsEnd; p++ {
		all = append(all, p)
	}
	return all
}

// clock is the bug in how blocks get their times, if it is there.
func (p Plant) clock() clock.Fault {
	switch p {
	case PlantOwnMedian:
		return clock.FaultOwnMedian
	case PlantUnboundedStep:
		return clock.FaultUnboundedStep
	case PlantOwnClockCounts:
		return clock.FaultOwnClockCounts
	}
	return clock.FaultNone
}

// synod is the bug in the synod, if it is there.
func (p Plant) synod() generation.Fault {
	switch p {
	case PlantPromiseNotFrozen:
		return generation.FaultPromiseDoesNotFreeze
	case PlantLostDiskIgnored:
		return generation.FaultLostDiskIgnored
	}
	return generation.FaultNone
}
