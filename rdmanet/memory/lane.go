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

// These limits bound the batch that one call of a receive function gets.
const (
	batchFramesMax = 1024
	batchBytesMax  = 4 << 20
)

// lane is a sending end; it implements rdmanet.Lane.
type lane struct {
	host   *Host
	key    laneKey
	window *window.Window
	// The incarnation that the lane leads to, 0 before it was reached. Set by the lane's goroutine.
	receiver atomic.Uint64
}

var (
	errSilent = errors.New("the peer disappeared without a goodbye")
	errLeft   = errors.New("the peer closed")
	errNobody = errors.New("no host is there")
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

// bound returns the incarnation that the lane leads to, or 0 before it was reached.
func (l *lane) bound() rdmanet.Incarnation { return rdmanet.Incarnation(l.receiver.Load()) }

// wrap adds the lane to an error.
func (l *lane) wrap(err error) error {
	return fmt.Errorf("lane %q to %s: %w", l.key.name, l.key.peer, err)
}

// run manages the lane's connection until the lane breaks.
func (l *lane) run() {
	defer l.host.goroutines.Done()
	defer l.host.retire(l)
	mend := time.NewTimer(l.host.network.mendTimeout)
	defer mend.Stop()
	var cause error
	var served chan struct{} // closed at the end of the last delivery
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

// connected serves the lane while its receiver can be reached. It returns the channel that is
// closed at the end of the delivery that it started, and false if the lane broke.
func (l *lane) connected(r route, previous chan struct{}) (ended chan struct{}, up bool) {
	from, to := l.host.peer(), r.host.peer()
	l.receiver.Store(uint64(to.Incarnation))
	// Incarnations of one network only grow, and a host learns of a newer one only after the older
	// one is dead.
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

// delivery is the receiving half of a lane while the link works.
type delivery struct {
	window                   *window.Window
	calls                    *calls
	from                     rdmanet.Peer
	receive                  rdmanet.ReceiveFunc
	senderDead, receiverDead <-chan struct{}
	stop                     <-chan struct{}
}

// run hands batches to the receive function. A batch that was taken is always handed over, because
// the window is never rewound.
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

// deliver hands over the available frames and acknowledges them. It returns false if there are
// none.
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
	// Seen fails if an even newer incarnation is known. Then there is nothing to report.
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
