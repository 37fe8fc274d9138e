//go:build verbs

package verbs

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/rdmanet/verbs/ibverbs"
)

var (
	// errDeadline: the device did not end an operation in time.
	errDeadline = errors.New("the device did not complete an operation in time")
	// errLinkOver: the queue pair failed or was destroyed.
	errLinkOver = errors.New("queue pair is over")
	// errSilent: the other side did not answer.
	errSilent = errors.New("no answer from the peer's device")
)

// signalEvery is how many requests of one batch share a completion.
const signalEvery = 32

// linkOwner is told what happens on a link, one call at a time, without locks held.
type linkOwner interface {
	// progressed: the first done requests have taken place.
	progressed(done uint64)
	// rung: writes with immediate data came in.
	rung()
	// broke: nothing takes place any more; told once, after the last progressed.
	broke(err error)
}

// link is one queue pair of the engine's, from its making to its destruction. Its requests are
// numbered from 0.
type link struct {
	engine       *engine
	id           uint32
	sequence     uint32
	sendDepth    int
	receiveDepth int
	queue        *completionQueue
	owner        linkOwner

	// when the device was last known to move while requests are outstanding, in nanoseconds; 0 if
	// none are
	since atomic.Int64
	over  atomic.Bool // broke was told or will be

	destroyed chan struct{} // closed when the queue pair is no more

	mu   sync.Mutex
	pair *ibverbs.Pair // nil once it is given up
	// bound to the pair, which it keeps from being destroyed; nil if there is none
	window   *ibverbs.Window
	posted   uint64
	finished uint64
	taken    int // receives not given back
}

// newLink makes a queue pair in the domain, ready to be connected, with that access for the other
// side.
func (e *engine) newLink(domain *ibverbs.Domain, owner linkOwner, sendDepth, receiveDepth int,
	access ibverbs.Access) (l *link, err error) {
	err = e.use(func() error {
		l, err = e.makeLink(domain, owner, sendDepth, receiveDepth, access)
		return err
	})
	return l, err
}

func (e *engine) makeLink(domain *ibverbs.Domain, owner linkOwner, sendDepth, receiveDepth int,
	access ibverbs.Access) (*link, error) {
	entries := sendDepth + receiveDepth
	queue, err := e.reserve(entries)
	if err != nil {
		return nil, err
	}
	pair, err := domain.NewPair(queue.queue, sendDepth, max(receiveDepth, 1), rdmanet.InlineMax)
	if err == nil {
		if err = pair.Init(e.port.Number, access); err != nil {
			err = errors.Join(err, pair.Close())
		}
	}
	l := &link{engine: e, sequence: sequence(), sendDepth: sendDepth, receiveDepth: receiveDepth,
		queue: queue, owner: owner, pair: pair, destroyed: make(chan struct{})}
	e.mu.Lock()
	defer e.mu.Unlock()
	if err == nil && e.closed {
		err = errors.Join(rdmanet.ErrClosed, pair.Close())
	}
	if err != nil {
		queue.promised -= entries
		return nil, err
	}
	for l.id == 0 || e.links[l.id] != nil {
		e.nextID = (e.nextID + 1) &^ (1 << 31)
		l.id = e.nextID
	}
	e.links[l.id] = l
	return l, nil
}

// endpoint is what the other side needs to connect.
func (l *link) endpoint() endpoint {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.pair == nil {
		return endpoint{}
	}
	return l.engine.endpointOf(l.pair, l.sequence)
}

// connect makes the link work.
func (l *link) connect(remote endpoint) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.pair == nil {
		return errLinkOver
	}
	if err := l.postReceives(l.receiveDepth); err != nil {
		return err
	}
	address := ibverbs.Address{Number: remote.number, Sequence: remote.sequence, LID: remote.lid,
		MTU: min(remote.mtu, l.engine.port.MTU), GID: remote.gid}
	return l.pair.Connect(l.engine.port, l.engine.gid.Index, address, l.sequence, l.engine.patience)
}

func (l *link) postReceives(count int) error {
	if count == 0 {
		return nil
	}
	return l.pair.PostReceives(receiveID|uint64(l.id)<<32, count)
}

// inline is how many bytes of a write may be in its request.
func (l *link) inline() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.pair == nil {
		return 0
	}
	return l.pair.Inline
}

// room is how many requests can be posted now.
func (l *link) room() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sendDepth - int(l.posted-l.finished)
}

// post hands requests to the device, for which there is room, and gives the first one's number. A
// request has taken place when progressed tells a higher number, and none takes place any more when
// broke is told. With an error the link is of no use, and the caller ends it.
func (l *link) post(requests []ibverbs.Request) (first uint64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.pair == nil || l.over.Load() {
		return l.posted, errLinkOver
	}
	for i := range requests {
		requests[i].ID = uint64(l.id)<<32 | uint64(uint32(l.posted)+uint32(i))
		if i == len(requests)-1 || (i+1)%signalEvery == 0 {
			requests[i].Flags |= ibverbs.FlagSignalled
		}
	}
	if l.posted == l.finished {
		l.since.Store(time.Now().UnixNano())
	}
	first = l.posted
	n, err := l.pair.Post(requests)
	l.posted += uint64(n)
	if err != nil {
		return first, fmt.Errorf("%d of %d requests: %w", n, len(requests), err)
	}
	return first, nil
}

// completed takes note that a request, named by the lower half of its number, and all before it
// have taken place.
func (l *link) completed(number uint32) {
	l.mu.Lock()
	l.advance(number + 1)
	done := l.finished
	over := l.over.Load()
	l.mu.Unlock()
	if !over {
		l.owner.progressed(done)
	}
}

func (l *link) advance(to uint32) {
	l.finished += uint64(to - uint32(l.finished))
	if l.posted == l.finished {
		l.since.Store(0)
	} else {
		l.since.Store(time.Now().UnixNano())
	}
}

// received takes note of a write with immediate data, and gives receives back from time to time.
func (l *link) received() {
	l.mu.Lock()
	l.taken++
	if l.taken >= l.receiveDepth/4 && l.pair != nil && !l.over.Load() {
		// Without receives the other side's next writes wait, and fail in the end.
		if l.postReceives(l.taken) == nil {
			l.taken = 0
		}
	}
	over := l.over.Load()
	l.mu.Unlock()
	if !over {
		l.owner.rung()
	}
}

// failed ends the link with a completion's error: what was before it has taken place, the queue
// pair is in error.
func (l *link) failed(c *ibverbs.Completion) {
	if c.ID&receiveID == 0 {
		l.mu.Lock()
		before := l.finished
		l.advance(uint32(c.ID))
		done := l.finished
		over := l.over.Load()
		l.mu.Unlock()
		if !over && done != before {
			l.owner.progressed(done)
		}
	}
	if !l.over.CompareAndSwap(false, true) {
		return
	}
	l.since.Store(0)
	var err error
	switch c.Status {
	case ibverbs.StatusRemoteAccess, ibverbs.StatusRemoteInvalid, ibverbs.StatusRemoteFailed:
		err = fmt.Errorf("%w: %s", rdmanet.ErrAccess, c.Status)
	default:
		err = fmt.Errorf("%w: %s", errSilent, c.Status)
	}
	// Destroying takes long and is another's work; the queue pair does nothing any more.
	select {
	case l.engine.dead <- l:
	default:
		l.destroy()
	}
	l.owner.broke(err)
}

// end destroys the queue pair and tells its owner why, unless it is over already. Once it has
// returned, the device touches no memory for this link.
func (l *link) end(err error) {
	first := l.over.CompareAndSwap(false, true)
	l.destroy()
	if first {
		l.owner.broke(err)
	}
}

// fence takes the other side's access away: nothing of it lands any more once fence has returned.
// Without its flags the queue pair refuses what comes, but what the device was about to place when
// they went may land a moment later; destroying waits for that.
func (l *link) fence() {
	l.mu.Lock()
	if l.pair != nil {
		// Destroying is what has to succeed.
		_ = l.pair.SetAccess(0)
	}
	l.mu.Unlock()
	l.destroy()
}

// destroy destroys the queue pair, once; who comes second waits for it.
func (l *link) destroy() {
	l.over.Store(true)
	e := l.engine
	l.mu.Lock()
	pair, window := l.pair, l.window
	l.pair, l.window = nil, nil
	l.mu.Unlock()
	if pair == nil {
		<-l.destroyed
		return
	}
	if window != nil {
		_ = window.Close() // what the device does not take back goes with it
	}
	// The library may take long for it, and the poller is not to wait for the lock. What cannot be
	// destroyed stays until the device is closed; in the error state it does no harm.
	if pair.Close() != nil {
		_ = pair.Fail()
	}
	l.since.Store(0)
	e.mu.Lock()
	delete(e.links, l.id)
	l.queue.promised -= l.sendDepth + l.receiveDepth
	e.mu.Unlock()
	close(l.destroyed)
}
