//go:build verbs

package verbs

import (
	"fmt"
	"runtime"
	"time"

	"github.com/ledgerd/ledgerd/rdmanet/verbs/ibverbs"
)

// fenceTimeout is how long the device may take to bind or invalidate a memory window. After that
// the queue pair is destroyed.
const fenceTimeout = time.Second

// methods lists the methods that are faster than a new queue pair, the fastest first.
var methods = []Permissions{PermissionsAccessFlags, PermissionsMemoryWindow}

// guard controls the right to reach an attachment's memory, at the owner. It grants the right once
// and withdraws it. It owns a link.
type guard struct {
	engine *engine
	link   *link
	key    uint32     // the key that the other side uses
	ended  chan error // the results of the bind and invalidate requests; has room for both
}

// newGuard makes the queue pair. open grants the right.
func (e *engine) newGuard(domain *ibverbs.Domain, owner linkOwner, method Permissions,
	receiveDepth int, access ibverbs.Access) (guard, error) {
	g := guard{engine: e, ended: make(chan error, 2)}
	l, err := e.newLink(domain, owner, 2, receiveDepth, access)
	if err == nil && method == PermissionsMemoryWindow {
		if err = l.makeWindow(domain); err != nil {
			l.destroy()
		}
	}
	g.link = l
	return g, err
}

// makeWindow gives the link a memory window, which is freed with the link.
func (l *link) makeWindow(domain *ibverbs.Domain) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.pair == nil {
		return errLinkOver
	}
	window, err := domain.NewWindow()
	l.window = window
	return err
}

// open connects the queue pair and grants the other side the right to reach the memory with the
// key.
func (g *guard) open(remote endpoint, memory *ibverbs.Memory, access ibverbs.Access) error {
	if err := g.link.connect(remote); err != nil {
		return err
	}
	g.link.mu.Lock()
	window := g.link.window
	g.link.mu.Unlock()
	if window == nil {
		g.key = memory.RemoteKey()
		return nil
	}
	request, key := window.Bind(memory, access)
	g.key = key
	return g.perform(request)
}

// perform posts one request and waits until it has taken place. The link's owner must call heard
// with the result.
func (g *guard) perform(request ibverbs.Request) error {
	if _, err := g.link.post([]ibverbs.Request{request}); err != nil {
		return err
	}
	late := time.NewTimer(fenceTimeout)
	defer late.Stop()
	for polls := 0; ; polls++ {
		select {
		case err := <-g.ended:
			return err
		default:
		}
		if polls < waitPolls {
			if g.engine.progress() == 0 {
				runtime.Gosched()
			}
			continue
		}
		select {
		case err := <-g.ended:
			return err
		case <-late.C:
			return errDeadline
		}
	}
}

// heard passes on the result of a request.
func (g *guard) heard(err error) {
	select {
	case g.ended <- err:
	default:
	}
}

// fence withdraws the right. Once it has returned, nothing of the other side lands any more, if the
// method is sound on the device. The queue pair remains, to refuse further operations, unless it
// must be destroyed.
func (g *guard) fence(method Permissions) {
	switch {
	case method == PermissionsAccessFlags && g.link.forbid() == nil:
	case method == PermissionsMemoryWindow && g.perform(ibverbs.Invalidate(g.key)) == nil:
	default:
		g.link.fence()
	}
}

// forbid clears the queue pair's access flags, which give the other side access to memory.
func (l *link) forbid() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.pair == nil {
		return errLinkOver
	}
	if err := l.pair.SetAccess(0); err != nil {
		return fmt.Errorf("access flags: %w", err)
	}
	return nil
}
