package shards

import (
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/report"
)

// Announcement is a node's report about itself to the members of other shards.
type Announcement struct {
	Shard ledger.ShardID
	Mode  report.NodeMode
	// APIAddress is the URL of the node's API.
	APIAddress string
	Heights    report.Heights
	// Head is the hash of the block at Heights.Ordered.
	Head ledger.Hash
	// Transactions and Accounts count those of the chain. Pending counts its transactions that wait
	// for other shards.
	Transactions, Accounts, Pending uint64
	// Carried is the number of the last entry of the parent's stream that is durable in the chain.
	// Streamed has the last numbers of the streams to the children, ascending by child.
	Carried  uint64
	Streamed []Streamed
	// Membership is the chain's, or nil while it is the genesis'. It is nil with vouched crossings.
	Membership *ledger.Membership
	// Epoch is the members' epoch up to which the sender has the shard's trail, with vouched
	// crossings. It proves nothing; the trail does.
	Epoch ledger.MembersEpoch
}

// SetCounts sets a shard's counts and streams to those of the announcement.
func (a *Announcement) SetCounts(of *report.ShardState) {
	of.TransactionsTotal, of.AccountsTotal = a.Transactions, a.Accounts
	of.Pending, of.Carried = a.Pending, a.Carried
	of.Streamed = make(map[ledger.ShardID]uint64, len(a.Streamed))
	for _, streamed := range a.Streamed {
		of.Streamed[streamed.Child] = streamed.Number
	}
}

// Streamed is the position of the stream to a child.
type Streamed struct {
	Child  ledger.ShardID
	Number uint64
}
