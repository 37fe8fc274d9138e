package api

import (
	"context"
	"net/http"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1/ledgerdv1connect"
)

// Shards gives the node's API access to the other shards of a book of several. Every method is safe
// for concurrent use, and none blocks.
type Shards interface {
	// Own returns the shard of this node's chain.
	Own() ledger.ShardID
	// Tree returns the tree of the book's shards.
	Tree() *ledger.ShardTree
	// Client returns a client whose calls a node of another shard answers through its
	// Server.Forwarded, from its own store and its own shard. It makes unary calls only. A call
	// fails with Unavailable if no node of the shard can be reached.
	Client(shard ledger.ShardID) ledgerdv1connect.LedgerServiceClient
	// States returns the states of all shards by number, including this one. It is cheap enough for
	// several calls a second.
	States() []ShardState
}

// ShardMode is the current activity of a shard, according to the newest reports that a node has.
type ShardMode uint8

// The modes of a shard.
const (
	ShardSilent   ShardMode = iota // no node of it reported recently
	ShardOrdering                  // it orders
	ShardHalted                    // nodes of it reported, and none orders
)

// String names the mode.
func (m ShardMode) String() string {
	switch m {
	case ShardOrdering:
		return "ordering"
	case ShardHalted:
		return "halted"
	}
	return "silent"
}

// ShardState is the state of a shard at one moment, as one node knows it.
type ShardState struct {
	Shard   ledger.ShardID
	Mode    ShardMode
	Members []ShardMember // by index
	// Height and Durable are the highest that any of its nodes reported.
	Height, Durable   ledger.Height
	TransactionsTotal uint64
	AccountsTotal     uint64
	// Transactions in its chain that wait for other shards.
	Pending   uint64
	Carried   uint64                    // how much of the parent's stream is in its chain
	Streamed  map[ledger.ShardID]uint64 // by child: how many entries its stream to the child has
	LastHeard time.Time                 // when any of its nodes last reported; zero: never
}

// ShardMember is a node of a shard, as another node knows it.
type ShardMember struct {
	Index         uint32
	Name          string
	APIAddress    string
	Mode          NodeMode // as it last reported; 0: no recent report
	OrderedHeight ledger.Height
	LastHeard     time.Time // zero: never
	Self          bool
}

type forwardedKey struct{}

// asForwarded marks calls as coming from other shards' nodes.
func asForwarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), forwardedKey{}, true)))
	})
}

// others returns the other shards for a call that they may answer. It is nil in a book of one
// shard, and for a call that came from another shard.
func (s *service) others(ctx context.Context) Shards {
	if ctx.Value(forwardedKey{}) != nil {
		return nil
	}
	return s.backend.Shards()
}
