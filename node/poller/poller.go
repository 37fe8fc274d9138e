package poller

import (
	"cmp"
	"context"
	"runtime"
	"sync"
	"time"

	"github.com/ledgerd/ledgerd/protected"
	"github.com/ledgerd/ledgerd/rdmanet"
)

// Inputs bounds the inputs of a poller that wait for its next turn.
const Inputs = 1024

// Spans of a poller. They are short beside the timeouts of machines, which begin at milliseconds.
const (
	// attachTimeout bounds how long an attachment may wait for a peer.
	attachTimeout = 5 * time.Second
	// parkUnderWay is how long a poller parks while its machine has operations under way.
	parkUnderWay = 20 * time.Microsecond
	// parkIdle is the same while there are none: the machine's own spans may end meanwhile.
	parkIdle = 500 * time.Microsecond
)

// YieldsDefault is how many turns without work a poller takes before it parks, over fabrics that
// need the processor too.
const YieldsDefault = 20

// Config is what a poller is made from.
type Config struct {
	// Host makes the attachments. The poller neither makes nor closes it.
	Host rdmanet.RegionHost
	// Machine belongs to the poller from Start until Stop has returned.
	Machine protected.Machine
	// Feed gives the machine what it has to do, before each poll. Drain takes what it has done,
	// after each. Both report whether there was anything, must not wait, and may be nil.
	Feed, Drain func() bool
	// Yields is how many turns without work the poller takes before it parks; 0 means
	// YieldsDefault. More shorten waits and cost other goroutines their turns.
	Yields int
	// Idle is how long the poller parks while its machine has no operations under way; 0 means a
	// span that is short beside all timeouts. The machine's own timers may be that late.
	Idle time.Duration
}

// Poller drives one machine. Its methods may be called from several goroutines.
type Poller struct {
	config  Config
	began   time.Time
	inputs  chan func()
	ringing chan struct{}
	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup
	// idle and underWay are how long it parks: parkIdle and parkUnderWay, except in tests.
	idle, underWay time.Duration
}

// New makes a poller, which does nothing before Start.
func New(config Config) *Poller {
	if config.Yields == 0 {
		config.Yields = YieldsDefault
	}
	p := &Poller{config: config, began: time.Now(), inputs: make(chan func(), Inputs),
		ringing: make(chan struct{}, 1), idle: cmp.Or(config.Idle, parkIdle),
		underWay: parkUnderWay}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	return p
}

// Start begins the turns. It is called once.
func (p *Poller) Start() {
	for _, region := range p.config.Machine.Regions() {
		p.running.Go(func() {
			// The error says that the poller stopped or the region was closed.
			_ = region.Await(p.ctx, func() bool {
				p.Ring()
				return false
			})
		})
	}
	p.running.Go(p.drive)
}

// Ring makes a parked poller take a turn now. It never waits.
func (p *Poller) Ring() {
	select {
	case p.ringing <- struct{}{}:
	default: // it is awake, or will be
	}
}

// Do has the poller run an input between two polls. It waits for room among the inputs, and reports
// false if the poller stops: the input may not run then. An input must not call Do.
func (p *Poller) Do(input func()) bool {
	select {
	case p.inputs <- input:
		p.Ring()
		return true
	case <-p.ctx.Done():
		return false
	}
}

// Stop ends the turns, and waits for all goroutines. A second call does nothing. Machine and host
// are left open.
func (p *Poller) Stop() {
	p.cancel()
	p.running.Wait()
}

// drive takes turns until the poller stops.
func (p *Poller) drive() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for idle := 0; p.ctx.Err() == nil; {
		if p.turn() {
			idle = 0
		}
		if idle++; idle < p.config.Yields {
			runtime.Gosched()
			continue
		}
		span := p.idle
		if p.config.Machine.Outstanding() > 0 {
			span = p.underWay
		}
		timer.Reset(span)
		select {
		case <-p.ringing:
		case <-timer.C:
		case <-p.ctx.Done():
		}
	}
}

// turn lets the machine work once, and reports whether there was anything to do.
func (p *Poller) turn() (busy bool) {
	for range len(p.inputs) { // those that come meanwhile wait for the next turn
		(<-p.inputs)()
		busy = true
	}
	if p.config.Feed != nil && p.config.Feed() {
		busy = true
	}
	if p.config.Machine.Poll(time.Since(p.began)) {
		busy = true
	}
	for _, want := range p.config.Machine.Wanted() {
		p.running.Go(func() { p.attach(want) })
	}
	if p.config.Drain != nil && p.config.Drain() {
		busy = true
	}
	return busy
}

// attach answers one want of the machine.
func (p *Poller) attach(want protected.Want) {
	ctx, cancel := context.WithTimeout(p.ctx, attachTimeout)
	defer cancel()
	attachment, err := p.config.Host.Attach(ctx, want.Peer, want.Region)
	answered := p.Do(func() { p.config.Machine.Attached(want.Number, attachment, err) })
	if !answered && attachment != nil {
		_ = attachment.Close() // the machine does not get it
	}
}
