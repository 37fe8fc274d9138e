package streams

import (
	"fmt"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/tram/stream"
)

// incoming is the stream from the parent: the carrier and its rings.
type incoming struct {
	s       *Streams
	parent  ledger.ShardID
	present bool // this node is a member of its shard
	self    order.ServerID
	writers members
	own     members
	// carrier is nil until the durable position of the stream here is known; guarded by the lock of
	// s.
	carrier *stream.Carrier
	asks    map[order.ServerID]*ask
	rings   map[order.ServerID]*ring
	vouching
}

// ask is the last ask of a writer.
type ask struct {
	received
	waits bool // it is not answered yet
}

// ring is a ring for one life of a writer.
type ring struct {
	writer   rdmanet.Peer
	attempt  uint64
	life     stream.Life
	region   rdmanet.Region
	made     time.Time
	told     time.Time     // when feedback was last sent
	due      time.Time     // when feedback is to be sent next
	interval time.Duration // the pause after the next feedback, if nothing is new
}

func newIncoming(s *Streams, parent ledger.ShardID) *incoming {
	return &incoming{s: s, parent: parent, asks: map[order.ServerID]*ask{},
		rings: map[order.ServerID]*ring{}, vouching: vouching{hashes: map[uint64]hashed{},
			liars: map[order.ServerID]*liar{}}}
}

// seat updates the members.
func (in *incoming) seat(writers, own members, self order.ServerID, present bool) {
	if !present || in.present && in.self != self {
		in.end()
	}
	in.writers, in.own, in.self, in.present = writers, own, self, present && len(writers) > 0
	gone := func(writer order.ServerID) bool {
		ask := in.asks[writer]
		now, there := writers.find(ask.from.ID)
		return !there || now != writer
	}
	for writer := range in.asks {
		if gone(writer) {
			in.drop(writer)
			delete(in.asks, writer)
		}
	}
	in.s.mu.Lock()
	defer in.s.mu.Unlock()
	in.pardon()
	if in.carrier == nil || len(writers) == 0 {
		return
	}
	if err := in.carrier.SetMembers(writers.ids(), own.ids()); err != nil {
		in.s.config.Logger.Error("streams: members of the stream from the parent", "error", err)
	}
}

// end removes the carrier and all its rings. Writers that asked will be offered new ones.
func (in *incoming) end() {
	in.s.mu.Lock()
	in.carrier = nil
	clear(in.hashes)
	in.s.mu.Unlock()
	for writer := range in.rings {
		in.drop(writer)
	}
	for _, ask := range in.asks {
		ask.waits = true
	}
}

// asked handles a writer's ask.
func (in *incoming) asked(l received) {
	r, known := (*in.s.roles.Load())[l.from.ID]
	if !known || !r.above {
		return
	}
	last := in.asks[r.index]
	if last != nil && (l.from.Incarnation < last.from.Incarnation ||
		l.from.Incarnation == last.from.Incarnation && l.message.attempt < last.message.attempt) {
		return // the writer has made a newer ask since
	}
	in.asks[r.index] = &ask{received: l, waits: true}
}

// step advances the stream from the parent.
func (in *incoming) step(now time.Time) {
	at := in.s.heights.position()
	if !in.present || !at.Known {
		return
	}
	if in.carrier == nil && !in.begin(at) {
		return
	}
	for _, member := range in.writers {
		writer := order.ServerID(member.Index)
		if ask := in.asks[writer]; ask != nil && ask.waits {
			ask.waits = in.answer(writer, ask, now)
		}
	}
	if in.look(at, now) {
		in.s.config.Ready()
	}
	for writer, r := range in.rings {
		in.tell(writer, r, now)
	}
}

// begin makes the carrier.
func (in *incoming) begin(at stream.Position) bool {
	if in.s.config.fault == faultEarlyPosition {
		at.Durable = at.Ordered
	}
	carrier, err := stream.NewCarrier(in.s.machine(in.writers, in.own, in.self), at.Ordered,
		at.Durable)
	if err != nil {
		in.s.config.Logger.Error("streams: the stream from the parent", "error", err)
		return false
	}
	in.s.mu.Lock()
	defer in.s.mu.Unlock()
	in.carrier = carrier
	return true
}

// advance passes the chain's position to the carrier. The caller holds the lock.
func (in *incoming) advance(at stream.Position) {
	if in.s.config.fault == faultEarlyPosition {
		at.Durable = at.Ordered
	}
	in.carrier.Advance(at.Ordered, at.Durable)
}

// look polls the carrier's rings, and reports whether there is something to propose.
func (in *incoming) look(at stream.Position, now time.Time) (ready bool) {
	in.s.mu.Lock()
	in.carrier.Poll()
	in.advance(at)
	in.carrier.Tick(in.s.ticks(now))
	ready = in.carrier.Pending() || in.carrier.Unvouched() ||
		in.s.config.fault == faultHasty && in.carrier.Status().Held > 0
	liars := in.found(now)
	in.s.due(in.carrier.Deadline())
	for _, report := range in.carrier.Reports() {
		r := in.rings[report.Writer]
		r.due, r.interval = r.told.Add(feedbackPause), in.s.config.RepeatAfter
	}
	broken, reasons := in.carrier.Broken()
	in.s.mu.Unlock()
	in.name(liars)
	for i, writer := range broken {
		in.s.config.Logger.Error("streams: a ring is given up", "writer", writer, "peer",
			in.rings[writer].writer, "error", reasons[i])
		in.drop(writer)
	}
	return ready
}

// tell sends feedback to a writer when it is due.
func (in *incoming) tell(writer order.ServerID, r *ring, now time.Time) {
	if now.Before(r.due) {
		in.s.by(r.due)
		return
	}
	in.s.mu.Lock()
	feedback, err := in.carrier.Report(writer)
	in.s.mu.Unlock()
	if err != nil {
		panic(fmt.Sprintf("streams: a ring that the carrier does not know: %v", err))
	}
	m := message{kind: messageFeedback, child: in.s.config.Directory.Own(), feedback: feedback}
	in.s.send(r.writer.ID, &m)
	r.told, r.due = now, now.Add(r.interval)
	r.interval = min(2*r.interval, repeatMax*in.s.config.RepeatAfter)
	in.s.by(r.due)
}

// answer offers a writer the ring of its attempt, and reports whether the writer must wait for it.
func (in *incoming) answer(writer order.ServerID, ask *ask, now time.Time) (waits bool) {
	r := in.rings[writer]
	if same := r != nil && r.writer == ask.from && r.attempt == ask.message.attempt; !same &&
		(r == nil || in.s.config.fault != faultSameRing) {
		if r != nil && now.Before(r.made.Add(ringPause)) {
			in.s.by(r.made.Add(ringPause))
			return true
		}
		in.drop(writer)
		var err error
		if r, err = in.open(writer, ask, now); err != nil {
			in.s.config.Logger.Warn("streams: no ring for a writer", "peer", ask.from, "error", err)
			return false // it asks again
		}
		in.s.config.Logger.Debug("streams: a ring for a writer", "peer", ask.from, "attempt",
			r.attempt, "region", r.region.Name())
	}
	in.s.mu.Lock()
	feedback, err := in.carrier.Report(writer)
	in.s.mu.Unlock()
	if err != nil {
		panic(fmt.Sprintf("streams: a ring that the carrier does not know: %v", err))
	}
	m := message{kind: messageOffer, child: in.s.config.Directory.Own(),
		attempt: ask.message.attempt, life: r.life, position: feedback.Position,
		region: r.region.Name()}
	in.s.send(ask.from.ID, &m)
	r.due, r.interval = r.told.Add(feedbackPause), in.s.config.RepeatAfter
	return false
}

// open makes a ring for a writer that has none.
func (in *incoming) open(writer order.ServerID, ask *ask, now time.Time) (*ring, error) {
	number := in.s.number()
	region, err := in.s.config.Host.Expose(fmt.Sprintf("stream/%x", number), in.s.config.RingSize)
	if err != nil {
		return nil, err
	}
	r := &ring{writer: ask.from, attempt: ask.message.attempt, life: stream.Life(number),
		region: region, made: now, interval: in.s.config.RepeatAfter}
	in.s.mu.Lock()
	err = in.carrier.Attach(writer, r.life, region)
	in.s.mu.Unlock()
	if err != nil {
		return nil, fmt.Errorf("%w, %w", err, region.Close())
	}
	in.rings[writer] = r
	if err := region.Grant(ask.from, rdmanet.PermissionReadWrite); err != nil {
		in.drop(writer)
		return nil, err
	}
	in.s.working.Go(func() {
		_ = region.Await(in.s.ctx, func() bool { // until the region is closed
			in.s.ring()
			return false
		})
	})
	return r, nil
}

// drop removes a writer's ring. The carrier keeps the ring's content.
func (in *incoming) drop(writer order.ServerID) {
	r := in.rings[writer]
	if r == nil {
		return
	}
	delete(in.rings, writer)
	if in.s.config.fault != faultNotRevoked {
		if err := r.region.Revoke(r.writer); err != nil {
			// The region or the host is closed.
			in.s.config.Logger.Debug("streams: a ring is revoked", "peer", r.writer, "error", err)
		}
	}
	in.s.mu.Lock()
	if in.carrier != nil {
		in.carrier.Detach(writer)
	}
	in.s.mu.Unlock()
	if err := r.region.Close(); err != nil {
		in.s.config.Logger.Warn("streams: a ring is closed", "peer", r.writer, "error", err)
	}
}
