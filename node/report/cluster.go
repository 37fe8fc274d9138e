package report

import (
	"time"

	"github.com/ledgerd/ledgerd/ledger"
)

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
	Forged    uint64    // bundles with wrong signatures that it proposed, as this process saw it
	LastHeard time.Time // zero: never
	Mode      NodeMode  // as it last reported; 0: never
}

// DigraphEdge is an edge of the reliable digraph, by the members' indices.
type DigraphEdge struct{ From, To uint32 }

// OrderingSettings must be the same at all members; a node that joins adopts them.
type OrderingSettings struct {
	// Engine is the engine by which the members order from the next eon on: the one that the block
	// at EngineHeight named, or that of the settings if that is 0.
	Engine          string
	EngineHeight    ledger.Height
	TargetNines     uint32
	ServerMTTFHours uint32
	BatchBytesMax   uint32
	Prompt          bool
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
	Engines           []string // that the node's program can run
}
