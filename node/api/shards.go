package api

import (
	"context"
	"net/http"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1/ledgerdv1connect"
)

// Shards is the other shards of a book of several, as the node's API sees them. Every method is
// safe for concurrent use, and none blocks.
type Shards interface {
	// Own is the shard that this node's chain is.
	Own() ledger.ShardID
	// Tree is the tree of the book's shards.
	Tree() *ledger.ShardTree
	// Client makes calls that a node of another shard answers, from its own store and its own
	// shard: it serves them from Server.Forwarded. Unary calls only. A call fails with Unavailable
	// where no node of the shard can be asked.
	Client(shard ledger.ShardID) ledgerdv1connect.LedgerServiceClient
	// States is how all shards do, the own one among them, by number; cheap enough to be asked for
	// several times a second.
	States() []ShardState
}

// ShardMode is what a shard is doing, as far as a node has heard.
type ShardMode uint8

// The modes of a shard.
const (
	ShardSilent   ShardMode = iota // no node of it was heard lately
	ShardOrdering                  // it orders
	ShardHalted                    // nodes of it were heard, and none orders
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

// ShardState is a shard at one moment, as one node knows it.
type ShardState struct {
	Shard   ledger.ShardID
	Mode    ShardMode
	Members []ShardMember // by index
	// Height and Durable are the highest that a node of it told.
	Height, Durable   ledger.Height
	TransactionsTotal uint64
	AccountsTotal     uint64
	// transactions in its chain that wait for other shards
	Pending   uint64
	Carried   uint64                    // how far it has the parent's stream in its chain
	Streamed  map[ledger.ShardID]uint64 // by child, how many entries its stream to it has
	LastHeard time.Time                 // when a node of it was heard last; zero: never
}

// ShardMember is a node of a shard, as another node knows it.
type ShardMember struct {
	Index         uint32
	Name          string
	APIAddress    string
	Mode          NodeMode // as it said last; 0: it was not heard lately
	OrderedHeight ledger.Height
	LastHeard     time.Time // zero: never
	Self          bool
}

type forwardedKey struct{}

// asForwarded marks the calls of other shards' nodes.
func asForwarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), forwardedKey{}, true)))
	})
}

// others is the other shards, for a call that may be answered there: nil in a book of one shard,
// and for a call that came from another shard.
func (s *service) others(ctx context.Context) Shards {
	if ctx.Value(forwardedKey{}) != nil {
		return nil
	}
	return s.backend.Shards()
}
