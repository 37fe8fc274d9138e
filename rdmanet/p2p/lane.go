package p2p

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/rdmanet/internal/peers"
	"github.com/ledgerd/ledgerd/rdmanet/internal/window"
)

// Pauses between attempts to mend a lane grow from the first to the second, each shortened by chance by up to a half.
const (
	pauseMin = 10 * time.Millisecond
	pauseMax = time.Second
)

var (
	errGoodbye = errors.New("the peer closed")
	errFabric  = errors.New("the peer's fabric is another one")
)

// lane is a sending end; it implements rdmanet.Lane. One goroutine, run, connects, writes and mends; while connected
// another one reads acknowledgements.
type lane struct {
	host    *Host
	peer    peer.ID
	key     laneKey
	opening uint64
	lost    lostFrames // what earlier openings lost, to be told
	window  *window.Window

	receiver atomic.Uint64 // whose incarnation the lane leads to, 0 before a hello was answered
	heard    atomic.Int64  // when the peer last gave a sign of life here, in nanoseconds since 1970
	ctx      context.Context
	cancel   context.CancelFunc
	rush     chan struct{} // a token shortens the pause
}

func newLane(h *Host, id peer.ID, key laneKey, opening uint64, lost lostFrames) *lane {
	ctx, cancel := context.WithCancel(h.alive)
	return &lane{
		host: h, peer: id, key: key, opening: opening, lost: lost,
		window: window.New(h.limits),
		ctx:    ctx, cancel: cancel,
		rush: make(chan struct{}, 1),
	}
}

// Peer implements rdmanet.Lane.
func (l *lane) Peer() rdmanet.PeerID { return l.key.peer }

// Send implements rdmanet.Lane.
func (l *lane) Send(ctx context.Context, frames ...[]byte) error { return l.window.Push(ctx, frames) }

// TrySend implements rdmanet.Lane.
func (l *lane) TrySend(frames ...[]byte) (bool, error) { return l.window.TryPush(frames) }

// Flushed implements rdmanet.Lane.
func (l *lane) Flushed(ctx context.Context) error { return l.window.Flushed(ctx) }

// Pending implements rdmanet.Lane.
func (l *lane) Pending() int { return l.window.Pending() }

// Close implements rdmanet.Lane.
func (l *lane) Close() error {
	l.end(rdmanet.ErrClosed)
	return nil
}

// end breaks the lane and tells its goroutine; it reports whether this call broke it.
func (l *lane) end(err error) bool {
	broke := l.window.Break(l.wrap(err))
	l.cancel()
	return broke
}

// wrap says which lane an error is of.
func (l *lane) wrap(err error) error {
	return fmt.Errorf("lane %q to %s: %w", l.key.name, l.key.peer, err)
}

// bound is the incarnation that the lane leads to, 0 before a hello was answered.
func (l *lane) bound() rdmanet.Incarnation { return rdmanet.Incarnation(l.receiver.Load()) }

func (l *lane) hurry() {
	select {
	case l.rush <- struct{}{}:
	default:
	}
}

// run connects and mends until the lane breaks.
func (l *lane) run() {
	defer l.host.goroutines.Done()
	defer l.cancel()
	defer l.host.retire(l)
	deadline := time.Now().Add(l.host.mendTimeout)
	pause, patience := pauseMin, connectTimeout
	var misfit error // the peer's fabric is another one: what an attempt that ran out of time has to say is no news then
	for {
		heard, err := l.connect(min(time.Until(deadline), patience))
		switch {
		case l.ctx.Err() != nil:
			l.end(rdmanet.ErrClosed)
			return
		case errors.Is(err, rdmanet.ErrReset):
			l.end(err)
			return
		case errors.Is(err, errGoodbye):
			l.unreachable(err)
			return
		}
		if !heard.IsZero() {
			misfit = nil
			deadline, pause, patience = heard.Add(l.host.mendTimeout), pauseMin, connectTimeout
		} else if isTimeout(err) {
			// On a machine with much to do a second attempt takes as long as the first.
			patience *= 2
		}
		if bound := l.bound(); bound != 0 && errors.Is(err, syscall.ECONNREFUSED) {
			l.host.peers.Tell(rdmanet.PeerEvent{Kind: rdmanet.PeerRefused, Peer: rdmanet.Peer{ID: l.key.peer, Incarnation: bound}, Lane: l.key.name, Cause: err})
		}
		if errors.Is(err, errFabric) && misfit == nil {
			misfit = err
			l.host.log.Warn("lane refused", "lane", l.key.name, "peer", l.key.peer, "error", err)
		}
		l.host.log.Debug("lane is down", "lane", l.key.name, "peer", l.key.peer, "error", err)
		left := time.Until(deadline)
		if left <= 0 {
			l.unreachable(cmp.Or(misfit, err))
			return
		}
		l.rest(min(pause/2+rand.N(pause/2), left))
		pause = min(2*pause, pauseMax)
	}
}

// rest waits before the next attempt, at most for the pause.
func (l *lane) rest(pause time.Duration) {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-l.rush:
	case <-l.ctx.Done():
	}
}

func (l *lane) unreachable(cause error) {
	if !l.end(fmt.Errorf("%w: %w", rdmanet.ErrUnreachable, cause)) {
		return
	}
	l.host.retire(l)
	l.host.peers.Tell(rdmanet.PeerEvent{
		Kind:  rdmanet.PeerUnreachable,
		Peer:  rdmanet.Peer{ID: l.key.peer, Incarnation: l.bound()},
		Lane:  l.key.name,
		Cause: cause,
	})
}

// connect makes one attempt and, if it succeeds, carries the lane until the stream breaks. It gives when the peer was last heard of, if it
// was, and why the stream ended.
func (l *lane) connect(patience time.Duration) (heard time.Time, err error) {
	attempt := time.Now().Add(patience)
	ctx, cancel := context.WithDeadline(l.ctx, attempt)
	defer cancel()
	// The fabric has pauses of its own, and libp2p's grow to minutes.
	l.host.swarm.Backoff().Clear(l.peer)
	stream, err := l.host.libp2p.NewStream(ctx, l.peer, protocolID)
	if err != nil {
		return time.Time{}, err
	}
	defer stream.Reset()
	defer context.AfterFunc(l.ctx, func() { unblock(stream) })()
	if err := stream.SetDeadline(attempt); err != nil {
		return time.Time{}, err
	}
	reply, err := l.greet(stream)
	if err != nil {
		l.dropIfSilent(stream.Conn(), err)
		return time.Time{}, err
	}
	progress, err := l.accept(reply)
	if err != nil {
		return time.Time{}, err
	}
	conn, err := l.host.direct(ctx, stream)
	if err != nil {
		l.dropIfSilent(stream.Conn(), err)
		return time.Time{}, err
	}
	defer conn.Reset()
	defer context.AfterFunc(l.ctx, func() { unblock(conn) })()
	stream.Reset()
	to := rdmanet.Peer{ID: l.key.peer, Incarnation: reply.incarnation}
	if err := l.host.peers.Up(to); err != nil {
		return time.Time{}, err
	}
	defer l.host.peers.Down(to)
	heard, err = l.carry(conn)
	l.dropIfSilent(stream.Conn(), err)
	if heard.IsZero() && progress {
		heard = time.Now()
	}
	return heard, err
}

// greet says hello and gives the answer.
func (l *lane) greet(stream network.Stream) (answer, error) {
	greeting := hello{
		lane:         l.key.name,
		sender:       l.host.incarnation,
		receiver:     l.bound(),
		opening:      l.opening,
		lost:         l.lost.frames,
		lostBy:       l.lost.incarnation,
		frameMax:     uint32(l.host.limits.FrameBytes),
		windowBytes:  uint32(l.host.limits.Bytes),
		windowFrames: uint32(l.host.limits.Frames),
		trusted:      l.host.trusted,
	}
	if _, err := stream.Write(greeting.append(nil)); err != nil {
		return answer{}, fmt.Errorf("hello: %w", err)
	}
	return readAnswer(stream)
}

// accept applies the answer to a hello. It reports whether the peer took frames since it was last heard of.
func (l *lane) accept(reply answer) (progress bool, err error) {
	bound := l.bound()
	switch {
	case reply.status == statusClosing:
		if bound == reply.incarnation {
			l.window.Ack(reply.delivered)
		}
		return false, errGoodbye
	case bound != 0 && reply.incarnation < bound:
		return false, fmt.Errorf("answer: %w", peers.ErrStale)
	case bound != 0 && reply.incarnation != bound:
		// A newer one yet may be known by now, and then there is nothing to tell.
		_ = l.host.peers.Seen(rdmanet.Peer{ID: l.key.peer, Incarnation: reply.incarnation})
		return false, fmt.Errorf("%w: it restarted as incarnation %s", rdmanet.ErrReset, reply.incarnation)
	case reply.status == statusTrust:
		return false, fmt.Errorf("%w: this host has %s, the peer has %s; all members need the same", errFabric, fabricName(l.host.trusted), fabricName(!l.host.trusted))
	case reply.status != statusWelcome:
		return false, fmt.Errorf("refused: %s", reply.status)
	}
	pending := l.window.Pending()
	if !l.window.Ack(reply.delivered) || !l.window.Rewind(reply.next) {
		return false, fmt.Errorf("%w: it wants frame %d next", rdmanet.ErrReset, reply.next)
	}
	l.receiver.Store(uint64(reply.incarnation))
	return l.window.Pending() < pending, nil
}

// carry writes batches and reads acknowledgements until the connection breaks.
func (l *lane) carry(c *directConn) (heard time.Time, err error) {
	acks := &ackReader{lane: l, conn: c, ended: make(chan struct{})}
	go acks.run()
	l.write(c, acks.ended)
	c.Reset()
	<-acks.ended
	return acks.heard, acks.err
}

// unblock makes every call on a stream or connection that waits, and every later one, return, without waiting itself as Reset may.
func unblock(c interface{ SetDeadline(time.Time) error }) {
	// It fails on what has ended only, where nothing waits.
	_ = c.SetDeadline(time.Unix(1, 0))
}

// dropIfSilent closes a connection whose peer does not answer in time, on none of the lanes to it, so that the next attempt dials
// anew.
func (l *lane) dropIfSilent(conn network.Conn, err error) {
	if isTimeout(err) && l.ctx.Err() == nil && !l.host.heardLately(l.key.peer) {
		// The connection is gone one way or the other.
		_ = conn.Close()
	}
}

func isTimeout(err error) bool {
	var timeout interface{ Timeout() bool }
	return errors.As(err, &timeout) && timeout.Timeout()
}

// write puts batches on the connection until it breaks, which the reader of acknowledgements finds out too, with the better reason.
func (l *lane) write(c *directConn, ended <-chan struct{}) {
	writer := batchWriter{to: c}
	var frames [][]byte
	for {
		var first uint64
		frames, first = l.window.Take(frames[:0], batchFramesMax, batchBytesMax)
		if len(frames) > 0 {
			if writer.write(frames, first) != nil {
				return
			}
			clear(frames)
			continue
		}
		select {
		case <-l.window.Ready():
		case <-l.window.Done():
			return
		case <-ended:
			return
		}
	}
}

// ackReader listens to the peer for as long as a connection holds.
type ackReader struct {
	lane  *lane
	conn  *directConn
	ended chan struct{} // closed at the end; the rest is valid then
	heard time.Time     // of the last sign of life
	err   error
}

func (r *ackReader) run() {
	defer close(r.ended)
	// A writer that waits for the peer's window is to hear of the end too.
	defer unblock(r.conn)
	var scratch [ackSize]byte
	silence := r.lane.host.mendTimeout / 2
	for {
		if r.err = r.conn.SetReadDeadline(time.Now().Add(silence)); r.err != nil {
			return
		}
		a, err := readAck(r.conn, &scratch)
		if err != nil {
			r.err = err
			if !r.heard.IsZero() && !isTimeout(err) && !errors.Is(err, errProtocol) {
				// The wire says that it is broken, so the time to mend it starts now.
				r.heard = time.Now()
			}
			return
		}
		r.heard = time.Now()
		r.lane.heard.Store(r.heard.UnixNano())
		if !r.lane.window.Ack(a.delivered) {
			r.err = fmt.Errorf("%w: frame %d is acknowledged and was never sent", errProtocol, a.delivered)
			return
		}
		if a.goodbye {
			r.err = errGoodbye
			return
		}
	}
}
