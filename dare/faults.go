package dare

import "fmt"

// Fault is a bug that a test can plant. Most are errors of the published algorithm, which doc.go
// lists by the same letters.
type Fault uint8

const (
	// FaultNone plants nothing.
	FaultNone Fault = iota
	// FaultCommitsOldTerms commits entries of earlier terms by counting the logs that hold them, as
	// in [Poke19, section 4.3.3.2] (G1).
	FaultCommitsOldTerms
	// FaultLateNeverGranted gives the log only to a leader that had this server's vote, as in
	// [Poke19, section 4.3.2.2] (G3).
	FaultLateNeverGranted
	// FaultNoReserve makes a new leader commit what it found by an entry without messages, which
	// needs room in the log, as in [Poke19, section 4.3.3.1] (G4).
	FaultNoReserve
	// FaultBeatIsTerm makes heartbeats that say the same for the whole term, as in [Poke19, section
	// 4.4.2.2] (G6).
	FaultBeatIsTerm
	// FaultCommitGoesBack makes a new leader write its own commit pointer over a later one (G7).
	FaultCommitGoesBack
	// FaultAdjustToCommit sets a follower's tail back to its commit pointer, and not to the first
	// entry that differs (G16).
	FaultAdjustToCommit
	// FaultVoteWithoutCheck votes for a candidate whose log is not as recent as the own one.
	FaultVoteWithoutCheck
	// FaultTailBeforeEntries writes a follower's tail before the entries below it.
	FaultTailBeforeEntries
	// FaultPrunedEarly reuses a slot whose entry some server has not applied.
	FaultPrunedEarly
	// FaultZombieVotes counts a request that has landed as a vote.
	FaultZombieVotes
	// FaultLogKept votes without taking the log from the leader.
	FaultLogKept
	// FaultFreezeKeepsLog freezes a server without taking its log from the leader.
	FaultFreezeKeepsLog
	// FaultAppendsPastEnd makes a leader append entries behind the one that ends the run.
	FaultAppendsPastEnd
	// FaultRefusalWaits starts a server's wait anew when it refuses its vote. Candidates that
	// cannot win then keep it from its turn.
	FaultRefusalWaits
	// FaultConfigWithoutCommit begins a reconfiguration before the leader's own entry and the last
	// configuration are committed, as in [Poke19, section 4.3.4] (G2).
	FaultConfigWithoutCommit
	// FaultConfigLate lets a configuration be in force only once its entry is applied.
	FaultConfigLate
	// FaultRestartedVotes takes a server that restarted for the one that it was, as if votes were
	// all that it forgot [Poke19, section 4.3.2.3] (G5).
	FaultRestartedVotes
	// FaultPrunedUnderNewcomer reuses slots that a server which recovers has not read yet (G11).
	FaultPrunedUnderNewcomer
	// FaultLeaderCountsItself counts the log of a leader that shrinks itself away, as in [Poke19,
	// section 4.3.3.2] (G9).
	FaultLeaderCountsItself
	// FaultLateNeverLearns leaves a server that missed a configuration without a way to hear of it,
	// as in [Poke19, section 4.3.4]: whom the configuration named cannot ask it for a vote.
	FaultLateNeverLearns
	// FaultReadWithoutCheck answers read requests without a look at the others' terms.
	FaultReadWithoutCheck
	// FaultPartialRounds does not wait for the messages of all servers with Config.FullRounds.
	FaultPartialRounds
	// FaultNeverAsks makes no leader ask for messages that it lacks for a full round.
	FaultNeverAsks
	faultEnd
)

// faultNames are the names on a command line.
var faultNames = [faultEnd]string{"none", "commits-old-terms", "late-never-granted",
	"no-reserve", "beat-is-term", "commit-goes-back", "adjust-to-commit", "vote-without-check",
	"tail-before-entries", "pruned-early", "zombie-counted-as-vote", "log-kept", "freeze-keeps-log",
	"appends-past-end", "refusal-waits", "config-without-commit", "config-late", "restarted-votes",
	"pruned-under-newcomer", "leader-counts-itself", "late-never-learns", "read-without-check",
	"partial-rounds", "never-asks"}

// String returns the fault's name as used on a command line.
func (f Fault) String() string {
	if f >= faultEnd {
		return fmt.Sprintf("fault(%d)", uint8(f))
	}
	return faultNames[f]
}

// Faults lists the bugs.
func Faults() []Fault {
	var all []Fault
	for f := FaultNone + 1; f < faultEnd; f++ {
		all = append(all, f)
	}
	return all
}
