package api

import (
	"context"
	"errors"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/ledger/store"
)

// maxFetched bounds the absent blocks that one call fetches. A page of blocks is smaller.
const maxFetched = 256

// absent is an interceptor of calls that need blocks which the node lacks because it began with a
// snapshot. It fetches them from other nodes and runs the call again, so the caller need not know
// which node has which block. No call does harm if it runs twice. It is the innermost interceptor.
type absent struct{ backend Backend }

var _ connect.Interceptor = absent{}

// WrapUnary implements connect.Interceptor.
func (a absent) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, request connect.AnyRequest) (answer connect.AnyResponse,
		err error) {
		err = a.present(ctx, func() error {
			answer, err = next(ctx, request)
			return err
		})
		return answer, err
	}
}

// present reads again as long as the read lacks a block and that block can be fetched. It returns
// the error of the last read.
func (a absent) present(ctx context.Context, read func() error) error {
	for range maxFetched {
		err, lacks := read(), (*store.AbsentError)(nil)
		if !errors.As(err, &lacks) || a.backend.FetchAbsent(ctx, lacks.Height) != nil {
			return err
		}
	}
	return read()
}

// WrapStreamingClient implements connect.Interceptor.
func (a absent) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// WrapStreamingHandler implements connect.Interceptor. What was sent cannot be sent again, so a
// handler fetches each block before it sends it.
func (a absent) WrapStreamingHandler(
	next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return next
}
