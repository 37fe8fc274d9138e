package api

import (
	"context"
	"time"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

const (
	// chainBytes bounds the encodings of an answer to ReadChain, and chainBlocks their number.
	chainBytes  = 1 << 20
	chainBlocks = 256
	// maxWaitForChain bounds how long a ReadChain waits, in milliseconds.
	maxWaitForChain = 10_000
)

// ReadChain returns whole durable blocks. It is no failure if there is none at the height yet: the
// answer then has none.
func (s *Service) ReadChain(ctx context.Context,
	request *connect.Request[ledgerdv1.ReadChainRequest]) (
	*connect.Response[ledgerdv1.ReadChainResponse], error) {
	height := ledger.Height(request.Msg.GetFromHeight())
	if height == 0 {
		return nil, invalid("from_height is 0: the first block has height 1")
	}
	if wait := request.Msg.GetWaitMs(); wait > maxWaitForChain {
		return nil, invalid("wait_ms %d: at most %d is possible", wait, maxWaitForChain)
	}
	if err := s.answersFor(request.Msg.Shard); err != nil {
		return nil, err
	}
	durable, err := s.awaitDurable(ctx, height,
		time.Duration(request.Msg.GetWaitMs())*time.Millisecond)
	if err != nil {
		return nil, err
	}
	answer := &ledgerdv1.ReadChainResponse{DurableHeight: uint64(durable)}
	for room := chainBytes; height <= durable && len(answer.Blocks) < chainBlocks; height++ {
		if failed := ContextError(ctx); failed != nil {
			return nil, failed
		}
		block, err := s.backend.Store().Block(height)
		if err != nil {
			return nil, s.failure(ctx, "reading a block", err)
		}
		encoded := block.Encode()
		offset := uint64(0)
		if len(answer.Blocks) == 0 {
			if offset = request.Msg.GetOffset(); offset > 0 && offset >= uint64(len(encoded)) {
				return nil, invalid("offset %d: block %d has %d bytes", offset, height,
					len(encoded))
			}
		}
		if len(answer.Blocks) == 0 && (offset > 0 || len(encoded) > room) {
			answer.BlockBytes = uint64(len(encoded))
			rest := encoded[offset:]
			answer.Blocks = append(answer.Blocks, rest[:min(len(rest), room)])
			break
		}
		if len(encoded) > room {
			break
		}
		room -= len(encoded)
		answer.Blocks = append(answer.Blocks, encoded)
	}
	return connect.NewResponse(answer), nil
}

// awaitDurable returns the height of the last durable block, once that reaches a height or the time
// is over.
func (s *Service) awaitDurable(ctx context.Context, height ledger.Height,
	wait time.Duration) (ledger.Height, error) {
	patient, cancel := s.Waiting(ctx)
	defer cancel()
	patient, end := context.WithTimeout(patient, wait)
	defer end()
	for {
		heights, changed := s.backend.Heights()
		if heights.Durable >= height || wait == 0 {
			return heights.Durable, nil
		}
		select {
		case <-changed:
		case <-patient.Done():
			return heights.Durable, s.streamEnds(ctx)
		}
	}
}
