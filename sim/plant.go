package sim

import (
	"github.com/ledgerd/ledgerd/allconcur/generation"
	"github.com/ledgerd/ledgerd/clock"
	"github.com/ledgerd/ledgerd/shard"
)

// Plant is a bug to plant in the life of a shard, in the machine or around it, to prove that an
// oracle finds it.
type Plant uint8

// The bugs.
const (
	PlantNone Plant = iota
	// PlantPromiseNotPersisted makes the disk forget promises.
	PlantPromiseNotPersisted
	// PlantSaveAfterSend writes a promise only after it is sent.
	PlantSaveAfterSend
	// PlantIdentityBeside keeps a disk's identity beside the data only, so lost data go unnoticed.
	PlantIdentityBeside
	// PlantDurableNotPersisted forgets with the process which blocks are durable.
	PlantDurableNotPersisted
	// PlantCopyUnrecognised takes an older copy of a home for the home.
	PlantCopyUnrecognised
	// PlantPromiseNotFrozen lets a server that promised a generation go on in the one before.
	PlantPromiseNotFrozen
	// PlantLostDiskIgnored counts disks that were lost.
	PlantLostDiskIgnored
	// PlantDurableSetAside sets blocks aside although one of them became known to be durable since
	// the member asked for it.
	PlantDurableSetAside
	// PlantOwnMedian dates a block by the proposers' clocks alone, so one proposer is its own
	// median.
	PlantOwnMedian
	// PlantUnboundedStep takes a step of any size without the clocks of a majority.
	PlantUnboundedStep
	// PlantOwnClockCounts lets a server propose its clock, whatever the others' clocks show.
	PlantOwnClockCounts
	// The following bugs make servers give false reasons (plant_reason.go).
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
	// The following bugs concern records of complete rounds. They switch Group.Records on.
	//
	// PlantRecordAnnouncedEarly announces a record before it is on the disk.
	PlantRecordAnnouncedEarly
	// PlantRecordNotPromised leaves the record out of a promise of a server that did not restart.
	PlantRecordNotPromised
	// PlantRecordLastOnly records the last complete round without the one before it.
	PlantRecordLastOnly
	// PlantRecordOfAnyValue counts the record of a round that was rerun with another value.
	PlantRecordOfAnyValue
	// PlantRecordsIgnored forms a generation without the rounds that disks recorded.
	PlantRecordsIgnored
	// PlantRecordsFirst forms a generation with them although a majority remembers its votes.
	PlantRecordsFirst
	// PlantTailOfTwo forms a generation with at most two rounds after its base, whatever the
	// engine.
	PlantTailOfTwo
	// PlantChangesTooClose lets members change three rounds apart, whatever the engine.
	PlantChangesTooClose
	// PlantVouchedIgnored forms a generation without what was perhaps A-delivered promptly. It
	// switches Group.Prompt on.
	PlantVouchedIgnored
	// The following bugs concern changes of the engine. They switch Group.EngineChanges on.
	//
	// PlantEngineOfSetting takes the engine from a server's settings, whatever the chain names.
	PlantEngineOfSetting
	// PlantEngineEarly starts the new engine when the change is executed, before the run is over.
	PlantEngineEarly
	// PlantEngineLate takes the engine that the chain named before the last block of the run.
	PlantEngineLate
	// The following bugs concern generations that go on from frozen logs (package dare).
	//
	// PlantTailByLength forms a generation with the longest log, not with the most recent one.
	PlantTailByLength
	// PlantTailOfMinority forms a generation with the most recent log of a minority.
	PlantTailOfMinority
	plantsEnd
)

// plantNames are the names on the command line.
var plantNames = [...]string{"none", "promise-not-persisted", "save-after-send", "identity-beside",
	"durable-not-persisted",
	"copy-unrecognised", "promise-not-frozen", "lost-disk-ignored",
	"durable-set-aside",
	"own-median", "unbounded-step", "own-clock-counts",
	"reason-unreachable", "reason-silent", "reason-forgot", "reason-not-named", "reason-recover",
	"reason-full", "reason-not-full", "reason-learner", "reason-removed", "reason-bench",
	"reason-entering", "reason-kept", "reason-missing", "reason-while-ordering",
	"record-announced-early", "record-not-promised", "record-last-only", "record-of-any-value",
	"records-ignored", "records-first", "tail-of-two", "changes-too-close", "vouched-ignored",
	"engine-of-setting", "engine-early", "engine-late", "tail-by-length", "tail-of-minority"}

// String returns the bug's name on the command line.
func (p Plant) String() string { return plantNames[p] }

// Plants lists the bugs.
func Plants() []Plant {
	var all []Plant
	for p := PlantNone + 1; p < plantsEnd; p++ {
		all = append(all, p)
	}
	return all
}

// clock returns the bug in the times of blocks, if it is one.
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

// synod returns the bug in the synod, if it is one.
func (p Plant) synod() generation.Fault {
	switch p {
	case PlantPromiseNotFrozen:
		return generation.FaultPromiseDoesNotFreeze
	case PlantLostDiskIgnored:
		return generation.FaultLostDiskIgnored
	case PlantRecordsIgnored:
		return generation.FaultRecordsIgnored
	case PlantRecordsFirst:
		return generation.FaultRecordsFirst
	case PlantTailOfTwo:
		return generation.FaultTailOfAllConcur
	case PlantVouchedIgnored:
		return generation.FaultVouchedIgnored
	case PlantTailByLength:
		return generation.FaultTailByLength
	case PlantTailOfMinority:
		return generation.FaultTailOfMinority
	}
	return generation.FaultNone
}

// member returns the bug in the member's machine or in what it counts, if it is one.
func (p Plant) member() shard.Fault {
	switch p {
	case PlantRecordNotPromised:
		return shard.FaultRecordNotPromised
	case PlantRecordLastOnly:
		return shard.FaultRecordLastOnly
	case PlantRecordOfAnyValue:
		return shard.FaultRecordOfAnyValue
	case PlantEngineLate:
		return shard.FaultEngineLate
	}
	return shard.FaultNone
}
