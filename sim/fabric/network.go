package fabric

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/sim/timeline"
)

// Errors of the simulated fabric, in addition to rdmanet's.
var (
	// ErrNoLanes is returned for lanes: this fabric has regions only.
	ErrNoLanes = errors.New("fabric: the simulated fabric has no lanes")
	// ErrIdle is returned if no event is left, so that the condition of a wait can never hold.
	ErrIdle = errors.New("fabric: the wait can never end: no event is left")
)

// Options of a network. Zero values mean the defaults.
type Options struct {
	Seed uint64
	// Members may join; nil admits every host.
	Members []rdmanet.PeerID
	// Delay is the longest time that an operation takes one way, in virtual time. The default is 10
	// microseconds. One operation in 16 takes up to 32 times that.
	Delay time.Duration
	// Timing replaces the delays that the seed draws by a model; nil keeps them.
	Timing Timing
	// Distance is a further time of each byte from one host to another, with a Timing. Nil means
	// that all hosts are equally far from each other.
	Distance func(from, to rdmanet.PeerID) time.Duration
	// OperationTimeout is the time after which an operation completes at the latest. The default is
	// 10 milliseconds.
	OperationTimeout time.Duration
	// Stirred, unless it is nil, is called when a program on a host has something new to look at:
	// an operation with Ring landed there, or one of its own completed. Production's programs are
	// woken for the first and look again soon for the second. It must not call the network.
	Stirred func(host rdmanet.PeerID)
	// Fault breaks the contract, to show that a checker notices.
	Fault Fault
	// Paced makes the network take its own steps by the machine's clock.
	Paced bool
}

// Fault is a planted bug.
type Fault uint8

// The planted bugs.
const (
	FaultNone Fault = iota
	// FaultLandsAfterRevoke makes operations under way land although the permission changed.
	FaultLandsAfterRevoke
	// FaultMarkFirst makes the last word of a write land before the rest.
	FaultMarkFirst
	// FaultCompletionsReordered makes operations complete in the order of their answers.
	FaultCompletionsReordered
	// FaultCompletionLost makes some operations never complete.
	FaultCompletionLost
)

func (o Options) withDefaults() Options {
	if o.Delay == 0 {
		o.Delay = 10 * time.Microsecond
	}
	if o.OperationTimeout == 0 {
		o.OperationTimeout = 10 * time.Millisecond
	}
	return o
}

// Network is the hosts and the operations under way between them. It is safe for concurrent use.
type Network struct {
	options Options

	mu     sync.Mutex
	random *rand.Rand
	now    time.Duration
	events timeline.Queue[time.Duration, func()]
	hosts  map[rdmanet.PeerID]*Host // the live ones
	lives  map[rdmanet.PeerID]rdmanet.Incarnation
	cuts   map[[2]rdmanet.PeerID]bool
	held   []*operation // at a cut wire, in the order of arrival

	began   time.Time // for Paced
	changed chan struct{}
	stop    chan struct{}
	stopped sync.WaitGroup
	closing sync.Once
}

// New returns a network without hosts.
func New(options Options) *Network {
	n := &Network{
		options: options.withDefaults(), random: rand.New(rand.NewPCG(options.Seed,
			0x666162726963)), hosts: map[rdmanet.PeerID]*Host{},
		lives: map[rdmanet.PeerID]rdmanet.Incarnation{},
		cuts:  map[[2]rdmanet.PeerID]bool{}, began: time.Now(), changed: make(chan struct{}),
		stop: make(chan struct{}),
	}
	if options.Paced {
		n.stopped.Add(1)
		go n.pace()
	}
	return n
}

// Start starts a host. After Crash or its Close, it starts the host again as its next incarnation.
func (n *Network) Start(id rdmanet.PeerID) (*Host, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.hosts[id] != nil {
		return nil, fmt.Errorf("%w: host %s is running", rdmanet.ErrDuplicate, id)
	}
	n.lives[id]++
	h := &Host{network: n, id: id, incarnation: n.lives[id], regions: map[string]*Region{}}
	n.hosts[id] = h
	n.wake()
	return h, nil
}

// Crash ends a host. Its memory does not answer any more, and of its own operations under way some
// land and some do not.
func (n *Network) Crash(id rdmanet.PeerID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if h := n.hosts[id]; h != nil {
		h.end()
	}
}

// Cut makes the wire between two hosts hold everything until Mend.
func (n *Network) Cut(a, b rdmanet.PeerID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cuts[wire(a, b)] = true
}

// Mend reverts Cut. Everything that was held goes on, even if it timed out meanwhile.
func (n *Network) Mend(a, b rdmanet.PeerID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.cuts, wire(a, b))
	held := n.held
	n.held = nil
	for _, o := range held {
		if o.attachment.wire() == wire(a, b) {
			n.travel(o)
		} else {
			n.held = append(n.held, o)
		}
	}
	n.wake()
}

func wire(a, b rdmanet.PeerID) [2]rdmanet.PeerID {
	if a > b {
		a, b = b, a
	}
	return [2]rdmanet.PeerID{a, b}
}

// Now returns the virtual time since New.
func (n *Network) Now() time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.now
}

// After schedules a function in virtual time, such as a program's tick. Step calls it. It must not
// wait.
func (n *Network) After(span time.Duration, happen func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.schedule(span, func() {
		n.mu.Unlock()
		defer n.mu.Lock()
		happen()
	})
}

// Step runs the next event. It returns false if there is none.
func (n *Network) Step() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.step()
}

func (n *Network) step() bool {
	if n.events.Len() == 0 {
		return false
	}
	at, happen := n.events.Pop()
	n.now = at
	happen()
	n.wake()
	return true
}

// Next returns when the next event is, if there is one. With Advance, a simulator runs the network
// beside events of its own.
func (n *Network) Next() (at time.Duration, some bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.events.Len() == 0 {
		return 0, false
	}
	return n.events.First(), true
}

// Advance lets time pass up to an instant that is not after the next event.
func (n *Network) Advance(to time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.now = max(n.now, to)
}

// stirred tells that a host's program has something to look at.
func (n *Network) stirred(h *Host) {
	if n.options.Stirred != nil && !h.ended {
		n.options.Stirred(h.id)
	}
}

// Close ends all hosts, and the network's goroutine.
func (n *Network) Close() {
	n.closing.Do(func() { close(n.stop) })
	n.stopped.Wait()
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, h := range n.hosts {
		h.end()
	}
}

// schedule schedules a function after a span. The caller holds the lock.
func (n *Network) schedule(span time.Duration, happen func()) {
	n.events.Push(n.now+span, happen)
	n.wake()
}

// delay draws how long something takes.
func (n *Network) delay() time.Duration { return Delay(n.random, n.options.Delay) }

// Delay draws how long something takes: up to longest, and in one case in 16 up to 32 times that.
func Delay(random *rand.Rand, longest time.Duration) time.Duration {
	if random.IntN(16) == 0 {
		longest *= 32
	}
	return time.Duration(1 + random.Int64N(int64(longest)))
}

// wake makes all waiting callers check their conditions again. The caller holds the lock.
func (n *Network) wake() {
	if n.options.Paced {
		close(n.changed)
		n.changed = make(chan struct{})
	}
}

// wait waits for a change: it takes a step or, if the network is paced, waits for any change. The
// caller holds the lock, which wait releases while it waits.
func (n *Network) wait(done <-chan struct{}) error {
	if !n.options.Paced {
		if !n.step() {
			return ErrIdle
		}
		return nil
	}
	changed := n.changed
	n.mu.Unlock()
	defer n.mu.Lock()
	select {
	case <-changed:
	case <-done: // the caller sees the reason
	}
	return nil
}

// pace takes the steps by the machine's clock.
func (n *Network) pace() {
	defer n.stopped.Done()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		n.mu.Lock()
		elapsed := time.Since(n.began)
		for n.events.Len() > 0 && n.events.First() <= elapsed {
			n.step()
		}
		n.now = max(n.now, elapsed)
		changed := n.changed
		if n.events.Len() > 0 {
			timer.Reset(n.events.First() - elapsed)
		}
		n.mu.Unlock()
		select {
		case <-n.stop:
			return
		case <-changed:
		case <-timer.C:
		}
	}
}
