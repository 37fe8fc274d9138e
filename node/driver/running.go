package driver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ledgerd/ledgerd/order"
)

// errFrozen is why a generation's context ends when it is frozen.
var errFrozen = errors.New("driver: the generation was frozen")

// running is one run's engine and what surrounds it. Everything below drained belongs to its goroutine, and to whoever holds the driver's lock when that has ended.
type running struct {
	driver *Driver
	config *Config
	inbox  *inbox
	group  Group
	place  order.ServerID
	ctx    context.Context
	cancel context.CancelCauseFunc
	done   chan struct{} // closed when the engine is done

	drained chan struct{} // closed when nothing is sent any more

	engine    order.Broadcaster
	outboxes  []outbox         // by place in the group
	touched   []order.ServerID // outboxes with frames of this turn
	room      chan unparked
	waits     sync.WaitGroup // goroutines that wait for room
	parkedMax int

	arrivals       []arrival // the last ones taken, empty, for the inbox to fill again
	linger         alarm
	lingering      bool
	lingered       bool // the linger is over
	parked         int  // outboxes that wait for room
	ownUndelivered int  // own messages with a payload, A-broadcast and not A-delivered
	sameNames      bool // places in the group are places in Config.Peers
	progress       bool // something happened in this turn
	halted         string
	ended          bool             // the eon is over
	epoch          order.Epoch      // of the last delivery
	members        []order.ServerID // that are left when the eon is over, as outside
	untaken        []order.Delivery // that the Sink did not take
	waiting        waiting
	patience       alarm // with a member that takes nothing
	status         alarm
	statusSet      bool // its alarm is set
	traffic        Traffic
}

// alarm is a timer that wakes the loop by the same channel as everything else: a receive from one channel is several times cheaper than a
// select over many, and the loop waits once a round and more.
type alarm struct {
	timer *time.Timer
	rang  atomic.Bool
}

func (a *alarm) set(d time.Duration, wake func()) {
	if a.timer == nil {
		a.timer = time.AfterFunc(d, func() {
			a.rang.Store(true)
			wake()
		})
		return
	}
	a.timer.Reset(d)
}

func (a *alarm) stop() {
	if a.timer != nil {
		a.timer.Stop()
	}
}

func newRunning(d *Driver, group Group, place order.ServerID, engine order.Broadcaster) (*running, error) {
	n := len(group.Members)
	r := &running{
		driver: d, config: &d.config, inbox: d.inbox, group: group, place: place, engine: engine,
		done: make(chan struct{}), drained: make(chan struct{}),
		outboxes:  make([]outbox, n),
		room:      make(chan unparked, n),
		parkedMax: parkedFramesMax(n),
		sameNames: int(group.Members[n-1]) == n-1,
	}
	for i, member := range group.Members {
		if order.ServerID(i) == place {
			continue
		}
		lane, err := d.config.Host.Lane(d.peers[member], LaneName)
		if err != nil {
			return nil, fmt.Errorf("driver: lane to server %d: %w", member, err)
		}
		r.outboxes[i].lane = lane
	}
	r.ctx, r.cancel = context.WithCancelCause(context.Background())
	return r, nil
}

// live is the run's goroutine.
func (r *running) live() {
	reason := r.run()
	if !r.ended {
		r.cancel(errFrozen)
	}
	r.publishEnd()
	close(r.done)
	go func() {
		defer close(r.drained)
		r.drain()
		r.waits.Wait()
	}()
	switch {
	case r.ended && r.config.Ended != nil:
		r.config.Ended(r.group, r.members)
	case reason != "" && r.config.Halted != nil:
		r.config.Halted(r.group, reason)
	}
	<-r.drained
	r.cancel(errFrozen)
}

// run drives the engine to its end. It gives why that halted, "" if it was frozen or its eon is over.
func (r *running) run() string {
	for r.ctx.Err() == nil && r.halted == "" && !r.ended {
		r.progress = false
		r.turn()
		if !r.progress && r.halted == "" && !r.ended {
			r.wait()
		}
	}
	switch {
	case r.ended:
		r.halted = ""
		r.config.Logger.Info("the eon is over", "run", r.group.Generation, "members", r.members)
	case r.ctx.Err() != nil:
		r.halted = ""
	default:
		r.config.Logger.Error("the engine halted", "run", r.group.Generation, "reason", r.halted)
	}
	r.inbox.end()
	r.linger.stop()
	r.patience.stop()
	r.status.stop()
	return r.halted
}

// turn takes what came, lets the engine work on it, and carries out what it wants.
func (r *running) turn() {
	r.poll()
	frames, opinions := r.inbox.take(r.arrivals)
	r.receive(frames)
	clear(frames)
	r.arrivals = frames[:0]
	for _, o := range opinions {
		switch {
		case o.lost:
			r.silence(o.server, o.cause)
		case o.trusted:
			r.trust(o.server)
		default:
			r.suspect(o.server, o.cause)
		}
	}
	r.broadcast()
	r.carryOut()
	if r.progress && !r.statusSet {
		r.statusSet = true
		r.status.set(StatusInterval, r.inbox.signal)
	}
}

func (r *running) receive(frames []arrival) {
	if len(frames) == 0 {
		return
	}
	r.progress = true
	r.traffic.Batches++
	r.traffic.FramesReceived += uint64(len(frames))
	for i := range frames {
		from := frames[i].from
		if r.outboxes[from].silent {
			continue
		}
		r.traffic.BytesReceived += uint64(len(frames[i].frame))
		if err := r.engine.Receive(from, frames[i].frame); err != nil {
			r.refused(from, err)
		}
	}
}

// refused handles an error of Receive: only malformed frames give one, and engines that halted.
func (r *running) refused(from order.ServerID, err error) {
	if errors.Is(err, order.ErrHalted) {
		r.checkEnd()
		return
	}
	r.config.Logger.Error("malformed frame: nothing more is taken from this server in this run", "run", r.group.Generation,
		"server", r.group.Members[from], "error", err)
	r.silence(from, err)
}

// broadcast A-broadcasts if the engine may and there is a reason to.
func (r *running) broadcast() {
	if !r.engine.CanBroadcast() || r.withheld() {
		return
	}
	batch := r.config.Source.Next(r.config.MaxBatch)
	if len(batch) == 0 && !r.emptyDue() {
		return
	}
	if err := r.engine.Broadcast(batch); err != nil {
		r.halt(fmt.Sprintf("batch of %d bytes refused: %v", len(batch), err))
		return
	}
	r.progress = true
	r.lingering, r.lingered = false, false
	r.traffic.Broadcasts++
	if len(batch) > 0 {
		r.ownUndelivered++
	} else {
		r.traffic.EmptyBroadcasts++
	}
}

// emptyDue tells whether an empty message is due now, and starts the linger if one is due later.
func (r *running) emptyDue() bool {
	switch {
	case r.engine.Solicited():
		return true
	case !r.engine.Undelivered():
		return false
	case r.ownUndelivered > 0 || r.lingered || r.config.Linger < 0:
		return true
	case !r.lingering:
		r.lingering = true
		r.linger.set(r.config.Linger, r.inbox.signal)
	}
	return false
}

// carryOut does what the engine wants: first what is to be sent, then what is to be delivered.
func (r *running) carryOut() {
	ready := r.engine.Ready()
	r.enqueue(ready.Sends)
	deliveries := r.copyDeliveries(ready.Deliveries)
	r.flush()
	if len(deliveries) > 0 {
		r.deliver(deliveries)
	}
}

// copyDeliveries makes deliveries that the Sink may keep, with members named as outside.
func (r *running) copyDeliveries(deliveries []order.Delivery) []order.Delivery {
	if len(deliveries) == 0 {
		return nil
	}
	total := 0
	for i := range deliveries {
		total += len(deliveries[i].Messages)
	}
	copies := make([]order.Delivery, len(deliveries))
	messages := make([]order.Message, 0, total)
	for i, delivery := range deliveries {
		first := len(messages)
		for _, message := range delivery.Messages {
			if message.Origin == r.place && len(message.Payload) > 0 {
				r.ownUndelivered--
			}
			if len(message.Payload) > 0 {
				r.traffic.Messages++
				r.traffic.PayloadBytes += uint64(len(message.Payload))
			}
			message.Origin = r.group.Members[message.Origin]
			messages = append(messages, message)
		}
		copies[i] = order.Delivery{Epoch: delivery.Epoch, Round: delivery.Round, Messages: messages[first:len(messages):len(messages)],
			Removed: r.outside(delivery.Removed)}
	}
	r.traffic.Rounds += uint64(len(deliveries))
	return copies
}

// outside copies places in the group as places in Config.Peers; the order stays.
func (r *running) outside(places []order.ServerID) []order.ServerID {
	if len(places) == 0 {
		return nil
	}
	servers := slices.Clone(places)
	if !r.sameNames {
		for i, place := range servers {
			servers[i] = r.group.Members[place]
		}
	}
	return servers
}

// deliver hands rounds to the Sink, and waits for it.
func (r *running) deliver(deliveries []order.Delivery) {
	r.progress = true
	for _, delivery := range deliveries {
		if len(delivery.Removed) > 0 {
			r.removed(delivery)
		}
	}
	if err := r.config.Sink.Deliver(r.ctx, deliveries); err != nil {
		r.untaken = deliveries
		if r.ctx.Err() == nil {
			r.halt(fmt.Sprintf("deliveries not taken: %v", err))
		}
		return
	}
	// Only a reliable round ends an eon, which begins an epoch.
	if last := deliveries[len(deliveries)-1].Epoch; last != r.epoch {
		r.epoch = last
		r.checkEnd()
	}
}

// removed notes who left the group. What is on their lanes already stays there: one that lives after all may learn from it that it was removed.
func (r *running) removed(delivery order.Delivery) {
	r.config.Logger.Warn("servers were removed from the group", "run", r.group.Generation, "round", delivery.Round,
		"servers", delivery.Removed)
	for _, server := range delivery.Removed {
		if server == r.group.Members[r.place] {
			r.checkEnd()
			continue
		}
		place, _ := slices.BinarySearch(r.group.Members, server)
		box := &r.outboxes[place]
		if box.parked {
			r.abandon(box)
		}
		box.lost, box.silent = true, true
		box.queue, box.bytes = nil, 0
		r.inbox.drop(server)
	}
	if r.config.Removed != nil {
		r.config.Removed(r.group.Generation, delivery.Removed)
	}
}

// wait sleeps until there is something to do. Everything but the source rings at the inbox's channel, the generation's end too.
func (r *running) wait() {
	if !r.engine.CanBroadcast() {
		<-r.inbox.wake
		return
	}
	select {
	case <-r.inbox.wake:
	case <-r.config.Source.Ready():
	}
}

// poll takes note of alarms, and of lanes that have room again.
func (r *running) poll() {
	if r.linger.rang.Load() {
		r.linger.rang.Store(false)
		r.lingered, r.lingering = r.lingering, false
	}
	if r.status.rang.Load() {
		r.status.rang.Store(false)
		r.statusSet = false
		r.checkEnd()
		r.publish()
	}
	if r.driver.broken.Load() {
		r.driver.broken.Store(false)
		r.probe()
	}
	for r.parked > 0 {
		select {
		case done := <-r.room:
			r.unpark(done)
			continue
		default:
		}
		break
	}
}

// checkEnd ends the loop if the engine delivers no more.
func (r *running) checkEnd() {
	switch status := r.engine.Status(); {
	case status.Halted != "":
		r.halt(status.Halted)
	case status.Ended:
		r.ended, r.members = true, r.outside(status.Members)
	}
}

// halt ends the loop after this turn; the first reason stands.
func (r *running) halt(reason string) {
	if r.halted == "" {
		r.halted = reason
	}
}
