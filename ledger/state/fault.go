package state

import "fmt"

// Fault is a bug that tests plant in a state, to see that a judge of whole books finds it.
type Fault uint8

// The faults. All are about transactions that concern several shards, or what comes from others.
const (
	// FaultNone is the only fault outside of tests.
	FaultNone Fault = iota
	// FaultAppliedTwice makes the last verdict move the amounts twice.
	FaultAppliedTwice
	// FaultReleasedAlone releases a transaction that has waited for some blocks, without a verdict.
	FaultReleasedAlone
	// FaultRestoredNotCounted leaves restored transactions out of the bound MaxWaiting.
	FaultRestoredNotCounted
	// FaultDeadlineIgnored agrees to transactions after their deadlines.
	FaultDeadlineIgnored
	// FaultVerdictNotWanted executes verdicts without the accounts of the transaction that waits.
	FaultVerdictNotWanted
	// FaultVouchedByOne takes what one member vouches for.
	FaultVouchedByOne
	// FaultCancelledByAnyone refuses a transaction that an organisation cancelled whose consent it
	// does not need.
	FaultCancelledByAnyone
	// FaultCancelledAfterAll releases a transaction that waits when a cancellation comes too late.
	FaultCancelledAfterAll
	// FaultCancellationForgotten forgets cancellations before their deadlines.
	FaultCancellationForgotten
	// FaultReleasedUnasked releases what waits for a lost shard without asking the others.
	FaultReleasedUnasked
	// FaultLostVerdictTaken takes verdicts of a lost shard.
	FaultLostVerdictTaken
	// FaultTestimonyOutdated takes testimonies as of an earlier loss.
	FaultTestimonyOutdated
	// FaultHomesGrow chooses homes also among the shards that were added.
	FaultHomesGrow
	// FaultChildEarly begins the stream to an added shard with the addition itself.
	FaultChildEarly
	// FaultChildLate leaves the first entry after an addition out of the stream to the added shard.
	FaultChildLate
	// FaultDirectoryShort leaves policies out of the directory of an added shard.
	FaultDirectoryShort
	// FaultDepartedEarly lets an organisation depart while transactions wait that have a part of
	// it.
	FaultDepartedEarly
	// FaultNoncesLeft leaves the nonces of an organisation that moves at its old home.
	FaultNoncesLeft
	// FaultAnsweredToStrangers gives a verdict to shards that had no part in it, and that execute a
	// copy of the transaction after a move.
	FaultAnsweredToStrangers
	// FaultArrivedEarly takes transactions of an organisation before its last arrival.
	FaultArrivedEarly
	// FaultStrandedLives takes transactions of an organisation that can never arrive.
	FaultStrandedLives
	// FaultNeverTold keeps it from the next home that an organisation never arrived.
	FaultNeverTold
	// FaultSeamShort leaves the first entry after a change of the tree out of the stream from the
	// new parent.
	FaultSeamShort
	// FaultSeamTwice begins the stream from the new parent with the change of the tree itself.
	FaultSeamTwice
	// FaultSeamForgotten ends the stream from the old parent before the change of the tree.
	FaultSeamForgotten
	// FaultPositionKept lets a shard go on with its position in the stream from its old parent.
	FaultPositionKept
	// FaultLateBeforeDeadline refuses copies beside the order before their deadlines are over.
	FaultLateBeforeDeadline
	// FaultReservedIgnored gives a crossing places of assets that other crossings wait for.
	FaultReservedIgnored
	// FaultNewAssetsAlone gives each new asset of a crossing a place as if it were the only one.
	FaultNewAssetsAlone
	// FaultLateUnmoved refuses copies beside the order of transactions whose organisations never
	// moved, and that come by the order.
	FaultLateUnmoved
	// FaultLateForStrangers refuses copies that never concerned the shard.
	FaultLateForStrangers
	// FaultLateUnbounded takes any number of copies into a block.
	FaultLateUnbounded
	// FaultGroupsApart counts groups of verdicts and single verdicts apart.
	FaultGroupsApart
	// FaultWholeCap lets each issuer of an asset issue up to the whole cap, not up to its
	// allowance.
	FaultWholeCap
	// FaultWaitingUncounted lets issuers issue again what waiting transactions may still take.
	FaultWaitingUncounted
	// FaultIssuedLeft leaves what an organisation issued at its old home, so that its allowance is
	// fresh at the new one.
	FaultIssuedLeft
	// FaultHoldFree sets nothing aside for a hold.
	FaultHoldFree
	// FaultHoldKept leaves what a hold set aside there when it expires.
	FaultHoldKept
	// FaultHoldEarly lets holds expire some time before theirs is over.
	FaultHoldEarly
	// FaultHoldGoesOn lets a hold go on of which another shard's transaction posted a part.
	FaultHoldGoesOn
	// FaultHoldExceeded posts more than a hold has.
	FaultHoldExceeded
	// FaultHoldByAnyone lets anyone end a hold.
	FaultHoldByAnyone
	// FaultHoldEndsTwice lets a second transaction end a hold while a first one waits.
	FaultHoldEndsTwice
	// FaultHoldEndingExpires lets a hold expire while a transaction waits that posts it.
	FaultHoldEndingExpires
	// FaultHoldThaws lets holds expire at the old home of an organisation that moved.
	FaultHoldThaws
	// FaultHoldLeft leaves the holds of an organisation that moves at its old home.
	FaultHoldLeft
	// FaultHoldNotResumed never lets restored holds expire.
	FaultHoldNotResumed
	// FaultHoldNotWanted executes the ends of holds without their accounts.
	FaultHoldNotWanted
	// FaultCreditUnjudged does not ask the terms of an account for credits from other shards.
	FaultCreditUnjudged
	// FaultFloorOfAll lets crossings take what is below a floor once other amounts are set aside.
	FaultFloorOfAll
	// FaultSpentForgotten does not count debits for a velocity.
	FaultSpentForgotten
	// FaultTermsLeft leaves the terms of accounts at the old home of an organisation.
	FaultTermsLeft
	// FaultKeyTwice takes a second entry with an idempotency key.
	FaultKeyTwice
	// FaultKeyKept keeps the key of a transaction that another shard refused.
	FaultKeyKept
	// FaultKeysLeft leaves the idempotency keys of an organisation that moves at its old home.
	FaultKeysLeft
	// FaultRefundExceeded gives back more than is left of an entry.
	FaultRefundExceeded
	// FaultRefundUncounted does not count refunds across shards once they took effect.
	FaultRefundUncounted
	// FaultRefundsAtOnce takes a refund while another one of the same entry waits.
	FaultRefundsAtOnce
	// FaultRefundKept keeps what a refund took that another shard refused.
	FaultRefundKept
	// FaultRefundableLeft leaves the refundable entries of an organisation that moves at its old
	// home.
	FaultRefundableLeft
	// FaultDetailsThaw lets keys and refundable entries lapse at the old home of an organisation
	// that moved.
	FaultDetailsThaw
	// FaultDetailsNotResumed never lets restored keys and refundable entries lapse.
	FaultDetailsNotResumed
	// FaultDueEarly issues occurrences before their time.
	FaultDueEarly
	// FaultDueOneByOne issues one occurrence in a block, and leaves others that are due.
	FaultDueOneByOne
	// FaultScheduleGoesOn issues occurrences of schedules that have ended.
	FaultScheduleGoesOn
	// FaultScheduleEndsByAnyone lets others end a schedule.
	FaultScheduleEndsByAnyone
	// FaultSchedulesNotResumed never issues occurrences of restored schedules.
	FaultSchedulesNotResumed
	// FaultTrialStays leaves in effect what is only tried.
	FaultTrialStays
	// FaultForeseenEarly foresees that deadlines are over, and holds too, before they are.
	FaultForeseenEarly
	// FaultForeseenAfterMove foresees failures of transactions of organisations that moved.
	FaultForeseenAfterMove
	faults
)

var faultNames = [faults]string{"none", "applied-twice", "released-alone", "restored-not-counted",
	"deadline-ignored", "verdict-not-wanted", "vouched-by-one", "cancelled-by-anyone",
	"cancelled-after-all", "cancellation-forgotten", "released-unasked", "lost-verdict-taken",
	"testimony-outdated", "homes-grow", "child-early", "child-late", "directory-short",
	"departed-early", "nonces-left", "answered-to-strangers", "arrived-early",
	"stranded-lives", "never-told", "seam-short", "seam-twice", "seam-forgotten",
	"position-kept", "late-before-deadline", "reserved-ignored", "new-assets-alone",
	"late-unmoved", "late-for-strangers", "late-unbounded", "groups-apart",
	"whole-cap", "waiting-uncounted", "issued-left", "hold-free", "hold-kept", "hold-early",
	"hold-goes-on", "hold-exceeded", "hold-by-anyone", "hold-ends-twice", "hold-ending-expires",
	"hold-thaws", "hold-left", "hold-not-resumed", "hold-not-wanted",
	"credit-unjudged", "floor-of-all", "spent-forgotten", "terms-left",
	"key-twice", "key-kept", "keys-left", "refund-exceeded", "refund-uncounted", "refunds-at-once",
	"refund-kept", "refundable-left", "details-thaw", "details-not-resumed", "due-early",
	"due-one-by-one", "schedule-goes-on", "schedule-ends-by-anyone", "schedules-not-resumed",
	"trial-stays", "foreseen-early", "foreseen-after-move"}

// String returns the fault's name.
func (f Fault) String() string {
	if f < faults {
		return faultNames[f]
	}
	return fmt.Sprintf("fault(%d)", uint8(f))
}

// Faults returns all faults but FaultNone.
func Faults() []Fault {
	all := make([]Fault, 0, faults-1)
	for fault := FaultNone + 1; fault < faults; fault++ {
		all = append(all, fault)
	}
	return all
}

// Plant plants a bug in the state. Only tests and simulators do.
func (s *State) Plant(fault Fault) { s.fault = fault }

// LimitWaiting lowers MaxWaiting for one state. Only tests and simulators do: all members of a
// shard must have the same limit.
func (s *State) LimitWaiting(limit int) { s.pending.limit = limit }

// LimitAssets lowers ledger.MaxAssets for one state, as LimitWaiting lowers MaxWaiting.
func (s *State) LimitAssets(limit int) { s.assetsMax = limit }

// LimitLate lowers MaxLate for one state.
func (s *State) LimitLate(limit int) { s.lateMax = limit }

// impatience is after how many blocks FaultReleasedAlone releases a transaction.
const impatience = 4

// releaseOld releases the transactions that have waited for some blocks. It is a bug:
// FaultReleasedAlone.
func (s *State) releaseOld() {
	for _, each := range s.pending.slots {
		if each.entry != nil && each.entry.height+impatience < s.height {
			s.release(each.entry)
			s.settled(each, false)
		}
	}
}
