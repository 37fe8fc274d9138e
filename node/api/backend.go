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
// Every method is safe for concurrent use and none of them may block on the disk or the network
// except Wait, which ends with its context.
type Backend interface {
	// Store is where reads come from. A block is visible there before any of its transactions is
	// reported as ordered, so that what was acknowledged can be read at once on this node.
	Store() *store.Store

	// Admit verifies bundles and puts them into the mempool, in their order, and answers with one
	// outcome for each: nil for a bundle that is in the mempool now or was known already (a second
	// copy is no error), else why not. The mempool keeps the order of admission: two bundles
	// admitted one after the other at one node are broadcast in that order. With inOrder, the first
	// bundle refused makes all after it refused with RefusedPredecessor, so that what is admitted
	// is always a prefix. The bundles belong to the Backend from the call on.
	Admit(ctx context.Context, bundles []*ledger.Bundle, inOrder bool) []*Refusal

	// Status tells how far a transaction has come, from the mempool, the pipeline or the store. The
	// error is the store's.
	Status(id ledger.Hash) (Status, error)
	// Wait returns when each of the transactions is in a block of the wanted level (executed or
	// failed alike) or has expired. When the context ends first it returns the statuses of that
	// moment with the context's error. An unknown transaction is waited for: it may have been given
	// to another node. The answer has the order of ids.
	Wait(ctx context.Context, ids []ledger.Hash, level Level) ([]Status, error)

	// Heights tells how far the chain has come at each level, and gives a channel that is closed
	// when that changes: read both, look, wait, and ask again. Changes in between coalesce.
	Heights() (Heights, <-chan struct{})
	// NodeState is a snapshot of this node, cheap enough to be asked for several times a second.
	NodeState() NodeState
	// ClusterState is a snapshot of the shard as this node sees it.
	ClusterState() ClusterState

	// Shards is the other shards, nil in a book of one shard. It is the same from the beginning to
	// the end.
	Shards() Shards
}

// Level says how far a transaction or a block has come; a higher one includes the lower ones. The
// values are those of the protobuf.
type Level uint8

// The acknowledgement levels.
const (
	LevelNone     Level = 0 // nowhere yet
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

// Heights of the chain at each level: Durable <= Stored <= Ordered does not always hold, since a
// majority may be ahead of this node's disk; a block's level here is told by Level.
type Heights struct {
	Ordered ledger.Height // executed by this node
	Stored  ledger.Height // on this node's disk
	Durable ledger.Height // on the disks of a majority
}

// Level is how far the block of a height has come.
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

// Outcome is what became of a transaction.
type Outcome uint8

// The outcomes.
const (
	OutcomeUnknown Outcome = iota // this node has never heard of it
	OutcomePending                // in the mempool or in a round that is not delivered yet
	// in a block, and its effects hold; one that crosses shards is settled
	OutcomeExecuted
	// in a block, with a reason; it changed nothing. One that crosses shards may have waited before
	OutcomeFailed
	OutcomeExpired // its last valid block has passed; it is in no block
	// in a block, with its part here set aside, until the verdicts of other shards are in a block
	// too
	OutcomeWaiting
	// in a block that passes it on; the chains of its destinations know what became of it
	OutcomeRelayed
)

// Status is what this node knows of a transaction. Waits, Settled and Destinations are of one that
// crosses shards, and zero for all others.
type Status struct {
	ID      ledger.Hash
	Outcome Outcome
	// Level is that of its block, or of the block Settled where that ended its wait; LevelAdmitted
	// while pending; LevelNone if unknown or expired.
	Level  Level
	Height ledger.Height // of its block, when it is in one: executed, failed, waiting or relayed
	Index  uint32        // its place in the block
	// Result is that of its place in the block. Of one whose wait ended it is applied, or what the
	// shard said that made it fail.
	Result ledger.Result

	Waits []ledger.ShardID // the shards whose verdicts are missing, ascending, when waiting
	// the block that ended its wait, 0 where there was no wait or it goes on
	Settled ledger.Height
	// the shards that it concerns, ascending, two or more; of one that is relayed perhaps one
	Destinations []ledger.ShardID
}

// InBlock tells whether the transaction is in a block of this chain.
func (s Status) InBlock() bool {
	switch s.Outcome {
	case OutcomeExecuted, OutcomeFailed, OutcomeWaiting, OutcomeRelayed:
		return true
	}
	return false
}

// Decisive is the height of the block that decided: where it stands, or where its wait ended. It is
// 0 where nothing is decided in this chain: it is in no block, waits, or was passed on.
func (s Status) Decisive() ledger.Height {
	switch s.Outcome {
	case OutcomeExecuted, OutcomeFailed:
		return max(s.Height, s.Settled)
	}
	return 0
}

// Final tells whether nothing more is to be waited for at a level. One that waits for other shards,
// or was passed on, is decided elsewhere: it is final as one in the mempool is.
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

// The kinds of refusal. Those from RefusedOverloaded on pass: the same bytes may be sent again, or
// to another node.
const (
	RefusedMalformed           RefusalCode = iota + 1 // it does not decode, or breaks a limit
	RefusedSignature                                  // a signature is wrong or one is missing
	RefusedUnknownOrganisation                        // the signer is not registered
	RefusedExpired                                    // its last valid block has passed
	RefusedOverloaded                                 // the mempool is full
	// this node takes no writes now: following, halted, starting, stopping, disk nearly full
	RefusedNotWriting
	// a bundle before it, in a submission in order, was refused
	RefusedPredecessor
)

// Refusal says why a bundle was not admitted. Nothing of a refused bundle is kept.
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

// Retry tells whether the refusal is for now only.
func (r *Refusal) Retry() bool { return r.Code >= RefusedOverloaded }

// NodeMode is what a node is doing. The values are those of the protobuf.
type NodeMode uint8

// The modes.
const (
	ModeStarting  NodeMode = 1 // finding a majority, fetching what it misses
	ModeOrdering  NodeMode = 2 // a member of the group that orders
	ModeFollowing NodeMode = 3 // not in the group: it follows the chain and serves reads
	ModeHalted    NodeMode = 4 // no majority, damaged, or forked
	ModeStopping  NodeMode = 5
)

// EngineState is the ordering engine at one moment.
type EngineState struct {
	Engine     string // allconcur or allconcur+
	Generation uint64
	Epoch      uint64
	Round      uint64
	Reliable   bool     // the current round is a reliable one
	Members    []uint32 // indices of the servers that order
	Suspected  []uint32
	Awaited    []uint32 // whom the current round waits for
	Halted     string   // why it orders no more; empty while it does
}

// NodeState is a node at one moment.
type NodeState struct {
	Index         uint32
	Name          string
	PeerID        string
	APIAddress    string
	FabricAddress string
	Mode          NodeMode
	Reason        string // for halted or starting: what it waits for, what to do
	ReadsOnly     bool   // no writes for now: see Reason
	Engine        EngineState
	Heights       Heights
	HeadHash      ledger.Hash
	Started       time.Time
	Version       string

	PoolTransactions      uint64
	PoolBytes             uint64
	TransactionsPerSecond float64 // over the last ten seconds
	// median from admission to ordered over the last ten seconds
	OrderLatency   time.Duration
	DurableLatency time.Duration
	DiskFreeBytes  uint64
	DiskID         [16]byte
	// why the disk is not the one that was made with the home; "" if it is
	DiskLearner string

	// ClockOffset is how far the node's clock is ahead of the members' median. It means something
	// only where ClockKnown: the clocks of a majority are heard.
	ClockOffset ledger.Milliseconds
	ClockKnown  bool
	// ClockWarning says why the node proposes no time for blocks, or that the chain is dated ahead
	// of the clocks; empty where all is well.
	ClockWarning string
	// Backfill is what a node that began with a snapshot lacks; nil once it lacks nothing.
	Backfill *Backfill
}

// Backfill is how far a node that began with a snapshot is with the blocks before it.
type Backfill struct {
	Snapshot ledger.Height // the block that the node began with
	Absent   ledger.Height // the blocks from 1 up to it are not here yet; 0: all are
	Indexed  ledger.Height // once all are here: how far histories are found
	Source   string        // the member that blocks come from now
	Reason   string        // why nothing comes now, and what to do
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
	OrderedHeight ledger.Height // as last heard
	StoredHeight  ledger.Height
	AbsentHeight  ledger.Height // the blocks from 1 up to it are not at the member, as last heard
	// of the last three seconds, in which the rounds waited for it alone
	HeldUp    time.Duration
	LastHeard time.Time // zero: never
	Mode      NodeMode  // as it said last; 0: never
}

// DigraphEdge is an edge of the reliable digraph, by the members' indices.
type DigraphEdge struct{ From, To uint32 }

// OrderingSettings are what all members have to have set alike; a node that joins takes them over.
type OrderingSettings struct {
	Engine          string // allconcur or allconcur+
	TargetNines     uint32
	ServerMTTFHours uint32
	BatchBytesMax   uint32
}

// ClusterState is the shard at one moment, as one node sees it. Members may lack some that the
// chain has, and have some that left: who the members are is taken from the store.
type ClusterState struct {
	Chain             string
	GenesisHash       ledger.Hash
	Shard             uint32
	Digraph           string // kind and parameters of the reliable digraph, such as GS(8,3)
	Degree            uint32
	ToleratedFailures uint32
	Edges             []DigraphEdge
	Members           []MemberState
	Node              NodeState // who says so
	TransactionsTotal uint64
	AccountsTotal     uint64
	Ordering          OrderingSettings

	membership ledger.Membership
	former     []ledger.FormerMember
	book       ledger.Hash
	shardCount uint32
}
