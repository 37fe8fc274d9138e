package client

import (
	"context"
	"errors"
	"maps"
	"slices"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// Subscribe passes every block from a height on to handle, in order and each once, until ctx ends
// or handle fails; 0 means after the head. If the stream breaks, it continues after the last block
// seen, at any of the nodes. It fails if the stream breaks at each of the nodes before the first
// block.
func (c *Client) Subscribe(ctx context.Context, from ledger.Height, withTransactions bool,
	handle func(*ledgerdv1.SubscribeResponse) error) error {
	next := uint64(from)
	if next == 0 {
		node, err := c.Node(ctx)
		if err != nil {
			return err
		}
		next = node.GetOrderedHeight() + 1
	}
	return c.subscribe(ctx, func() *ledgerdv1.SubscribeRequest {
		return &ledgerdv1.SubscribeRequest{FromHeight: next, WithTransactions: withTransactions}
	}, func(message *ledgerdv1.SubscribeResponse) error {
		if height := message.GetBlock().GetHeader().GetHeight(); height != next {
			return errSkipped
		}
		next++
		return nil
	}, handle)
}

// SubscribeBook is Subscribe for the chains of all shards of the book: those of one shard in their
// order, and those of different shards as they come. Begin has heights by shard; a shard without
// one, or with 0, begins after its head of that moment, as far as the asked node knows it. To
// continue later, keep the height after the last block of each shard (BlockHeader.Shard) and begin
// there. A message without a block has the shards that do not answer now, whenever that changes.
// Their blocks come once they answer.
func (c *Client) SubscribeBook(ctx context.Context, begin map[ledger.ShardID]ledger.Height,
	withTransactions bool, handle func(*ledgerdv1.SubscribeResponse) error) error {
	tree, err := c.Tree(ctx)
	if err != nil {
		return err
	}
	next := make(map[ledger.ShardID]ledger.Height)
	maps.Copy(next, begin)
	for _, shard := range tree.GetShards() {
		if number := ledger.ShardID(shard.GetShard()); next[number] == 0 && shard.GetHeight() > 0 {
			next[number] = ledger.Height(shard.GetHeight()) + 1
		}
	}
	return c.subscribe(ctx, func() *ledgerdv1.SubscribeRequest {
		request := &ledgerdv1.SubscribeRequest{Book: true, WithTransactions: withTransactions}
		for _, shard := range slices.Sorted(maps.Keys(next)) {
			request.Begin = append(request.Begin, &ledgerdv1.ShardHeight{Shard: uint32(shard),
				Height: uint64(next[shard])})
		}
		return request
	}, func(message *ledgerdv1.SubscribeResponse) error {
		if message.Block == nil {
			return nil
		}
		header := message.GetBlock().GetHeader()
		shard, height := ledger.ShardID(header.GetShard()), ledger.Height(header.GetHeight())
		if next[shard] != 0 && height != next[shard] {
			return errSkipped
		}
		next[shard] = height + 1
		return nil
	}, handle)
}

// subscribe passes the messages of a subscription to handle until ctx ends or handle fails. It asks
// with the request of then at one node after the other. Check sees each message before handle.
func (c *Client) subscribe(ctx context.Context, request func() *ledgerdv1.SubscribeRequest,
	check, handle func(*ledgerdv1.SubscribeResponse) error) error {
	begun := false
	for failed := 0; ; {
		turn, at := c.current.Load(), c.at(0)
		moved, err := c.take(ctx, at, request(), check, handle)
		if ended := ctx.Err(); ended != nil {
			return ended
		}
		if handled := (*handlerError)(nil); errors.As(err, &handled) {
			return handled.err
		}
		begun = begun || moved
		if err != nil && judge(err) == final {
			return c.explain(ctx, c.urls[at], err)
		}
		c.turn(turn)
		if failed++; moved {
			failed = 0
		}
		if !begun && failed >= len(c.urls) {
			return c.explain(ctx, c.urls[at], err)
		}
		if err := c.pause(ctx, failed); err != nil {
			return err
		}
	}
}

// handlerError carries the error of a subscription's handle.
type handlerError struct{ err error }

func (e *handlerError) Error() string { return e.err.Error() }

var (
	// errEnded means that a stream ended, although it has no end.
	errEnded = connect.NewError(connect.CodeUnavailable, errors.New("the stream ended"))
	// errSkipped means that a stream has another block than the next one.
	errSkipped = connect.NewError(connect.CodeDataLoss, errors.New("the stream skipped a block"))
)

// take takes a subscription at one node, and reports whether a message came.
func (c *Client) take(ctx context.Context, at uint32, request *ledgerdv1.SubscribeRequest,
	check, handle func(*ledgerdv1.SubscribeResponse) error) (moved bool, err error) {
	stream, err := c.services[at].Subscribe(ctx, connect.NewRequest(request))
	if err != nil {
		return false, err
	}
	defer stream.Close() // Err has returned its error already
	for stream.Receive() {
		if err := check(stream.Msg()); err != nil {
			return moved, err
		}
		moved = true
		if err := handle(stream.Msg()); err != nil {
			return moved, &handlerError{err}
		}
	}
	if err := stream.Err(); err != nil {
		return moved, err
	}
	return moved, errEnded
}
