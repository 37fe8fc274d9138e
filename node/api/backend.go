package api

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/store"
)

// Backend is the node as its API sees it. The node implements it; apitest has an in-memory one.
// Every method is safe for concurrent use. None may block on the disk or the network except Wait,
// which ends with its context.
type Backend interface {
	// Store returns the store for reads. A block is visible there before any of its transactions is
	// reported as ordered, so acknowledged transactions can be read at once on this node.
	Store() *store.Store

	// Admit verifies bundles and puts them into the mempool in their order. It returns one outcome
	// per bundle: nil if the bundle is in the mempool now or was known already (a second copy is no
	// error), else the reason for its refusal.
	//
	// The mempool keeps the order of admission: two bundles admitted one after the other at one
	// node are broadcast in that order. With inOrder, the first refusal makes all later bundles
	// refused with RefusedPredecessor, so the admitted bundles are always a prefix. The Backend
	// owns the bundles from the call on.
	Admit(ctx context.Context, bundles []*ledger.Bundle, inOrder bool) []*Refusal

	// Status returns how far a transaction has come, from the mempool, the pipeline or the store.
	// The error is the store's.
	Status(id ledger.Hash) (Status, error)
	// Wait returns when each of the transactions is in a block of the wanted level (executed or
	// failed alike) or has expired. If the context ends first, Wait returns the statuses at that
	// moment with the context's error. It also waits for unknown transactions, which may have been
	// given to another node. The statuses are in the order of ids.
	Wait(ctx context.Context, ids []ledger.Hash, level Level) ([]Status, error)

	// Heights returns how far the chain has come at each level, and a channel that is closed when
	// that changes. The caller reads both, uses the heights, waits on the channel, and asks again.
	// Changes in between coalesce.
	Heights() (Heights, <-chan struct{})
	// NodeState returns a snapshot of this node. It is cheap enough for several calls a second.
	NodeState() NodeState
	// ClusterState returns a snapshot of the shard as this node sees it.
	ClusterState() ClusterState

	// Shards returns the other shards, or nil in a book of one shard. The value does not change
	// during the life of the Backend.
	Shards() Shards
}

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
	}
	return fmt.Sprintf("level %d", uint8(l))
}

// Heights of the chain at each level. Durable <= Stored <= Ordered does not always hold, since a
// majority may be ahead of this node's disk. The Level method returns a block's level at this node.
type Heights struct {
	Ordered ledger.Height // executed by this node
	Stored  ledger.Height // on this node's disk
	Durable ledger.Height // on the disks of a majority
}

// Level returns how far the block at a height has come.
func (h Heights) Level(height ledger.Height) Level {
	switch {
	case height > h.Ordered:
		return LevelNone
	case height > h.Stored:
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

// RefusalCode is the kind of a refusal.
type RefusalCode uint8

// The kinds of refusal. Those from RefusedOverloaded on are temporary: the caller may send the same
// bytes again, or to another node.
const (
	RefusedMalformed           RefusalCode = iota + 1 // it cannot be decoded, or exceeds a limit
	RefusedSignature                                  // a signature is wrong or missing
	RefusedUnknownOrganisation                        // the signer is not registered
	RefusedExpired                                    // its last valid block has passed
	RefusedOverloaded                                 // the mempool is full
	// This node takes no writes now: it follows, is halted, starts or stops, or its disk is nearly
	// full.
	RefusedNotWriting
	// In a submission in order, a bundle before it was refused.
	RefusedPredecessor
)

// Refusal is the reason why a bundle was not admitted. Nothing of a refused bundle is kept.
type Refusal struct {
	Code   RefusalCode
	Reason string // a sentence that says what to do, without a full stop at its end
	// Writers are the API addresses of nodes that take writes, for RefusedNotWriting.
	Writers []string
}

// Error implements error.
func (r *Refusal) Error() string {
	if len(r.Writers) == 0 {
		return r.Reason
	}
	return r.Reason + "; these nodes take writes: " + strings.Join(r.Writers, ", ")
}

// Retry reports whether the refusal is temporary.
func (r *Refusal) Retry() bool { return r.Code >= RefusedOverloaded }

// NodeMode is the current activity of a node. The values are those of the protobuf.
type NodeMode uint8

// The modes.
const (
	ModeStarting  NodeMode = 1 // finding a majority, fetching missing blocks
	ModeOrdering  NodeMode = 2 // a member of the group that orders
	ModeFollowing NodeMode = 3 // not in the group: it follows the chain and serves reads
	ModeHalted    NodeMode = 4 // no majority, damaged, or forked
	ModeStopping  NodeMode = 5
)

// EngineState is the state of the ordering engine at one moment.
type EngineState struct {
	Engine     string // allconcur or allconcur+
	Generation uint64
	Epoch      uint64
	Round      uint64
	Reliable   bool     // the current round is a reliable one
	Members    []uint32 // indices of the servers that order
	Suspected  []uint32
	Awaited    []uint32 // the servers that the current round waits for
	Halted     string   // why it no longer orders; empty while it does
}

// NodeState is the state of a node at one moment.
type NodeState struct {
	Index         uint32
	Name          string
	PeerID        string
	APIAddress    string
	FabricAddress string
	Mode          NodeMode
	Reason        string // for halted or starting: what the node waits for, and what to do
	ReadsOnly     bool   // the node takes no writes for now: see Reason
	Engine        EngineState
	Heights       Heights
	HeadHash      ledger.Hash
	Started       time.Time
	Version       string

	PoolTransactions      uint64
	PoolBytes             uint64
	TransactionsPerSecond float64 // over the last ten seconds
	// The median from admission to ordered over the last ten seconds.
	OrderLatency   time.Duration
	DurableLatency time.Duration
	DiskFreeBytes  uint64
	DiskID         [16]byte
	// Why the disk is not the one that was created with the home; "" if it is.
	DiskLearner string

	// ClockOffset is how far the node's clock is ahead of the members' median. It is valid only if
	// ClockKnown: the node receives the clocks of a majority.
	ClockOffset ledger.Milliseconds
	ClockKnown  bool
	// ClockWarning says why the node proposes no time for blocks, or that the chain's time is ahead
	// of the clocks; empty if all is well.
	ClockWarning string
	// Backfill is set while a node that began with a snapshot lacks blocks or their index; nil
	// otherwise.
	Backfill *Backfill
}

// Backfill is the progress of a node that began with a snapshot in fetching the blocks before it.
type Backfill struct {
	Snapshot ledger.Height // the block that the node began with
	Absent   ledger.Height // the blocks from 1 up to this one are not here yet; 0: all are here
	Indexed  ledger.Height // once all blocks are here: how far histories are indexed
	Source   string        // the member that now sends blocks
	Reason   string        // why no blocks arrive now, and what to do
}

// MemberState is a member as this node sees it.
type MemberState struct {
	Index         uint32
	Name          string
	PeerID        string
	APIAddress    string
	FabricAddress string
	Self          bool
	Connected     bool
	Member        bool // of the group that orders now
	Suspected     bool
	OrderedHeight ledger.Height // as last reported
	StoredHeight  ledger.Height
	AbsentHeight  ledger.Height // as last reported: the member lacks the blocks from 1 up to it
	// The part of the last three seconds in which the rounds waited for this member alone.
	HeldUp    time.Duration
	LastHeard time.Time // zero: never
	Mode      NodeMode  // as it last reported; 0: never
}

// DigraphEdge is an edge of the reliable digraph, by the members' indices.
type DigraphEdge struct{ From, To uint32 }

// OrderingSettings must be the same at all members; a node that joins adopts them.
type OrderingSettings struct {
	Engine          string // allconcur or allconcur+
	TargetNines     uint32
	ServerMTTFHours uint32
	BatchBytesMax   uint32
}

// ClusterState is the state of the shard at one moment, as one node sees it. Members may lack some
// members of the chain, and may still hold some that left. The API takes the member list from the
// store.
type ClusterState struct {
	Chain             string
	GenesisHash       ledger.Hash
	Shard             uint32
	Digraph           string // kind and parameters of the reliable digraph, such as GS(8,3)
	Degree            uint32
	ToleratedFailures uint32
	Edges             []DigraphEdge
	Members           []MemberState
	Node              NodeState // the node that reports this
	TransactionsTotal uint64
	AccountsTotal     uint64
	Ordering          OrderingSettings

	membership ledger.Membership
	former     []ledger.FormerMember
	book       ledger.Hash
	shardCount uint32
}
