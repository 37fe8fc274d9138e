package route

import (
	"context"
	"slices"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// GetAsset returns a registered asset. All shards know it, and each knows what was issued there.
func (r *router) GetAsset(ctx context.Context,
	request *connect.Request[ledgerdv1.GetAssetRequest]) (
	*connect.Response[ledgerdv1.GetAssetResponse], error) {
	if len(request.Msg.GetCut()) > 0 && request.Msg.Shard == nil {
		return r.assetAtCut(ctx, request)
	}
	answer, err := inChain(ctx, r, request, r.Service.GetAsset, client.GetAsset)
	if err != nil || request.Msg.Shard != nil {
		return answer, err
	}
	shards := r.otherShards()
	others, failures := callAll(ctx, askTime, shards, func(ctx context.Context,
		shard ledger.ShardID) (*connect.Response[ledgerdv1.GetAssetResponse], error) {
		asked := uint32(shard)
		return r.shards.Client(shard).GetAsset(ctx, connect.NewRequest(
			&ledgerdv1.GetAssetRequest{Name: request.Msg.GetName(), Shard: &asked}))
	})
	for i := range shards {
		var there *ledgerdv1.Asset
		if failures[i] == nil {
			there = others[i].Msg.GetAsset()
		}
		r.addIssuances(answer.Msg.GetAsset(), shards[i], there)
	}
	return answer, nil
}

// ListAssets returns registered assets, with what was issued of them in all shards, unless it is
// asked for names or one shard.
func (r *router) ListAssets(ctx context.Context,
	request *connect.Request[ledgerdv1.ListAssetsRequest]) (
	*connect.Response[ledgerdv1.ListAssetsResponse], error) {
	if len(request.Msg.GetCut()) > 0 && request.Msg.Shard == nil {
		return r.assetsAtCut(ctx, request)
	}
	answer, err := inChain(ctx, r, request, r.Service.ListAssets, client.ListAssets)
	if err != nil || request.Msg.Shard != nil || len(request.Msg.GetNames()) > 0 ||
		len(answer.Msg.GetAssets()) == 0 {
		return answer, err
	}
	shards := r.otherShards()
	others, failures := callAll(ctx, askTime, shards, func(ctx context.Context,
		shard ledger.ShardID) (*connect.Response[ledgerdv1.ListAssetsResponse], error) {
		asked := uint32(shard)
		return r.shards.Client(shard).ListAssets(ctx, connect.NewRequest(
			&ledgerdv1.ListAssetsRequest{PageSize: request.Msg.GetPageSize(),
				PageToken: request.Msg.GetPageToken(), Shard: &asked}))
	})
	for _, asset := range answer.Msg.GetAssets() {
		for i := range shards {
			var there *ledgerdv1.Asset
			if failures[i] == nil {
				there = named(others[i].Msg.GetAssets(), asset.GetName())
			}
			r.addIssuances(asset, shards[i], there)
		}
	}
	return answer, nil
}

// shardsAskedAtCut returns the shard that answers with the assets of a cut, and the others that had
// issued some: shards that were added later had not. The first one is this shard if the cut has it.
func (r *router) shardsAskedAtCut(cut []*ledgerdv1.Place) (first ledger.ShardID,
	others []ledger.ShardID) {
	if first = r.shards.Own(); !atCut(first, cut) {
		first = r.shards.Tree().Root()
	}
	for _, shard := range r.otherShards() {
		if shard != first && atCut(shard, cut) {
			others = append(others, shard)
		}
	}
	return first, others
}

// assetAtCut returns an asset as of a cut, with what was issued of it in all shards.
func (r *router) assetAtCut(ctx context.Context,
	request *connect.Request[ledgerdv1.GetAssetRequest]) (
	*connect.Response[ledgerdv1.GetAssetResponse], error) {
	first, shards := r.shardsAskedAtCut(request.Msg.GetCut())
	ask := func(ctx context.Context, shard ledger.ShardID) (
		*connect.Response[ledgerdv1.GetAssetResponse], error) {
		asked := uint32(shard)
		return r.shards.Client(shard).GetAsset(ctx, connect.NewRequest(
			&ledgerdv1.GetAssetRequest{Name: request.Msg.GetName(), Shard: &asked,
				Cut: request.Msg.GetCut()}))
	}
	answer, err := atFirst(ctx, r, request, first, r.Service.GetAsset, ask)
	if err != nil {
		return nil, err
	}
	if !answer.Msg.GetAtCut() {
		return nil, knowsNoCuts(first)
	}
	others, failures := callAll(ctx, askTime, shards, ask)
	for i := range shards {
		if connect.CodeOf(failures[i]) == connect.CodeNotFound {
			continue // a shard that knows the cut registered the asset there, or issued nothing
		}
		var there *ledgerdv1.Asset
		if failures[i] == nil && others[i].Msg.GetAtCut() {
			there = others[i].Msg.GetAsset()
		}
		r.addIssuancesAtCut(answer.Msg.GetAsset(), shards[i], there)
	}
	return answer, nil
}

// assetsAtCut lists assets as of a cut, with what was issued of them in all shards, unless it is
// asked for names.
func (r *router) assetsAtCut(ctx context.Context,
	request *connect.Request[ledgerdv1.ListAssetsRequest]) (
	*connect.Response[ledgerdv1.ListAssetsResponse], error) {
	first, shards := r.shardsAskedAtCut(request.Msg.GetCut())
	ask := func(ctx context.Context, shard ledger.ShardID) (
		*connect.Response[ledgerdv1.ListAssetsResponse], error) {
		asked := uint32(shard)
		return r.shards.Client(shard).ListAssets(ctx, connect.NewRequest(
			&ledgerdv1.ListAssetsRequest{PageSize: request.Msg.GetPageSize(),
				PageToken: request.Msg.GetPageToken(), Names: request.Msg.GetNames(),
				Shard: &asked, Cut: request.Msg.GetCut()}))
	}
	answer, err := atFirst(ctx, r, request, first, r.Service.ListAssets, ask)
	if err != nil {
		return nil, err
	}
	if !answer.Msg.GetAtCut() {
		return nil, knowsNoCuts(first)
	}
	if len(request.Msg.GetNames()) > 0 || len(answer.Msg.GetAssets()) == 0 {
		return answer, nil
	}
	others, failures := callAll(ctx, askTime, shards, ask)
	for _, asset := range answer.Msg.GetAssets() {
		for i := range shards {
			var there *ledgerdv1.Asset
			if failures[i] == nil && others[i].Msg.GetAtCut() {
				there = named(others[i].Msg.GetAssets(), asset.GetName())
			}
			r.addIssuancesAtCut(asset, shards[i], there)
		}
	}
	return answer, nil
}

// atFirst returns the answer of this shard, or of another one that the cut has.
func atFirst[Request, Answer any](ctx context.Context, r *router,
	request *connect.Request[Request], first ledger.ShardID,
	here func(context.Context, *connect.Request[Request]) (*connect.Response[Answer], error),
	there func(context.Context, ledger.ShardID) (*connect.Response[Answer], error)) (
	*connect.Response[Answer], error) {
	if first == r.shards.Own() {
		return here(ctx, request)
	}
	if r.backend.Store().Lost(first) {
		return nil, api.LostShard(first, "")
	}
	bounded, cancel := context.WithTimeout(ctx, r.Options().MaxReadTime)
	defer cancel()
	answer, err := there(bounded, first)
	if err != nil {
		return nil, r.forwardError(ctx, first, err)
	}
	return answer, nil
}

// addIssuancesAtCut is addIssuances at a cut. If one of the shards does not know what there was
// then, the sums are not those of then.
func (r *router) addIssuancesAtCut(asset *ledgerdv1.Asset, shard ledger.ShardID,
	there *ledgerdv1.Asset) {
	if there != nil && !there.GetTermsAtCut() {
		asset.TermsAtCut = false
	}
	r.addIssuances(asset, shard, there)
}

// named returns the asset with a name, or nil.
func named(assets []*ledgerdv1.Asset, name string) *ledgerdv1.Asset {
	at := slices.IndexFunc(assets, func(each *ledgerdv1.Asset) bool {
		return each.GetName() == name
	})
	if at < 0 {
		return nil
	}
	return assets[at]
}

// addIssuances adds what was issued in another shard. There is nil if the shard did not answer, or
// has not heard of the asset. An organisation counts where it came to last.
func (r *router) addIssuances(asset *ledgerdv1.Asset, shard ledger.ShardID,
	there *ledgerdv1.Asset) {
	if there == nil {
		asset.UnansweredShards = append(asset.UnansweredShards, uint32(shard))
		return
	}
	for _, own := range asset.GetIssuances() {
		for _, other := range there.GetIssuances() {
			if other.GetOrganisation() != own.GetOrganisation() {
				continue
			}
			if other.GetArrived() > own.GetArrived() ||
				other.GetArrived() == own.GetArrived() && issuedNothing(own) {
				own.Issued, own.Redeemed, own.Waiting = other.GetIssued(), other.GetRedeemed(),
					other.GetWaiting()
				own.Shard, own.Arrived = other.GetShard(), other.GetArrived()
			}
		}
		if home := r.backend.Store().HomeShard(ledger.OrganisationName(
			own.GetOrganisation())); issuedNothing(own) {
			own.Shard = uint32(home)
		}
	}
	api.SumAsset(asset)
}

// issuedNothing reports whether an issuer never issued anything in the shard.
func issuedNothing(own *ledgerdv1.Issuance) bool {
	return own.GetIssued() == "0" && own.GetWaiting() == ""
}
