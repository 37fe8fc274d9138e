package driver

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/rdmanet"
)

// scripted is an engine that follows a test's script and records its inputs. Frames are 8 bytes of
// generation and anything.
type scripted struct {
	mu          sync.Mutex
	can         bool
	undelivered bool
	solicited   bool
	halted      string
	ended       bool
	frameError  error
	broadcasts  [][]byte
	frames      []string
	suspected   []order.ServerID
	ready       order.Ready
	votes       []order.Vote
	trusted     []order.ServerID
}

func (s *scripted) lock() func() { s.mu.Lock(); return s.mu.Unlock }

func (s *scripted) CanBroadcast() bool { defer s.lock()(); return s.can }
func (s *scripted) Solicited() bool    { defer s.lock()(); return s.solicited }
func (s *scripted) Undelivered() bool  { defer s.lock()(); return s.undelivered }

func (s *scripted) Broadcast(payload []byte) error {
	defer s.lock()()
	s.broadcasts = append(s.broadcasts, bytes.Clone(payload))
	s.can = false
	return nil
}

func (s *scripted) Receive(from order.ServerID, frame []byte) error {
	defer s.lock()()
	if s.halted != "" {
		return order.ErrHalted
	}
	s.frames = append(s.frames, fmt.Sprintf("%d: %s", from, frame[8:]))
	return s.frameError
}

func (s *scripted) Suspect(server order.ServerID) error {
	defer s.lock()()
	s.suspected = append(s.suspected, server)
	return nil
}

func (s *scripted) Trust(server order.ServerID) error {
	defer s.lock()()
	s.trusted = append(s.trusted, server)
	return nil
}

func (s *scripted) Votes() []order.Vote { defer s.lock()(); return s.votes }
func (s *scripted) VotesMax() int       { return 5 }

func (s *scripted) Ready() order.Ready {
	defer s.lock()()
	ready := s.ready
	s.ready = order.Ready{}
	return ready
}

func (s *scripted) Status() order.Status {
	defer s.lock()()
	return order.Status{Halted: s.halted, Ended: s.ended}
}

func (s *scripted) received() []string {
	defer s.lock()()
	return append([]string(nil), s.frames...)
}

func (s *scripted) broadcastCount() int { defer s.lock()(); return len(s.broadcasts) }

// quietHost is a Host whose lanes do as a test says.
type quietHost struct {
	rdmanet.Host
	receive rdmanet.ReceiveFunc
	watch   func(rdmanet.PeerEvent)
	lanes   map[rdmanet.PeerID]*quietLane
}

func (h *quietHost) ID() rdmanet.PeerID { return "a" }
func (h *quietHost) Receive(_ string, receive rdmanet.ReceiveFunc) error {
	h.receive = receive
	return nil
}
func (h *quietHost) Watch(watch func(rdmanet.PeerEvent)) { h.watch = watch }
func (h *quietHost) Lane(peer rdmanet.PeerID, _ string) (rdmanet.Lane, error) {
	lane := &quietLane{peer: peer}
	h.lanes[peer] = lane
	return lane, nil
}

type quietLane struct {
	rdmanet.Lane
	peer   rdmanet.PeerID
	frames int
	calls  int
	err    error

	pending atomic.Int64
}

func (l *quietLane) Peer() rdmanet.PeerID { return l.peer }
func (l *quietLane) Close() error         { return nil }
func (l *quietLane) Pending() int         { return int(l.pending.Load()) }
func (l *quietLane) TrySend(frames ...[]byte) (bool, error) {
	if l.err != nil || len(frames) == 0 {
		return false, l.err
	}
	l.frames += len(frames)
	l.calls++
	return true, nil
}

type nothing struct{ ready chan struct{} }

func (nothing) Next(int) []byte          { return nil }
func (n nothing) Ready() <-chan struct{} { return n.ready }

type sinkFunc func(context.Context, []order.Delivery) error

func (f sinkFunc) Deliver(ctx context.Context, deliveries []order.Delivery) error {
	return f(ctx, deliveries)
}

func acceptAll(context.Context, []order.Delivery) error { return nil }

// rig is a driver of server a among a, b, c, d over a quiet host, and its scripted engine.
type rig struct {
	*Driver
	host   *quietHost
	engine *scripted
	lost   chan order.ServerID
	halted chan string
}

func newRig(t testing.TB, change func(*Config)) *rig {
	t.Helper()
	r := &rig{host: &quietHost{lanes: map[rdmanet.PeerID]*quietLane{}}, engine: &scripted{},
		lost: make(chan order.ServerID, 8), halted: make(chan string, 8)}
	config := Config{
		Host: r.host, Self: 0, Peers: []rdmanet.PeerID{"a", "b", "c", "d"},
		NewEngine: func(Group, order.ServerID) (order.Broadcaster, error) { return r.engine, nil },
		FrameRun: func(frame []byte) (uint64, error) {
			if len(frame) < 8 {
				return 0, order.ErrFrame
			}
			return binary.LittleEndian.Uint64(frame), nil
		},
		Source: nothing{}, Sink: sinkFunc(acceptAll),
		Lost:   func(_ uint64, server order.ServerID, _ error) { r.lost <- server },
		Halted: func(_ Group, reason string) { r.halted <- reason },
		Logger: slog.New(slog.DiscardHandler),
	}
	if change != nil {
		change(&config)
	}
	d, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	r.Driver = d
	t.Cleanup(d.Close)
	return r
}

func frameOf(generation uint64, text string) []byte {
	return append(binary.LittleEndian.AppendUint64(nil, generation), text...)
}

func waitFor(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("not in time: " + what)
		}
	}
}

func get[T any](t *testing.T, c <-chan T) T {
	t.Helper()
	select {
	case value := <-c:
		return value
	case <-time.After(time.Minute):
		t.Fatal("nothing came")
		panic("unreachable")
	}
}

func TestLingerForOthersMessages(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name      string
		linger    time.Duration
		solicited bool
		atOnce    bool
	}{
		{"after the linger", 30 * time.Millisecond, false, false},
		{"no linger", 0, false, true},
		{"solicited", time.Hour, true, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, func(c *Config) { c.Linger = test.linger })
			r.engine.can, r.engine.undelivered, r.engine.solicited = true, true, test.solicited
			begun := time.Now()
			if err := r.Activate(Group{Run: 1, Members: []order.ServerID{0, 1}}); err !=
				nil {
				t.Fatal(err)
			}
			waitFor(t, "the empty message", func() bool { return r.engine.broadcastCount() == 1 })
			if took := time.Since(begun); !test.atOnce && took < test.linger {
				t.Errorf("after %v", took)
			}
		})
	}
}

func TestMalformedFramesSilenceTheirSender(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		frame []byte
		err   error
	}{
		{"no header", []byte("x"), nil},
		{"the engine refuses it", frameOf(1, "bad"), order.ErrFrame},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, nil)
			r.engine.frameError = test.err
			if err := r.Activate(Group{Run: 1, Members: []order.ServerID{0, 1, 3}}); err !=
				nil {
				t.Fatal(err)
			}
			r.host.receive(rdmanet.Peer{ID: "d", Incarnation: 5}, [][]byte{test.frame})
			if server := get(t, r.lost); server != 3 {
				t.Errorf("lost %d, want 3", server)
			}
			r.engine.mu.Lock()
			r.engine.frameError = nil
			if len(r.engine.suspected) != 1 || r.engine.suspected[0] != 2 {
				t.Errorf("suspected %v, want the place of server 3, 2", r.engine.suspected)
			}
			before := len(r.engine.frames)
			r.engine.mu.Unlock()
			r.host.receive(rdmanet.Peer{ID: "d", Incarnation: 5}, [][]byte{frameOf(1, "more")})
			r.host.receive(rdmanet.Peer{ID: "c", Incarnation: 5}, [][]byte{frameOf(1, "no member")})
			r.host.receive(rdmanet.Peer{ID: "z", Incarnation: 5}, [][]byte{frameOf(1, "no peer")})
			r.host.receive(rdmanet.Peer{ID: "b", Incarnation: 5}, [][]byte{frameOf(1, "good")})
			waitFor(t, "the good one", func() bool { return len(r.engine.received()) > before })
			if got := r.engine.received()[before]; got != "1: good" {
				t.Errorf("received %q", got)
			}
		})
	}
}

func TestNewIncarnationIsTheFailureOfTheOldOne(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	if err := r.Activate(Group{Run: 1, Members: []order.ServerID{0, 1, 2}}); err != nil {
		t.Fatal(err)
	}
	r.host.receive(rdmanet.Peer{ID: "b", Incarnation: 5}, [][]byte{frameOf(1, "first life")})
	r.host.receive(rdmanet.Peer{ID: "b", Incarnation: 6}, [][]byte{frameOf(1, "second life")})
	if server := get(t, r.lost); server != 1 {
		t.Errorf("lost %d, want 1", server)
	}
	for _, frame := range r.engine.received() {
		if frame == "1: second life" {
			t.Error("the second life's frame was taken")
		}
	}
}

func TestBrokenLane(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	if err := r.Activate(Group{Run: 1, Members: []order.ServerID{0, 1, 2}}); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the lanes", func() bool { return len(r.host.lanes) == 2 })
	r.engine.mu.Lock()
	r.host.lanes["b"].err = fmt.Errorf("lane: %w", rdmanet.ErrReset)
	r.engine.ready.Sends = []order.Send{{To: []order.ServerID{1, 2}, Frame: frameOf(1, "x")},
		{To: []order.ServerID{1, 2}, Frame: frameOf(1, "y")}}
	r.engine.mu.Unlock()
	r.host.receive(rdmanet.Peer{ID: "c", Incarnation: 5}, [][]byte{frameOf(1, "go on")})
	if server := get(t, r.lost); server != 1 {
		t.Errorf("lost %d, want 1", server)
	}
	r.Freeze()
	if lane := r.host.lanes["c"]; lane.frames != 2 || lane.calls != 1 {
		t.Errorf("%d frames in %d calls to the live one, want 2 in 1", lane.frames, lane.calls)
	}
	if lost := r.Status().Lost; len(lost) != 1 || lost[0] != 1 {
		t.Errorf("status says %v", lost)
	}
}

func TestHalts(t *testing.T) {
	t.Parallel()
	t.Run("the engine does", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, nil)
		if err := r.Activate(Group{Run: 1, Members: []order.ServerID{0, 1}}); err != nil {
			t.Fatal(err)
		}
		r.engine.mu.Lock()
		r.engine.halted = "too many failures"
		r.engine.mu.Unlock()
		r.host.receive(rdmanet.Peer{ID: "b", Incarnation: 5}, [][]byte{frameOf(1, "x")})
		if reason := get(t, r.halted); reason != "too many failures" {
			t.Error(reason)
		}
		if status := r.Status(); status.Running || status.Halted != "too many failures" {
			t.Errorf("%+v", status)
		}
		r.engine.mu.Lock()
		r.engine.halted = ""
		r.engine.mu.Unlock()
		if err := r.Activate(Group{Run: 2, Members: []order.ServerID{0, 1}}); err != nil {
			t.Errorf("the next generation: %v", err)
		}
	})
	t.Run("the sink refuses", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, func(c *Config) {
			c.Sink = sinkFunc(func(context.Context, []order.Delivery) error {
				return errors.New("the disk is gone")
			})
		})
		r.engine.ready.Deliveries = []order.Delivery{{Round: 1}}
		if err := r.Activate(Group{Run: 1, Members: []order.ServerID{0, 1}}); err != nil {
			t.Fatal(err)
		}
		if reason := get(t, r.halted); reason != "deliveries not taken: the disk is gone" {
			t.Error(reason)
		}
	})
}

// A peer's lane takes nothing while more is parked for it than the protocol can have under way. The
// peer is given up and continues without this server's frames. The engine continues.
func TestTooMuchIsParked(t *testing.T) {
	t.Parallel()
	for _, bytes := range []bool{false, true} {
		t.Run(fmt.Sprintf("bytes %v", bytes), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, func(c *Config) {
				c.ParkedBytes, c.ParkedPatience = 1, 20*time.Millisecond
			})
			frames := parkedFramesMax(2)
			if !bytes {
				frames++
			}
			for range frames {
				r.engine.ready.Sends = append(r.engine.ready.Sends,
					order.Send{To: []order.ServerID{1}, Frame: frameOf(1, "x")})
			}
			r.config.Host = &fullHost{quietHost: r.host}
			if err := r.Activate(Group{Run: 1, Members: []order.ServerID{0, 1}}); err !=
				nil {
				t.Fatal(err)
			}
			r.host.receive(rdmanet.Peer{ID: "b", Incarnation: 5}, [][]byte{frameOf(1, "go on")})
			if bytes {
				waitFor(t, "parked frames", func() bool { return len(r.Status().Parked) == 1 })
				r.engine.mu.Lock()
				r.engine.can, r.engine.solicited = true, true
				r.engine.mu.Unlock()
				r.host.receive(rdmanet.Peer{ID: "b", Incarnation: 5}, [][]byte{frameOf(1, "go on")})
			}
			if server := get(t, r.lost); server != 1 {
				t.Errorf("lost %d, want 1", server)
			}
			if bytes {
				waitFor(t, "the batch that was withheld", func() bool {
					return r.engine.broadcastCount() >= 1
				})
			}
			r.host.receive(rdmanet.Peer{ID: "b", Incarnation: 5}, [][]byte{frameOf(1, "votes")})
			waitFor(t, "what comes from it is of use", func() bool {
				return slices.Contains(r.engine.received(), "1: votes")
			})
			r.Trust(1, 1)
			if remains := r.Freeze(); len(remains.Untaken)+len(remains.Votes) > 0 {
				t.Errorf("%+v", remains)
			}
			if status := r.Status(); status.Halted != "" || len(status.Lost) != 1 {
				t.Errorf("%+v", status)
			}
		})
	}
}

// fullHost has lanes without room.
type fullHost struct{ *quietHost }

func (h *fullHost) Lane(peer rdmanet.PeerID, _ string) (rdmanet.Lane, error) {
	return &fullLane{quietLane{peer: peer}}, nil
}

type fullLane struct{ quietLane }

func (l *fullLane) TrySend(...[]byte) (bool, error) { return false, nil }
func (l *fullLane) Send(ctx context.Context, _ ...[]byte) error {
	<-ctx.Done()
	return ctx.Err()
}

func TestFreezeInterruptsTheSink(t *testing.T) {
	t.Parallel()
	entered := make(chan struct{})
	r := newRig(t, func(c *Config) {
		c.Sink = sinkFunc(func(ctx context.Context, _ []order.Delivery) error {
			close(entered)
			<-ctx.Done()
			return ctx.Err()
		})
	})
	r.engine.ready.Deliveries = []order.Delivery{{Round: 1, Messages: []order.Message{{Origin: 1}},
		Removed: []order.ServerID{0}}}
	r.engine.votes = []order.Vote{{Round: 2, Members: []order.ServerID{0, 1},
		Delivery: order.Delivery{Round: 2, Messages: []order.Message{{Origin: 1}}}}}
	if err := r.Activate(Group{Run: 1, Members: []order.ServerID{0, 3}}); err != nil {
		t.Fatal(err)
	}
	<-entered
	for range 2 {
		remains := r.Freeze()
		if len(remains.Untaken) != 1 || remains.Untaken[0].Messages[0].Origin != 3 {
			t.Errorf("untaken: %+v", remains.Untaken)
		}
		if remains.VotesMax != 5 || len(remains.Votes) != 1 || remains.Votes[0].Members[1] != 3 ||
			remains.Votes[0].Delivery.Messages[0].Origin != 3 {
			t.Errorf("votes: %+v", remains.Votes)
		}
		r.engine.votes = []order.Vote{{Round: 2, Members: []order.ServerID{0, 1},
			Delivery: order.Delivery{Round: 2, Messages: []order.Message{{Origin: 1}}}}}
	}
	select {
	case reason := <-r.halted:
		t.Errorf("freezing is no halt: %s", reason)
	default:
	}
}

// Frames of later generations are held up to a bound, then their lane waits. Nothing is lost.
func TestHeldFramesAreBounded(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *Config) { c.HeldFrames = 4 })
	if err := r.Activate(Group{Run: 1, Members: []order.ServerID{0, 1}}); err != nil {
		t.Fatal(err)
	}
	returned := make(chan struct{})
	const frames = 100
	go func() {
		defer close(returned)
		for i := range frames {
			generation := uint64(2 + i/50) // 50 of the second, 50 of the third
			r.host.receive(rdmanet.Peer{ID: "b", Incarnation: 5},
				[][]byte{frameOf(1, "late"), frameOf(generation, fmt.Sprint(i))})
		}
	}()
	waitFor(t, "held frames", func() bool {
		r.inbox.mu.Lock()
		defer r.inbox.mu.Unlock()
		return r.inbox.gate.Holds(r.inbox.senders[1]) == 4
	})
	if err := r.Activate(Group{Run: 2, Members: []order.ServerID{0, 1}}); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the second generation's", func() bool {
		received := r.engine.received()
		return len(received) > 0 && received[len(received)-1] == "1: 49"
	})
	if err := r.Activate(Group{Run: 3, Members: []order.ServerID{0, 1}}); err != nil {
		t.Fatal(err)
	}
	get(t, returned)
	waitFor(t, "the third generation's", func() bool {
		received := r.engine.received()
		return received[len(received)-1] == "1: 99"
	})
	number := 0
	for _, frame := range r.engine.received() {
		if frame == "1: late" {
			continue // frames of the first generation while that ran
		}
		if frame != fmt.Sprintf("1: %d", number) {
			t.Fatalf("%q in place %d", frame, number)
		}
		number++
	}
	if number != frames {
		t.Errorf("%d frames", number)
	}
}

func TestCloseLetsReceiversGo(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *Config) { c.HeldFrames = 1 })
	returned := make(chan struct{})
	go func() {
		defer close(returned)
		r.host.receive(rdmanet.Peer{ID: "b", Incarnation: 5},
			[][]byte{frameOf(9, "1"), frameOf(9, "2"), frameOf(9, "3")})
	}()
	waitFor(t, "a held frame", func() bool {
		r.inbox.mu.Lock()
		defer r.inbox.mu.Unlock()
		return r.inbox.gate.Holds(r.inbox.senders[1]) == 1
	})
	r.Close()
	get(t, returned)
	if err := r.Activate(Group{Run: 1, Members: []order.ServerID{0}}); !errors.Is(err,
		ErrClosed) {
		t.Errorf("activate after close: %v", err)
	}
}

func TestGroupsThatCannotBe(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	if err := r.Activate(Group{Run: 5, Members: []order.ServerID{0, 2}}); err != nil {
		t.Fatal(err)
	}
	for _, group := range []Group{
		{Run: 5, Members: []order.ServerID{0, 2}},
		{Run: 4, Members: []order.ServerID{0, 2}},
		{Run: 6},
		{Run: 6, Members: []order.ServerID{1, 2}},
		{Run: 6, Members: []order.ServerID{2, 0}},
		{Run: 6, Members: []order.ServerID{0, 0}},
		{Run: 6, Members: []order.ServerID{0, 4}},
	} {
		if err := r.Activate(group); !errors.Is(err, ErrGroup) {
			t.Errorf("%+v: %v, want ErrGroup", group, err)
		}
	}
	if !r.Status().Running {
		t.Error("a refused group ended the one that runs")
	}
	r.Suspect(4, 2, errors.New("of an earlier generation"))
	r.Suspect(5, 1, errors.New("no member"))
	r.Suspect(5, 99, errors.New("nobody"))
	r.Suspect(5, 2, errors.New("silent"))
	waitFor(t, "the suspicion", func() bool {
		defer r.engine.lock()()
		return len(r.engine.suspected) == 1
	})
	if r.engine.suspected[0] != 1 {
		t.Errorf("suspected place %d, want that of server 2, 1", r.engine.suspected[0])
	}
}

// relayed is a running driver, called directly, for the hot path: every frame is relayed to two
// servers.
func relayed(t testing.TB) (*rig, *running, func(frames [][]byte)) {
	r := newRig(t, nil)
	engine := &relayEngine{to: []order.ServerID{1, 2}}
	run, err := newRunning(r.Driver, Group{Run: 1, Members: []order.ServerID{0, 1, 2}},
		0, engine)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { run.cancel(errFrozen); run.status.stop() })
	r.inbox.activate(run.group)
	return r, run, func(frames [][]byte) {
		r.host.receive(rdmanet.Peer{ID: "b", Incarnation: 5}, frames)
		run.take()
	}
}

type relayEngine struct {
	scripted
	to    []order.ServerID
	sends []order.Send
}

func (e *relayEngine) CanBroadcast() bool { return false }
func (e *relayEngine) Receive(_ order.ServerID, frame []byte) error {
	e.sends = append(e.sends, order.Send{To: e.to, Frame: frame})
	return nil
}
func (e *relayEngine) Ready() order.Ready {
	ready := order.Ready{Sends: e.sends}
	e.sends = e.sends[:0]
	return ready
}

func TestRelayAllocatesNothing(t *testing.T) {
	r, _, turn := relayed(t)
	frames := make([][]byte, 16)
	for i := range frames {
		frames[i] = frameOf(1, "relayed")
	}
	if allocations := testing.AllocsPerRun(200, func() { turn(frames) }); allocations > 0 {
		t.Errorf("%v allocations for %d relayed frames", allocations, len(frames))
	}
	if lane := r.host.lanes["b"]; lane.frames != 16*lane.calls {
		t.Errorf("%d frames in %d calls", lane.frames, lane.calls)
	}
}

func BenchmarkRelay(b *testing.B) {
	for _, batch := range []int{1, 16} {
		b.Run(fmt.Sprintf("%d frames a turn", batch), func(b *testing.B) {
			_, _, turn := relayed(b)
			frames := make([][]byte, batch)
			for i := range frames {
				frames[i] = frameOf(1, "relayed")
			}
			b.ReportAllocs()
			for b.Loop() {
				turn(frames)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*batch), "ns/frame")
		})
	}
}

// A server that was lost to this generation may begin the next one before this server does. Its
// frames are held, like those of any server.
func TestLostServerBeginsTheNextGenerationFirst(t *testing.T) {
	t.Parallel()
	config := Config{
		Peers: []rdmanet.PeerID{"a", "b"}, InboxFrames: 10, InboxBytes: 1000, HeldFrames: 10,
		Logger: slog.New(slog.DiscardHandler),
		FrameRun: func(frame []byte) (uint64, error) {
			return binary.LittleEndian.Uint64(frame), nil
		},
	}
	frame := func(generation uint64, text string) []byte {
		return append(binary.LittleEndian.AppendUint64(nil, generation), text...)
	}
	in, err := newInbox(config)
	if err != nil {
		t.Fatal(err)
	}
	in.activate(Group{Run: 1, Members: []order.ServerID{0, 1}})
	in.receive(rdmanet.Peer{ID: "b", Incarnation: 2}, [][]byte{frame(2, "early")})
	in.silence(1)
	in.receive(rdmanet.Peer{ID: "b", Incarnation: 2}, [][]byte{frame(1, "lost"), frame(2, "later")})
	in.activate(Group{Run: 2, Members: []order.ServerID{0, 1}})
	frames, suspicions := in.take(nil, &loans{})
	if len(frames) != 2 || string(frames[0].Frame[8:]) != "early" ||
		string(frames[1].Frame[8:]) != "later" || len(suspicions) != 0 {
		t.Fatalf("%d frames, suspicions %v", len(frames), suspicions)
	}
}

// A suspicion goes to the engine once, until it is taken back. The detector may already watch a run
// that has yet to begin here: a suspicion in that run waits for it.
func TestSuspicionsAndTrust(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.Suspect(1, 3, errors.New("early"))
	r.Suspect(1, 2, errors.New("early, and a mistake"))
	r.Trust(1, 2)
	r.Suspect(2, 2, errors.New("of a later run"))
	if err := r.Activate(Group{Run: 1, Members: []order.ServerID{0, 2, 3}}); err != nil {
		t.Fatal(err)
	}
	seen := func(suspected, trusted int) func() bool {
		return func() bool {
			defer r.engine.lock()()
			return len(r.engine.suspected) == suspected && len(r.engine.trusted) == trusted
		}
	}
	waitFor(t, "the early suspicion", seen(1, 0))
	r.Suspect(1, 3, errors.New("again"))
	r.Trust(1, 2) // it is not suspected
	r.Trust(1, 99)
	r.Trust(0, 3)
	r.Trust(1, 3)
	waitFor(t, "trust", seen(1, 1))
	r.Suspect(1, 3, errors.New("again"))
	waitFor(t, "the second suspicion", seen(2, 1))
	if !slices.Equal(r.engine.suspected, []order.ServerID{2, 2}) ||
		!slices.Equal(r.engine.trusted, []order.ServerID{2}) {
		t.Errorf("suspected %v, trusted %v, want the place of server 3, 2", r.engine.suspected,
			r.engine.trusted)
	}
	// A malformed frame: for good.
	r.host.receive(rdmanet.Peer{ID: "d", Incarnation: 5}, [][]byte{[]byte("x")})
	get(t, r.lost)
	r.Trust(1, 3)
	if err := r.Activate(Group{Run: 2, Members: []order.ServerID{0, 2, 3}}); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the suspicion of the later run", seen(3, 1))
}
