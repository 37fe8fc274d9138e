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
	// errDeadline: the device did not complete an operation in time.
	errDeadline = errors.New("the device did not complete an operation in time")
	// errLinkOver: the queue pair failed or was destroyed.
	errLinkOver = errors.New("queue pair is over")
	// errSilent: the other side did not answer.
	errSilent = errors.New("no answer from the peer's device")
)

// signalEvery is how many requests of one batch share a completion.
const signalEvery = 32

// linkOwner receives the events of a link, one call at a time, with no locks held.
type linkOwner interface {
	// progressed reports that the first done requests have taken place.
	progressed(done uint64)
	// rung reports that writes with immediate data arrived.
	rung()
	// broke reports that nothing takes place any more. It is called once, after the last
	// progressed.
	broke(err error)
}

// link is one queue pair of the engine, from creation to destruction. Its requests are numbered
// from 0.
type link struct {
	engine       *engine
	id           uint32
	sequence     uint32
	sendDepth    int
	receiveDepth int
	queue        *completionQueue
	owner        linkOwner

	// While requests are outstanding, the time at which the device last made progress, in
	// nanoseconds. 0 if none are outstanding.
	since atomic.Int64
	over  atomic.Bool // broke was called or will be

	destroyed chan struct{} // closed when the queue pair is destroyed

	mu   sync.Mutex
	pair *ibverbs.Pair // nil once the link is being destroyed
	// Bound to the pair. It must be freed before the pair. Nil if there is none.
	window   *ibverbs.Window
	posted   uint64
	finished uint64
	taken    int // receives not yet replaced
}

// newLink makes a queue pair in the domain, ready to be connected. access is the access of the
// other side.
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

// endpoint returns the address to which the other side must connect.
func (l *link) endpoint() endpoint {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.pair == nil {
		return endpoint{}
	}
	return l.engine.endpointOf(l.pair, l.sequence)
}

// connect connects the link to the remote queue pair.
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

// inline returns how many bytes of a write may be inside its request.
func (l *link) inline() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.pair == nil {
		return 0
	}
	return l.pair.Inline
}

// room returns how many requests can be posted now.
func (l *link) room() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sendDepth - int(l.posted-l.finished)
}

// post passes requests to the device and returns the number of the first one. The caller must have
// checked that there is room. A request has taken place when progressed reports a higher number. No
// request takes place any more once broke is called. If post returns an error the link is unusable,
// and the caller must end it.
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

// completed records that a request, given by the lower half of its number, and all requests before
// it have taken place.
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

// received records a write with immediate data, and replaces used receives from time to time.
func (l *link) received() {
	l.mu.Lock()
	l.taken++
	if l.taken >= l.receiveDepth/4 && l.pair != nil && !l.over.Load() {
		// Without receives the other side's next writes wait and finally fail.
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

// failed ends the link with a completion's error. Earlier requests have taken place. The queue pair
// is in the error state.
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
	// Destroying takes long and is left to another goroutine. The queue pair does nothing any more.
	select {
	case l.engine.dead <- l:
	default:
		l.destroy()
	}
	l.owner.broke(err)
}

// end destroys the queue pair and reports err to its owner, unless the link is over already. Once
// it has returned, the device touches no memory for this link.
func (l *link) end(err error) {
	first := l.over.CompareAndSwap(false, true)
	l.destroy()
	if first {
		l.owner.broke(err)
	}
}

// fence withdraws the other side's access: once it has returned, nothing of it lands any more.
// Without access flags the queue pair refuses new packets. A packet that the device was about to
// place may still land a moment later; destroying the queue pair waits for that.
func (l *link) fence() {
	l.mu.Lock()
	if l.pair != nil {
		// Ignore an error: destroying is the step that must succeed.
		_ = l.pair.SetAccess(0)
	}
	l.mu.Unlock()
	l.destroy()
}

// destroy destroys the queue pair once. Further callers wait for the first.
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
		_ = window.Close() // a window that the device does not free is freed with it
	}
	// The library may take long, and the poller must not wait for the lock. A pair that cannot be
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
