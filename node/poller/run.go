package poller

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ledgerd/ledgerd/node/driver"
	"github.com/ledgerd/ledgerd/node/engine"
	"github.com/ledgerd/ledgerd/node/rounds"
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/shard/turn"
)

// run is one run's engine and its surroundings.
type run struct {
	runs   *Runs
	config *RunsConfig
	group  driver.Group
	place  order.ServerID
	began  time.Time
	ctx    context.Context
	cancel context.CancelFunc
	over   atomic.Bool   // it ended by itself
	batch  atomic.Bool   // the Source may have a batch
	met    chan struct{} // holds a value when a peer was met

	// The holder of runs.mu has these.
	machine engine.Machine // nil until all members were met
	turns   *turn.Polled   // decides what happens with it
	meter   meter
	poller  *Poller
	remains *driver.Remains // once frozen
	unwatch chan struct{}   // closed to end the goroutine that waits for the source
	source  sync.WaitGroup

	opining  sync.Mutex // guards these, for moments
	missing  map[order.ServerID]bool
	lost     map[order.ServerID]bool
	peers    []rdmanet.Peer // by place, once the machine was made
	opinions atomic.Bool    // there are opinions for the next turn, within RunsConfig.Idle

	// The poller's goroutine has these, and freeze after it.
	noted     bool      // the rounds that the Sink has to take were noted
	told      bool      // that it ended or halted
	waiting   time.Time // since when something waits for its round
	leader    order.ServerID
	moved     bool // rounds were A-delivered since the last status
	dirty     bool // there is something else to publish
	published time.Time
	traffic   driver.Traffic
}

func newRun(runs *Runs, group driver.Group, place order.ServerID) *run {
	r := &run{runs: runs, config: &runs.config, group: group, place: place, began: time.Now(),
		met: make(chan struct{}, 1), unwatch: make(chan struct{}),
		missing: map[order.ServerID]bool{}, lost: map[order.ServerID]bool{}, waiting: time.Now()}
	r.meter.RegionHost = runs.config.Host
	r.ctx, r.cancel = context.WithCancel(context.Background())
	r.batch.Store(true)
	return r
}

// begin makes the engine and starts its poller, if all members were met. It reports whether it did.
// The caller holds the lock.
func (r *run) begin() (began bool, err error) {
	ids := make([]rdmanet.PeerID, len(r.group.Members))
	for place, member := range r.group.Members {
		ids[place] = r.runs.peers[member]
	}
	peers, unmet := r.runs.incarnationsOf(ids)
	if len(unmet) > 0 {
		r.runs.status.Store(&driver.Status{Group: r.group, Running: true, WaitingSince: r.began,
			Engine: order.Status{Round: r.group.FirstRound, Members: r.group.Members,
				Awaited: r.group.PeerPlaces(unmet)}})
		return false, nil
	}
	if r.machine, err = r.config.NewMachine(r.group, r.place, peers,
		&r.meter); err != nil {
		return false, err
	}
	r.turns = turn.NewPolled(r.machine, r.group.Members, r.group.Shard)
	r.opining.Lock()
	r.peers = peers
	r.opining.Unlock()
	r.opinions.Store(true)
	now, _ := r.runs.incarnationsOf(ids)
	for _, peer := range now { // one may have restarted a moment ago
		r.meets(peer)
	}
	r.waiting = time.Time{}
	r.publish(time.Now())
	r.poller = New(Config{Host: r.config.Host, Machine: r.machine, Idle: r.config.Idle,
		Feed: r.feed, Drain: r.drain})
	r.poller.Start()
	r.source.Go(func() {
		for {
			select {
			case <-r.config.Source.Ready():
				r.batch.Store(true)
				r.poller.Ring()
			case <-r.unwatch:
				return
			}
		}
	})
	return true, nil
}

// leaveSource ends the use of the source, which the next run watches from now on. The caller holds
// the lock.
func (r *run) leaveSource() {
	select {
	case <-r.unwatch:
	default:
		close(r.unwatch)
	}
	r.source.Wait()
}

// beginLater begins the run once all members were met.
func (r *run) beginLater() {
	for {
		select {
		case <-r.met:
		case <-r.ctx.Done():
			return
		}
		r.runs.mu.Lock()
		began, err := false, error(nil)
		if r.ctx.Err() == nil {
			began, err = r.begin()
		}
		r.runs.mu.Unlock()
		if err != nil {
			r.config.Logger.Error("the engine of a run cannot be made", "run", r.group.Run,
				"error", err)
			if r.config.Halted != nil {
				r.config.Halted(r.group, err.Error())
			}
		}
		if began || err != nil {
			return
		}
	}
}

// meets handles that a peer was met in a later incarnation. A member of the run that restarted has
// lost its part in it.
func (r *run) meets(peer rdmanet.Peer) {
	select {
	case r.met <- struct{}{}:
	default: // it will look
	}
	r.opining.Lock()
	at := slices.IndexFunc(r.peers, func(p rdmanet.Peer) bool {
		return p.ID == peer.ID && p.Incarnation < peer.Incarnation
	})
	restarted := at >= 0 && order.ServerID(at) != r.place && !r.lost[r.group.Members[at]]
	if restarted {
		r.lost[r.group.Members[at]] = true
	}
	r.opining.Unlock()
	if restarted {
		server := r.group.Members[at]
		r.config.Logger.Warn("a member is lost to this run", "run", r.group.Run, "member", server,
			"cause", errRestarted)
		r.opinions.Store(true)
		if r.config.Lost != nil {
			r.config.Lost(r.group.Run, server, errRestarted)
		}
	}
}

// suspect notes the detector's opinion of a member. trust withdraws it.
func (r *run) suspect(server order.ServerID, cause error) {
	r.config.Logger.Warn("a member is suspected", "run", r.group.Run, "member", server, "cause",
		cause)
	r.opining.Lock()
	r.missing[server] = true
	r.opining.Unlock()
	r.opinions.Store(true)
}

func (r *run) trust(server order.ServerID) {
	r.opining.Lock()
	delete(r.missing, server)
	r.opining.Unlock()
	r.opinions.Store(true)
}

// feed gives the engine opinions and batches.
func (r *run) feed() (some bool) {
	if r.opinions.Swap(false) {
		r.passOpinions()
		some, r.dirty = true, true
	}
	for r.turns.MayBroadcast() {
		due := r.turns.EmptyDue()
		if !due && !r.batch.Load() {
			return some
		}
		r.batch.Store(false)
		batch := r.next(due)
		if batch != nil {
			r.batch.Store(true) // else the source may have said so meanwhile
		} else if !due {
			continue // others may wait by now, and the source has something for them
		}
		round := r.machine.NextRound()
		if !r.turns.Broadcast(batch) {
			return some
		}
		r.traffic.Broadcasts++
		if len(batch) == 0 {
			r.traffic.EmptyBroadcasts++
		}
		some = true
		if r.config.Rounds.Watched() {
			r.config.Rounds.Note(&rounds.Event{Run: r.group.Run, Kind: rounds.Broadcast,
				Epoch: r.machine.Status().Epoch, Round: round, Origin: r.group.Members[r.place],
				Bytes: len(batch)})
		}
	}
	return some
}

// passOpinions tells the engine which members are missing.
func (r *run) passOpinions() {
	r.opining.Lock()
	defer r.opining.Unlock()
	r.turns.Opine(func(member order.ServerID) bool { return r.missing[member] || r.lost[member] })
}

// next returns the source's next batch. due says that an empty message is A-broadcast if there is
// none. Without full rounds, the number of a batch's round is not known before a leader takes it,
// so the round is at least the one that is named.
func (r *run) next(due bool) []byte {
	most := min(r.config.MaxBatch, r.machine.PayloadMax())
	if source, rounds := r.config.Source.(driver.RoundSource); rounds {
		return source.NextIn(func() uint64 { return uint64(r.machine.NextRound()) },
			func() bool { return due }, most)
	}
	return r.config.Source.Next(most)
}

// drain hands A-delivered rounds to the Sink, and looks after the run's end and its status.
func (r *run) drain() (some bool) {
	if rounds := r.turns.Deliver(); rounds != nil {
		if !r.noted {
			r.noted = true
			r.delivering(rounds)
		}
		taken, err := r.config.Sink.TryDeliver(rounds)
		switch {
		case err != nil:
			r.turns.Halt(err.Error())
		case taken:
			r.turns.Taken()
			r.noted, some, r.moved = false, true, true
		}
	}
	members, ended := r.turns.Ended()
	reason := r.turns.Halted()
	switch {
	case r.told:
	case reason != "":
		r.told, r.dirty = true, true
		r.config.Logger.Error("the engine halted", "run", r.group.Run, "reason", reason)
		r.runs.ends.Go(func() { // it may call Runs
			if r.config.Halted != nil {
				r.config.Halted(r.group, reason)
			}
		})
	case ended:
		r.told = true
		r.over.Store(true)
		r.config.Logger.Info("the eon is over", "run", r.group.Run, "members", members)
		r.runs.ends.Go(func() {
			if r.config.Ended != nil {
				r.config.Ended(r.group, members)
			}
		})
	}
	r.look()
	return some
}

// delivering counts rounds and tells of them before the Sink gets them.
func (r *run) delivering(deliveries []order.Delivery) {
	r.traffic.Count(deliveries)
	watched := r.config.Rounds.Watched()
	for i := range deliveries {
		d := &deliveries[i]
		if len(d.Removed) > 0 {
			r.config.Logger.Warn("servers were removed from the group", "run", r.group.Run,
				"round", d.Round, "servers", d.Removed)
			if r.config.Removed != nil {
				r.config.Removed(r.group.Run, d.Removed)
			}
		}
		if !watched {
			continue
		}
		bytes, servers := 0, []order.ServerID(nil)
		for k := range d.Messages {
			bytes += len(d.Messages[k].Payload)
			servers = append(servers, d.Messages[k].Origin)
		}
		r.config.Rounds.Note(&rounds.Event{Run: r.group.Run, Kind: rounds.Delivered,
			Epoch: d.Epoch, Round: d.Round, Bytes: bytes, Servers: servers})
	}
}

// look notes since when something waits for its round, and publishes the status now and then.
func (r *run) look() {
	now := time.Now()
	waits := r.turns.Waits()
	if !waits && !r.waiting.IsZero() {
		r.waiting, r.dirty = time.Time{}, true
	} else if waits && (r.moved || r.waiting.IsZero()) {
		r.waiting = now
	}
	leader, known := r.machine.Leader()
	if !known {
		leader = order.ServerID(len(r.group.Members))
	}
	if r.leader != leader {
		r.leader, r.dirty = leader, true
	}
	if (waits || r.moved || r.dirty) && now.Sub(r.published) >= driver.StatusInterval &&
		r == r.runs.latest.Load() {
		moved := r.moved
		r.publish(now)
		if moved && r.config.Moved != nil {
			r.config.Moved()
		}
	}
}

// publish publishes the current status.
func (r *run) publish(now time.Time) {
	r.published, r.moved, r.dirty = now, false, false
	halted := r.turns.Halted()
	r.traffic.FramesSent, r.traffic.BytesSent = r.meter.writes.Load(), r.meter.written.Load()
	r.traffic.FramesReceived, r.traffic.BytesReceived = r.meter.reads.Load(), r.meter.read.Load()
	status := &driver.Status{Group: r.group, Running: !r.over.Load() && halted == "",
		Halted: halted, WaitingSince: r.waiting, OutsideMajority: r.turns.Outside(),
		Engine: r.machine.Status(), Traffic: r.traffic}
	status.Engine.Members = r.group.PeerPlaces(status.Engine.Members)
	status.Engine.Suspected = r.group.PeerPlaces(status.Engine.Suspected)
	status.Engine.Awaited = r.group.PeerPlaces(status.Engine.Awaited)
	r.opining.Lock()
	for _, member := range r.group.Members {
		if r.lost[member] {
			status.Lost = append(status.Lost, member)
		}
	}
	r.opining.Unlock()
	r.runs.status.Store(status)
}

// freeze ends the run for good, and returns what it leaves behind. The caller holds the lock of
// Runs. Rounds that the engine A-delivered and the Sink did not take are untaken.
func (r *run) freeze() driver.Remains {
	if r.remains != nil {
		return *r.remains
	}
	r.cancel()
	r.remains = &driver.Remains{}
	why := "a later generation was promised"
	if r.over.Load() {
		why = "the eon is over"
	}
	r.config.Rounds.End(r.group.Run, why)
	if r.machine == nil {
		r.ended()
		return *r.remains
	}
	r.poller.Stop()
	r.leaveSource()
	left, err := r.turns.Freeze()
	r.remains.Untaken, r.remains.Votes, r.remains.Err = left.Untaken, left.Votes, err
	r.remains.Log, r.remains.VotesMax = &left.Log, left.Log.RoundsMax
	if err := r.machine.Close(); err != nil {
		r.config.Logger.Warn("the memory of a run could not be given back", "run", r.group.Run,
			"error", err)
	}
	r.ended()
	return *r.remains
}

// ended publishes the last status of the run, if it is the current one.
func (r *run) ended() {
	if r != r.runs.latest.Load() {
		return
	}
	last := *r.runs.status.Load()
	last.Running, last.Halted = false, ""
	r.runs.status.Store(&last)
}
