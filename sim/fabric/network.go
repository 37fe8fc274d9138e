package fabric

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/ledgerd/ledgerd/rdmanet"
)

// Errors of the simulated fabric, beside rdmanet's.
var (
	// ErrNoLanes: this fabric has regions only.
	ErrNoLanes = errors.New("fabric: the simulated fabric has no lanes")
	// ErrIdle: nothing is left that could happen, so what is waited for will never come.
	ErrIdle = errors.New("fabric: waiting for ever: no event is left")
)

// Options of a network. Zero values mean the defaults.
type Options struct {
	Seed uint64
	// Members get in; nil admits everyone.
	Members []rdmanet.PeerID
	// Delay is the longest that an operation takes one way, in virtual time: 10 microseconds. One
	// in 16 takes up to 32 times that.
	Delay time.Duration
	// OperationTimeout is when an operation completes at the latest: 10 milliseconds.
	OperationTimeout time.Duration
	// Fault breaks the contract, to show that who checks it notices.
	Fault Fault
	// Paced has the network take its own steps by the machine's clock.
	Paced bool
}

// Fault is a planted bug.
type Fault uint8

// The planted bugs.
const (
	FaultNone Fault = iota
	// FaultLandsAfterRevoke: what is under way lands although the permission changed.
	FaultLandsAfterRevoke
	// FaultMarkFirst: the last word of a write lands before the rest.
	FaultMarkFirst
	// FaultCompletionsReordered: operations complete as their answers come.
	FaultCompletionsReordered
	// FaultCompletionLost: an operation now and then never completes.
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

// Network is the hosts and what is under way between them. All methods may be called from several
// goroutines.
type Network struct {
	options Options

	mu       sync.Mutex
	random   *rand.Rand
	now      time.Duration
	sequence uint64
	events   events
	hosts    map[rdmanet.PeerID]*Host // the living ones
	lives    map[rdmanet.PeerID]rdmanet.Incarnation
	cuts     map[[2]rdmanet.PeerID]bool
	held     []*operation // at a cut wire, in the order in which they came there

	began   time.Time // with Paced
	changed chan struct{}
	stop    chan struct{}
	stopped sync.WaitGroup
	closing sync.Once
}

// event is something that happens at an instant.
type event struct {
	at       time.Duration
	sequence uint64
	happen   func()
}

// events are a heap: the next one first.
type events []event

func (e events) before(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].sequence < e[j].sequence
}

// push adds an event.
func (e *events) push(x event) {
	*e = append(*e, x)
	own := *e
	for at := len(own) - 1; at > 0; {
		parent := (at - 1) / 2
		if !own.before(at, parent) {
			return
		}
		own[at], own[parent] = own[parent], own[at]
		at = parent
	}
}

// pop takes the next event.
func (e *events) pop() event {
	own := *e
	next, last := own[0], len(own)-1
	own[0], own[last] = own[last], event{}
	own = own[:last]
	*e = own
	for at := 0; ; {
		child := 2*at + 1
		if child >= last {
			return next
		}
		if child+1 < last && own.before(child+1, child) {
			child++
		}
		if !own.before(child, at) {
			return next
		}
		own[at], own[child] = own[child], own[at]
		at = child
	}
}

// New makes a network without hosts.
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

// Start starts a host: again, as its next incarnation, after Crash or its Close.
func (n *Network) Start(id rdmanet.PeerID) (*Host, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.hosts[id] != nil {
		return nil, fmt.Errorf("%w: host %s lives", rdmanet.ErrDuplicate, id)
	}
	n.lives[id]++
	h := &Host{network: n, id: id, incarnation: n.lives[id], regions: map[string]*Region{}}
	n.hosts[id] = h
	n.wake()
	return h, nil
}

// Crash ends a host: its memory answers nobody any more, and of its own operations under way some
// land and some do not.
func (n *Network) Crash(id rdmanet.PeerID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if h := n.hosts[id]; h != nil {
		h.end()
	}
}

// Cut has the wire between two hosts hold everything until Mend.
func (n *Network) Cut(a, b rdmanet.PeerID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cuts[wire(a, b)] = true
}

// Mend takes Cut back. What was held goes on, also what timed out meanwhile.
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

// Now is the virtual time since New.
func (n *Network) Now() time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.now
}

// After has something happen in virtual time, in Step: a program's tick, say. It must not wait.
func (n *Network) After(span time.Duration, happen func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.schedule(span, func() {
		n.mu.Unlock()
		defer n.mu.Lock()
		happen()
	})
}

// Step lets the next event happen; false when there is none.
func (n *Network) Step() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.step()
}

func (n *Network) step() bool {
	if len(n.events) == 0 {
		return false
	}
	next := n.events.pop()
	n.now = next.at
	next.happen()
	n.wake()
	return true
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

// schedule has something happen after a span, with the lock held.
func (n *Network) schedule(span time.Duration, happen func()) {
	n.sequence++
	n.events.push(event{n.now + span, n.sequence, happen})
	n.wake()
}

// delay draws how long something takes.
func (n *Network) delay() time.Duration {
	longest := int64(n.options.Delay)
	if n.random.IntN(16) == 0 {
		longest *= 32
	}
	return time.Duration(1 + n.random.Int64N(longest))
}

// wake has everyone look again who waits for a change. The lock is held.
func (n *Network) wake() {
	if n.options.Paced {
		close(n.changed)
		n.changed = make(chan struct{})
	}
}

// wait waits for a change: by a step, or, paced, for whatever happens. The lock is held, but while
// it waits.
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
	case <-done: // the caller sees why
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
		for len(n.events) > 0 && n.events[0].at <= elapsed {
			n.step()
		}
		n.now = max(n.now, elapsed)
		changed := n.changed
		if len(n.events) > 0 {
			timer.Reset(n.events[0].at - elapsed)
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
