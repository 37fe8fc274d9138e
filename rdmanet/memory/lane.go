package memory

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/rdmanet/internal/window"
)

// A batch is what one call of a receive function gets at most.
const (
	batchFramesMax = 1024
	batchBytesMax  = 4 << 20
)

// lane is a sending end; it implements rdmanet.Lane.
type lane struct {
	host   *Host
	key    laneKey
	window *window.Window
	// whose incarnation the lane leads to, 0 before it was reached; set by the lane's goroutine
	receiver atomic.Uint64
}

var (
	errSilent = errors.New("gone without a word")
	errLeft   = errors.New("the peer closed")
	errNobody = errors.New("nobody is there")
	errNoName = errors.New("the peer does not receive lanes of that name")
)

// Peer implements rdmanet.Lane.
func (l *lane) Peer() rdmanet.PeerID { return l.key.peer }

// Send implements rdmanet.Lane.
func (l *lane) Send(ctx context.Context, frames ...[]byte) error {
	return l.window.Push(ctx, frames)
}

// TrySend implements rdmanet.Lane.
func (l *lane) TrySend(frames ...[]byte) (bool, error) { return l.window.TryPush(frames) }

// Flushed implements rdmanet.Lane.
func (l *lane) Flushed(ctx context.Context) error { return l.window.Flushed(ctx) }

// Pending implements rdmanet.Lane.
func (l *lane) Pending() int { return l.window.Pending() }

// Close implements rdmanet.Lane.
func (l *lane) Close() error {
	l.window.Break(l.wrap(rdmanet.ErrClosed))
	return nil
}

// bound is the incarnation that the lane leads to, 0 before it was reached.
func (l *lane) bound() rdmanet.Incarnation { return rdmanet.Incarnation(l.receiver.Load()) }

// wrap says which lane an error is of.
func (l *lane) wrap(err error) error {
	return fmt.Errorf("lane %q to %s: %w", l.key.name, l.key.peer, err)
}

// run sees to the lane's connection until the lane breaks.
func (l *lane) run() {
	defer l.host.goroutines.Done()
	defer l.host.retire(l)
	mend := time.NewTimer(l.host.network.mendTimeout)
	defer mend.Stop()
	var cause error
	var served chan struct{} // the last delivery's end
	for {
		r := l.host.network.route(l.host.id, l.key.peer, l.key.name)
		switch {
		case l.bound() != 0 && r.host != nil && r.host.incarnation != l.bound():
			l.reset(r.host)
			return
		case l.bound() != 0 && r.left >= l.bound():
			l.unreachable(errLeft)
			return
		case r.host == nil && cause == nil:
			cause = errNobody
		case r.host != nil && r.receive == nil:
			cause = errNoName
		case r.host != nil:
			mend.Stop()
			if ended, up := l.connected(r, served); !up {
				return
			} else if ended != nil {
				served, cause = ended, errSilent
			}
			mend.Reset(l.host.network.mendTimeout)
			continue
		}
		select {
		case <-r.changed:
		case <-mend.C:
			l.unreachable(cause)
			return
		case <-l.window.Done():
			return
		}
	}
}

// connected serves the lane as long as its receiver can be reached. It gives the end of the
// delivery that it started, and false when the lane broke.
func (l *lane) connected(r route, previous chan struct{}) (ended chan struct{}, up bool) {
	from, to := l.host.peer(), r.host.peer()
	l.receiver.Store(uint64(to.Incarnation))
	// Incarnations of one network only grow, and a host finds out of a newer one only after the
	// older one is dead.
	if l.host.peers.Up(to) != nil {
		return nil, true
	}
	defer l.host.peers.Down(to)
	if r.host.peers.Up(from) != nil {
		return nil, true
	}
	defer r.host.peers.Down(from)
	if lost := l.host.takeLost(l.key, to.Incarnation); lost > 0 {
		r.host.peers.Tell(rdmanet.PeerEvent{Kind: rdmanet.LaneReset, Peer: from, Lane: l.key.name,
			Lost: lost})
	}
	stop, ended := make(chan struct{}), make(chan struct{})
	defer close(stop)
	delivery := delivery{window: l.window, calls: r.host.calls, from: from, receive: r.receive,
		senderDead: l.host.closed, receiverDead: r.host.closed, stop: stop}
	if !r.host.serve(func() {
		defer close(ended)
		if previous != nil {
			<-previous
		}
		delivery.run()
	}) {
		return nil, true
	}
	for {
		select {
		case <-r.changed:
		case <-l.window.Done():
			return ended, false
		}
		now := l.host.network.route(l.host.id, l.key.peer, l.key.name)
		if now.host != r.host {
			return ended, true
		}
		r.changed = now.changed
	}
}

// delivery is the receiving half of a lane for as long as the link holds.
type delivery struct {
	window                   *window.Window
	calls                    *calls
	from                     rdmanet.Peer
	receive                  rdmanet.ReceiveFunc
	senderDead, receiverDead <-chan struct{}
	stop                     <-chan struct{}
}

// run hands batches to the receive function. A batch that was taken is always handed over: the
// window is not wound back.
func (d *delivery) run() {
	var frames [][]byte
	for {
		select {
		case <-d.stop:
			return
		case <-d.senderDead:
			return
		case <-d.receiverDead:
			return
		default:
		}
		if !d.calls.begin() {
			return
		}
		taken := false
		frames, taken = d.deliver(frames[:0])
		d.calls.end()
		if !taken {
			select {
			case <-d.window.Ready():
			case <-d.stop:
				return
			case <-d.senderDead:
				return
			case <-d.receiverDead:
				return
			}
		}
	}
}

// deliver hands over what there is, and acknowledges it; false if there is nothing.
func (d *delivery) deliver(frames [][]byte) (list [][]byte, taken bool) {
	frames, first := d.window.Take(frames, batchFramesMax, batchBytesMax)
	if len(frames) == 0 {
		return frames, false
	}
	d.receive(d.from, frames)
	if !d.window.Ack(first + uint64(len(frames))) {
		panic("memory: a frame is acknowledged that was not taken")
	}
	clear(frames)
	return frames, true
}

func (l *lane) reset(host *Host) {
	l.window.Break(l.wrap(fmt.Errorf("%w: it restarted as incarnation %s", rdmanet.ErrReset,
		host.incarnation)))
	// A newer one yet may be known by now, and then there is nothing to tell.
	_ = l.host.peers.Seen(host.peer())
}

func (l *lane) unreachable(cause error) {
	if !l.window.Break(l.wrap(fmt.Errorf("%w: %w", rdmanet.ErrUnreachable, cause))) {
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
