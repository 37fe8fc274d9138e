//go:build verbs

package verbs

import (
	"errors"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/rdmanet/verbs/ibverbs"
)

const (
	// queueEntries is the size of a completion queue, if the device allows it. Further queues are
	// made when the queue pairs could overrun the existing ones.
	queueEntries = 16 << 10
	// spinPolls is how often the poller looks for completions before it parks.
	spinPolls = 32
	// standBack is how long the poller leaves the device to waiting callers that poll themselves.
	standBack = 100 * time.Microsecond
	// parkMax is the longest time that the poller parks while requests are outstanding.
	parkMax = 2 * time.Millisecond
	// readsMax bounds the reads outstanding on a queue pair.
	readsMax = 16
	// retriesMax is the device's number of retries of a packet, the largest possible value.
	retriesMax = 7
)

// engine is an open device with its completion queues and the goroutine that polls them.
type engine struct {
	context *ibverbs.Context
	port    ibverbs.Port
	gid     ibverbs.GID
	limits  ibverbs.Limits
	channel *ibverbs.Channel
	// For this host's own operations: the memory they write from and read into.
	client   *ibverbs.Domain
	patience ibverbs.Patience
	method   Permissions // how permissions are withdrawn
	refused  []error     // why faster methods are not used
	// deadline is the time after which software ends an operation that the device does not
	// complete.
	deadline time.Duration

	life sync.RWMutex // held for reading while the device is used
	gone bool         // the device is closed

	looked atomic.Int64 // when a waiting caller last polled, in nanoseconds

	polling     sync.Mutex // held by the goroutine that polls
	completions [ibverbs.PollMax]ibverbs.Completion
	due         []*polledLane // lanes that were found written

	serving []*polledLane             // of the poller's goroutine: due lanes that it serves
	turns   []*rdmanet.PromptReceiver // of the poller's goroutine: receivers whose turn is due

	mu     sync.Mutex
	queues []*completionQueue
	links  map[uint32]*link
	nextID uint32
	closed bool

	dead    chan *link // links whose queue pairs must be destroyed
	ending  chan struct{}
	workers sync.WaitGroup
}

// completionQueue is one of the engine's completion queues, with the number of entries reserved for
// queue pairs.
type completionQueue struct {
	queue              *ibverbs.Completions
	capacity, promised int
}

// newEngine opens the device that the options choose.
func newEngine(options Options) (*engine, error) {
	device, port, gid, err := choose(options.Device, options.GID)
	if err != nil {
		return nil, err
	}
	context, err := ibverbs.Open(device)
	if err != nil {
		return nil, err
	}
	e := &engine{context: context, port: port, gid: gid, links: make(map[uint32]*link),
		dead: make(chan *link, 64), ending: make(chan struct{})}
	if err := e.prepare(options.Control.MendTimeout); err != nil {
		return nil, errors.Join(fmt.Errorf("RDMA device %s: %w", device, err), e.release())
	}
	e.workers.Go(e.poll)
	e.workers.Go(e.keep)
	return e, nil
}

func (e *engine) prepare(mendTimeout time.Duration) (err error) {
	if e.limits, err = e.context.Limits(); err != nil {
		return err
	}
	if e.channel, err = e.context.NewChannel(); err != nil {
		return err
	}
	if e.client, err = e.context.NewDomain(); err != nil {
		return err
	}
	e.patience = patienceFor(mendTimeout/2, min(e.limits.ReadsMax, readsMax))
	e.deadline = mendTimeout * 3 / 4
	_, err = e.reserve(0)
	return err
}

// patienceFor returns timeouts with which all retries of the device take at most limit, and each at
// least a millisecond.
func patienceFor(limit time.Duration, reads int) ibverbs.Patience {
	// Devices may take up to four times as long. The deadline in software bounds that.
	each := limit / (retriesMax + 1)
	exponent := bits.Len64(uint64(each.Nanoseconds())/4096) - 1
	return ibverbs.Patience{
		Timeout: uint32(min(max(exponent, 8), 20)), Retries: retriesMax,
		NotReadyRetries: 7,  // unlimited: the deadline in software ends it
		NotReadyTimer:   12, // 0.64 ms
		Reads:           uint32(max(reads, 1)),
	}
}

// reserve finds a completion queue with room for that many entries, or makes one. The caller holds
// no lock.
func (e *engine) reserve(entries int) (*completionQueue, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, q := range e.queues {
		if q.promised+entries <= q.capacity {
			q.promised += entries
			return q, nil
		}
	}
	capacity := min(queueEntries, e.limits.CompletionsMax)
	queue, err := e.context.NewCompletions(capacity, e.channel)
	if err != nil {
		return nil, err
	}
	q := &completionQueue{queue: queue, capacity: capacity, promised: entries}
	if err := queue.Arm(); err != nil {
		return nil, errors.Join(err, queue.Close())
	}
	e.queues = append(e.queues, q)
	return q, nil
}

// release frees everything. No link may be left and no worker may run.
func (e *engine) release() error {
	var err error
	for _, q := range e.queues {
		err = errors.Join(err, q.queue.Close())
	}
	if e.client != nil {
		err = errors.Join(err, e.client.Close())
	}
	if e.channel != nil {
		err = errors.Join(err, e.channel.Close())
	}
	return errors.Join(err, e.context.Close())
}

// close destroys the remaining links, without calling their owners, then everything else.
func (e *engine) close() error {
	e.mu.Lock()
	e.closed = true
	var left []*link
	for _, l := range e.links {
		left = append(left, l)
	}
	e.mu.Unlock()
	for _, l := range left {
		l.destroy()
	}
	close(e.ending)
	// An error means that the file does not support deadlines. Then its Close wakes the poller.
	_ = e.channel.File().SetReadDeadline(time.Unix(1, 0))
	e.workers.Wait()
	e.life.Lock()
	defer e.life.Unlock()
	e.polling.Lock()
	defer e.polling.Unlock()
	e.gone = true
	return e.release()
}

// use runs work that needs the device, or returns ErrClosed once the device is closed.
func (e *engine) use(work func() error) error {
	e.life.RLock()
	defer e.life.RUnlock()
	if e.gone {
		return rdmanet.ErrClosed
	}
	return work()
}

// register registers memory in a domain.
func (e *engine) register(domain *ibverbs.Domain, bytes []byte,
	access ibverbs.Access) (memory *ibverbs.Memory, err error) {
	err = e.use(func() error {
		memory, err = domain.Register(bytes, access)
		return err
	})
	return memory, err
}

// progress polls every queue once, unless another goroutine is polling, and passes the completions
// to their links. It returns the number of completions. It wakes the goroutines of prompt lanes
// that it finds written.
func (e *engine) progress() int {
	if !e.polling.TryLock() {
		return 0
	}
	defer e.polling.Unlock()
	total := e.pollLocked()
	for i, p := range e.due {
		p.queued = false
		notify(p.receiver.wake)
		e.due[i] = nil
	}
	e.due = e.due[:0]
	return total
}

// advance is progress for the poller: it serves the prompt lanes itself. It waits for another
// goroutine that polls only if patient is set.
func (e *engine) advance(patient bool) int {
	if patient {
		e.polling.Lock()
	} else if !e.polling.TryLock() {
		return 0
	}
	total := e.pollLocked()
	for _, p := range e.due {
		p.queued = false
	}
	e.due, e.serving = e.serving, e.due
	e.polling.Unlock()
	e.serve()
	return total
}

// note records that a prompt lane was written. The caller holds polling.
func (e *engine) note(p *polledLane) {
	if !p.queued {
		p.queued = true
		e.due = append(e.due, p)
	}
}

func (e *engine) pollLocked() int {
	if e.gone {
		return 0
	}
	e.mu.Lock()
	queues := e.queues // the slice is only appended to
	e.mu.Unlock()
	total := 0
	for _, q := range queues {
		n, err := q.queue.Poll(e.completions[:])
		if err != nil {
			continue // the deadline of the outstanding requests handles it
		}
		for i := range e.completions[:n] {
			e.dispatch(&e.completions[i])
		}
		total += n
	}
	return total
}

// receiveID marks the completions of receives.
const receiveID = 1 << 63

func (e *engine) dispatch(c *ibverbs.Completion) {
	e.mu.Lock()
	l := e.links[uint32(c.ID>>32)&^(1<<31)]
	e.mu.Unlock()
	if l == nil {
		return // flushed from a queue pair that was destroyed
	}
	switch {
	case c.Status != ibverbs.StatusSuccess:
		l.failed(c)
	case c.ID&receiveID != 0:
		l.received()
	default:
		l.completed(uint32(c.ID))
	}
}

// poll is the poller. It looks for completions for a short time, then parks until the channel
// reports an event. It hands over the frames of prompt lanes, and takes their receivers' turns.
func (e *engine) poll() {
	raw, err := e.channel.File().SyscallConn()
	if err != nil {
		return
	}
	for idle := 0; ; {
		select {
		case <-e.ending:
			return
		default:
		}
		if e.advance(false) > 0 {
			idle = 0
			continue
		}
		if idle++; idle < spinPolls {
			runtime.Gosched()
			continue
		}
		idle = 0
		// Callers of Queue.Wait poll for all links. Each arming costs a system call, and each event
		// costs another one and a thread switch.
		if time.Now().UnixNano()-e.looked.Load() < int64(standBack) {
			time.Sleep(standBack)
			continue
		}
		if e.arm() > 0 {
			continue
		}
		if !e.patient() {
			return
		}
		if err := raw.Read(func(uintptr) bool {
			return e.channel.Event()
		}); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return
		}
		for e.channel.Event() {
		}
	}
}

// patient limits how long the poller parks. While requests are outstanding the limit is short,
// because an event may get lost. Otherwise there is no limit. It returns false when the engine is
// closing.
func (e *engine) patient() bool {
	var until time.Time
	e.mu.Lock()
	for _, l := range e.links {
		if l.since.Load() != 0 {
			until = time.Now().Add(parkMax)
			break
		}
	}
	e.mu.Unlock()
	// An error means that the file does not support deadlines. Then only events wake the poller.
	_ = e.channel.File().SetReadDeadline(until)
	select {
	case <-e.ending:
		return false
	default:
		return true
	}
}

// arm asks all queues for an event and polls a last time.
func (e *engine) arm() int {
	e.mu.Lock()
	queues := e.queues
	e.mu.Unlock()
	for _, q := range queues {
		// A queue that cannot be armed is polled at the next event of another queue, and by waiting
		// callers.
		_ = q.queue.Arm()
	}
	return e.advance(true)
}

// keep destroys the queue pairs of failed links, and ends requests that the device does not
// complete.
func (e *engine) keep() {
	look := time.NewTicker(min(e.deadline/4, 250*time.Millisecond))
	defer look.Stop()
	for {
		select {
		case l := <-e.dead:
			l.destroy()
		case now := <-look.C:
			e.progress()
			e.expire(now)
		case <-e.ending:
			return
		}
	}
}

// expire destroys links with outstanding requests and no progress within the deadline.
func (e *engine) expire(now time.Time) {
	e.mu.Lock()
	var late []*link
	for _, l := range e.links {
		if since := l.since.Load(); since != 0 && now.UnixNano()-since > int64(e.deadline) {
			late = append(late, l)
		}
	}
	e.mu.Unlock()
	for _, l := range late {
		l.end(errDeadline)
	}
}

// sequence returns a queue pair's first packet sequence number. It is random, so that packets of an
// earlier pair with the same number do not match.
func sequence() uint32 { return rand.Uint32() & (1<<24 - 1) }

// endpointOf returns the address to which the other side must connect for one of the engine's queue
// pairs.
func (e *engine) endpointOf(pair *ibverbs.Pair, sequence uint32) endpoint {
	return endpoint{number: pair.Number(), sequence: sequence, lid: e.port.LID, mtu: e.port.MTU,
		gid: e.gid.Address.As16()}
}
