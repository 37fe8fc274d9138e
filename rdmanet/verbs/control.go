//go:build verbs

package verbs

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/rdmanet/p2p"
)

// controlLane is the name of the control plane's lane.
const controlLane = "\x00verbs"

// control is this host's end of the control plane: requests that are answered, and notices that are
// not.
type control struct {
	p2p         *p2p.Host
	mendTimeout time.Duration
	self        rdmanet.Peer
	here        func(rdmanet.Peer, message) message // answers requests to this host itself
	note        func(message)                       // takes notices to it

	mu    sync.Mutex
	calls map[uint64]*call
	next  uint64
}

// call is a request that waits for its reply.
type call struct {
	peer rdmanet.PeerID
	end  chan reply // has room for the one
}

// reply is what a call ended with.
type reply struct {
	from    rdmanet.Peer
	message message
	err     error
}

func newControl(p *p2p.Host, mendTimeout time.Duration) *control {
	// Numbers begin by chance, so that a reply to an earlier incarnation fits none of this one's
	// calls.
	return &control{p2p: p, self: rdmanet.Peer{ID: p.ID(), Incarnation: p.Incarnation()},
		mendTimeout: mendTimeout, calls: make(map[uint64]*call), next: rand.Uint64()}
}

// askPause is the pause before a request is sent again.
const askPause = 20 * time.Millisecond

// ask sends a request and waits for its reply: from the incarnation that is there, waiting for one
// for the mend timeout. Errors: ctx's own, ErrReset (the peer restarted meanwhile), ErrUnreachable,
// ErrNotMember, ErrClosed.
func (c *control) ask(ctx context.Context, peer rdmanet.PeerID, request message) (rdmanet.Peer,
	message, error) {
	if peer == c.self.ID {
		return c.self, c.here(c.self, request), ctx.Err()
	}
	// The lane may have broken a moment after it was asked for, with its patience spent on somebody
	// else's behalf.
	for patience := time.Now().Add(c.mendTimeout); ; {
		from, answer, err := c.askOnce(ctx, peer, request)
		if err == nil || !errors.Is(err, rdmanet.ErrUnreachable) || ctx.Err() != nil ||
			time.Now().After(patience) {
			return from, answer, err
		}
		select {
		case <-time.After(askPause):
		case <-ctx.Done():
			return from, answer, ctx.Err()
		}
	}
}

func (c *control) askOnce(ctx context.Context, peer rdmanet.PeerID, request message) (rdmanet.Peer,
	message, error) {
	bounded, cancel := context.WithTimeout(ctx, 2*c.mendTimeout)
	defer cancel()
	lane, err := c.p2p.Lane(peer, controlLane)
	if err != nil {
		return rdmanet.Peer{}, message{}, err
	}
	waiting := &call{peer: peer, end: make(chan reply, 1)}
	c.mu.Lock()
	c.next++
	request.call = c.next
	c.calls[request.call] = waiting
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		delete(c.calls, request.call)
		c.mu.Unlock()
	}()
	err = lane.Send(bounded, request.append(nil))
	if err == nil {
		select {
		case r := <-waiting.end:
			return r.from, r.message, r.err
		case <-bounded.Done():
			err = bounded.Err()
		}
	}
	if ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("%w: %s does not answer", rdmanet.ErrUnreachable, peer)
	}
	return rdmanet.Peer{}, message{}, err
}

// tell sends a notice or a reply, without waiting and without promise.
func (c *control) tell(peer rdmanet.PeerID, m message) {
	if peer == c.self.ID {
		c.note(m)
		return
	}
	lane, err := c.p2p.Lane(peer, controlLane)
	if err != nil {
		return // no member any more, or closing
	}
	// What finds no room or no lane is missed, and whoever waits for it has a deadline.
	_, _ = lane.TrySend(m.append(nil))
}

// answered ends the call that a reply is for.
func (c *control) answered(from rdmanet.Peer, m message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if waiting := c.calls[m.call]; waiting != nil && waiting.peer == from.ID {
		delete(c.calls, m.call)
		waiting.end <- reply{from: from, message: m}
	}
}

// fail ends the calls to a peer.
func (c *control) fail(peer rdmanet.PeerID, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for number, waiting := range c.calls {
		if waiting.peer == peer {
			delete(c.calls, number)
			waiting.end <- reply{err: err}
		}
	}
}
