package route

import (
	"context"
	"fmt"
	"slices"
	"time"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/book"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
	"github.com/ledgerd/ledgerd/node/report"
)

// placeTime bounds a question for a place. A member whose chain is not so far answers within a
// second, and then the next member is asked.
const placeTime = 6 * time.Second

// GetPlace returns a place in the named shard's chain.
func (r *router) GetPlace(ctx context.Context,
	request *connect.Request[ledgerdv1.GetPlaceRequest]) (
	*connect.Response[ledgerdv1.GetPlaceResponse], error) {
	return inChain(ctx, r, request, r.Service.GetPlace, client.GetPlace)
}

// GetCut returns a place in the chain of each shard. It fails, and names the shard, if one does not
// answer: there is no cut without it. A shard that is lost is left out.
func (r *router) GetCut(ctx context.Context, request *connect.Request[ledgerdv1.GetCutRequest]) (
	*connect.Response[ledgerdv1.GetCutResponse], error) {
	bounded, cancel := context.WithTimeout(ctx, r.Options().MaxReadTime)
	defer cancel()
	tree := r.shards.Tree()
	// Else a shard that was added later need not answer.
	if request.Msg.Height == nil && request.Msg.GetBeforeMs() == 0 {
		if err := r.allHeard(r.otherShards()); err != nil {
			return nil, err
		}
	}
	return api.FindCut(tree, request.Msg, func(questions []book.Question) (
		[]book.Position, error) {
		var shards []ledger.ShardID
		asked := make(map[ledger.ShardID]*ledgerdv1.GetPlaceRequest, len(questions))
		positions := make([]book.Position, len(questions))
		var places []int // of those that are asked
		for i := range questions {
			if r.backend.Store().Lost(questions[i].Shard) {
				positions[i] = book.LostPlace(r.shards.Tree(), &questions[i])
				continue
			}
			places = append(places, i)
			shards = append(shards, questions[i].Shard)
			asked[questions[i].Shard] = placeRequest(&questions[i])
		}
		if err := r.allHeard(shards); err != nil {
			return nil, err
		}
		answers, err := everyShard(bounded, r, placeTime, shards, func(ctx context.Context,
			shard ledger.ShardID) (*connect.Response[ledgerdv1.GetPlaceResponse], error) {
			if shard == r.shards.Own() {
				return r.Service.GetPlace(ctx, connect.NewRequest(asked[shard]))
			}
			return r.shards.Client(shard).GetPlace(ctx, connect.NewRequest(asked[shard]))
		})
		if err != nil {
			return nil, err
		}
		for i, answer := range answers {
			at := &positions[places[i]]
			*at = api.PositionsOf(answer.Msg.GetPlace())[0]
			at.Time = ledger.Milliseconds(answer.Msg.GetTimeMs())
			at.Shards, at.Rehung = int(answer.Msg.GetShards()), int(answer.Msg.GetRehung())
			if answer.Msg.GetShards() == 0 { // from a version that knows no additions
				at.Shards = tree.GenesisShards()
			}
		}
		return positions, nil
	})
}

func placeRequest(question *book.Question) *ledgerdv1.GetPlaceRequest {
	shard := uint32(question.Shard)
	request := &ledgerdv1.GetPlaceRequest{Shard: &shard, Latest: question.Latest,
		Height: uint64(question.Height), TimeMs: uint64(question.Time),
		Streamed: question.Streamed, Shards: uint32(question.Shards),
		Rehung: uint32(question.Rehung)}
	if question.Exact {
		request.Carried = &question.Carried
	}
	return request
}

// allHeard returns an error if this node hears no member of one of the shards, so that nobody waits
// for its answer.
func (r *router) allHeard(shards []ledger.ShardID) error {
	states := r.shards.States()
	for _, shard := range shards {
		if shard == r.shards.Own() {
			continue
		}
		if int(shard) >= len(states) || // its addition is not durable here yet
			r.backend.Store().Lost(shard) || states[shard].Mode == report.ShardSilent {
			return r.noAnswer(shard)
		}
	}
	return nil
}

// everyShard calls shards at the same time, and fails unless all of them answer. The error names
// the shard.
func everyShard[Answer any](ctx context.Context, r *router, limit time.Duration,
	shards []ledger.ShardID, ask func(ctx context.Context, shard ledger.ShardID) (Answer, error)) (
	[]Answer, error) {
	answers, failures := callAll(ctx, limit, shards, ask)
	for i, shard := range shards {
		switch err := failures[i]; {
		case err == nil:
		case shard == r.shards.Own():
			return nil, err
		case connect.CodeOf(err) == connect.CodeUnimplemented:
			return nil, knowsNoCuts(shard)
		default:
			return nil, r.forwardError(ctx, shard, err)
		}
	}
	return answers, nil
}

// atCut reports whether the book has a shard at a cut. It had none of those that were added later.
func atCut(shard ledger.ShardID, cut []*ledgerdv1.Place) bool {
	return int64(shard) < int64(len(cut))
}

// knowsNoCuts is the error of a shard whose node is of a version before cuts. Such a node ignores
// the cut of a request.
func knowsNoCuts(shard ledger.ShardID) *connect.Error {
	return connect.NewError(connect.CodeUnimplemented, fmt.Errorf("the node of shard %d that "+
		"answered is of a version that does not know cuts: update the nodes of that shard", shard))
}

// accountsAtCut lists accounts with the balances that they have at a cut. It fails if a shard that
// may have some does not answer: without it, nothing adds up.
func (r *router) accountsAtCut(ctx context.Context,
	request *connect.Request[ledgerdv1.ListAccountsRequest]) (
	*connect.Response[ledgerdv1.ListAccountsResponse], error) {
	size, err := api.PageSize(request.Msg.GetPageSize(), api.AccountsPage)
	if err != nil {
		return nil, err
	}
	at, err := r.ReachCut(ctx, request.Peer().Addr, request.Msg.GetCut())
	if err != nil {
		return nil, err
	}
	shards := r.shardsAtCut(request.Msg.GetPrefix(), at)
	if request.Msg.Shard != nil {
		shards = []ledger.ShardID{ledger.ShardID(request.Msg.GetShard())}
	}
	if int64(shards[0]) >= int64(r.shards.Tree().Shards()) && request.Msg.Shard != nil {
		return r.AccountsAtCut(ctx, request.Msg, at)
	}
	shards = slices.DeleteFunc(shards, func(shard ledger.ShardID) bool {
		return !atCut(shard, request.Msg.GetCut())
	})
	switch {
	case len(shards) == 0:
		return connect.NewResponse(&ledgerdv1.ListAccountsResponse{AtCut: true}), nil
	case len(shards) == 1 && shards[0] == r.shards.Own():
		return r.AccountsAtCut(ctx, request.Msg, at)
	}
	if err := r.allHeard(shards); err != nil {
		return nil, err
	}
	pages, err := everyShard(ctx, r, r.Options().MaxReadTime, shards, func(ctx context.Context,
		shard ledger.ShardID) (*ledgerdv1.ListAccountsResponse, error) {
		if shard == r.shards.Own() {
			answer, err := r.AccountsAtCut(ctx, request.Msg, at)
			if err != nil {
				return nil, err
			}
			return answer.Msg, nil
		}
		answer, err := r.accountsOf(ctx, shard, request.Msg)
		switch {
		case err != nil:
			return nil, err
		case !answer.GetAtCut():
			return nil, knowsNoCuts(shard)
		}
		return answer, nil
	})
	if err != nil {
		return nil, err
	}
	answer := mergeAccounts(pages, size)
	answer.AtCut = true
	return connect.NewResponse(answer), nil
}
