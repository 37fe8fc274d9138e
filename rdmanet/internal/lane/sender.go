package lane

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/rdmanet/internal/peers"
	"github.com/ledgerd/ledgerd/rdmanet/internal/window"
)

// The pause between attempts to mend a lane grows from PauseMin to PauseMax. Each pause is
// shortened randomly by up to half.
const (
	PauseMin = 10 * time.Millisecond
	PauseMax = time.Second
)

// Sender is the sending end of a lane; it implements rdmanet.Lane. One goroutine, run, connects,
// writes and mends. The window keeps the frames until the receiver has taken them.
type Sender struct {
	lanes   *Lanes
	key     key
	opening uint64
	lost    lostFrames // frames that earlier openings lost, to be reported
	window  *window.Window

	receiver atomic.Uint64 // the incarnation that the lane leads to, 0 before a hello was answered
	heard    atomic.Int64  // when the peer last acknowledged, in nanoseconds since 1970
	ctx      context.Context
	cancel   context.CancelFunc
	rush     chan struct{} // a token ends the pause

	cut  atomic.Pointer[context.CancelFunc] // ends the current attempt or connection
	gone atomic.Pointer[error]              // why the peer was declared unreachable from outside

	progress bool // the current answer acknowledged frames; used only by the lane's goroutine

	// writing is held while frames are taken and written, and guards what follows.
	writing sync.Mutex
	prompt  PromptOutlet // set while the lane's goroutine waits and nothing is left to flush
	batch   [][]byte     // reused
}

func newSender(l *Lanes, k key, opening uint64, lost lostFrames) *Sender {
	ctx, cancel := context.WithCancel(context.Background())
	return &Sender{
		lanes: l, key: k, opening: opening, lost: lost,
		window: window.New(l.config.Limits),
		ctx:    ctx, cancel: cancel,
		rush: make(chan struct{}, 1),
	}
}

// Peer implements rdmanet.Lane.
func (s *Sender) Peer() rdmanet.PeerID { return s.key.peer }

// Name returns the lane's name.
func (s *Sender) Name() string { return s.key.name }

// Send implements rdmanet.Lane.
func (s *Sender) Send(ctx context.Context, frames ...[]byte) error {
	return s.window.Push(ctx, frames)
}

// TrySend implements rdmanet.Lane. If the lane is idle and its connection takes the frames at once,
// the caller writes them. Otherwise the lane's goroutine does.
func (s *Sender) TrySend(frames ...[]byte) (bool, error) {
	pushed, idle, err := s.window.Offer(frames)
	if idle && !s.writeNow() {
		s.window.Wake()
	}
	return pushed, err
}

// writeNow writes what the window has without waiting, if that is little. It reports whether
// nothing is left to do for the lane's goroutine.
func (s *Sender) writeNow() bool {
	if !s.writing.TryLock() {
		return false
	}
	defer s.writing.Unlock()
	if s.prompt == nil {
		return false
	}
	bytesMax := min(s.prompt.PromptBytes(), BatchBytesMax)
	batch, first, all := s.window.TakeAll(s.batch[:0], BatchFramesMax, bytesMax)
	if len(batch) == 0 {
		return all // if so, the lane's goroutine was faster
	}
	whole := s.prompt.TryWrite(batch, first)
	clear(batch)
	s.batch = batch
	if !whole {
		s.prompt = nil
	}
	return whole
}

// Flushed implements rdmanet.Lane.
func (s *Sender) Flushed(ctx context.Context) error { return s.window.Flushed(ctx) }

// Pending implements rdmanet.Lane.
func (s *Sender) Pending() int { return s.window.Pending() }

// Close implements rdmanet.Lane.
func (s *Sender) Close() error {
	s.end(rdmanet.ErrClosed)
	return nil
}

// end breaks the lane and stops its goroutine. It reports whether this call broke it.
func (s *Sender) end(err error) bool {
	broke := s.window.Break(s.wrap(err))
	s.cancel()
	return broke
}

// wrap adds the lane to an error.
func (s *Sender) wrap(err error) error {
	return fmt.Errorf("lane %q to %s: %w", s.key.name, s.key.peer, err)
}

// bound returns the incarnation that the lane leads to, or 0 before a hello was answered.
func (s *Sender) bound() rdmanet.Incarnation { return rdmanet.Incarnation(s.receiver.Load()) }

func (s *Sender) hurry() { notify(s.rush) }

// sever ends the current connection, if there is one.
func (s *Sender) sever() {
	if cut := s.cut.Load(); cut != nil {
		(*cut)()
	}
}

// giveUp makes the lane's goroutine break the lane as unreachable, after it has taken the last
// acknowledgements from the current connection.
func (s *Sender) giveUp(cause error) {
	s.gone.Store(&cause)
	s.sever()
	s.hurry()
}

// run connects and mends until the lane breaks.
func (s *Sender) run() {
	defer s.cancel()
	defer s.lanes.retire(s)
	mend := s.lanes.config.MendTimeout
	deadline := time.Now().Add(mend)
	pause, patience := PauseMin, s.lanes.config.AttemptTimeout
	// The first misfit since the last sign of life. It is reported as the cause instead of later
	// timeouts.
	var misfit error
	for {
		heard, err := s.connect(min(time.Until(deadline), patience))
		switch gone := s.gone.Load(); {
		case s.ctx.Err() != nil:
			s.end(rdmanet.ErrClosed)
			return
		case gone != nil:
			s.unreachable(*gone)
			return
		case errors.Is(err, rdmanet.ErrReset), errors.Is(err, rdmanet.ErrNotMember):
			s.end(err)
			return
		case errors.Is(err, ErrGoodbye):
			s.unreachable(err)
			return
		}
		if !heard.IsZero() {
			misfit = nil
			deadline, pause, patience = heard.Add(mend), PauseMin, s.lanes.config.AttemptTimeout
		} else if isTimeout(err) && patience < mend {
			// On a busy machine a second attempt takes as long as the first.
			patience *= 2
		}
		if errors.Is(err, ErrMisfit) && misfit == nil {
			misfit = err
			s.lanes.config.Log.Warn("lane refused", "lane", s.key.name, "peer", s.key.peer, "error",
				err)
		}
		s.lanes.config.Log.Debug("lane is down", "lane", s.key.name, "peer", s.key.peer, "error",
			err)
		left := time.Until(deadline)
		if left <= 0 {
			s.unreachable(cmp.Or(misfit, err))
			return
		}
		s.rest(min(pause/2+rand.N(pause/2), left))
		pause = min(2*pause, PauseMax)
	}
}

func isTimeout(err error) bool {
	var timeout interface{ Timeout() bool }
	return errors.As(err, &timeout) && timeout.Timeout()
}

// rest waits for the pause, or less if hurried, before the next attempt.
func (s *Sender) rest(pause time.Duration) {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-s.rush:
	case <-s.ctx.Done():
	}
}

func (s *Sender) unreachable(cause error) {
	if !s.end(fmt.Errorf("%w: %w", rdmanet.ErrUnreachable, cause)) {
		return
	}
	s.lanes.retire(s)
	s.lanes.config.Peers.Tell(rdmanet.PeerEvent{
		Kind:  rdmanet.PeerUnreachable,
		Peer:  rdmanet.Peer{ID: s.key.peer, Incarnation: s.bound()},
		Lane:  s.key.name,
		Cause: cause,
	})
}

// connect makes one attempt and, if it succeeds, carries the lane until the connection breaks. It
// returns when the peer last gave a sign of life, if it did, and why the connection ended.
func (s *Sender) connect(patience time.Duration) (heard time.Time, err error) {
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	s.cut.Store(&cancel)
	defer s.cut.Store(nil)
	if gone := s.gone.Load(); gone != nil {
		return time.Time{}, *gone
	}
	s.progress = false
	outlet, err := s.lanes.config.Dial(ctx, s, patience)
	if err != nil {
		return time.Time{}, err
	}
	to := rdmanet.Peer{ID: s.key.peer, Incarnation: s.bound()}
	if err := s.lanes.config.Peers.Up(to); err != nil {
		_, _ = outlet.Close(err)
		return time.Time{}, err
	}
	defer s.lanes.config.Peers.Down(to)
	outlet.Start()
	heard, err = outlet.Close(s.carry(outlet))
	if heard.IsZero() && s.progress {
		heard = time.Now()
	}
	return heard, err
}

// carry writes batches until the connection breaks.
func (s *Sender) carry(outlet Outlet) (err error) {
	prompt, _ := outlet.(PromptOutlet)
	s.writing.Lock()
	defer s.writing.Unlock()
	for err == nil {
		frames, first := s.window.Take(s.batch[:0], BatchFramesMax, BatchBytesMax)
		s.batch = frames
		if len(frames) == 0 {
			err = s.waitForFrames(outlet, prompt)
			continue
		}
		err = outlet.Write(frames, first)
		clear(frames)
	}
	return err
}

// waitForFrames waits while senders may write by themselves. The caller holds writing.
func (s *Sender) waitForFrames(outlet Outlet, prompt PromptOutlet) error {
	s.prompt = prompt
	s.writing.Unlock()
	err := outlet.Wait(s.window.Ready())
	s.writing.Lock()
	s.prompt = nil
	if prompt != nil && err == nil {
		err = prompt.Flush()
	}
	return err
}

// Hello returns the hello with which the provider opens a connection to the receiver.
func (s *Sender) Hello() Hello {
	limits := s.lanes.config.Limits
	return Hello{
		Name:         s.key.name,
		Sender:       s.lanes.config.Self.Incarnation,
		Receiver:     s.bound(),
		Opening:      s.opening,
		Lost:         s.lost.frames,
		LostBy:       s.lost.incarnation,
		FrameMax:     uint32(limits.FrameBytes),
		WindowBytes:  uint32(limits.Bytes),
		WindowFrames: uint32(limits.Frames),
	}
}

// Accept applies the answer to an attempt's hello. If it returns an error, the attempt is over and
// Dial must return that error.
func (s *Sender) Accept(answer Answer) error {
	bound := s.bound()
	switch {
	case answer.Status == StatusClosing:
		if bound == answer.Incarnation {
			// Apply the receiver's last acknowledgement. An impossible number is ignored.
			s.window.Ack(answer.Delivered)
		}
		return ErrGoodbye
	case bound != 0 && answer.Incarnation < bound:
		return fmt.Errorf("answer: %w", peers.ErrStale)
	case bound != 0 && answer.Incarnation != bound:
		// Seen fails if an even newer incarnation is known. Then there is nothing to report.
		_ = s.lanes.config.Peers.Seen(rdmanet.Peer{ID: s.key.peer, Incarnation: answer.Incarnation})
		return fmt.Errorf("%w: it restarted as incarnation %s", rdmanet.ErrReset,
			answer.Incarnation)
	case answer.Reason != nil:
		return answer.Reason
	case answer.Status != StatusWelcome:
		return fmt.Errorf("refused: %s", answer.Status)
	}
	pending := s.window.Pending()
	if !s.window.Ack(answer.Delivered) || !s.window.Rewind(answer.Next) {
		return fmt.Errorf("%w: it wants frame %d next", rdmanet.ErrReset, answer.Next)
	}
	s.receiver.Store(uint64(answer.Incarnation))
	s.progress = s.window.Pending() < pending
	return nil
}

// Acknowledged records that the peer is alive and that its program has taken the frames before
// number delivered. It returns ErrProtocol for an impossible number; the connection must then end.
func (s *Sender) Acknowledged(delivered uint64) error {
	s.heard.Store(time.Now().UnixNano())
	if !s.window.Ack(delivered) {
		return fmt.Errorf("%w: frame %d is acknowledged and was never sent", ErrProtocol, delivered)
	}
	return nil
}

// notify leaves a token for the one goroutine that waits on c, unless there is one already.
func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
