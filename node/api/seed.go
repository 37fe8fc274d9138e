package api

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/store"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// addedForGood returns an error that says to try again if a shard was added in a block that is not
// durable yet: it may be taken back, and the shard be added later with another directory.
func (s *Service) addedForGood(shard ledger.ShardID) error {
	height, known := s.backend.Store().AddedAt(shard)
	if heights, _ := s.backend.Heights(); known && height > heights.Durable {
		return Retryable(connect.CodeUnavailable, fmt.Errorf("shard %d was added in block %d, "+
			"which is not durable yet: try again", shard, height), nil)
	}
	return nil
}

// maxSeeds bounds how many directories are streamed at the same time. Each is in memory.
const maxSeeds = 4

// GetSeed streams the directory with which the chain of an added shard begins.
func (s *Service) GetSeed(ctx context.Context, request *connect.Request[ledgerdv1.GetSeedRequest],
	stream *connect.ServerStream[ledgerdv1.GetSeedResponse]) error {
	release, err := s.limits.openStream(request.Peer().Addr)
	if err != nil {
		return err
	}
	defer release()
	defer s.seeds.Add(-1)
	if s.seeds.Add(1) > maxSeeds {
		return Retryable(connect.CodeResourceExhausted, errors.New("this node already sends its "+
			"maximum of directories: try again later or ask another node"), nil)
	}
	if err := s.addedForGood(ledger.ShardID(request.Msg.GetShard())); err != nil {
		return err
	}
	seed, err := s.backend.Store().Seed(ledger.ShardID(request.Msg.GetShard()))
	switch {
	case errors.Is(err, store.ErrNotFound):
		return connect.NewError(connect.CodeNotFound, err)
	case errors.Is(err, store.ErrNoSeed):
		return connect.NewError(connect.CodeFailedPrecondition, err)
	case err != nil:
		return s.failure(ctx, "reading the directory of an added shard", err)
	}
	for part := range slices.Chunk(seed, maxPart) {
		allowWrite(ctx, s.options.MaxStuckTime)
		if err := stream.Send(&ledgerdv1.GetSeedResponse{Part: part}); err != nil {
			return err
		}
	}
	return nil
}
