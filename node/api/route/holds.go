package route

import (
	"cmp"
	"context"
	"slices"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// GetHold returns a hold from the shard where it is open. Its id does not say which that is.
func (r *router) GetHold(ctx context.Context,
	request *connect.Request[ledgerdv1.GetHoldRequest]) (
	*connect.Response[ledgerdv1.GetHoldResponse], error) {
	answer, err := inChain(ctx, r, request, r.Service.GetHold, client.GetHold)
	if connect.CodeOf(err) != connect.CodeNotFound || request.Msg.Shard != nil {
		return answer, err
	}
	shards := r.otherShards()
	others, failures := callAll(ctx, askTime, shards, func(ctx context.Context,
		shard ledger.ShardID) (*connect.Response[ledgerdv1.GetHoldResponse], error) {
		asked := uint32(shard)
		return r.shards.Client(shard).GetHold(ctx, connect.NewRequest(
			&ledgerdv1.GetHoldRequest{HoldHex: request.Msg.GetHoldHex(), Shard: &asked}))
	})
	for i, shard := range shards {
		if failures[i] == nil {
			return connect.NewResponse(others[i].Msg), nil
		}
		if connect.CodeOf(failures[i]) != connect.CodeNotFound {
			err = r.forwardError(ctx, shard, failures[i]) // it may be there
		}
	}
	return nil, err
}

// ListHolds returns holds of the named shard, of the home of the organisation or account, or of all
// shards, in the order of their ids.
func (r *router) ListHolds(ctx context.Context,
	request *connect.Request[ledgerdv1.ListHoldsRequest]) (
	*connect.Response[ledgerdv1.ListHoldsResponse], error) {
	name := ledger.OrganisationName(request.Msg.GetOrganisation())
	if name == "" {
		name = ledger.AccountPath(request.Msg.GetAccount()).Organisation()
	}
	if name.Validate() == nil && request.Msg.Shard == nil {
		if shard, elsewhere := r.home(name); elsewhere {
			return passOn(ctx, r, shard, request.Msg, client.ListHolds)
		}
		return r.Service.ListHolds(ctx, request)
	}
	here, err := inChain(ctx, r, request, r.Service.ListHolds, client.ListHolds)
	if err != nil || request.Msg.Shard != nil {
		return here, err
	}
	size, err := api.PageSize(request.Msg.GetPageSize(), api.HoldsPage)
	if err != nil {
		return nil, err
	}
	shards := r.otherShards()
	others, failures := callAll(ctx, askTime, shards, func(ctx context.Context,
		shard ledger.ShardID) (*connect.Response[ledgerdv1.ListHoldsResponse], error) {
		asked := uint32(shard)
		return r.shards.Client(shard).ListHolds(ctx, connect.NewRequest(
			&ledgerdv1.ListHoldsRequest{Poster: request.Msg.GetPoster(),
				PageSize: request.Msg.GetPageSize(), PageToken: request.Msg.GetPageToken(),
				Shard: &asked}))
	})
	pages := []*ledgerdv1.ListHoldsResponse{here.Msg}
	merged := &ledgerdv1.ListHoldsResponse{}
	for i, shard := range shards {
		if failures[i] != nil {
			merged.UnansweredShards = append(merged.UnansweredShards, uint32(shard))
		} else {
			pages = append(pages, others[i].Msg)
		}
	}
	merged.Holds, merged.NextPageToken = mergeHolds(pages, size)
	return connect.NewResponse(merged), nil
}

// mergeHolds merges pages in the order of their ids. What is after the end of a page that goes on
// is left to the next one.
func mergeHolds(pages []*ledgerdv1.ListHoldsResponse, size int) (
	holds []*ledgerdv1.OpenHold, next string) {
	for _, page := range pages {
		holds = append(holds, page.GetHolds()...)
		if end := page.GetNextPageToken(); end != "" && (next == "" || end < next) {
			next = end
		}
	}
	slices.SortFunc(holds, func(a, b *ledgerdv1.OpenHold) int {
		return cmp.Compare(a.GetHoldHex(), b.GetHoldHex())
	})
	if next != "" {
		holds = slices.DeleteFunc(holds, func(each *ledgerdv1.OpenHold) bool {
			return each.GetHoldHex() > next
		})
	}
	if len(holds) > size {
		holds = holds[:size]
		next = holds[size-1].GetHoldHex()
	}
	return holds, next
}
