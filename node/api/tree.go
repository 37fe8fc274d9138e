package api

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
	"github.com/ledgerd/ledgerd/node/report"
)

// GetTree returns the tree of shards.
func (s *service) GetTree(context.Context, *connect.Request[ledgerdv1.GetTreeRequest]) (
	*connect.Response[ledgerdv1.GetTreeResponse], error) {
	return connect.NewResponse(&ledgerdv1.GetTreeResponse{Tree: s.tree()}), nil
}

// WatchTree streams the tree of shards.
func (s *service) WatchTree(ctx context.Context,
	request *connect.Request[ledgerdv1.WatchTreeRequest],
	stream *connect.ServerStream[ledgerdv1.WatchTreeResponse]) error {
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
			return contextError(ctx)
		case <-s.stopping.Done():
			return errStopping()
		}
		now := time.Now()
		shown := s.tree()
		if last == nil || now.Sub(lastSent) >= clusterKeepalive || !proto.Equal(last, shown) {
			allowWrite(ctx, s.options.MaxStuckTime)
			if err := stream.Send(&ledgerdv1.WatchTreeResponse{Tree: shown}); err != nil {
				return err
			}
			last, lastSent = shown, now
		}
		pause.Reset(s.options.ClusterInterval)
	}
}

// tree returns the tree of shards. A book of one shard is a tree of one.
func (s *service) tree() *ledgerdv1.Tree {
	shards := s.backend.Shards()
	if shards == nil {
		return &ledgerdv1.Tree{Shards: []*ledgerdv1.Shard{s.onlyShard()}, Shape: "0"}
	}
	tree := shards.Tree()
	shown := &ledgerdv1.Tree{Own: uint32(shards.Own()), Shape: shapeOf(tree, tree.Root())}
	states := shards.States()
	carried := make(map[ledger.ShardID]uint64, len(states))
	for i := range states {
		carried[states[i].Shard] = states[i].Carried
	}
	for i := range states {
		state := &states[i]
		each := shardToProto(state)
		parent, below := tree.Parent(state.Shard)
		each.Parent, each.Root, each.Self = uint32(parent), !below, state.Shard == shards.Own()
		for _, child := range tree.Children(state.Shard) {
			each.Streams = append(each.Streams, &ledgerdv1.StreamPosition{Child: uint32(child),
				Streamed: state.Streamed[child], Carried: carried[child]})
		}
		shown.Shards = append(shown.Shards, each)
	}
	return shown
}

func shardToProto(state *report.ShardState) *ledgerdv1.Shard {
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

// onlyShard returns the shard of a book of one, from the node's cluster state.
func (s *service) onlyShard() *ledgerdv1.Shard {
	cluster := s.cluster()
	heights := cluster.Node.Heights
	state := &report.ShardState{
		Mode: report.ShardHalted, Height: heights.Ordered, Durable: heights.Durable,
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
	shown := shardToProto(state)
	shown.Root, shown.Self = true, true
	return shown
}

// shapeOf writes a shard as text, with its children in brackets.
func shapeOf(tree *ledger.ShardTree, shard ledger.ShardID) string {
	text := strconv.FormatUint(uint64(shard), 10)
	children := slices.Clone(tree.Children(shard))
	if len(children) == 0 {
		return text
	}
	slices.Sort(children)
	shapes := make([]string, len(children))
	for i, child := range children {
		shapes[i] = shapeOf(tree, child)
	}
	return text + "(" + strings.Join(shapes, ",") + ")"
}
