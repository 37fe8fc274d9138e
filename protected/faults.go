package protected

// Fault is a bug that is planted on purpose, to show that a judge can reject an engine with it.
type Fault uint8

// The bugs that can be planted.
const (
	// FaultNone is the correct protocol.
	FaultNone Fault = iota
	// FaultNoPermissionCheck grants a log to any server that asks, under any ticket, and lets the
	// old holder of a region keep its permission.
	FaultNoPermissionCheck
	// FaultSlotReusedEarly makes a leader overwrite slots of the log that members have not read
	// yet.
	FaultSlotReusedEarly
	// FaultNoGroupCatchUp makes a new leader take its own log for the group's.
	FaultNoGroupCatchUp
	// FaultRewrittenInPlace makes a new leader overwrite another leader's entry without erasing its
	// mark first.
	FaultRewrittenInPlace
	// FaultDecidedEarly treats an entry as ordered as soon as it is in the leader's own log.
	FaultDecidedEarly
	// FaultFirstHole makes a new leader take the first empty slot of a member's log for its end.
	FaultFirstHole
	// FaultOwnMarkKept makes a server put an entry into its own log without erasing the mark of
	// another one of the same index first.
	FaultOwnMarkKept
	// FaultLentReused makes a process put other bytes where a write under way takes its own from.
	FaultLentReused
)
