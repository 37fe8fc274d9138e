package api

import (
	"context"
	"net/http"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1/ledgerdv1connect"
	"github.com/ledgerd/ledgerd/node/report"
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
	States() []report.ShardState
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
