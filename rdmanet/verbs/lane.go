//go:build verbs

package verbs

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/rdmanet/internal/window"
)

// Pauses between attempts to mend a lane grow from the first to the second, each shortened by chance by up to a half.
const (
	pauseMin = 10 * time.Millisecond
	pauseMax = time.Second
)

// laneKey names a lane among those to, or those from, all peers.
type laneKey struct {
	peer rdmanet.PeerID
	name string
}

// lostFrames are frames that earlier openings of a lane gave up on their way to an incarnation, or to whoever it would have been
// (0), and that no answered request has told of.
type lostFrames struct {
	incarnation rdmanet.Incarnation
	frames      uint64
}

// lane is a sending end; it implements rdmanet.Lane. One goroutine, run, connects, writes and mends.
type lane struct {
	host    *host
	key     laneKey
	opening uint64
	lost    lostFrames // what earlier openings lost, to be told
	window  *window.Window

	receiver atomic.Uint64 // whose incarnation the lane leads to, 0 before a request was answered
	end      atomic.Pointer[end]
	gone     atomic.Pointer[error] // why the control plane gave the peer up
	ctx      context.Context
	cancel   context.CancelFunc
	rush     chan struct{} // a token shortens the pause
}

// Lane implements rdmanet.Host.
func (h *host) Lane(peer rdmanet.PeerID, name string) (rdmanet.Lane, error) {
	if err := rdmanet.CheckLaneName(name); err != nil {
		return nil, err
	}
	if peer == h.id || !h.isMember(peer) {
		return nil, fmt.Errorf("lane %q to %q: %w", name, peer, rdmanet.ErrNotMember)
	}
	key := laneKey{peer, name}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closing {
		return nil, fmt.Errorf("host %s: %w", h.id, rdmanet.ErrClosed)
	}
	if l := h.lanes[key]; l != nil {
		if !l.window.Broken() {
			return l, nil
		}
		h.retireLocked(l)
	}
	h.openings[key]++
	ctx, cancel := context.WithCancel(h.alive)
	l := &lane{host: h, key: key, opening: h.openings[key], lost: h.lost[key], window: window.New(h.limits), ctx: ctx, cancel: cancel, rush: make(chan struct{}, 1)}
	h.lanes[key] = l
	h.goroutines.Go(l.run)
	return l, nil
}

// retire takes a lane that broke out of the host and remembers what it gave up.
func (h *host) retire(l *lane) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.retireLocked(l)
}

func (h *host) retireLocked(l *lane) {
	if h.lanes[l.key] != l {
		return
	}
	delete(h.lanes, l.key)
	// What was lost before this lane is news until its request was answered.
	lost := l.lost
	if bound := l.bound(); bound != 0 {
		lost = lostFrames{incarnation: bound}
	}
	lost.frames += uint64(l.window.Pending())
	if lost.frames > 0 {
		h.lost[l.key] = lost
	} else {
		delete(h.lost, l.key)
	}
}

// lanesTo gives the lanes to a peer that lead to an incarnation already, or all.
func (h *host) lanesTo(peer rdmanet.PeerID, bound bool) []*lane {
	h.mu.Lock()
	defer h.mu.Unlock()
	var found []*lane
	for key, l := range h.lanes {
		if key.peer == peer && (!bound || l.bound() != 0) {
			found = append(found, l)
		}
	}
	return found
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
	l.give(rdmanet.ErrClosed)
	return nil
}

// give breaks the lane and tells its goroutine; it reports whether this call broke it.
func (l *lane) give(err error) bool {
	broke := l.window.Break(l.wrap(err))
	l.cancel()
	return broke
}

// wrap says which lane an error is of.
func (l *lane) wrap(err error) error {
	return fmt.Errorf("lane %q to %s: %w", l.key.name, l.key.peer, err)
}

// bound is the incarnation that the lane leads to, 0 before a request was answered.
func (l *lane) bound() rdmanet.Incarnation { return rdmanet.Incarnation(l.receiver.Load()) }

// leave ends the lane because the control plane gave the peer up. Whoever carries it hears the peer out first: it acknowledges before it says goodbye.
func (l *lane) leave(cause error) {
	l.gone.Store(&cause)
	if n := l.end.Load(); n != nil {
		n.stop(cause)
		return
	}
	l.unreachable(cause)
}

// unreachable breaks the lane because the peer is gone, and tells.
func (l *lane) unreachable(cause error) {
	if !l.give(fmt.Errorf("%w: %w", rdmanet.ErrUnreachable, cause)) {
		return
	}
	l.host.retire(l)
	l.host.tell(rdmanet.PeerEvent{
		Kind:  rdmanet.PeerUnreachable,
		Peer:  rdmanet.Peer{ID: l.key.peer, Incarnation: l.bound()},
		Lane:  l.key.name,
		Cause: cause,
	})
}

// run connects and mends until the lane breaks.
func (l *lane) run() {
	defer l.cancel()
	defer l.host.retire(l)
	mend := l.host.mendTimeout
	deadline := time.Now().Add(mend)
	for pause := pauseMin; ; pause = min(2*pause, pauseMax) {
		heard, err := l.connect(deadline)
		switch {
		case l.ctx.Err() != nil:
			l.give(rdmanet.ErrClosed)
			return
		case errors.Is(err, rdmanet.ErrReset) && l.bound() != 0, errors.Is(err, rdmanet.ErrNotMember):
			l.give(err)
			return
		case errors.Is(err, rdmanet.ErrUnreachable) && l.bound() != 0:
			l.unreachable(err)
			return
		case !heard.IsZero():
			// The device takes long to find out that a wire is broken; half of the time is left to mend it.
			deadline, pause = heard.Add(mend), pauseMin
			if least := time.Now().Add(mend / 2); deadline.Before(least) {
				deadline = least
			}
		}
		l.host.log.Debug("lane is down", "lane", l.key.name, "peer", l.key.peer, "error", err)
		left := time.Until(deadline)
		if left <= 0 {
			l.unreachable(err)
			return
		}
		timer := time.NewTimer(min(pause/2+rand.N(pause/2), left))
		select {
		case <-timer.C:
		case <-l.rush:
		case <-l.ctx.Done():
		}
		timer.Stop()
	}
}

// connect makes one attempt and, if it succeeds, carries the lane until its queue pair fails. It tells when the peer last gave a sign of life, if it did, and why it ended.
func (l *lane) connect(deadline time.Time) (heard time.Time, err error) {
	h := l.host
	ctx, cancel := context.WithDeadline(l.ctx, deadline.Add(time.Millisecond))
	defer cancel()
	n, err := h.engine.newEnd(h.ringBytes, wordsSize)
	if err != nil {
		return heard, err
	}
	defer func() {
		if closeErr := n.close(); closeErr != nil {
			h.log.Warn("lane's memory stays", "lane", l.key.name, "error", closeErr)
		}
	}()
	from, answer, err := h.control.askOnce(ctx, l.key.peer, message{
		kind: messageLane, name: l.key.name, receiver: l.bound(), opening: l.opening, lost: l.lost.frames, lostBy: l.lost.incarnation,
		frameMax: uint32(h.limits.FrameBytes), windowBytes: uint32(h.limits.Bytes), windowFrames: uint32(h.limits.Frames),
		endpoint: n.link.endpoint(), memory: n.exposure(wordsSize),
	})
	if err != nil {
		return heard, err
	}
	progress, err := l.accept(from, answer)
	if err != nil {
		return heard, err
	}
	if progress {
		heard = time.Now()
	}
	if err := n.link.connect(answer.endpoint); err != nil {
		return heard, err
	}
	n.peer = answer.memory
	l.end.Store(n)
	err = l.carry(n, answer.memory.size-ringBegin)
	// What was never sent is not believed, and all else was said in its time or is the last word.
	l.window.Ack(n.memory.Load(wordDelivered))
	l.end.Store(nil)
	if cause := l.gone.Load(); cause != nil {
		l.unreachable(*cause)
	}
	if at := n.heard.Load(); at != 0 {
		heard = time.Unix(0, at)
	}
	return heard, err
}

// accept applies the answer to a request. It reports whether the peer took frames since it was last heard of.
func (l *lane) accept(from rdmanet.Peer, answer message) (progress bool, err error) {
	bound := l.bound()
	switch {
	case bound != 0 && from.Incarnation != bound || answer.status == statusRestarted:
		return false, fmt.Errorf("%w: it restarted as incarnation %s", rdmanet.ErrReset, from.Incarnation)
	case answer.status == statusClosing:
		if bound == from.Incarnation {
			l.window.Ack(answer.delivered)
		}
		return false, fmt.Errorf("%w: %s", rdmanet.ErrUnreachable, answer.status)
	case answer.status != statusWelcome:
		return false, fmt.Errorf("refused: %s", answer.status)
	case answer.memory.size < ringBegin+ringMin || answer.memory.size > ringBegin+ringMax:
		return false, fmt.Errorf("%w: a ring of %d bytes", errProtocol, answer.memory.size)
	}
	pending := l.window.Pending()
	if !l.window.Ack(answer.delivered) || !l.window.Rewind(answer.next) {
		return false, fmt.Errorf("%w: it wants frame %d next", rdmanet.ErrReset, answer.next)
	}
	l.receiver.Store(uint64(from.Incarnation))
	return l.window.Pending() < pending, nil
}

// carry writes batches and hears acknowledgements until the queue pair fails.
func (l *lane) carry(n *end, size uint64) error {
	last := uint64(0)
	s := &sender{end: n, size: min(size, uint64(l.host.ringBytes)), given: l.window.Done(), probe: time.NewTimer(time.Hour), probing: max(l.host.mendTimeout/4, time.Millisecond),
		pending: func() bool { return l.window.Pending() > 0 }}
	defer s.probe.Stop()
	s.acknowledged = func(delivered uint64) error {
		if delivered != last {
			last = delivered
			if !l.window.Ack(delivered) {
				return fmt.Errorf("%w: frame %d is acknowledged and was never sent", errProtocol, delivered)
			}
		}
		return nil
	}
	if size != s.size {
		return fmt.Errorf("%w: the peer's ring has %d bytes, this host's %d", errProtocol, size, s.size)
	}
	var frames [][]byte
	var header []byte
	for {
		var first uint64
		frames, first = l.window.Take(frames[:0], batchFramesMax, batchBytesMax)
		if len(frames) == 0 {
			if err := s.flush(); err != nil {
				return err
			}
			if err := s.wait(l.window.Ready()); err != nil {
				return err
			}
			continue
		}
		header = appendBatch(header[:0], frames, first)
		err := s.write(header)
		for i := 0; err == nil && i < len(frames); i++ {
			err = s.write(frames[i])
		}
		if err == nil {
			err = s.flush()
		}
		clear(frames)
		if err != nil {
			return err
		}
	}
}
