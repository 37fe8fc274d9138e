package client

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

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
// one, or with 0, begins after its head of that moment, as far as the asked node knows it. A shard
// that is added later begins with block 1, also if that was after the shards in begin were kept. To
// continue later, keep the height after the last block of each shard (BlockHeader.Shard), or
// before the first one the shard's place in SubscribeResponse.Begin, and begin there. A message
// without a block has the shards that do not answer now: the first message of each stream, and
// whenever that changes. Their blocks come once they answer. A node of a version that does not send
// such a first message knows no subscriptions to the book, so another one is asked.
func (c *Client) SubscribeBook(ctx context.Context, begin map[ledger.ShardID]ledger.Height,
	withTransactions bool, handle func(*ledgerdv1.SubscribeResponse) error) error {
	next := make(map[ledger.ShardID]ledger.Height)
	maps.Copy(next, begin)
	begun := false // the stream
	return c.subscribe(ctx, func() *ledgerdv1.SubscribeRequest {
		begun = false
		request := &ledgerdv1.SubscribeRequest{Book: true, WithTransactions: withTransactions}
		for _, shard := range slices.Sorted(maps.Keys(next)) {
			request.Begin = append(request.Begin, &ledgerdv1.ShardHeight{Shard: uint32(shard),
				Height: uint64(next[shard])})
		}
		return request
	}, func(message *ledgerdv1.SubscribeResponse) error {
		if message.Block == nil {
			begun = true
			for _, place := range message.GetBegin() {
				shard, height := ledger.ShardID(place.GetShard()), ledger.Height(place.GetHeight())
				if next[shard] != 0 && height != next[shard] {
					return errSkipped
				}
				next[shard] = height
			}
			return nil
		}
		if !begun {
			return errNoBook
		}
		header := message.GetBlock().GetHeader()
		shard, height := ledger.ShardID(header.GetShard()), ledger.Height(header.GetHeight())
		if next[shard] == 0 || height != next[shard] {
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
		came, moved, err := c.take(ctx, at, request(), check, handle)
		if ended := ctx.Err(); ended != nil {
			return ended
		}
		if handled := (*handlerError)(nil); errors.As(err, &handled) {
			return handled.err
		}
		begun = begun || came
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
	// errNoBook means that a node does not begin a subscription to the book as it should.
	errNoBook = connect.NewError(connect.CodeUnavailable, errors.New("the node does not say where "+
		"the subscription begins: it may run an older program that streams one shard's blocks "+
		"only; update it, or ask another node"))
)

// take takes a subscription at one node, and reports whether a message came, and whether a block
// came. A subscription to the book must begin within the time of a call.
func (c *Client) take(ctx context.Context, at uint32, request *ledgerdv1.SubscribeRequest,
	check, handle func(*ledgerdv1.SubscribeResponse) error) (came, moved bool, err error) {
	streaming, cancel := context.WithCancel(ctx)
	defer cancel()
	late := func() bool { return false }
	if request.GetBook() {
		timer := time.AfterFunc(c.options.CallTime, cancel)
		defer timer.Stop()
		late = func() bool { return !came && !timer.Stop() && ctx.Err() == nil }
	}
	stream, err := c.services[at].Subscribe(streaming, connect.NewRequest(request))
	if err != nil {
		if late() {
			err = errNoBook
		}
		return false, false, err
	}
	defer stream.Close() // Err has returned its error already
	for stream.Receive() {
		if late() {
			return false, false, errNoBook
		}
		if err := check(stream.Msg()); err != nil {
			return came, moved, err
		}
		came, moved = true, moved || stream.Msg().Block != nil
		if err := handle(stream.Msg()); err != nil {
			return came, moved, &handlerError{err}
		}
	}
	if late() {
		return false, false, errNoBook
	}
	if err := stream.Err(); err != nil {
		return came, moved, err
	}
	return came, moved, errEnded
}
