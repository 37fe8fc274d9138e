package driver

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ledgerd/ledgerd/node/rounds"
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/shard/turn"
)

// errFrozen is the cause that ends a generation's context when it is frozen.
var errFrozen = errors.New("driver: the generation was frozen")

// running is one run's engine and its surroundings. The fields below turning belong to the
// goroutine that holds it. The run's goroutine ends with it held, and never gives it up again. From
// then on the fields belong to the holder of the driver's lock.
type running struct {
	driver *Driver
	config *Config
	inbox  *inbox
	group  Group
	place  order.ServerID
	ctx    context.Context
	cancel context.CancelCauseFunc
	done   chan struct{} // closed when the engine has ended

	drained chan struct{} // closed when nothing more is sent

	turning   sync.Mutex // held while turns are taken
	turn      *turn.Machine
	engine    order.Broadcaster // the turn's; used only to read its state
	outboxes  []outbox          // by place in the group
	touched   []order.ServerID  // outboxes that got frames in this turn
	room      chan unparked
	waits     sync.WaitGroup // goroutines that wait for room
	parkedMax int

	arrivals []turn.Arrival // emptied, for the inbox to fill again
	linger   alarm
	parked   int              // outboxes that wait for room
	untaken  []order.Delivery // rounds that the Sink did not take
	// undelivered are rounds in the middle of a turn, for which the Sink had no room. The run's
	// goroutine has to wait for it, and goes on with the turn.
	undelivered []order.Delivery
	halted      string // why the engine stopped delivering, once known
	waiting     waiting
	patience    alarm // for a member that takes nothing
	status      alarm
	statusSet   bool // its alarm is set
	traffic     Traffic
	loans       loans
	watching    watching
}

// alarm is a timer that wakes the loop through the same channel as all other events. A receive from
// one channel is several times cheaper than a select over many, and the loop waits at least once a
// round.
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

func newRunning(d *Driver, group Group, place order.ServerID, engine order.Broadcaster) (*running,
	error) {
	n := len(group.Members)
	_, completes := engine.(turn.Completer)
	r := &running{
		turn: turn.New(turn.Config{
			Engine: engine, Self: place, Servers: n, NoLinger: d.config.Linger <= 0,
			Records: d.config.Record != nil && completes,
		}),
		driver: d, config: &d.config, inbox: d.inbox, group: group, place: place, engine: engine,
		done: make(chan struct{}), drained: make(chan struct{}),
		outboxes:  make([]outbox, n),
		room:      make(chan unparked, n),
		parkedMax: parkedFramesMax(n),
	}
	if d.borrows() {
		r.loans.borrow(engine, n)
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
	members, ended := r.members()
	r.noteEnd(reason, ended)
	if !ended {
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
	case ended && r.config.Ended != nil:
		r.config.Ended(r.group, members)
	case reason != "" && r.config.Halted != nil:
		r.config.Halted(r.group, reason)
	}
	<-r.drained
	r.cancel(errFrozen)
}

// members returns the members that are left when the eon is over, as places in Config.Peers, and
// reports whether it is over.
func (r *running) members() ([]order.ServerID, bool) {
	members, ended := r.turn.Ended()
	return r.group.PeerPlaces(members), ended
}

// run drives the engine to its end. It returns the reason why the engine halted, or "" if it was
// frozen or its eon is over.
func (r *running) run() string {
	r.turning.Lock()
	r.flush() // send what was inherited
	for r.ctx.Err() == nil && !r.turn.Over() {
		if !r.take() && !r.turn.Over() {
			r.wait()
		}
	}
	if r.undelivered != nil {
		r.take() // if it was frozen meanwhile, the rounds are untaken
	}
	r.halted = r.turn.Halted()
	switch members, ended := r.members(); {
	case ended:
		r.config.Logger.Info("the eon is over", "run", r.group.Run, "members", members)
	case r.ctx.Err() != nil:
		r.halted = ""
	default:
		r.config.Logger.Error("the engine halted", "run", r.group.Run, "reason", r.halted)
	}
	r.inbox.end()
	r.linger.stop()
	r.patience.stop()
	r.status.stop()
	return r.halted
}

// promptTurns bounds the turns that the goroutine that reads the network takes at a time. A server
// whose messages need nobody else's, as in a group of one, would find more to do for ever.
const promptTurns = 16

// turnNow takes turns on the goroutine that reads the network, until nothing is left to do. It
// never waits. It reports whether nothing is left for the run's goroutine either.
func (r *running) turnNow() bool {
	if !r.turning.TryLock() {
		return false
	}
	defer r.turning.Unlock()
	for range promptTurns {
		if r.ctx.Err() != nil || r.undelivered != nil || r.turn.Over() {
			return false
		}
		r.begin()
		if !r.carryOutAll(r.tryDeliver) {
			return false
		}
		if !r.end() {
			return !r.turn.Over()
		}
	}
	return false
}

// take runs one turn, or the rest of one. It reports whether another turn may find more to do.
func (r *running) take() bool {
	if rounds := r.undelivered; rounds != nil {
		r.undelivered = nil
		r.handOver(rounds)
	} else {
		r.begin()
	}
	r.carryOutAll(r.deliver)
	return r.end()
}

// begin begins a turn: it feeds the inputs to the machine.
func (r *running) begin() {
	r.watch()
	r.poll()
	frames, opinions := r.inbox.take(r.arrivals, &r.loans)
	r.count(frames)
	if r.watching.on {
		r.noteArrivals(frames)
	}
	r.turn.Step(frames, opinions)
	clear(frames)
	r.arrivals = frames[:0]
	r.broadcast()
}

// carryOutAll carries out the machine's actions in their order. It returns false if deliver does.
func (r *running) carryOutAll(deliver func([]order.Delivery) bool) bool {
	for do := r.turn.Next(); do.Kind != turn.Done; do = r.turn.Next() {
		if do.Kind != turn.Deliver {
			r.carryOut(do)
		} else if !deliver(do.Deliveries) {
			return false
		}
	}
	return true
}

// end ends a turn. It reports whether another turn may find more to do.
func (r *running) end() bool {
	if r.watching.on {
		r.noteProgress()
	}
	r.giveBack()
	if r.turn.Moved() && !r.statusSet {
		r.statusSet = true
		r.status.set(StatusInterval, r.inbox.signal)
	}
	return r.turn.Again()
}

// count counts the frames given to the engine.
func (r *running) count(frames []turn.Arrival) {
	if len(frames) == 0 {
		return
	}
	r.traffic.Batches++
	r.traffic.FramesReceived += uint64(len(frames))
	for i := range frames {
		r.traffic.BytesReceived += uint64(len(frames[i].Frame))
	}
}

// broadcast A-broadcasts if the engine may and has a reason to.
func (r *running) broadcast() {
	if !r.turn.CanBroadcast() || r.withheld() {
		return
	}
	batch := r.next()
	var at order.Progress // the round of the message, which may be complete with it
	if r.watching.on {
		at = r.progress()
	}
	if !r.turn.Broadcast(batch) {
		return
	}
	if r.watching.on {
		r.note(rounds.Event{Kind: rounds.Broadcast, Epoch: at.Epoch, Round: at.Round,
			Origin: r.group.Members[r.place], Bytes: len(batch)})
	}
	r.traffic.Broadcasts++
	if len(batch) == 0 {
		r.traffic.EmptyBroadcasts++
	}
}

// next returns the source's next batch.
func (r *running) next() []byte {
	if source, rounds := r.config.Source.(RoundSource); rounds {
		return source.NextIn(r.round, r.turn.EmptyDue, r.config.MaxBatch)
	}
	return r.config.Source.Next(r.config.MaxBatch)
}

// round returns the number of the current round.
func (r *running) round() uint64 { return uint64(r.engine.Status().Round) }

// carryOut carries out one action of the machine.
func (r *running) carryOut(do *turn.Action) {
	switch do.Kind {
	case turn.Send:
		r.enqueue(do.Sends)
		r.flush()
	case turn.Record:
		r.record(do.Deliveries)
	case turn.Linger:
		r.linger.set(r.config.Linger, r.inbox.signal)
	case turn.Removed:
		r.removed(do.Deliveries[0])
	default:
		r.changed(do)
	}
}

// changed carries out the machine's decision about one member.
func (r *running) changed(do *turn.Action) {
	if r.watching.on {
		r.noteOpinion(do)
	}
	member := r.group.Members[do.Server]
	logger := r.config.Logger.With("run", r.group.Run, "member", member)
	switch do.Kind {
	case turn.Silenced:
		r.inbox.silence(member)
		logger.Error("frames of a member are missing: nothing more is taken from it in this run",
			"cause", do.Cause)
	case turn.Lost:
		r.closeLane(&r.outboxes[do.Server])
		cause := causeOf(do.Cause)
		logger.Warn("a member is lost to this run", "cause", cause)
		if r.config.Lost != nil {
			r.config.Lost(r.group.Run, member, cause)
		}
	case turn.Suspected, turn.Trusted:
		switch {
		case do.Refused != nil:
			logger.Debug("the engine refused a suspicion or its end", "cause", do.Cause, "error",
				do.Refused)
		case do.Kind == turn.Suspected:
			logger.Warn("a member is suspected", "cause", do.Cause)
		default:
			logger.Warn("a member is trusted again")
		}
	}
}

// toPeerPlaces changes the servers of deliveries to places in Config.Peers, and counts the
// messages.
func (r *running) toPeerPlaces(deliveries []order.Delivery) {
	r.group.Convert(deliveries)
	r.traffic.Count(deliveries)
	if r.watching.on {
		r.noteDeliveries(deliveries)
	}
}

// deliver passes rounds to the Sink, and waits for it.
func (r *running) deliver(deliveries []order.Delivery) bool {
	r.toPeerPlaces(deliveries)
	r.handOver(deliveries)
	return true
}

// tryDeliver passes rounds to the Sink if that has room. If not, it keeps them and returns false.
func (r *running) tryDeliver(deliveries []order.Delivery) bool {
	r.toPeerPlaces(deliveries)
	taken, err := r.driver.prompt.TryDeliver(deliveries)
	if err != nil {
		r.refused(deliveries, err)
		return true
	}
	if !taken {
		r.undelivered = deliveries
	}
	return taken
}

// handOver passes rounds with places in Config.Peers to the Sink, and waits for it.
func (r *running) handOver(deliveries []order.Delivery) {
	if err := r.config.Sink.Deliver(r.ctx, deliveries); err != nil {
		r.refused(deliveries, err)
	}
}

// refused keeps rounds that the Sink will not take.
func (r *running) refused(deliveries []order.Delivery, err error) {
	r.untaken = deliveries
	r.loans.forget()
	r.turn.Untaken(err)
}

// record hands complete rounds over.
func (r *running) record(rounds []order.Delivery) {
	r.group.Convert(rounds)
	r.config.Record(rounds)
}

// removed ends all exchange with servers that left the group. Frames already on their lanes stay
// there.
func (r *running) removed(delivery order.Delivery) {
	servers := r.group.PeerPlaces(delivery.Removed)
	r.config.Logger.Warn("servers were removed from the group", "run", r.group.Run,
		"round", delivery.Round, "servers", servers)
	if r.watching.on {
		r.note(rounds.Event{Kind: rounds.Removed, Epoch: delivery.Epoch, Round: delivery.Round,
			Servers: servers})
	}
	for _, place := range delivery.Removed {
		if place == r.place {
			continue
		}
		box := &r.outboxes[place]
		if box.parked {
			r.closeLane(box)
		}
		box.lost = true
		box.queue, box.bytes = nil, 0
		r.inbox.silence(r.group.Members[place])
	}
	if r.config.Removed != nil {
		r.config.Removed(r.group.Run, servers)
	}
}

// wait sleeps until there is something to do, and lets others take turns meanwhile. All events but
// the source's use the inbox's channel, including the generation's end. The source is watched while
// a batch of it is wanted. If others take turns that changes without a word to this goroutine.
func (r *running) wait() {
	wanted := r.driver.prompt != nil || r.turn.CanBroadcast()
	r.turning.Unlock()
	defer r.turning.Lock()
	if !wanted {
		<-r.inbox.wake
		return
	}
	select {
	case <-r.inbox.wake:
	case <-r.config.Source.Ready():
	}
}

// poll checks the alarms, and the lanes that have room again.
func (r *running) poll() {
	if r.linger.rang.Load() {
		r.linger.rang.Store(false)
		r.turn.LingerOver()
	}
	if r.status.rang.Load() {
		r.status.rang.Store(false)
		r.statusSet = false
		r.turn.Look()
		r.publish()
		if r.config.Moved != nil {
			r.config.Moved()
		}
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
