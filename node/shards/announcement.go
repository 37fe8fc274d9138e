package shards

import (
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/store"
)

// NodeMode is what a node is doing. The numbers are those of package api, so that one converts into
// the other.
type NodeMode uint8

// The modes of nodes.
const (
	NodeStarting  NodeMode = 1 // finding a majority, fetching what it misses
	NodeOrdering  NodeMode = 2 // a member of the group that orders
	NodeFollowing NodeMode = 3 // not in the group: it follows the chain and serves reads
	NodeHalted    NodeMode = 4 // no majority, damaged, or forked
	NodeStopping  NodeMode = 5
)

// Heights of a chain as one node tells them; of the form of those of package api.
type Heights struct {
	Ordered ledger.Height // executed by the node
	Stored  ledger.Height // on the node's disk
	Durable ledger.Height // on the disks of a majority
}

// Announcement is what a node tells the members of the other shards of itself.
type Announcement struct {
	Shard ledger.ShardID
	Mode  NodeMode
	// APIAddress is the URL of the node's API.
	APIAddress string
	Heights    Heights
	// Head is the hash of the block at Heights.Ordered.
	Head ledger.Hash
	// Transactions and Accounts are the chain's, Pending the transactions that wait for other
	// shards.
	Transactions, Accounts, Pending uint64
	// Carried is the number of the last entry of the parent's stream in the chain, Streamed those
	// of the streams to the children, ascending by child.
	Carried  uint64
	Streamed []Streamed
	// Membership is the chain's, nil while it is the genesis'.
	Membership *ledger.Membership
}

// Streamed is how far the stream to a child has come.
type Streamed struct {
	Child  ledger.ShardID
	Number uint64
}

// Describe returns what a store says of its chain; the mode, the API's address and the heights
// stored and durable are the node's to add. It reads no disk.
func Describe(s *store.Store) Announcement {
	head := s.Head()
	a := Announcement{
		Shard: s.Shard(), Heights: Heights{Ordered: head.Height}, Head: head.Hash,
		Transactions: head.Total, Accounts: uint64(s.AccountCount()),
		Pending: uint64(s.PendingCount()), Carried: s.Carried(),
	}
	for _, child := range s.ShardTree().Children(a.Shard) {
		a.Streamed = append(a.Streamed, Streamed{Child: child, Number: s.Streamed(child)})
	}
	if membership := s.Membership(); membership.Number > 0 {
		a.Membership = &membership
	}
	return a
}
