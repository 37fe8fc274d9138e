package route

import (
	"context"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// GetSchedule returns a schedule from the root shard, where all are.
func (r *router) GetSchedule(ctx context.Context,
	request *connect.Request[ledgerdv1.GetScheduleRequest]) (
	*connect.Response[ledgerdv1.GetScheduleResponse], error) {
	if root := r.shards.Tree().Root(); root != r.backend.Store().Shard() {
		return passOn(ctx, r, root, request.Msg, client.GetSchedule)
	}
	return r.Service.GetSchedule(ctx, request)
}

// ListSchedules returns schedules from the root shard, where all are.
func (r *router) ListSchedules(ctx context.Context,
	request *connect.Request[ledgerdv1.ListSchedulesRequest]) (
	*connect.Response[ledgerdv1.ListSchedulesResponse], error) {
	if root := r.shards.Tree().Root(); root != r.backend.Store().Shard() {
		return passOn(ctx, r, root, request.Msg, client.ListSchedules)
	}
	return r.Service.ListSchedules(ctx, request)
}
