package route

import (
	"context"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// GetKey returns an idempotency key from the home of its organisation.
func (r *router) GetKey(ctx context.Context, request *connect.Request[ledgerdv1.GetKeyRequest]) (
	*connect.Response[ledgerdv1.GetKeyResponse], error) {
	name := ledger.OrganisationName(request.Msg.GetOrganisation())
	if shard, elsewhere := r.home(name); name.Validate() == nil && elsewhere {
		return passOn(ctx, r, shard, request.Msg, client.GetKey)
	}
	return r.Service.GetKey(ctx, request)
}

// GetRefundable returns what is left of an entry from the home of its signer.
func (r *router) GetRefundable(ctx context.Context,
	request *connect.Request[ledgerdv1.GetRefundableRequest]) (
	*connect.Response[ledgerdv1.GetRefundableResponse], error) {
	name := ledger.OrganisationName(request.Msg.GetOrganisation())
	if shard, elsewhere := r.home(name); name.Validate() == nil && elsewhere {
		return passOn(ctx, r, shard, request.Msg, client.GetRefundable)
	}
	return r.Service.GetRefundable(ctx, request)
}
