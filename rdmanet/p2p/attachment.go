package p2p

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ledgerd/ledgerd/rdmanet"
)

// errBroken: the stream broke while an attach was under way. The attach is tried again.
var errBroken = errors.New("the connection broke")

// attachment is this host's access to a peer's region; it implements rdmanet.Attachment. It lives
// as long as the stream on which it was made.
type attachment struct {
	link       *link
	name       string
	peer       rdmanet.Peer
	number     uint32
	size       int
	permission rdmanet.Permission

	// Both are guarded by the link's lock.
	failure error // of its first operation that failed, or of the stream
	closed  bool
}

var _ rdmanet.Attachment = (*attachment)(nil)

// attachRequest is an attach under way.
type attachRequest struct {
	name      string
	number    uint32
	reply     chan attachReply // has room for the one reply
	abandoned bool             // no caller waits for the reply; guarded by the link's lock
}

type attachReply struct {
	attachment *attachment
	err        error
}

// Attach implements rdmanet.RegionHost.
func (h *Host) Attach(ctx context.Context, to rdmanet.PeerID, name string) (rdmanet.Attachment,
	error) {
	if err := rdmanet.CheckRegion(name, rdmanet.WordSize); err != nil {
		return nil, err
	}
	id, err := h.member(to)
	if err != nil {
		return nil, fmt.Errorf("region %q: %w", name, err)
	}
	l, err := h.regions.link(id, to)
	if err != nil {
		return nil, err
	}
	a, err := l.attach(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("region %q of %s: %w", name, to, err)
	}
	return a, nil
}

// attach asks the peer for an attachment until it gets an answer. It waits for a peer that is not
// there.
func (l *link) attach(ctx context.Context, name string) (*attachment, error) {
	timeout := time.NewTimer(l.host.mendTimeout)
	defer timeout.Stop()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiters++
	defer func() { l.waiters-- }()
	notify(l.rush)
	for {
		if l.ended != nil {
			return nil, l.ended
		}
		asked := &attachRequest{name: name, reply: make(chan attachReply, 1)}
		if l.up {
			l.ask(asked)
		}
		changed := l.changed
		l.mu.Unlock()
		var reply attachReply
		var err error
		answered := false
		select {
		case reply = <-asked.reply:
			answered = true
		case <-changed:
		case <-ctx.Done():
			err = ctx.Err()
		case <-timeout.C:
			err = rdmanet.ErrUnreachable
		}
		l.mu.Lock()
		if !answered {
			// The reply may have arrived meanwhile. It is sent with the lock held.
			select {
			case reply = <-asked.reply:
				answered = true
			default:
				asked.abandoned = true
			}
		}
		switch {
		case answered && !errors.Is(reply.err, errBroken):
			return reply.attachment, reply.err
		case err == nil:
		case errors.Is(err, rdmanet.ErrUnreachable) && l.trouble != nil:
			return nil, fmt.Errorf("%w: %w", err, l.trouble)
		default:
			return nil, err
		}
	}
}

// Peer implements rdmanet.Attachment.
func (a *attachment) Peer() rdmanet.Peer { return a.peer }

// Name implements rdmanet.Attachment.
func (a *attachment) Name() string { return a.name }

// Size implements rdmanet.Attachment.
func (a *attachment) Size() int { return a.size }

// Permission implements rdmanet.Attachment.
func (a *attachment) Permission() rdmanet.Permission { return a.permission }

// Err implements rdmanet.Attachment.
func (a *attachment) Err() error {
	a.link.mu.Lock()
	defer a.link.mu.Unlock()
	return a.errLocked()
}

func (a *attachment) errLocked() error {
	if a.failure == nil && a.closed {
		return a.wrap(rdmanet.ErrClosed)
	}
	return a.failure
}

// Close implements rdmanet.Attachment. Outstanding operations take place or fail as they would
// without it.
func (a *attachment) Close() error {
	a.link.mu.Lock()
	defer a.link.mu.Unlock()
	a.closed = true
	a.link.detach(a)
	return nil
}

// wrap adds the attachment to an error.
func (a *attachment) wrap(err error) error {
	return fmt.Errorf("region %q of %s: %w", a.name, a.peer, err)
}

// fail ends the attachment and records its first failure. The caller holds the link's lock.
func (a *attachment) fail(err error) {
	if a.failure == nil {
		a.failure = a.wrap(err)
	}
	a.link.detach(a)
}
