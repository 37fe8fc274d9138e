package api

import (
	"context"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// Subscribe streams blocks from a height on. A book of one shard has no other chains.
func (s *Service) Subscribe(ctx context.Context,
	request *connect.Request[ledgerdv1.SubscribeRequest],
	stream *connect.ServerStream[ledgerdv1.SubscribeResponse]) error {
	begin, err := Begin(request.Msg)
	if err != nil {
		return err
	}
	own := s.backend.Store().Shard()
	height, named := begin[own]
	if !named {
		height = ledger.Height(request.Msg.GetFromHeight())
	}
	delete(begin, own)
	if len(begin) > 0 {
		return invalid("begin: this book has no shard but %d", own)
	}
	return s.StreamBlocks(ctx, request, stream, func(context.Context) (Following, error) {
		next := s.After(height)
		return func(ctx context.Context, send Sent) error {
			return s.Follow(ctx, next, request.Msg.GetWithTransactions(), send)
		}, nil
	})
}

// Begin returns the heights at which a subscription begins in the chains that it names. They are
// as the client sent them.
func Begin(request *ledgerdv1.SubscribeRequest) (map[ledger.ShardID]ledger.Height, error) {
	if len(request.GetBegin()) > 0 && !request.GetBook() {
		return nil, invalid("begin is for a subscription to the book: set book, or from_height")
	}
	begin := make(map[ledger.ShardID]ledger.Height, len(request.GetBegin()))
	for _, place := range request.GetBegin() {
		shard := ledger.ShardID(place.GetShard())
		if _, twice := begin[shard]; twice {
			return nil, invalid("begin: shard %d is named twice", shard)
		}
		begin[shard] = ledger.Height(place.GetHeight())
	}
	return begin, nil
}

// After returns the height at which a subscription begins: 0 stands for the height after the head.
func (s *Service) After(height ledger.Height) ledger.Height {
	if height == 0 {
		return s.backend.Store().Head().Height + 1
	}
	return height
}

// Sent takes the next message of a subscription. One goroutine at a time calls it.
type Sent = func(*ledgerdv1.SubscribeResponse) error

// Following passes the messages of a subscription to its Sent until its context ends.
type Following = func(context.Context, Sent) error

// StreamBlocks streams what a subscription passes to its Sent, until it returns. Begin makes the
// subscription once it is counted as a stream of its address, and before its client hears that it
// has begun.
func (s *Service) StreamBlocks(ctx context.Context,
	request *connect.Request[ledgerdv1.SubscribeRequest],
	stream *connect.ServerStream[ledgerdv1.SubscribeResponse],
	begin func(context.Context) (Following, error)) error {
	release, err := s.limits.openStream(request.Peer().Addr)
	if err != nil {
		return err
	}
	defer release()
	follow, err := begin(ctx)
	if err != nil {
		return err
	}
	if err := stream.Send(nil); err != nil { // the headers: they confirm the subscription
		return err
	}
	return follow(ctx, func(message *ledgerdv1.SubscribeResponse) error {
		allowWrite(ctx, s.options.MaxStuckTime)
		return stream.Send(message)
	})
}

// Follow passes the blocks of this shard's chain from a height on, in order and each once, until
// send fails, the context ends, or the server stops. It never returns nil.
func (s *Service) Follow(ctx context.Context, next ledger.Height, withTransactions bool,
	send Sent) error {
	for {
		heights, changed := s.backend.Heights()
		for ; next <= heights.Ordered; next++ {
			if err := s.streamEnds(ctx); err != nil {
				return err
			}
			message, err := s.subscribed(ctx, next, withTransactions)
			if err != nil {
				return err
			}
			if err := send(message); err != nil {
				return err
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ContextError(ctx)
		case <-s.stopping.Done():
			return errStopping()
		}
	}
}

// streamEnds returns the reason to end a stream, if there is one.
func (s *Service) streamEnds(ctx context.Context) error {
	if failed := ContextError(ctx); failed != nil {
		return failed
	}
	select {
	case <-s.stopping.Done():
		return errStopping()
	default:
		return nil
	}
}

// subscribed returns the message with a block, which it fetches if it is absent.
func (s *Service) subscribed(ctx context.Context, height ledger.Height,
	withTransactions bool) (message *ledgerdv1.SubscribeResponse, err error) {
	err = absent{s.backend}.present(ctx, func() error {
		message, err = s.subscription(ctx, height, withTransactions)
		return err
	})
	return message, err
}

func (s *Service) subscription(ctx context.Context, height ledger.Height,
	withTransactions bool) (*ledgerdv1.SubscribeResponse, error) {
	message := &ledgerdv1.SubscribeResponse{HeadHeight: uint64(s.backend.Store().Head().Height)}
	if !withTransactions {
		header, err := s.headerAt(height)
		if err != nil {
			return nil, s.failure(ctx, "reading a block", err)
		}
		message.Block = &ledgerdv1.Block{Header: header}
		return message, nil
	}
	block, err := s.backend.Store().Block(height)
	if err != nil {
		return nil, s.failure(ctx, "reading a block", err)
	}
	message.Block = s.block(block, 0, min(block.Len(), maxPageSize))
	return message, nil
}
