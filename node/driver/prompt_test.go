package driver

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/rdmanet"
)

// promptHost is a quiet host that can hand over frames without waiting.
type promptHost struct {
	*quietHost
	receiver rdmanet.PromptReceiver
}

func (h *promptHost) ReceivePrompt(_ string, receiver rdmanet.PromptReceiver) error {
	h.receiver = receiver
	return nil
}

// arrive hands over frames as the host's goroutine does, and returns how many were taken.
func (h *promptHost) arrive(frames ...[]byte) int {
	taken := h.receiver.TryReceive(rdmanet.Peer{ID: "b", Incarnation: 5}, frames)
	h.receiver.Turn()
	return taken
}

// fullSink is a Sink that has no room, and takes rounds when the test lets it.
type fullSink struct {
	room   atomic.Bool
	err    error
	open   chan struct{}
	rounds chan order.Round
}

func (s *fullSink) Deliver(ctx context.Context, deliveries []order.Delivery) error {
	select {
	case <-s.open:
	case <-ctx.Done():
		return ctx.Err()
	}
	for _, delivery := range deliveries {
		s.rounds <- delivery.Round
	}
	return nil
}

func (s *fullSink) TryDeliver(deliveries []order.Delivery) (bool, error) {
	if s.err != nil || !s.room.Load() {
		return false, s.err
	}
	return true, s.Deliver(context.Background(), deliveries)
}

// newPromptRig is a rig over a prompt host, with a run of servers 0 and 1 whose goroutine sleeps.
func newPromptRig(t *testing.T, change func(*Config)) (*rig, *promptHost, *fullSink) {
	t.Helper()
	sink := &fullSink{open: make(chan struct{}), rounds: make(chan order.Round, 9)}
	sink.room.Store(true)
	var host *promptHost
	r := newRig(t, func(c *Config) {
		host = &promptHost{quietHost: c.Host.(*quietHost)}
		c.Host, c.Sink = host, sink
		if change != nil {
			change(c)
		}
	})
	if err := r.Activate(Group{Run: 1, Members: []order.ServerID{0, 1}}); err != nil {
		t.Fatal(err)
	}
	r.Suspect(1, 1, errors.New("a sign that the goroutine has begun"))
	waitFor(t, "the first turn", func() bool {
		defer r.engine.lock()()
		return len(r.engine.suspected) == 1
	})
	waitFor(t, "its end", func() bool {
		free := r.current.turning.TryLock()
		if free {
			r.current.turning.Unlock()
		}
		return free
	})
	return r, host, sink
}

// Frames that a prompt host hands over meet the engine before the host's goroutine goes on, and
// what comes of them leaves.
func TestTurnOnTheHostsGoroutine(t *testing.T) {
	t.Parallel()
	r, host, sink := newPromptRig(t, nil)
	close(sink.open)
	r.engine.mu.Lock()
	r.engine.ready = order.Ready{
		Sends:      []order.Send{{To: []order.ServerID{1}, Frame: []byte("sent")}},
		Deliveries: []order.Delivery{{Round: 1}},
	}
	r.engine.mu.Unlock()
	if taken := host.arrive(frameOf(1, "x"), frameOf(1, "y")); taken != 2 {
		t.Errorf("%d frames taken", taken)
	}
	if got := r.engine.received(); !slices.Equal(got, []string{"1: x", "1: y"}) {
		t.Errorf("the engine got %q", got)
	}
	if lane := host.lanes["b"]; lane.frames != 1 || len(sink.rounds) != 1 {
		t.Errorf("%d frames sent, %d rounds delivered", lane.frames, len(sink.rounds))
	}
	// Another goroutine takes a turn at the moment: the frames are its own, or the run's.
	r.current.turning.Lock()
	host.arrive(frameOf(1, "z"))
	if got := r.engine.received(); len(got) != 2 {
		t.Errorf("the engine got %q during another turn", got)
	}
	r.current.turning.Unlock()
	waitFor(t, "the frame that came during another turn", func() bool {
		return len(r.engine.received()) == 3
	})
}

// A full Sink keeps neither the host's goroutine nor the lanes' acknowledgements waiting. The run's
// goroutine waits, and nothing overtakes the rounds.
func TestFullSinkDoesNotStopTheHost(t *testing.T) {
	t.Parallel()
	r, host, sink := newPromptRig(t, func(c *Config) { c.InboxFrames = 4 })
	sink.room.Store(false)
	r.engine.mu.Lock()
	r.engine.ready.Deliveries = []order.Delivery{{Round: 1}}
	r.engine.mu.Unlock()
	host.arrive(frameOf(1, "x"))
	r.engine.mu.Lock()
	r.engine.ready.Deliveries = []order.Delivery{{Round: 2}}
	r.engine.mu.Unlock()
	sink.room.Store(true)
	// A sender fills three quarters of the inbox.
	if taken := host.arrive(frameOf(1, "1"), frameOf(1, "2"), frameOf(1, "3"), frameOf(1,
		"4")); taken != 3 {
		t.Errorf("%d frames taken", taken)
	}
	if got := r.engine.received(); len(got) != 1 {
		t.Errorf("the engine got %q before the rounds were taken", got)
	}
	rest := make(chan struct{})
	go func() {
		defer close(rest)
		host.receiver.Receive(rdmanet.Peer{ID: "b", Incarnation: 5}, [][]byte{frameOf(1, "4")})
	}()
	close(sink.open)
	for want := order.Round(1); want <= 2; want++ {
		if round := get(t, sink.rounds); round != want {
			t.Errorf("round %d, want %d", round, want)
		}
	}
	get(t, rest)
	waitFor(t, "the frames", func() bool { return len(r.engine.received()) == 5 })
	if got := r.engine.received(); got[1] != "1: 1" || got[4] != "1: 4" {
		t.Errorf("the engine got %q", got)
	}
}

// Rounds for which the Sink had no room when the run was frozen are untaken.
func TestFreezeInTheMiddleOfATurn(t *testing.T) {
	t.Parallel()
	r, host, sink := newPromptRig(t, nil)
	sink.room.Store(false)
	r.engine.mu.Lock()
	r.engine.ready.Deliveries = []order.Delivery{{Round: 1}}
	r.engine.mu.Unlock()
	host.arrive(frameOf(1, "x"))
	remains := r.Freeze()
	if len(remains.Untaken) != 1 || len(sink.rounds) != 0 {
		t.Errorf("untaken: %+v, %d rounds delivered", remains.Untaken, len(sink.rounds))
	}
	close(sink.open)
	host.arrive(frameOf(1, "y"))
	if got := r.engine.received(); len(got) != 1 || len(sink.rounds) != 0 {
		t.Errorf("after Freeze the engine got %q, %d rounds were delivered", got, len(sink.rounds))
	}
}

// A Sink that refuses rounds halts the engine, also if its goroutine took no turn.
func TestSinkRefusesOnTheHostsGoroutine(t *testing.T) {
	t.Parallel()
	r, host, sink := newPromptRig(t, nil)
	sink.err = errors.New("broken")
	r.engine.mu.Lock()
	r.engine.ready.Deliveries = []order.Delivery{{Round: 1}}
	r.engine.mu.Unlock()
	host.arrive(frameOf(1, "x"))
	get(t, r.halted)
	if remains := r.Freeze(); len(remains.Untaken) != 1 {
		t.Errorf("untaken: %+v", remains.Untaken)
	}
	if status := r.Status(); status.Running || status.Halted == "" {
		t.Errorf("status %+v", status)
	}
}

// A batch is A-broadcast once there is one, also if turns elsewhere let the engine want it.
func TestSourceAfterATurnElsewhere(t *testing.T) {
	t.Parallel()
	source := &oneBatch{ready: make(chan struct{}, 1)}
	r, host, sink := newPromptRig(t, func(c *Config) { c.Source = source })
	close(sink.open)
	r.engine.mu.Lock()
	r.engine.can = true // with the next frame
	r.engine.mu.Unlock()
	host.arrive(frameOf(1, "x"))
	source.batch.Store(true)
	source.ready <- struct{}{}
	waitFor(t, "the batch", func() bool { return r.engine.broadcastCount() == 1 })
}

type oneBatch struct {
	batch atomic.Bool
	ready chan struct{}
}

func (s *oneBatch) Next(int) []byte {
	if !s.batch.Swap(false) {
		return nil
	}
	return []byte("batch")
}

func (s *oneBatch) Ready() <-chan struct{} { return s.ready }
