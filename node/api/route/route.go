package route

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1/ledgerdv1connect"
	"github.com/ledgerd/ledgerd/node/report"
)

// Shards gives a node's API access to the other shards of its book. Every method is safe for
// concurrent use, and none blocks.
type Shards interface {
	// Own returns the shard of this node's chain.
	Own() ledger.ShardID
	// Tree returns the tree of the book's shards, as far as they are this node's for good. It grows
	// when a shard is added. The store may know the shard a moment earlier.
	Tree() *ledger.ShardTree
	// TreeChanged returns a channel that is closed once the tree, or the members of any shard, have
	// changed. Take it before the tree, to miss no change.
	TreeChanged() <-chan struct{}
	// Client returns a client whose calls a node of another shard answers through its
	// Server.Forwarded, from its own store and its own shard. It makes unary calls only. A call
	// fails with Unavailable if no node of the shard can be reached.
	Client(shard ledger.ShardID) ledgerdv1connect.LedgerServiceClient
	// States returns the states of all shards by number, including this one: those of Tree, or more
	// if it was called before. It is cheap enough for several calls a second.
	States() []report.ShardState
	// Obstacles returns why transactions that cross to some shards are refused at present, by
	// shard; normally there are none. A shard is never down to its own nodes. The list is
	// read-only. It is cheap enough for each submission.
	Obstacles() []report.Obstacle
}

const (
	// askTime bounds a call to other shards whose answer is optional.
	askTime = 2 * time.Second
	// tellTime bounds a call that asks what another shard knows now and that, of what it does not
	// know, waits in vain.
	tellTime = 500 * time.Millisecond
)

type client = ledgerdv1connect.LedgerServiceClient

// router answers clients for the whole book. The embedded Service answers for this node's shard; it
// has the methods that concern no other shard.
type router struct {
	*api.Service
	backend api.Backend
	shards  Shards
	// sent records transactions that entered other shards, or are decided there.
	sent whereabouts
	// watches follow the chains of other shards for subscriptions to the whole book.
	watches watches
	// arrivals has how far moves of organisations to other shards have come.
	arrivals arrivals
	// refused counts the bundles that were refused because of obstacles.
	refused *refusals
}

var _ ledgerdv1connect.LedgerServiceHandler = (*router)(nil)

// New makes a server that answers clients for the whole book, and nodes of other shards for the
// backend's shard. It registers its metrics with Options.Registry, so each registry can serve only
// one server.
func New(backend api.Backend, shards Shards, options api.Options) (*api.Server, error) {
	r := &router{backend: backend, shards: shards, refused: newRefusals(shards)}
	r.Service = api.NewService(&entrance{Backend: backend, router: r}, options)
	server, err := api.NewServer(r.Service, r)
	if err != nil {
		return nil, err
	}
	for _, collector := range []prometheus.Collector{newMetrics(shards), r.refused} {
		if err := r.Options().Registry.Register(collector); err != nil {
			return nil, fmt.Errorf("api: registering metrics: %w", err)
		}
	}
	return server, nil
}

// home returns the shard to ask for an organisation's accounts and records, and reports whether it
// is another shard than this node's.
func (r *router) home(name ledger.OrganisationName) (ledger.ShardID, bool) {
	if name == ledger.Operator {
		return r.shards.Own(), false
	}
	shard := r.backend.Store().HomeShard(name)
	return shard, shard != r.shards.Own()
}

// homeOfPath returns the home shard of the account or record at a path, and reports whether it is
// another shard than this node's.
func (r *router) homeOfPath(text string) (ledger.ShardID, bool) {
	path, err := ledger.ParseAccountPath(text)
	if err != nil {
		return 0, false
	}
	return r.home(path.Organisation())
}

// otherShard returns the other shard that a request names, according to this shard's answer.
func otherShard(err error) (ledger.ShardID, bool) {
	other := (*api.OtherShardError)(nil)
	if errors.As(err, &other) {
		return other.Asked, true
	}
	return 0, false
}

// inChain answers a request that may name a shard's chain: here, or in the named shard.
func inChain[Request, Answer any](ctx context.Context, r *router,
	request *connect.Request[Request],
	here func(context.Context, *connect.Request[Request]) (*connect.Response[Answer], error),
	there func(client, context.Context, *connect.Request[Request]) (*connect.Response[Answer],
		error),
) (*connect.Response[Answer], error) {
	answer, err := here(ctx, request)
	if shard, named := otherShard(err); named {
		return passOn(ctx, r, shard, request.Msg, there)
	}
	return answer, err
}

// passOn lets another shard answer a call.
func passOn[Request, Answer any](ctx context.Context, r *router, shard ledger.ShardID,
	message *Request,
	method func(client, context.Context, *connect.Request[Request]) (*connect.Response[Answer],
		error),
) (*connect.Response[Answer], error) {
	if r.backend.Store().Lost(shard) {
		return nil, api.LostShard(shard, "")
	}
	bounded, cancel := context.WithTimeout(ctx, r.Options().MaxReadTime)
	defer cancel()
	answer, err := method(r.shards.Client(shard), bounded, connect.NewRequest(message))
	if err != nil {
		return nil, r.forwardError(ctx, shard, err)
	}
	return connect.NewResponse(answer.Msg), nil
}

// forwardError converts the error of a call to another shard to this node's answer.
func (r *router) forwardError(ctx context.Context, shard ledger.ShardID, err error) *connect.Error {
	if failed := api.ContextError(ctx); failed != nil {
		return failed
	}
	coded := (*connect.Error)(nil)
	if !errors.As(err, &coded) || unanswered(err) {
		return r.noAnswer(shard)
	}
	told := connect.NewError(coded.Code(), errors.New(coded.Message()))
	for _, name := range []string{api.HeaderRetry, api.HeaderReason, api.HeaderWriters} {
		if value := coded.Meta().Get(name); value != "" {
			told.Meta().Set(name, value)
		}
	}
	return told
}

// noAnswer is the error of a call to a shard of which no node answers. If it is lost, none will.
func (r *router) noAnswer(shard ledger.ShardID) *connect.Error {
	if r.backend.Store().Lost(shard) {
		return api.LostShard(shard, "")
	}
	return api.Retryable(connect.CodeUnavailable, fmt.Errorf("shard %d does not answer now: try "+
		"again; `ledgerd shards` shows which of its nodes are up", shard), nil)
}

// unanswered reports whether an error means that no node of a shard answered. An error that a node
// of the shard returned as its answer does not count.
func unanswered(err error) bool {
	if err == nil {
		return false
	}
	coded := (*connect.Error)(nil)
	if !errors.As(err, &coded) {
		return true
	}
	if connect.IsWireError(err) && coded.Meta().Get(api.HeaderRetry) == "true" {
		return false
	}
	switch coded.Code() {
	case connect.CodeUnavailable, connect.CodeDeadlineExceeded, connect.CodeCanceled,
		connect.CodeUnknown:
		return true
	}
	return false
}

// callAll calls shards at the same time, bounded by limit, and returns when all have answered or
// failed. The answers are in the order of the shards.
func callAll[Answer any](ctx context.Context, limit time.Duration, shards []ledger.ShardID,
	ask func(ctx context.Context, shard ledger.ShardID) (Answer, error)) ([]Answer, []error) {
	bounded, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	answers, failures := make([]Answer, len(shards)), make([]error, len(shards))
	var asked sync.WaitGroup
	for i, shard := range shards {
		asked.Go(func() { answers[i], failures[i] = ask(bounded, shard) })
	}
	asked.Wait()
	return answers, failures
}

// otherShards returns all shards but this node's and those that are lost, ascending.
func (r *router) otherShards() []ledger.ShardID {
	count := r.shards.Tree().Shards()
	list := make([]ledger.ShardID, 0, count-1)
	for shard := range ledger.ShardID(count) {
		if shard != r.shards.Own() && !r.backend.Store().Lost(shard) {
			list = append(list, shard)
		}
	}
	return list
}
