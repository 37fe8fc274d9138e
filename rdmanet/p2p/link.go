package p2p

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"syscall"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/rdmanet/internal/peers"
)

// errSilent: the owner answered nothing for the operation timeout.
var errSilent = errors.New("no answer within the operation timeout")

// attachPauseMax bounds the pauses between attempts to connect, for which somebody waits.
const attachPauseMax = pauseMax / 4

// link is this host's way to one peer's regions. All operations to the peer go through it, one
// after the other, so that they complete in the order of posting whatever becomes of the
// connection. One goroutine, run, connects while somebody wants to attach; while a stream is there
// another one writes requests and a third reads responses.
//
// When the stream breaks, nobody knows what has landed, so nothing is sent again: all attachments
// end, and what is under way completes with an error. Which one, run finds out by connecting anew:
// ErrReset if another incarnation answers, ErrUnreachable otherwise, at once if something is under
// way and the peer's machine refuses.
type link struct {
	host   *Host
	peer   peer.ID
	name   rdmanet.PeerID
	ctx    context.Context
	cancel context.CancelFunc
	rush   chan struct{} // a token shortens the pause, or tells that somebody waits
	kick   chan struct{} // a token has run look at the verdict
	work   chan struct{} // a token tells the writer of requests

	mu          sync.Mutex
	changed     chan struct{} // closed when up or ended changes, and made anew
	up          bool
	ended       error // why the link is over
	verdict     error // what ends the attachments, if it is known already
	trouble     error // of the last attempt to connect
	waiters     int   // calls of attach
	opening     uint64
	bound       rdmanet.Incarnation // of the peer that the attachments lead to, 0 without any
	attachments map[uint32]*attachment
	numbers     uint32 // of attachments so far
	entries     entryRing
	progress    time.Time // of the last response
	requests    requestBuffer
	longs       uint64 // long writes on this connection
	sent        uint64 // those of them whose bytes the writer is done with
	answered    int    // entries, from the first on, that no response is awaited for
	batch       completionBatch
}

func newLink(h *Host, id peer.ID, name rdmanet.PeerID) *link {
	ctx, cancel := context.WithCancel(h.alive)
	l := &link{
		host: h, peer: id, name: name, ctx: ctx, cancel: cancel,
		rush: make(chan struct{}, 1), kick: make(chan struct{}, 1), work: make(chan struct{}, 1),
		changed:     make(chan struct{}),
		attachments: make(map[uint32]*attachment),
	}
	return l
}

// end ends the link; its goroutine completes what is under way.
func (l *link) end(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended == nil {
		l.ended = err
		l.changeLocked()
	}
	l.cancel()
}

// restarted ends what leads to an incarnation older than that.
func (l *link) restarted(incarnation rdmanet.Incarnation) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.bound != 0 && l.bound < incarnation && l.verdict == nil {
		l.verdict = fmt.Errorf("%w: it restarted as incarnation %s", rdmanet.ErrReset, incarnation)
		notify(l.kick)
	}
}

func (l *link) changeLocked() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// run connects, carries and settles until the link ends.
func (l *link) run() {
	defer l.cancel()
	for {
		conn := l.dial()
		for conn != nil {
			cause := l.carry(conn)
			var verdict error
			conn, verdict = l.settle(cause)
			l.fail(verdict)
		}
		if l.ctx.Err() != nil {
			break
		}
	}
	l.mu.Lock()
	if l.ended == nil {
		l.ended = rdmanet.ErrClosed
	}
	l.changeLocked()
	err := l.ended
	l.mu.Unlock()
	l.fail(err)
}

// dial waits until somebody wants to attach and tries to connect for as long as that is so. Nil
// when the link ends.
func (l *link) dial() *connection {
	pause := pauseMin
	for l.ctx.Err() == nil {
		if !l.wanted() {
			select {
			case <-l.rush:
			case <-l.ctx.Done():
			}
			pause = pauseMin
			continue
		}
		conn, err := l.connect(connectTimeout)
		if err == nil {
			return conn
		}
		l.rest(pause/2 + rand.N(pause/2))
		pause = min(2*pause, attachPauseMax)
	}
	return nil
}

func (l *link) wanted() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.waiters > 0
}

// rest waits before the next attempt, at most for the pause.
func (l *link) rest(pause time.Duration) {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-l.rush:
	case <-l.kick:
	case <-l.ctx.Done():
	}
}

// connection is what requests go over, once the owner has welcomed it: a direct connection, or a
// pipe to this host itself.
type connection struct {
	carrier
	libp2p network.Conn // nil to this host itself
	owner  rdmanet.Peer
}

// connect makes one attempt.
func (l *link) connect(patience time.Duration) (*connection, error) {
	conn, err := l.tryConnect(patience)
	l.mu.Lock()
	l.trouble = err
	l.mu.Unlock()
	return conn, err
}

// tryConnect connects to this host's own regions without libp2p, which knows no way there.
func (l *link) tryConnect(patience time.Duration) (*connection, error) {
	if l.name == l.host.id {
		data, err := l.host.regions.loopback()
		if err != nil {
			return nil, err
		}
		return &connection{carrier: data, owner: rdmanet.Peer{ID: l.name,
			Incarnation: l.host.incarnation}}, nil
	}
	attempt := time.Now().Add(patience)
	ctx, cancel := context.WithDeadline(l.ctx, attempt)
	defer cancel()
	l.host.swarm.Backoff().Clear(l.peer)
	stream, err := l.host.libp2p.NewStream(ctx, l.peer, regionProtocolID)
	if err != nil {
		return nil, err
	}
	conn, err := l.greet(ctx, stream, attempt)
	if err != nil {
		l.dropIfSilent(stream.Conn(), err)
		stream.Reset()
		return nil, err
	}
	return conn, nil
}

// greet says hello and judges the answer.
func (l *link) greet(ctx context.Context, stream network.Stream, deadline time.Time) (*connection,
	error) {
	defer context.AfterFunc(l.ctx, func() { unblock(stream) })()
	if err := stream.SetDeadline(deadline); err != nil {
		return nil, err
	}
	l.mu.Lock()
	l.opening++
	greeting := regionHello{sender: l.host.incarnation, receiver: l.bound, opening: l.opening,
		trusted: l.host.trusted}
	l.mu.Unlock()
	if _, err := stream.Write(greeting.append(nil)); err != nil {
		return nil, fmt.Errorf("region hello: %w", err)
	}
	reply, err := readRegionAnswer(stream)
	if err != nil {
		return nil, err
	}
	owner := rdmanet.Peer{ID: l.name, Incarnation: reply.incarnation}
	switch {
	case greeting.receiver > reply.incarnation:
		return nil, fmt.Errorf("region answer: %w", peers.ErrStale)
	case greeting.receiver != 0 && greeting.receiver != reply.incarnation:
		// A newer one yet may be known by now, and then there is nothing to tell.
		_ = l.host.peers.Seen(owner)
		return nil, fmt.Errorf("%w: it restarted as incarnation %s", rdmanet.ErrReset,
			reply.incarnation)
	case reply.status == statusClosing:
		return nil, errGoodbye
	case reply.status != statusWelcome:
		return nil, fmt.Errorf("refused: %s", reply.status)
	}
	conn, err := l.host.direct(ctx, stream)
	if err != nil {
		return nil, err
	}
	stream.Reset()
	if err := l.host.peers.Up(owner); err != nil {
		conn.Reset()
		return nil, err
	}
	return &connection{conn, stream.Conn(), owner}, nil
}

// dropIfSilent closes a connection whose peer does not answer in time, neither here nor on a lane,
// so that the next attempt dials anew.
func (l *link) dropIfSilent(conn network.Conn, err error) {
	if (isTimeout(err) || errors.Is(err, errSilent)) && l.ctx.Err() == nil &&
		!l.host.heardLately(l.name) {
		// The connection is gone one way or the other.
		_ = conn.Close()
	}
}

// carry writes requests and reads responses until the stream breaks, and says why it did.
func (l *link) carry(conn *connection) error {
	defer l.host.peers.Down(conn.owner)
	if err := conn.SetDeadline(time.Time{}); err != nil {
		conn.Reset()
		return err
	}
	l.mu.Lock()
	l.up, l.bound, l.verdict = true, conn.owner.Incarnation, nil
	l.longs, l.sent = 0, 0
	l.requests.reset()
	l.changeLocked()
	l.mu.Unlock()
	ended := make(chan struct{})
	var readErr error
	go func() {
		defer close(ended)
		readErr = l.readResponses(conn)
	}()
	written := make(chan struct{})
	go func() {
		defer close(written)
		l.writeRequests(conn.carrier, ended)
	}()
	err := l.oversee(ended)
	l.mu.Lock()
	l.up = false
	l.requests.reset()
	l.changeLocked()
	l.mu.Unlock()
	unblock(conn)
	<-ended
	<-written
	if err == nil {
		err = readErr
	}
	if errors.Is(err, errRegionProtocol) || errors.Is(err, errProtocol) {
		l.host.log.Warn("region stream dropped", "peer", conn.owner.String(), "error", err)
	}
	if conn.libp2p != nil {
		l.dropIfSilent(conn.libp2p, err)
	}
	conn.Reset()
	return err
}

// oversee waits for the stream's end. The error is why it is to end, nil if it has.
func (l *link) oversee(ended <-chan struct{}) error {
	watch := time.NewTicker(max(l.host.mendTimeout/8, time.Millisecond))
	defer watch.Stop()
	for {
		select {
		case <-ended:
			return nil
		case <-l.ctx.Done():
			return rdmanet.ErrClosed
		case <-l.kick:
			l.mu.Lock()
			verdict := l.verdict
			l.mu.Unlock()
			if verdict != nil {
				return verdict
			}
		case <-watch.C:
			// The next look would be too late.
			if left, waiting := l.patience(); waiting && left < l.host.mendTimeout/8 {
				return errSilent
			}
		}
	}
}

// patience is how long what is under way may still take, if anything is: the operation timeout from
// its posting, or from the last response if that was later.
func (l *link) patience() (left time.Duration, waiting bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.entries.len() == 0 {
		return 0, false
	}
	since := l.entries.at(0).posted
	if l.progress.After(since) {
		since = l.progress
	}
	return l.host.mendTimeout - time.Since(since), true
}

// settle finds out what the attachments end with, now that their stream broke. If it got through to
// the same incarnation the new connection is given, too.
func (l *link) settle(cause error) (*connection, error) {
	if errors.Is(cause, rdmanet.ErrReset) {
		return nil, cause
	}
	unreachable := fmt.Errorf("%w: %w", rdmanet.ErrUnreachable, cause)
	deadline := time.Now().Add(l.host.mendTimeout)
	pause := pauseMin
	for !errors.Is(cause, errSilent) && l.ctx.Err() == nil {
		l.mu.Lock()
		verdict, idle := l.verdict, len(l.attachments) == 0 && l.entries.len() == 0
		l.mu.Unlock()
		if verdict != nil || idle {
			return nil, verdict
		}
		left := time.Until(deadline)
		underWay, waiting := l.patience()
		if waiting {
			left = min(left, underWay)
		}
		if left <= 0 {
			break
		}
		conn, err := l.connect(min(left, connectTimeout))
		if err == nil {
			return conn, unreachable
		}
		if errors.Is(err, rdmanet.ErrReset) {
			return nil, err
		}
		if waiting && (errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, errGoodbye)) {
			return nil, fmt.Errorf("%w: %w", rdmanet.ErrUnreachable, err)
		}
		l.rest(min(pause/2+rand.N(pause/2), left))
		pause = min(2*pause, attachPauseMax)
	}
	if l.ctx.Err() != nil {
		return nil, rdmanet.ErrClosed
	}
	return nil, unreachable
}

// fail ends all attachments and completes all that is under way, with that error, or the one that
// ended the link.
func (l *link) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended != nil {
		err = l.ended
	}
	for _, a := range l.attachments {
		a.fail(err)
	}
	for l.entries.len() > 0 {
		l.entries.at(0).interrupt(err)
		l.finish()
	}
	l.batch.deliver()
	l.answered, l.bound, l.verdict = 0, 0, nil
}
