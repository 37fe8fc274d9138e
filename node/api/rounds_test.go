package api_test

import (
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/apitest"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
	"github.com/ledgerd/ledgerd/node/rounds"
	"github.com/ledgerd/ledgerd/order"
)

// frameOf is a frame that node 0 got from node 2.
func frameOf(round order.Round) *rounds.Event {
	return &rounds.Event{Kind: rounds.Received, Frame: "BCAST", Run: 1<<16 + 2, Epoch: 1,
		Round: round, From: 2, Origin: 1, Bytes: 60}
}

// A window has what was noted, newest last, with the runs and the digraph.
func TestGetRounds(t *testing.T) {
	t.Parallel()
	b := newBank(t, apitest.Options{}, api.Options{})
	recorder := b.cluster.Node(0).Rounds()
	recorder.Begin(1<<16+2, 4, []order.ServerID{0, 1, 2})
	defer recorder.Watch()()
	for round := range order.Round(9) {
		recorder.Note(frameOf(round + 1))
	}
	recorder.Note(&rounds.Event{Kind: rounds.Waits, Servers: []order.ServerID{0, 2}})
	get := func(last, forMS uint32) (*ledgerdv1.Recording, error) {
		answer, err := b.client.GetRounds(b.context(), connect.NewRequest(
			&ledgerdv1.GetRoundsRequest{Last: last, ForMs: forMS}))
		if err != nil {
			return nil, err
		}
		return answer.Msg.Recording, nil
	}
	r, err := get(3, 0)
	must(t, err)
	if len(r.Events) != 3 || r.Dropped != 7 || r.Events[0].Number != 8 || r.Format != 1 ||
		r.BegunMs == 0 || r.Chain != "test" || r.Recording {
		t.Fatalf("%v", r)
	}
	e, waits := r.Events[0], r.Events[2]
	if e.Kind != ledgerdv1.RoundEventKind_ROUND_EVENT_KIND_RECEIVED || e.GetFrom() != 2 ||
		e.To == nil || e.GetTo() != 0 || e.GetOrigin() != 1 || e.Target != nil || e.Round != 8 ||
		e.Bytes != 60 || len(waits.Servers) != 2 || waits.From != nil {
		t.Errorf("%v, %v", e, waits)
	}
	if len(r.Runs) != 1 || r.Runs[0].Generation != 1 || r.Runs[0].Eon != 2 ||
		r.Runs[0].FirstRound != 4 || len(r.Runs[0].Edges) != 6 || len(r.Members) != 3 {
		t.Errorf("%v", r.Runs)
	}
	// With a duration, only what passes meanwhile is in the window.
	if r, err = get(0, 1); err != nil || len(r.Events) != 0 || r.Dropped != 0 {
		t.Errorf("%v, %v", r, err)
	}
	for _, bad := range [][2]uint32{{rounds.Capacity + 1, 0}, {0, 10_001}} {
		_, err := get(bad[0], bad[1])
		codeIs(t, err, connect.CodeInvalidArgument)
	}
}

// The readers of a node's rounds are few, whatever their addresses. A place is free again after.
func TestRoundsReadersAreBounded(t *testing.T) {
	t.Parallel()
	b := newBank(t, apitest.Options{}, api.Options{MaxStreamsPerAddress: 20})
	get := func() error {
		_, err := b.client.GetRounds(b.context(),
			connect.NewRequest(&ledgerdv1.GetRoundsRequest{}))
		return err
	}
	var last *connect.ServerStreamForClient[ledgerdv1.WatchRoundsResponse]
	for range 8 {
		must(t, get())
		stream, err := b.client.WatchRounds(b.context(),
			connect.NewRequest(&ledgerdv1.WatchRoundsRequest{}))
		must(t, err)
		if !stream.Receive() {
			t.Fatal(stream.Err())
		}
		defer stream.Close()
		last = stream
	}
	codeIs(t, get(), connect.CodeResourceExhausted)
	must(t, last.Close())
	often := time.NewTicker(10 * time.Millisecond)
	defer often.Stop()
	for deadline := time.Now().Add(patience); get() != nil; <-often.C {
		if time.Now().After(deadline) {
			t.Fatal("the place of a reader that is gone is not free")
		}
	}
}

// A stream begins with the runs, has the events that come in their order, tells how many were lost,
// and makes the node note events as long as it is open.
func TestWatchRounds(t *testing.T) {
	t.Parallel()
	b := newBank(t, apitest.Options{}, api.Options{})
	recorder := b.cluster.Node(0).Rounds()
	recorder.Begin(1<<16, 1, []order.ServerID{0, 1, 2})
	stream, err := b.client.WatchRounds(b.context(),
		connect.NewRequest(&ledgerdv1.WatchRoundsRequest{}))
	must(t, err)
	next := func() *ledgerdv1.Recording {
		t.Helper()
		if !stream.Receive() {
			t.Fatal(stream.Err())
		}
		return stream.Msg().Recording
	}
	if r := next(); len(r.Events) != 0 || len(r.Runs) != 1 || r.Chain != "test" {
		t.Fatalf("%v", r)
	}
	const lost = 70_000 // more than the ring holds, before the stream looks again or after
	for round := range order.Round(lost) {
		recorder.Note(frameOf(round + 1))
	}
	seen, dropped, last := 0, uint64(0), uint64(0)
	for seen+int(dropped) < lost {
		r := next()
		dropped += r.Dropped
		if len(r.Runs) != 0 || len(r.Events) > 4096 {
			t.Fatalf("%d runs, %d events", len(r.Runs), len(r.Events))
		}
		last += r.Dropped
		for _, e := range r.Events {
			if last++; e.Number != last {
				t.Fatalf("event %d after %d", e.Number, last-1)
			}
		}
		seen += len(r.Events)
	}
	recorder.End(1<<16, "the eon is over")
	for ended := false; !ended; {
		r := next()
		ended = len(r.Runs) == 1 && r.Runs[0].EndedUs > 0 && r.Runs[0].End == "the eon is over"
	}
	must(t, stream.Close())
	often := time.NewTicker(10 * time.Millisecond)
	defer often.Stop()
	for deadline := time.Now().Add(patience); recorder.Watched(); <-often.C {
		if time.Now().After(deadline) {
			t.Fatal("the recorder is still watched")
		}
	}
}
