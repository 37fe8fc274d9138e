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
				all := others[i].Msg.GetAssets()
				if at := slices.IndexFunc(all, func(each *ledgerdv1.Asset) bool {
					return each.GetName() == asset.GetName()
				}); at >= 0 {
					there = all[at]
				}
			}
			r.addIssuances(asset, shards[i], there)
		}
	}
	return answer, nil
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
