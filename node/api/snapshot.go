package api

import (
	"context"
	"errors"
	"slices"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/ledger/store"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// maxSnapshots bounds how many snapshots are streamed at the same time. Each reads the whole store.
const maxSnapshots = 2

// GetSnapshot streams a snapshot.
func (s *Service) GetSnapshot(ctx context.Context,
	request *connect.Request[ledgerdv1.GetSnapshotRequest],
	stream *connect.ServerStream[ledgerdv1.GetSnapshotResponse]) error {
	if err := s.answersFor(request.Msg.Shard); err != nil {
		return err
	}
	release, err := s.limits.openStream(request.Peer().Addr)
	if err != nil {
		return err
	}
	defer release()
	if s.snapshots.Add(1) > maxSnapshots {
		s.snapshots.Add(-1)
		return Retryable(connect.CodeResourceExhausted,
			errors.New("this node already makes its maximum of snapshots: try again later or ask "+
				"another node"), nil)
	}
	defer s.snapshots.Add(-1)
	bounded, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.stopping, cancel)()
	_, err = s.backend.Store().WriteSnapshot(bounded, &parts{ctx: ctx, service: s, stream: stream})
	switch {
	case err == nil:
		return nil
	case s.stopping.Err() != nil:
		return errStopping()
	case errors.Is(err, store.ErrNotFound):
		return Retryable(connect.CodeFailedPrecondition,
			errors.New("this node has no block yet: there is nothing to make a snapshot of"), nil)
	}
	return s.failure(ctx, "making a snapshot", err)
}

// maxPart is the maximum size of a message of a snapshot.
const maxPart = 256 << 10

// parts is a writer that sends each write to the stream.
type parts struct {
	ctx     context.Context
	service *Service
	stream  *connect.ServerStream[ledgerdv1.GetSnapshotResponse]
}

// Write implements io.Writer.
func (p *parts) Write(data []byte) (written int, err error) {
	for part := range slices.Chunk(data, maxPart) {
		allowWrite(p.ctx, p.service.options.MaxStuckTime)
		if err := p.stream.Send(&ledgerdv1.GetSnapshotResponse{Part: part}); err != nil {
			return written, err
		}
		written += len(part)
	}
	return written, nil
}
