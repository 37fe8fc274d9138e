package shards

import (
	"github.com/ledgerd/ledgerd/ledger"
)

// NodeMode is the current activity of a node. The values are those of package api, so the types
// convert.
type NodeMode uint8

// The modes of nodes.
const (
	NodeStarting  NodeMode = 1 // finding a majority, fetching missing blocks
	NodeOrdering  NodeMode = 2 // a member of the group that orders
	NodeFollowing NodeMode = 3 // not in the group: it follows the chain and serves reads
	NodeHalted    NodeMode = 4 // no majority, damaged, or forked
	NodeStopping  NodeMode = 5
)

// Heights of a chain as one node reports them. The fields are those of the type in package api.
type Heights struct {
	Ordered ledger.Height // executed by the node
	Stored  ledger.Height // on the node's disk
	Durable ledger.Height // on the disks of a majority
}

// Announcement is a node's report about itself to the members of other shards.
type Announcement struct {
	Shard ledger.ShardID
	Mode  NodeMode
	// APIAddress is the URL of the node's API.
	APIAddress string
	Heights    Heights
	// Head is the hash of the block at Heights.Ordered.
	Head ledger.Hash
	// Transactions and Accounts count those of the chain. Pending counts its transactions that wait
	// for other shards.
	Transactions, Accounts, Pending uint64
	// Carried is the number of the last entry of the parent's stream in the chain. Streamed has the
	// last numbers of the streams to the children, ascending by child.
	Carried  uint64
	Streamed []Streamed
	// Membership is the chain's, or nil while it is the genesis'.
	Membership *ledger.Membership
}

// Streamed is the position of the stream to a child.
type Streamed struct {
	Child  ledger.ShardID
	Number uint64
}
