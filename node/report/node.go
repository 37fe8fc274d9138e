package report

import (
	"time"

	"github.com/ledgerd/ledgerd/ledger"
)

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

// String names the mode.
func (m NodeMode) String() string {
	switch m {
	case ModeStarting:
		return "starting"
	case ModeOrdering:
		return "ordering"
	case ModeFollowing:
		return "following"
	case ModeHalted:
		return "halted"
	case ModeStopping:
		return "stopping"
	}
	return "unknown"
}

// EngineState is the state of the ordering engine at one moment.
type EngineState struct {
	Engine     string // the present run's, or that of the next run
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
	Records       uint64 // how often the node synced complete rounds before they were ordered

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
	// Waiting is what entries of the chain wait for, in a book of several shards.
	Waiting Waiting
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
