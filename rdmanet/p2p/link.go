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

	"github.com/ledgerd/ledgerd/internal/beat"
	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/rdmanet/internal/peers"
)

// errSilent: the owner answered nothing for the operation timeout.
var errSilent = errors.New("no answer within the operation timeout")

// attachPauseMax bounds the pauses between attempts to connect while a caller waits.
const attachPauseMax = pauseMax / 4

// link is this host's connection to one peer's regions. All operations to the peer go through it
// one after the other, so they complete in the order of posting whatever happens to the connection.
// One goroutine, run, connects while a caller wants to attach. While a stream is up, a second
// goroutine writes requests and a third reads responses.
//
// When the stream breaks, this host cannot know which operations have landed. So it sends nothing
// again: all attachments end, and the operations under way complete with an error. run determines
// the error by reconnecting. It is ErrReset if another incarnation answers, and ErrUnreachable
// otherwise. If operations are under way and the peer's machine refuses the connection, they get
// ErrUnreachable at once.
type link struct {
	host   *Host
	peer   peer.ID
	name   rdmanet.PeerID
	ctx    context.Context
	cancel context.CancelFunc
	rush   chan struct{} // a token ends the pause, or reports that a caller waits
	kick   chan struct{} // a token makes run check the verdict
	work   chan struct{} // a token wakes the writer of requests

	mu      sync.Mutex
	changed chan struct{} // closed and replaced when up or ended changes
	up      bool
	ended   error // why the link is over
	verdict error // the error that ends the attachments, once it is known
	trouble error // of the last attempt to connect
	waiters int   // calls of attach
	opening uint64
	// The incarnation of the peer that the attachments lead to, 0 without any.
	bound       rdmanet.Incarnation
	attachments map[uint32]*attachment
	numbers     uint32 // the last attachment number used
	entries     entryRing
	progress    time.Time // of the last response
	requests    requestBuffer
	longs       uint64 // long writes on this connection
	sent        uint64 // those whose bytes the writer has finished with
	answered    int    // the number of leading entries that await no response
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

// end ends the link. Its goroutine completes the operations under way.
func (l *link) end(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended == nil {
		l.ended = err
		l.changeLocked()
	}
	l.cancel()
}

// restarted ends the attachments to an incarnation older than the given one.
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

// dial waits until a caller wants to attach, and tries to connect as long as one does. It returns
// nil when the link ends.
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

// rest waits for the pause, or less if woken, before the next attempt.
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

// connection carries requests, once the owner has welcomed it. It is a direct connection, or a pipe
// to this host itself.
type connection struct {
	carrier
	libp2p network.Conn // nil for this host itself
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

// tryConnect makes one connection. It reaches this host's own regions without libp2p, which cannot
// dial itself.
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

// greet sends the hello, judges the answer and makes the direct connection.
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
		// Seen fails if an even newer incarnation is known. Then there is nothing to report.
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

// dropIfSilent closes a connection whose peer answers in time neither here nor on a lane, so that
// the next attempt dials again.
func (l *link) dropIfSilent(conn network.Conn, err error) {
	if (isTimeout(err) || errors.Is(err, errSilent)) && l.ctx.Err() == nil &&
		!l.host.heardLately(l.name) {
		// Ignore an error: the connection is gone in either case.
		_ = conn.Close()
	}
}

// carry writes requests and reads responses until the stream breaks. It returns the cause.
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

// oversee waits for the stream's end. It returns why the stream must end, or nil if it has ended.
func (l *link) oversee(ended <-chan struct{}) error {
	period := max(l.host.mendTimeout/8, time.Millisecond)
	watch := time.NewTimer(beat.Until(time.Now(), period))
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
			watch.Reset(beat.Until(time.Now(), period))
			// At the next look it would be too late.
			if left, waiting := l.patience(); waiting && left < l.host.mendTimeout/8 {
				return errSilent
			}
		}
	}
}

// patience returns how much longer the operations under way may take, if there are any. The limit
// is the operation timeout after the oldest was posted, or after the last response if that was
// later.
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

// settle determines the error with which the attachments end after their stream broke. If it
// reaches the same incarnation, it also returns the new connection.
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

// fail ends all attachments and completes all operations under way. The error is err, or the one
// that ended the link.
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
