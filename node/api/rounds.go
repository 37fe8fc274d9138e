package api

import (
	"context"
	"fmt"
	"time"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/allconcur/generation"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
	"github.com/ledgerd/ledgerd/node/rounds"
	"github.com/ledgerd/ledgerd/order"
)

const (
	// RecordingFormat is the version of recordings.
	RecordingFormat = 1
	// defaultRounds is how many events GetRounds returns unless it is told.
	defaultRounds = 4096
	// maxRecordingMs bounds how long GetRounds records.
	maxRecordingMs = 10_000

	// A stream of events looks for new ones every watchRoundsInterval, and sends at most
	// watchRoundsEvents in one message. Without events it sends a message every watchRoundsAlive,
	// so that each end knows that the other is there.
	watchRoundsInterval = 100 * time.Millisecond
	watchRoundsEvents   = 4096
	watchRoundsAlive    = 10 * time.Second

	// maxRoundsReaders bounds how many read rounds at once: each takes time of the ordering.
	maxRoundsReaders = 8
)

// GetRounds returns a window of what this node recorded.
func (s *Service) GetRounds(ctx context.Context,
	request *connect.Request[ledgerdv1.GetRoundsRequest]) (
	*connect.Response[ledgerdv1.GetRoundsResponse], error) {
	last, duration := request.Msg.GetLast(), request.Msg.GetForMs()
	if last > rounds.Capacity || duration > maxRecordingMs {
		return nil, invalid("last: at most %d; for_ms: at most %d", rounds.Capacity, maxRecordingMs)
	}
	if last == 0 {
		last = defaultRounds
	}
	release, err := s.openRounds(request.Peer().Addr)
	if err != nil {
		return nil, err
	}
	defer release()
	recorder, first := s.backend.Rounds(), uint64(1)
	recording := s.recording()
	if duration > 0 {
		defer recorder.Watch()()
		first = recorder.Next()
		passed := time.NewTimer(time.Duration(duration) * time.Millisecond)
		defer passed.Stop()
		select {
		case <-passed.C:
		case <-ctx.Done():
			return nil, ContextError(ctx)
		case <-s.stopping.Done():
			return nil, errStopping()
		}
	}
	window := recorder.Last(first, int(last))
	s.addRuns(recording)
	addEvents(recording, &window)
	return connect.NewResponse(&ledgerdv1.GetRoundsResponse{Recording: recording}), nil
}

// WatchRounds streams what passes, as it happens.
func (s *Service) WatchRounds(ctx context.Context,
	request *connect.Request[ledgerdv1.WatchRoundsRequest],
	stream *connect.ServerStream[ledgerdv1.WatchRoundsResponse]) error {
	release, err := s.openRounds(request.Peer().Addr)
	if err != nil {
		return err
	}
	defer release()
	recorder := s.backend.Rounds()
	recording := s.recording()
	defer recorder.Watch()()
	next := recorder.Next()
	_, known := recorder.Runs()
	s.addRuns(recording)
	sent := time.Now()
	pause := time.NewTicker(watchRoundsInterval)
	defer pause.Stop()
	for {
		if recording != nil {
			allowWrite(ctx, s.options.MaxStuckTime)
			if err := stream.Send(&ledgerdv1.WatchRoundsResponse{
				Recording: recording}); err != nil {
				return err
			}
			sent = time.Now()
		}
		if recording == nil || len(recording.Events) < watchRoundsEvents {
			select {
			case <-pause.C:
			case <-ctx.Done():
				return ContextError(ctx)
			case <-s.stopping.Done():
				return errStopping()
			}
		} else if err := s.streamEnds(ctx); err != nil {
			return err
		}
		recording = nil
		window := recorder.From(next, watchRoundsEvents)
		_, changed := recorder.Runs()
		if len(window.Events) > 0 || window.Dropped > 0 || changed != known ||
			time.Since(sent) >= watchRoundsAlive {
			recording = &ledgerdv1.Recording{Format: RecordingFormat}
			if changed != known {
				s.addRuns(recording)
			}
			addEvents(recording, &window)
			next, known = window.Next, changed
		}
	}
}

// openRounds reserves a place for a stream, and one of those that read rounds. The caller releases
// both with the returned function.
func (s *Service) openRounds(address string) (func(), error) {
	release, err := s.limits.openStream(address)
	if err != nil {
		return nil, err
	}
	if s.roundsReaders.Add(1) > maxRoundsReaders {
		s.roundsReaders.Add(-1)
		release()
		return nil, Retryable(connect.CodeResourceExhausted, fmt.Errorf("%d clients read the "+
			"rounds of this node already: try again later", maxRoundsReaders), nil)
	}
	return func() {
		s.roundsReaders.Add(-1)
		release()
	}, nil
}

// recording returns a recording without runs and events.
func (s *Service) recording() *ledgerdv1.Recording {
	opened, state := s.backend.Store(), s.backend.NodeState()
	hash := opened.GenesisHash()
	return &ledgerdv1.Recording{
		Format: RecordingFormat, Chain: s.backend.ClusterState().Chain,
		GenesisHashHex: hash.String(), Shard: uint32(opened.Shard()), Node: state.Index,
		Version: state.Version, Engine: state.Engine.Engine,
		BegunMs:   milliseconds(s.backend.Rounds().Begun()),
		Recording: s.options.RecordsRounds,
	}
}

// addRuns adds the runs, and the names of their members.
func (s *Service) addRuns(recording *ledgerdv1.Recording) {
	runs, _ := s.backend.Rounds().Runs()
	named, edges := map[order.ServerID]bool{}, map[int][][2]int{}
	membership := s.backend.Store().Membership()
	for i := range runs {
		run := &runs[i]
		number := generation.Run(run.Number)
		shown := &ledgerdv1.RoundRun{Run: run.Number, Generation: uint64(number.Generation()),
			Eon: uint32(number.Eon()), FirstRound: uint64(run.First), Members: indices(run.Members),
			BegunUs: uint64(run.Begun.Microseconds()), EndedUs: uint64(run.Ended.Microseconds()),
			End: run.End}
		size := len(run.Members)
		if _, known := edges[size]; !known {
			edges[size] = s.backend.RoundEdges(size)
		}
		for _, edge := range edges[size] {
			shown.Edges = append(shown.Edges, &ledgerdv1.RoundEdge{
				From: uint32(run.Members[edge[0]]), To: uint32(run.Members[edge[1]])})
		}
		recording.Runs = append(recording.Runs, shown)
		for _, member := range run.Members {
			if named[member] {
				continue
			}
			named[member] = true
			name := ""
			if m, present := membership.Find(ledger.MemberIndex(member)); present {
				name = m.Name
			}
			recording.Members = append(recording.Members, &ledgerdv1.RoundMember{
				Index: uint32(member), Name: name})
		}
	}
}

func addEvents(recording *ledgerdv1.Recording, window *rounds.Window) {
	recording.Dropped = window.Dropped
	recording.Events = make([]*ledgerdv1.RoundEvent, len(window.Events))
	for i := range window.Events {
		recording.Events[i] = roundEventToProto(&window.Events[i])
	}
}

func roundEventToProto(e *rounds.Event) *ledgerdv1.RoundEvent {
	shown := &ledgerdv1.RoundEvent{
		Number: e.Number, AtUs: uint64(e.At.Microseconds()), Kind: ledgerdv1.RoundEventKind(e.Kind),
		Run: e.Run, Epoch: uint64(e.Epoch), Round: uint64(e.Round), Reliable: e.Reliable,
		Decided: e.Decided, Frame: e.Frame, Bytes: uint64(e.Bytes), Height: e.Height,
		BlockTimeMs: e.Time, Servers: indices(e.Servers),
	}
	switch e.Kind {
	case rounds.Received, rounds.Sent:
		shown.From, shown.To, shown.Origin = index(e.From), index(e.To), index(e.Origin)
		if e.Frame == "FAIL" {
			shown.Target = index(e.Target)
		}
	case rounds.Broadcast, rounds.Tracks, rounds.Suspected, rounds.Trusted, rounds.Lost:
		shown.Origin = index(e.Origin)
	}
	return shown
}

func index(server order.ServerID) *uint32 {
	number := uint32(server)
	return &number
}

func indices(servers []order.ServerID) []uint32 {
	list := make([]uint32, len(servers))
	for i, server := range servers {
		list[i] = uint32(server)
	}
	return list
}
