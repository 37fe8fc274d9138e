package lane

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"runtime"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/rdmanet/internal/peers"
	"github.com/ledgerd/ledgerd/rdmanet/internal/window"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// host is one end of a minimal provider. Hellos are function calls. Connections are pipes in this
// process, and break.
type host struct {
	lanes   *Lanes
	tracker *peers.Tracker
	feeds   sync.WaitGroup
	dial    func(ctx context.Context, from *host, s *Sender) (Outlet, error)
}

func newHost(id rdmanet.PeerID, incarnation rdmanet.Incarnation, limits window.Limits,
	mend time.Duration) *host {
	h := &host{}
	h.tracker = peers.New(func(p rdmanet.Peer) { h.lanes.Restarted(p) })
	h.lanes = New(Config{
		Self: rdmanet.Peer{ID: id, Incarnation: incarnation}, Limits: limits.WithDefaults(),
		MendTimeout: mend, Peers: h.tracker,
		Member: func(peer rdmanet.PeerID) bool { return peer != "stranger" },
		Dial: func(ctx context.Context, s *Sender, _ time.Duration) (Outlet, error) {
			return h.dial(ctx, h, s)
		},
		Log: slog.New(slog.DiscardHandler), Poison: true,
	})
	return h
}

func (h *host) close() {
	h.lanes.End()
	h.lanes.Wait()
	h.feeds.Wait()
}

// pipe is both ends of a connection.
type pipe struct {
	ctx      context.Context
	sender   *Sender
	inbound  *Inbound
	in, out  net.Conn
	budget   int // bytes until it breaks
	tamper   func(frames [][]byte, first uint64) [][]byte
	due      chan struct{}
	over     chan struct{}
	once     sync.Once
	hearing  sync.WaitGroup
	released func() bool
}

// connectTo returns a dialler to a host, over pipes that break after as many bytes as budget
// returns.
func connectTo(to *host, budget func() int, tamper func([][]byte,
	uint64) [][]byte) func(context.Context, *host, *Sender) (Outlet, error) {
	return func(ctx context.Context, from *host, s *Sender) (Outlet, error) {
		p := &pipe{ctx: ctx, sender: s, budget: budget(), tamper: tamper,
			due: make(chan struct{}, 1), over: make(chan struct{})}
		p.in, p.out = net.Pipe()
		inbound, answer := to.lanes.Greet(from.lanes.config.Self.ID, s.Hello(), p)
		if err := s.Accept(answer); err != nil {
			if inbound != nil {
				inbound.End()
			}
			return nil, err
		}
		p.inbound = inbound
		to.feeds.Go(func() {
			defer inbound.End()
			_ = inbound.Feed(p.in) // every pipe breaks
			p.Stop(nil)
		})
		p.released = context.AfterFunc(ctx, func() { p.Stop(nil) })
		return p, nil
	}
}

func (p *pipe) Stop(error) {
	p.once.Do(func() {
		close(p.over)
		p.in.Close()
		p.out.Close()
	})
}

func (p *pipe) Owe(bool, bool) { notify(p.due) }

func (p *pipe) Start() {
	p.hearing.Go(func() {
		for {
			select {
			case <-p.due:
				if p.sender.Acknowledged(p.inbound.Acknowledging()) != nil {
					p.Stop(nil)
				}
			case <-p.over:
				return
			}
		}
	})
}

func (p *pipe) Write(frames [][]byte, first uint64) error {
	if p.tamper != nil {
		frames = p.tamper(frames, first)
	}
	return p.write(encode(frames, first))
}

// write writes bytes as long as the budget lasts.
func (p *pipe) write(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	broken := len(b) > p.budget
	b = b[:min(len(b), p.budget)]
	p.budget -= len(b)
	if _, err := p.out.Write(b); err != nil {
		return err
	}
	if broken {
		return io.ErrClosedPipe
	}
	return nil
}

func (p *pipe) Wait(ready <-chan struct{}) error {
	select {
	case <-ready:
		return nil
	case <-p.over:
		return io.ErrClosedPipe
	}
}

func (p *pipe) Close(err error) (time.Time, error) {
	p.Stop(nil)
	p.hearing.Wait()
	p.released()
	return time.Now(), err
}

// promptBytesMax bounds the batches that a promptPipe takes at once.
const promptBytesMax = 4 << 10

// promptPipe is a pipe that at times takes only a part of a batch at once.
type promptPipe struct {
	*pipe
	taken int // batches that TryWrite was given
	rest  []byte
	err   error
}

func (p *promptPipe) Write(frames [][]byte, first uint64) error {
	if len(p.rest) > 0 {
		panic("a batch before the rest of the last one is flushed")
	}
	return p.pipe.Write(frames, first)
}

func (p *promptPipe) PromptBytes() int { return promptBytesMax }

func (p *promptPipe) TryWrite(frames [][]byte, first uint64) bool {
	if len(p.rest) > 0 {
		panic("a batch before the rest of the last one is flushed")
	}
	b := encode(frames, first)
	if len(b) > 2*promptBytesMax {
		panic("a batch that is not small")
	}
	p.taken++
	n := len(b)
	if p.taken%3 == 0 {
		n = rand.IntN(len(b))
	}
	p.err = p.write(b[:n])
	p.rest = b[n:]
	return p.err == nil && len(p.rest) == 0
}

func (p *promptPipe) Flush() error {
	if p.err != nil {
		return p.err
	}
	rest := p.rest
	p.rest = nil
	return p.write(rest)
}

// frameOf makes a frame that contains its number, with a size derived from the number.
func frameOf(i uint64) []byte {
	frame := make([]byte, 8+i*37%300)
	binary.BigEndian.PutUint64(frame, i)
	return frame
}

// prompt makes a dialler's pipes prompt.
func prompt(dial func(context.Context, *host, *Sender) (Outlet, error)) func(context.Context, *host,
	*Sender) (Outlet, error) {
	return func(ctx context.Context, from *host, s *Sender) (Outlet, error) {
		outlet, err := dial(ctx, from, s)
		if err != nil {
			return nil, err
		}
		return &promptPipe{pipe: outlet.(*pipe)}, nil
	}
}

// story sends frames over connections that break all the time, and returns an error if the received
// frames are wrong.
func story(tamper func([][]byte, uint64) [][]byte) error {
	return storyOf(connectTo, tamper, func(ctx context.Context, lane rdmanet.Lane, i uint64) error {
		return lane.Send(ctx, frameOf(i))
	})
}

// storyOf is a story over the connections of a dialler, with a way to send.
func storyOf(connect func(*host, func() int, func([][]byte, uint64) [][]byte) func(context.Context,
	*host, *Sender) (Outlet, error), tamper func([][]byte, uint64) [][]byte,
	send func(context.Context, rdmanet.Lane, uint64) error) error {
	const count = 3_000
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	limits := window.Limits{Frames: 64, Bytes: 8 << 10, FrameBytes: 1 << 10}
	a, b := newHost("a", 1, limits, 2*time.Second), newHost("b", 1, limits, 2*time.Second)
	defer b.close()
	defer a.close()
	a.dial = connect(b, func() int { return rand.IntN(64 << 10) }, tamper)
	var mu sync.Mutex
	var next uint64
	var wrong error
	err := b.lanes.Receive("test", func(_ rdmanet.Peer, frames [][]byte) {
		mu.Lock()
		defer mu.Unlock()
		for _, frame := range frames {
			if i := binary.BigEndian.Uint64(frame); i != next && wrong == nil {
				wrong = fmt.Errorf("frame %d arrived in the place of frame %d", i, next)
				cancel()
			}
			next++
		}
	}, false)
	if err != nil {
		return err
	}
	lane, err := a.lanes.Open("b", "test")
	if err != nil {
		return err
	}
	for i := range uint64(count) {
		if err := send(ctx, lane, i); err != nil {
			return err
		}
	}
	if err := lane.Flushed(ctx); err != nil {
		return err
	}
	mu.Lock()
	defer mu.Unlock()
	if wrong == nil && next != count {
		wrong = fmt.Errorf("%d frames arrived, %d were sent", next, count)
	}
	return wrong
}

// TestConnectionsThatBreak checks that frames arrive in order, each once, without omissions,
// whatever breaks. Faulty wires that swap, drop and repeat frames prove that the check can fail.
func TestConnectionsThatBreak(t *testing.T) {
	t.Parallel()
	if err := story(nil); err != nil {
		t.Error(err)
	}
	for name, tamper := range map[string]func([][]byte, uint64) [][]byte{
		"swaps": func(frames [][]byte, _ uint64) [][]byte {
			if len(frames) < 2 {
				return frames
			}
			return append([][]byte{frames[1], frames[0]}, frames[2:]...)
		},
		"drops": func(frames [][]byte, _ uint64) [][]byte {
			if len(frames) < 2 {
				return frames
			}
			return frames[1:]
		},
		"repeats": func(frames [][]byte, first uint64) [][]byte {
			if first < 100 {
				return frames
			}
			return append(frames[:len(frames):len(frames)], frames[len(frames)-1])
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if story(tamper) == nil {
				t.Error("nobody noticed")
			}
		})
	}
}

// TestSendersThatWrite checks the same if senders write small batches by themselves, and the
// connection takes all of a batch, a part of it, or breaks.
func TestSendersThatWrite(t *testing.T) {
	t.Parallel()
	connect := func(to *host, budget func() int, tamper func([][]byte,
		uint64) [][]byte) func(context.Context, *host, *Sender) (Outlet, error) {
		return prompt(connectTo(to, budget, tamper))
	}
	for range 3 {
		err := storyOf(connect, nil, func(ctx context.Context, lane rdmanet.Lane, i uint64) error {
			if i%7 == 0 {
				return lane.Send(ctx, frameOf(i))
			}
			if sent, err := lane.TrySend(frameOf(i)); sent || err != nil {
				return err
			}
			return lane.Send(ctx, frameOf(i))
		})
		if err != nil {
			t.Error(err)
		}
	}
}

// TestIdleLane checks that a small frame on an idle lane leaves from the goroutine of its sender,
// that a large one does not, and that a frame which comes meanwhile leaves, too.
func TestIdleLane(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	limits := window.Limits{Frames: 64, Bytes: 1 << 20, FrameBytes: 1 << 16}
	a, b := newHost("a", 1, limits, 5*time.Second), newHost("b", 5, limits, 5*time.Second)
	defer b.close()
	defer a.close()
	var connected *promptPipe
	dial := prompt(connectTo(b, func() int { return 1 << 30 }, nil))
	a.dial = func(ctx context.Context, from *host, s *Sender) (Outlet, error) {
		outlet, err := dial(ctx, from, s)
		if err == nil {
			connected = outlet.(*promptPipe)
		}
		return outlet, err
	}
	if err := b.lanes.Receive("test", func(rdmanet.Peer, [][]byte) {}, false); err != nil {
		t.Fatal(err)
	}
	opened, err := a.lanes.Open("b", "test")
	if err != nil {
		t.Fatal(err)
	}
	lane := opened.(*Sender)
	if err := errors.Join(lane.Send(ctx, frameOf(0)), lane.Flushed(ctx)); err != nil {
		t.Fatal(err)
	}
	waits := func() (waits bool) {
		lane.writing.Lock()
		defer lane.writing.Unlock()
		return lane.prompt != nil
	}
	wait := func() {
		for !waits() {
			if ctx.Err() != nil {
				t.Fatal("the lane's goroutine does not wait")
			}
			runtime.Gosched()
		}
	}
	wait()
	if sent, err := lane.TrySend(make([]byte, 100)); !sent || err != nil {
		t.Fatal(sent, err)
	}
	lane.writing.Lock()
	if connected.taken != 1 {
		t.Errorf("%d batches left from their sender, want 1", connected.taken)
	}
	// As if another sender was writing.
	if sent, err := lane.TrySend(make([]byte, 100)); !sent || err != nil {
		t.Fatal(sent, err)
	}
	lane.writing.Unlock()
	if err := lane.Flushed(ctx); err != nil {
		t.Fatal(err)
	}
	if sent, err := lane.TrySend(make([]byte, promptBytesMax+1)); !sent || err != nil {
		t.Fatal(sent, err)
	}
	if err := lane.Flushed(ctx); err != nil {
		t.Fatal(err)
	}
	lane.writing.Lock()
	if connected.taken != 1 {
		t.Errorf("%d batches left from their sender, want 1", connected.taken)
	}
	lane.writing.Unlock()
	wait()
	lane.writing.Lock()
	connected.taken = 2 // the next one is taken in part
	lane.writing.Unlock()
	if sent, err := lane.TrySend(make([]byte, 100)); !sent || err != nil {
		t.Fatal(sent, err)
	}
	if err := lane.Flushed(ctx); err != nil {
		t.Errorf("the rest of a batch: %v", err)
	}
	for _, sizes := range [][]int{{promptBytesMax - 1, 2}, {3 * promptBytesMax}} {
		wait()
		for _, size := range sizes { // as if another sender had come in between
			sent, _, err := lane.window.Offer([][]byte{make([]byte, size)})
			if !sent || err != nil {
				t.Fatal(sent, err)
			}
		}
		if lane.writeNow() {
			t.Errorf("frames of %d bytes: nothing is left", sizes)
		}
		lane.window.Wake()
		if err := lane.Flushed(ctx); err != nil {
			t.Fatal(err)
		}
	}
}

// inlet is a connection that is never used.
type inlet struct{ stopped error }

func (i *inlet) Stop(err error) { i.stopped = err }
func (i *inlet) Owe(_, _ bool)  {}

// feed hands a batch over as if it had arrived.
func feed(in *Inbound, first uint64, frames ...[]byte) error {
	reader, writer := io.Pipe()
	go func() {
		_, _ = writer.Write(encode(frames, first)) // the reader may give up
		writer.Close()
	}()
	defer reader.Close()
	return in.Feed(reader)
}

// TestGreetings checks a receiver's answers to a sequence of hellos.
func TestGreetings(t *testing.T) {
	t.Parallel()
	h := newHost("b", 5, window.Limits{FrameBytes: 1 << 10}, time.Second)
	defer h.close()
	taken := 0
	if err := h.lanes.Receive("test", func(_ rdmanet.Peer, frames [][]byte) {
		taken += len(frames)
	}, false); err != nil {
		t.Fatal(err)
	}
	var lost []uint64
	h.tracker.Watch(func(event rdmanet.PeerEvent) {
		if event.Kind == rdmanet.LaneReset {
			lost = append(lost, event.Lost)
		}
	})
	var fed *inlet
	for _, step := range []struct {
		name  string
		from  rdmanet.PeerID
		hello Hello
		want  Status
		next  uint64
		feed  uint64 // frames handed over after a welcome
		fault error  // the error of that
	}{
		{name: "first", hello: Hello{Name: "test", Sender: 3, Opening: 1}, want: StatusWelcome,
			feed: 4, fault: io.EOF},
		{name: "mended", hello: Hello{Name: "test", Sender: 3, Opening: 1, Receiver: 5},
			want: StatusWelcome, next: 4, feed: 1, fault: io.EOF},
		{name: "another name", hello: Hello{Name: "else", Sender: 3, Opening: 1},
			want: StatusNoReceiver},
		{name: "to an earlier life", hello: Hello{Name: "test", Sender: 3, Opening: 1, Receiver: 4},
			want: StatusRestarted},
		{name: "frames too large", hello: Hello{Name: "test", Sender: 3, Opening: 1,
			FrameMax: 1 << 11}, want: StatusFrameMax},
		{name: "a stranger", from: "stranger", hello: Hello{Name: "test", Sender: 3, Opening: 1},
			want: StatusStale},
		{name: "opened again", hello: Hello{Name: "test", Sender: 3, Opening: 2, Lost: 7,
			LostBy: 5}, want: StatusWelcome, feed: 2, fault: io.EOF},
		{name: "the opening before", hello: Hello{Name: "test", Sender: 3, Opening: 1},
			want: StatusStale},
		{name: "restarted", hello: Hello{Name: "test", Sender: 4, Opening: 1, Lost: 9, LostBy: 2},
			want: StatusWelcome, feed: 1, fault: io.EOF},
		{name: "the life before", hello: Hello{Name: "test", Sender: 3, Opening: 3},
			want: StatusStale},
	} {
		if step.from == "" {
			step.from = "a"
		}
		in := &inlet{}
		before := taken
		inbound, answer := h.lanes.Greet(step.from, step.hello, in)
		if answer.Status != step.want || answer.Incarnation != 5 || answer.Next != step.next ||
			answer.Delivered != step.next || (inbound != nil) != (step.want == StatusWelcome) {
			t.Fatalf("%s: answer %+v", step.name, answer)
		}
		if inbound == nil {
			continue
		}
		if fed != nil && !errors.Is(fed.stopped, ErrSuperseded) {
			t.Errorf("%s: the connection before was not stopped", step.name)
		}
		fed = in
		if err := feed(inbound, step.next+1, frameOf(0)); !errors.Is(err, ErrProtocol) {
			t.Errorf("%s: a gap gives %v", step.name, err)
		}
		frames := make([][]byte, step.feed)
		for i := range frames {
			frames[i] = frameOf(uint64(i))
		}
		if err := feed(inbound, step.next, frames...); !errors.Is(err, step.fault) ||
			taken-before != len(frames) {
			t.Errorf("%s: %d frames of %d taken, error %v", step.name, taken-before, len(frames),
				err)
		}
		inbound.End()
	}
	if len(lost) != 1 || lost[0] != 7 {
		t.Errorf("lost frames were told as %v", lost)
	}
	if err := h.lanes.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	for opening, owed := range map[uint64]uint64{1: 1, 2: 0} {
		_, answer := h.lanes.Greet("a", Hello{Name: "test", Sender: 4, Opening: opening}, &inlet{})
		if answer.Status != StatusClosing || answer.Delivered != owed || answer.Next != owed {
			t.Errorf("a closing host answers opening %d with %+v, it owes %d", opening, answer,
				owed)
		}
	}
}

// debtor records when acknowledgements become due and urgent.
type debtor struct {
	inlet
	due, urgent int
}

func (d *debtor) Owe(first, urgent bool) {
	if first {
		d.due++
	}
	if urgent {
		d.urgent++
	}
}

// TestUrgency checks that an acknowledgement is urgent once a quarter of the window waits for it,
// or urgentBytesMax if that is less.
func TestUrgency(t *testing.T) {
	t.Parallel()
	frame := make([]byte, 100<<10)
	for name, test := range map[string]struct {
		bytes, frames uint32
		calm          int // so many frames make nothing urgent
	}{
		"a small window": {bytes: 4 << 20, frames: 1 << 16, calm: (1 << 20) / len(frame)},
		"a large window": {bytes: 1 << 30, frames: 1 << 16, calm: urgentBytesMax / len(frame)},
		"few frames":     {bytes: 1 << 30, frames: 16, calm: 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHost("b", 5, window.Limits{}, time.Second)
			defer h.close()
			if err := h.lanes.Receive("test", func(rdmanet.Peer, [][]byte) {}, false); err != nil {
				t.Fatal(err)
			}
			owing := &debtor{}
			inbound, _ := h.lanes.Greet("a", Hello{Name: "test", Sender: 1, Opening: 1,
				WindowBytes: test.bytes, WindowFrames: test.frames}, owing)
			defer inbound.End()
			for i := range uint64(test.calm) + 1 {
				if owing.urgent > 0 {
					t.Fatalf("urgent after %d frames, want %d", i, test.calm+1)
				}
				if err := feed(inbound, i, frame); !errors.Is(err, io.EOF) {
					t.Fatal(err)
				}
			}
			if owing.due != 1 || owing.urgent != 1 {
				t.Errorf("after %d frames it is due %d times and urgent %d times, want 1 and 1",
					test.calm+1, owing.due, owing.urgent)
			}
		})
	}
}

// TestSettle checks that a settled host hands no more frames over, and that the frames it has
// handed over are acknowledged.
func TestSettle(t *testing.T) {
	t.Parallel()
	h := newHost("b", 5, window.Limits{}, time.Second)
	defer h.close()
	entered, gate := make(chan struct{}), make(chan struct{})
	if err := h.lanes.Receive("test", func(rdmanet.Peer, [][]byte) {
		close(entered)
		<-gate
	}, false); err != nil {
		t.Fatal(err)
	}
	inbound, _ := h.lanes.Greet("a", Hello{Name: "test", Sender: 1, Opening: 1}, &inlet{})
	defer inbound.End()
	fed := make(chan error, 1)
	reader, writer := io.Pipe()
	go func() { fed <- inbound.Feed(reader) }()
	if _, err := writer.Write(encode([][]byte{frameOf(0)}, 0)); err != nil {
		t.Fatal(err)
	}
	<-entered
	short, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	h.lanes.Settle(short)
	if short.Err() == nil || inbound.Delivered() != 0 {
		t.Errorf("it settled while the receive function ran, with %d frames taken",
			inbound.Delivered())
	}
	settled := make(chan struct{})
	go func() {
		h.lanes.Settle(context.Background())
		close(settled)
	}()
	close(gate)
	<-settled
	if got := inbound.Acknowledging(); got != 1 {
		t.Errorf("%d frames are acknowledged, one was taken", got)
	}
	if _, err := writer.Write(encode([][]byte{frameOf(1)}, 1)); err != nil {
		t.Fatal(err)
	}
	if err := <-fed; !errors.Is(err, ErrSealed) {
		t.Errorf("a batch after that: %v", err)
	}
}

// TestLanesBreak checks that a peer that lost the lane's state, or is another incarnation, breaks
// the lane with ErrReset. A peer given up from outside breaks it with ErrUnreachable.
func TestLanesBreak(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		then func(a *host, second *host)
		peer *host
		want error
	}{
		"lost state": {peer: newHost("b", 5, window.Limits{}, time.Second), want: rdmanet.ErrReset},
		"restarted":  {peer: newHost("b", 6, window.Limits{}, time.Second), want: rdmanet.ErrReset},
		"given up": {then: func(a, _ *host) {
			a.lanes.Unreachable("b", errors.New("silent"))
		}, want: rdmanet.ErrUnreachable},
		"expelled":   {then: func(a, _ *host) { a.lanes.Expel("b") }, want: rdmanet.ErrNotMember},
		"host's end": {then: func(a, _ *host) { a.lanes.End() }, want: rdmanet.ErrClosed},
		"peer closing": {then: func(_, b *host) {
			_ = b.lanes.Flush(context.Background())
		}, want: rdmanet.ErrUnreachable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			a, b := newHost("a", 1, window.Limits{}, 5*time.Second),
				newHost("b", 5, window.Limits{}, 5*time.Second)
			defer b.close()
			defer a.close()
			forever := func() int { return 1 << 30 }
			var mu sync.Mutex
			to := b
			a.dial = func(ctx context.Context, from *host, s *Sender) (Outlet, error) {
				mu.Lock()
				peer := to
				mu.Unlock()
				return connectTo(peer, forever, nil)(ctx, from, s)
			}
			if err := b.lanes.Receive("test", func(rdmanet.Peer, [][]byte) {}, false); err != nil {
				t.Fatal(err)
			}
			lane, err := a.lanes.Open("b", "test")
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(lane.Send(ctx, frameOf(0)), lane.Flushed(ctx)); err != nil {
				t.Fatal(err)
			}
			if test.peer != nil {
				defer test.peer.close()
				if err := test.peer.lanes.Receive("test", func(rdmanet.Peer, [][]byte) {},
					false); err != nil {
					t.Fatal(err)
				}
				mu.Lock()
				to = test.peer
				mu.Unlock()
			} else {
				test.then(a, b)
			}
			a.lanes.Sever("b")
			for err == nil {
				select {
				case <-ctx.Done():
					t.Fatal("the lane does not break")
				case <-time.After(time.Millisecond):
					_, err = lane.TrySend()
				}
			}
			if !errors.Is(err, test.want) {
				t.Errorf("got error %v, want %v", err, test.want)
			}
		})
	}
}
