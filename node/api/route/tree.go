package route

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
	"github.com/ledgerd/ledgerd/node/report"
)

// GetTree returns the tree of shards.
func (r *router) GetTree(ctx context.Context, _ *connect.Request[ledgerdv1.GetTreeRequest]) (
	*connect.Response[ledgerdv1.GetTreeResponse], error) {
	return connect.NewResponse(&ledgerdv1.GetTreeResponse{Tree: r.tree(ctx)}), nil
}

// WatchTree streams the tree of shards.
func (r *router) WatchTree(ctx context.Context,
	request *connect.Request[ledgerdv1.WatchTreeRequest],
	stream *connect.ServerStream[ledgerdv1.WatchTreeResponse]) error {
	return r.StreamTree(ctx, request, stream, r.tree)
}

// tree returns the tree of shards.
func (r *router) tree(ctx context.Context) *ledgerdv1.Tree {
	tree := r.shards.Tree()
	shown := &ledgerdv1.Tree{Own: uint32(r.shards.Own()), Shape: shapeOf(tree, tree.Root()),
		TimeMs: uint64(time.Now().UnixMilli())}
	states := r.shards.States()
	states = states[:tree.Shards()] // a shard may have been added meanwhile
	carried := make(map[ledger.ShardID]uint64, len(states))
	for i := range states {
		carried[states[i].Shard] = states[i].Carried
	}
	for i := range states {
		state := &states[i]
		each := api.ShardToProto(state)
		parent, below := tree.Parent(state.Shard)
		each.Carried = sinceBase(state.Carried)
		each.Parent, each.Root, each.Self = uint32(parent), !below, state.Shard == r.shards.Own()
		for _, child := range tree.Children(state.Shard) {
			each.Streams = append(each.Streams, streamTo(tree, child, state.Streamed[child],
				carried[child]))
		}
		shown.Shards = append(shown.Shards, each)
	}
	obstacles := r.shards.Obstacles()
	for i := range obstacles {
		shown.Refuses = append(shown.Refuses, refusalToProto(&obstacles[i]))
	}
	shown.ChangesTotal = r.backend.Store().BookChanges()
	shown.Changes = r.changes(ctx, tree, states)
	return shown
}

// sinceBase returns how many entries a stream has up to a number, since it began.
func sinceBase(number uint64) uint64 { return number - ledger.StreamBase(ledger.StreamOf(number)) }

// streamTo returns how far the stream to a child is, given the numbers of the last entries in both
// chains.
func streamTo(tree *ledger.ShardTree, child ledger.ShardID,
	streamed, carried uint64) *ledgerdv1.StreamPosition {
	base := ledger.StreamBase(tree.Began(child))
	at := &ledgerdv1.StreamPosition{Child: uint32(child), Streamed: max(streamed, base) - base,
		Carried: max(carried, base) - base}
	at.Former = formerParents(tree, child, carried)
	return at
}

// formerParents returns the shards once above a child that it still takes entries from, in order.
func formerParents(tree *ledger.ShardTree, child ledger.ShardID, carried uint64) (all []uint32) {
	if parents := tree.ParentsFrom(child, carried); len(parents) > 0 {
		for _, former := range parents[:len(parents)-1] {
			all = append(all, uint32(former))
		}
	}
	return all
}

// refusalToProto returns what an obstacle makes this node refuse, in protobuf form.
func refusalToProto(obstacle *report.Obstacle) *ledgerdv1.ShardRefusal {
	shown := &ledgerdv1.ShardRefusal{Shard: uint32(obstacle.Shard),
		Reason: obstacle.Refusal().Word(), SinceMs: uint64(obstacle.Since.UnixMilli())}
	if obstacle.Full {
		awaited := uint32(obstacle.Awaited)
		shown.Awaited = &awaited
	}
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
