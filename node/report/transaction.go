package report

import (
	"fmt"

	"github.com/ledgerd/ledgerd/ledger"
)

// Level says how far a transaction or a block has come. A higher level includes the lower ones. The
// values are those of the protobuf.
type Level uint8

// The acknowledgement levels.
const (
	LevelNone     Level = 0 // not in the mempool and in no block yet
	LevelAdmitted Level = 1 // verified and in this node's mempool
	LevelOrdered  Level = 2 // in a block that this node has executed
	LevelStored   Level = 3 // on this node's disk
	LevelDurable  Level = 4 // on the disks of a majority of the shard's nodes
	// Durable in the chains of all shards that it concerns. Only callers wait for it: one chain
	// does not know it.
	LevelDurableEverywhere Level = 5
)

// String names the level as the command line does.
func (l Level) String() string {
	switch l {
	case LevelNone:
		return "none"
	case LevelAdmitted:
		return "admitted"
	case LevelOrdered:
		return "ordered"
	case LevelStored:
		return "stored"
	case LevelDurable:
		return "durable"
	case LevelDurableEverywhere:
		return "durable-everywhere"
	}
	return fmt.Sprintf("level %d", uint8(l))
}

// Heights of the chain at each level. Durable <= Stored <= Ordered does not always hold, since a
// majority may be ahead of this node's disk. The Level method returns a block's level at this node.
//
// Recorded is the height up to which this node's disk holds each block, or a record of its round
// that counts like the block (docs/design/rounds.md). It may be below Stored.
type Heights struct {
	Ordered ledger.Height // executed by this node
	Stored  ledger.Height // on this node's disk
	Durable ledger.Height // on the disks of a majority

	Recorded ledger.Height
}

// Level returns how far the block at a height has come.
func (h Heights) Level(height ledger.Height) Level {
	switch {
	case height > h.Ordered:
		return LevelNone
	case height > max(h.Stored, h.Recorded):
		return LevelOrdered
	case height > h.Durable:
		return LevelStored
	}
	return LevelDurable
}

// Outcome is the state of a transaction at this node.
type Outcome uint8

// The outcomes.
const (
	OutcomeUnknown Outcome = iota // not known to this node
	OutcomePending                // in the mempool, or in a round that is not delivered yet
	// In a block, and its effects hold. A transaction that crosses shards is settled.
	OutcomeExecuted
	// In a block with a reason, without effect. It may have waited for other shards before.
	OutcomeFailed
	OutcomeExpired // its last valid block has passed; it is in no block
	// In a block with its part here set aside, until the verdicts of other shards are in a block
	// too.
	OutcomeWaiting
	// In a block that passes it on. The chains of its destinations hold its outcome.
	OutcomeRelayed
)

// Status is what this node knows of a transaction. Waits, Settled and Destinations are set only if
// it crosses shards.
type Status struct {
	ID      ledger.Hash
	Outcome Outcome
	// Level is the level of its block, or of the block Settled if that ended its wait. It is
	// LevelAdmitted while pending, and LevelNone if unknown or expired.
	Level  Level
	Height ledger.Height // of its block, if it is in one: executed, failed, waiting or relayed
	Index  uint32        // its place in the block
	// Result is its result in the block. After a wait it is Applied, or the result in the verdict
	// that made it fail.
	Result ledger.Result

	Waits []ledger.ShardID // the shards whose verdicts are missing, ascending, when waiting
	// The block that ended its wait; 0 if it never waited or still waits.
	Settled ledger.Height
	// The two or more shards that it concerns, ascending. A relayed transaction may have one.
	Destinations []ledger.ShardID
}

// InBlock reports whether the transaction is in a block of this chain.
func (s Status) InBlock() bool {
	switch s.Outcome {
	case OutcomeExecuted, OutcomeFailed, OutcomeWaiting, OutcomeRelayed:
		return true
	}
	return false
}

// Decisive returns the height of the block that decided the transaction: its own block, or the
// block that ended its wait. It is 0 if this chain has decided nothing: the transaction is in no
// block, waits, or was passed on.
func (s Status) Decisive() ledger.Height {
	switch s.Outcome {
	case OutcomeExecuted, OutcomeFailed:
		return max(s.Height, s.Settled)
	}
	return 0
}

// Final reports whether there is nothing more to wait for at a level. A transaction that waits for
// other shards or was passed on is decided elsewhere: like one in the mempool, it is final at
// LevelAdmitted and below.
func (s Status) Final(level Level) bool {
	switch s.Outcome {
	case OutcomeExecuted, OutcomeFailed:
		return s.Level >= level
	case OutcomeExpired:
		return true
	case OutcomePending, OutcomeWaiting, OutcomeRelayed:
		return level <= LevelAdmitted
	}
	return false
}
