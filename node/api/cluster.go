package api

import (
	"context"
	"errors"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
	"github.com/ledgerd/ledgerd/node/report"
)

func (s *Service) nodeToProto(state *report.NodeState) *ledgerdv1.NodeState {
	opened := s.backend.Store()
	var offset *int64
	if state.ClockKnown {
		offset = proto.Int64(int64(state.ClockOffset))
	}
	shown := &ledgerdv1.NodeState{
		ClockOffsetMs:    offset,
		ClockWarning:     state.ClockWarning,
		Shard:            uint32(opened.Shard()),
		PendingCrossings: uint64(opened.PendingCount()),
		Index:            state.Index,
		Name:             state.Name,
		PeerId:           state.PeerID,
		ApiAddress:       state.APIAddress,
		FabricAddress:    state.FabricAddress,
		Mode:             ledgerdv1.NodeMode(state.Mode),
		Reason:           state.Reason,
		Engine: &ledgerdv1.EngineState{
			Engine:     state.Engine.Engine,
			Epoch:      state.Engine.Epoch,
			Round:      state.Engine.Round,
			Reliable:   state.Engine.Reliable,
			Members:    state.Engine.Members,
			Suspected:  state.Engine.Suspected,
			Awaited:    state.Engine.Awaited,
			Halted:     state.Engine.Halted,
			Generation: state.Engine.Generation,
		},
		OrderedHeight:         uint64(state.Heights.Ordered),
		StoredHeight:          uint64(state.Heights.Stored),
		DurableHeight:         uint64(state.Heights.Durable),
		HeadHash:              state.HeadHash[:],
		StartedMs:             milliseconds(state.Started),
		PoolTransactions:      state.PoolTransactions,
		PoolBytes:             state.PoolBytes,
		TransactionsPerSecond: state.TransactionsPerSecond,
		OrderLatencyUs:        microseconds(state.OrderLatency),
		DurableLatencyUs:      microseconds(state.DurableLatency),
		Version:               state.Version,
		ReadsOnly:             state.ReadsOnly,
		DiskFreeBytes:         state.DiskFreeBytes,
		DiskId:                state.DiskID[:],
		DiskLearner:           state.DiskLearner,
		CertifiedHeight:       uint64(opened.CertifiedHeight()),
		Evidence:              uint32(opened.EvidenceCount()),
		RecordedHeight:        uint64(state.Heights.Recorded),
		Records:               state.Records,
		Overdue:               state.Waiting.Overdue,
		OldestWaitingMs:       milliseconds(state.Waiting.Since),
		WaitsFor:              waitsToProto(state.Waiting.Verdicts),
		UntakenBy:             waitsToProto(state.Waiting.Streams),
		Lacks:                 lacksToProto(state.Waiting.Lacks),
	}
	if b := state.Backfill; b != nil {
		shown.Backfill = &ledgerdv1.Backfill{
			SnapshotHeight: uint64(b.Snapshot), AbsentHeight: uint64(b.Absent),
			IndexedHeight: uint64(b.Indexed), Source: b.Source, Reason: b.Reason,
		}
	}
	return shown
}

func microseconds(d time.Duration) uint32 {
	return uint32(min(max(d.Microseconds(), 0), 1<<32-1))
}

func (s *Service) clusterToProto(state *clusterState, now time.Time) *ledgerdv1.ClusterState {
	shown := &ledgerdv1.ClusterState{
		Chain:             state.Chain,
		GenesisHash:       state.GenesisHash[:],
		Shard:             state.Shard,
		Digraph:           state.Digraph,
		Degree:            state.Degree,
		ToleratedFailures: state.ToleratedFailures,
		Node:              s.nodeToProto(&state.Node),
		TimeMs:            milliseconds(now),
		TransactionsTotal: state.TransactionsTotal,
		AccountsTotal:     state.AccountsTotal,
		MembershipNumber:  state.membership.Number,
		Charter:           charterToProto(&state.charter),
		NewestVersion:     ledger.NewestVersion,
		MembershipHeight:  uint64(state.membership.Height),
		Engines:           state.Engines,
		Ordering: &ledgerdv1.OrderingSettings{
			Engine: state.Ordering.Engine, TargetNines: state.Ordering.TargetNines,
			ServerMttfHours: state.Ordering.ServerMTTFHours,
			BatchBytesMax:   state.Ordering.BatchBytesMax, Prompt: state.Ordering.Prompt,
			EngineHeight: uint64(state.Ordering.EngineHeight),
		},
	}
	if state.shardCount > 1 {
		shown.Book, shown.ShardCount = state.book[:], state.shardCount
		shown.BookChanges = state.bookChanges
	}
	for i := range state.former {
		former := &state.former[i]
		shown.Former = append(shown.Former, &ledgerdv1.FormerMember{
			Index: uint32(former.Index), Name: former.Name, Key: former.Key,
			JoinedHeight: uint64(former.Joined), LeftHeight: uint64(former.Left),
		})
	}
	for _, edge := range state.Edges {
		shown.Edges = append(shown.Edges, &ledgerdv1.DigraphEdge{From: edge.From, To: edge.To})
	}
	for i := range state.Members {
		member, chained := &state.Members[i], &state.membership.Members[i]
		shown.Members = append(shown.Members, &ledgerdv1.MemberState{
			Index:         member.Index,
			Name:          member.Name,
			PeerId:        member.PeerID,
			ApiAddress:    member.APIAddress,
			FabricAddress: member.FabricAddress,
			Connected:     member.Connected,
			Member:        member.Member,
			Suspected:     member.Suspected,
			OrderedHeight: uint64(member.OrderedHeight),
			StoredHeight:  uint64(member.StoredHeight),
			AbsentHeight:  uint64(member.AbsentHeight),
			HeldUpMs:      uint32(member.HeldUp.Milliseconds()),
			ForgedBundles: member.Forged,
			LastHeardMs:   milliseconds(member.LastHeard),
			Self:          member.Self,
			Key:           chained.Key,
			Address:       chained.Address,
			JoinedHeight:  uint64(chained.Joined),
			Standing:      standingOf(member, &state.Node),
			Mode:          ledgerdv1.NodeMode(member.Mode),
			Disk:          chained.Disk.String(),
		})
	}
	return shown
}

// GetNode returns the state of this node.
func (s *Service) GetNode(ctx context.Context, request *connect.Request[ledgerdv1.GetNodeRequest]) (
	*connect.Response[ledgerdv1.GetNodeResponse], error) {
	if err := s.answersFor(request.Msg.Shard); err != nil {
		return nil, err
	}
	state := s.backend.NodeState()
	return connect.NewResponse(&ledgerdv1.GetNodeResponse{Node: s.nodeToProto(&state)}), nil
}

// GetCluster returns the shard as this node sees it.
func (s *Service) GetCluster(ctx context.Context,
	request *connect.Request[ledgerdv1.GetClusterRequest]) (
	*connect.Response[ledgerdv1.GetClusterResponse], error) {
	if err := s.answersFor(request.Msg.Shard); err != nil {
		return nil, err
	}
	state := s.cluster()
	return connect.NewResponse(&ledgerdv1.GetClusterResponse{Cluster: s.clusterToProto(&state,
		time.Now())}), nil
}

// errStopping is the error that ends the streams of a node that stops.
func errStopping() error {
	return Retryable(connect.CodeUnavailable,
		errors.New("this node is stopping: go on at another node, or here once it is back"), nil)
}

// Without changes, WatchCluster checks the state at clusterLookInterval, and sends it at least
// every clusterKeepalive so that each end knows that the other is there.
const (
	clusterLookInterval = time.Second
	clusterKeepalive    = 10 * time.Second
)

// WatchCluster streams the shard's state.
func (s *Service) WatchCluster(ctx context.Context,
	request *connect.Request[ledgerdv1.WatchClusterRequest],
	stream *connect.ServerStream[ledgerdv1.WatchClusterResponse]) error {
	release, err := s.limits.openStream(request.Peer().Addr)
	if err != nil {
		return err
	}
	defer release()
	var last *ledgerdv1.ClusterState
	var lastSent time.Time
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		// Wait for the pause to end, even if something changes meanwhile.
		select {
		case <-pause.C:
		case <-ctx.Done():
			return ContextError(ctx)
		case <-s.stopping.Done():
			return errStopping()
		}
		_, changed := s.backend.Heights()
		state := s.cluster()
		now := time.Now()
		shown := s.clusterToProto(&state, now)
		if last == nil || now.Sub(lastSent) >= clusterKeepalive || !sameCluster(last, shown) {
			allowWrite(ctx, s.options.MaxStuckTime)
			if err := stream.Send(&ledgerdv1.WatchClusterResponse{Cluster: shown}); err != nil {
				return err
			}
			last, lastSent = shown, now
		}
		pause.Reset(clusterLookInterval)
		select {
		case <-changed:
		case <-pause.C:
		case <-ctx.Done():
			return ContextError(ctx)
		case <-s.stopping.Done():
			return errStopping()
		}
		pause.Reset(max(0, s.options.ClusterInterval-time.Since(now)))
	}
}

// sameCluster compares two states. It ignores the time when they were taken, and the clock's
// offset, which always varies a little. A clock that is far off has a warning.
func sameCluster(a, b *ledgerdv1.ClusterState) bool {
	time, offset := a.TimeMs, a.Node.ClockOffsetMs
	a.TimeMs, a.Node.ClockOffsetMs = b.TimeMs, b.Node.ClockOffsetMs
	same := proto.Equal(a, b)
	a.TimeMs, a.Node.ClockOffsetMs = time, offset
	return same
}
