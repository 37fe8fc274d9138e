package api

import (
	"context"
	"strconv"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
	"github.com/ledgerd/ledgerd/node/report"
)

// GetTree returns the tree of shards.
func (s *Service) GetTree(ctx context.Context, _ *connect.Request[ledgerdv1.GetTreeRequest]) (
	*connect.Response[ledgerdv1.GetTreeResponse], error) {
	return connect.NewResponse(&ledgerdv1.GetTreeResponse{Tree: s.tree(ctx)}), nil
}

// WatchTree streams the tree of shards.
func (s *Service) WatchTree(ctx context.Context,
	request *connect.Request[ledgerdv1.WatchTreeRequest],
	stream *connect.ServerStream[ledgerdv1.WatchTreeResponse]) error {
	return s.StreamTree(ctx, request, stream, s.tree)
}

// StreamTree streams a tree whenever it has changed, and at least every clusterKeepalive.
func (s *Service) StreamTree(ctx context.Context,
	request *connect.Request[ledgerdv1.WatchTreeRequest],
	stream *connect.ServerStream[ledgerdv1.WatchTreeResponse],
	tree func(context.Context) *ledgerdv1.Tree) error {
	release, err := s.limits.openStream(request.Peer().Addr)
	if err != nil {
		return err
	}
	defer release()
	var last *ledgerdv1.Tree
	var lastSent time.Time
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		select {
		case <-pause.C:
		case <-ctx.Done():
			return ContextError(ctx)
		case <-s.stopping.Done():
			return errStopping()
		}
		now := time.Now()
		shown := tree(ctx)
		if last == nil || now.Sub(lastSent) >= clusterKeepalive || !sameTree(last, shown) {
			allowWrite(ctx, s.options.MaxStuckTime)
			if err := stream.Send(&ledgerdv1.WatchTreeResponse{Tree: shown}); err != nil {
				return err
			}
			last, lastSent = shown, now
		}
		pause.Reset(s.options.ClusterInterval)
	}
}

// sameTree compares two trees. It ignores the time when they were taken.
func sameTree(a, b *ledgerdv1.Tree) bool {
	time := a.TimeMs
	a.TimeMs = b.TimeMs
	same := proto.Equal(a, b)
	a.TimeMs = time
	return same
}

// tree returns a tree of this shard alone. A book of one shard has no others, and to nodes of other
// shards it says which organisations have arrived here.
func (s *Service) tree(context.Context) *ledgerdv1.Tree {
	own := s.backend.Store().Shard()
	shown := &ledgerdv1.Tree{Own: uint32(own), Shards: []*ledgerdv1.Shard{s.onlyShard(own)},
		Shape: strconv.FormatUint(uint64(own), 10), TimeMs: milliseconds(time.Now())}
	// Counted first: what is not listed among so many changes is over.
	shown.ChangesTotal = s.backend.Store().BookChanges()
	for _, each := range s.RecentMoves() {
		if each.GetTo() == uint32(own) {
			shown.Changes = append(shown.Changes, each)
		}
	}
	return shown
}

// ShardToProto returns the state of a shard in protobuf form, without its place in the tree.
func ShardToProto(state *report.ShardState) *ledgerdv1.Shard {
	shown := &ledgerdv1.Shard{
		Shard:             uint32(state.Shard),
		Mode:              state.Mode.String(),
		Height:            uint64(state.Height),
		DurableHeight:     uint64(state.Durable),
		TransactionsTotal: state.TransactionsTotal,
		AccountsTotal:     state.AccountsTotal,
		Pending:           state.Pending,
		Carried:           state.Carried,
		LastHeardMs:       milliseconds(state.LastHeard),
		Overdue:           state.Waiting.Overdue,
		OldestWaitingMs:   milliseconds(state.Waiting.Since),
		WaitsFor:          waitsToProto(state.Waiting.Verdicts),
		UntakenBy:         waitsToProto(state.Waiting.Streams),
		Lacks:             lacksToProto(state.Waiting.Lacks),
	}
	for i := range state.Members {
		member := &state.Members[i]
		mode := report.ShardSilent.String()
		if member.Mode != 0 {
			mode = member.Mode.String()
		}
		shown.Members = append(shown.Members, &ledgerdv1.ShardMember{
			Index: member.Index, Name: member.Name, ApiAddress: member.APIAddress, Mode: mode,
			OrderedHeight: uint64(member.OrderedHeight),
			LastHeardMs:   milliseconds(member.LastHeard), Self: member.Self,
		})
	}
	return shown
}

func waitsToProto(waits []report.Wait) (shown []*ledgerdv1.ShardWait) {
	for i := range waits {
		shown = append(shown, &ledgerdv1.ShardWait{Shard: uint32(waits[i].Shard),
			Count: waits[i].Count, Overdue: waits[i].Overdue,
			SinceMs: milliseconds(waits[i].Since), Lost: waits[i].Lost,
			LostHeight: uint64(waits[i].LostHeight)})
	}
	return shown
}

// lacksToProto converts what a shard can never take, or returns nil if there is nothing.
func lacksToProto(lacks report.Wait) *ledgerdv1.ShardWait {
	if lacks.Lost == 0 {
		return nil
	}
	return waitsToProto([]report.Wait{lacks})[0]
}

// onlyShard returns this node's shard as the root, from the node's cluster state.
func (s *Service) onlyShard(own ledger.ShardID) *ledgerdv1.Shard {
	cluster := s.cluster()
	heights := cluster.Node.Heights
	state := &report.ShardState{
		Shard: own, Mode: report.ShardHalted, Height: heights.Ordered, Durable: heights.Durable,
		TransactionsTotal: cluster.TransactionsTotal, AccountsTotal: cluster.AccountsTotal,
		LastHeard: time.Now().Truncate(time.Second),
	}
	for i := range cluster.Members {
		member := &cluster.Members[i]
		each := report.ShardMember{Index: member.Index, Name: member.Name,
			APIAddress: member.APIAddress, OrderedHeight: member.OrderedHeight,
			LastHeard: member.LastHeard, Self: member.Self}
		switch {
		case member.Self:
			each.Mode, each.OrderedHeight = cluster.Node.Mode, heights.Ordered
		case member.Connected:
			each.Mode = member.Mode
		}
		if each.Mode == report.ModeOrdering {
			state.Mode = report.ShardOrdering
		}
		state.Members = append(state.Members, each)
	}
	shown := ShardToProto(state)
	shown.Root, shown.Self = true, true
	return shown
}
