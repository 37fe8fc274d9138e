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

// control is this host's end of the control plane. It sends requests, which are answered, and
// notices, which are not.
type control struct {
	p2p         *p2p.Host
	mendTimeout time.Duration
	self        rdmanet.Peer
	here        func(rdmanet.Peer, message) message // answers this host's requests to itself
	note        func(message)                       // handles this host's notices to itself

	mu    sync.Mutex
	calls map[uint64]*call
	next  uint64
}

// call is a request waiting for its reply.
type call struct {
	peer rdmanet.PeerID
	end  chan reply // has room for the one reply
}

// reply is the result of a call.
type reply struct {
	from    rdmanet.Peer
	message message
	err     error
}

func newControl(p *p2p.Host, mendTimeout time.Duration) *control {
	// Numbers start at a random value, so that a reply to an earlier incarnation matches no call of
	// this one.
	return &control{p2p: p, self: rdmanet.Peer{ID: p.ID(), Incarnation: p.Incarnation()},
		mendTimeout: mendTimeout, calls: make(map[uint64]*call), next: rand.Uint64()}
}

// askPause is the pause before a request is sent again.
const askPause = 20 * time.Millisecond

// ask sends a request and waits for the reply of the current incarnation. It waits for a peer that
// is not there for the mend timeout. It returns ctx's error, ErrReset (the peer restarted
// meanwhile), ErrUnreachable, ErrNotMember or ErrClosed.
func (c *control) ask(ctx context.Context, peer rdmanet.PeerID, request message) (rdmanet.Peer,
	message, error) {
	if peer == c.self.ID {
		return c.self, c.here(c.self, request), ctx.Err()
	}
	// The lane may break right after this request was sent, because an earlier user had waited on
	// it for the mend timeout.
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

// tell sends a notice or a reply. It does not wait, and the message may be lost.
func (c *control) tell(peer rdmanet.PeerID, m message) {
	if peer == c.self.ID {
		c.note(m)
		return
	}
	lane, err := c.p2p.Lane(peer, controlLane)
	if err != nil {
		return // no longer a member, or closing
	}
	// A message is lost if there is no room or no lane. Callers that wait for it have a deadline.
	_, _ = lane.TrySend(m.append(nil))
}

// answered ends the call that a reply belongs to.
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
