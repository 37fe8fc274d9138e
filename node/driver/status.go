package driver

import (
	"slices"
	"time"

	"github.com/ledgerd/ledgerd/order"
)

// Status is a published copy of a driver's state. Servers are places in Config.Peers. Status is
// shared: do not change it.
type Status struct {
	// Group is the current or last run. Its Generation is 0 before the first activation.
	Group Group
	// Running reports whether its engine runs: it was not frozen, did not halt, and its eon is not
	// over.
	Running bool
	// Halted is why the engine stopped delivering. It is "" while it delivers and after Freeze.
	Halted string
	// WaitingSince is when this server A-broadcast its message of the current round, at most
	// StatusInterval late. It shows how long this server has waited for others. It is the zero time
	// before that message.
	WaitingSince time.Time
	// OutsideMajority reports that the engine knows that fewer servers can be reached than a
	// majority of the shard.
	OutsideMajority bool
	// Relayed reports that messages go from server to server, so that the servers that the round
	// waits for are not known to be slow. Stuck reports that the run does not go on without the
	// servers that this one suspects. See order.Relay.
	Relayed, Stuck bool
	// Engine is the engine's own status. Its Awaited lists the servers that the round waits for.
	Engine order.Status
	// Lost are the members whose lane broke or whose frames were malformed in this generation,
	// ascending.
	Lost []order.ServerID
	// Parked are the members whose lanes have no room, ascending. ParkedBytes are the bytes that
	// wait for them.
	Parked      []order.ServerID
	ParkedBytes int
	Traffic     Traffic
}

// Stalled returns how long no round was completed although this server did its part. It is 0 if
// this server still has to do its part, or if the engine does not run.
func (s *Status) Stalled(now time.Time) time.Duration {
	if !s.Running || s.WaitingSince.IsZero() {
		return 0
	}
	return max(0, now.Sub(s.WaitingSince))
}

// Traffic counts the driver's traffic in the generation.
type Traffic struct {
	// FramesSent and BytesSent count the frames put on lanes, once for each receiver, without the
	// fabric's own headers. With an engine that works on memory, they count its writes into the
	// memory of others.
	FramesSent, BytesSent uint64
	// FramesReceived and BytesReceived count the frames given to the engine, or its reads of the
	// memory of others.
	FramesReceived, BytesReceived uint64
	// Broadcasts counts own messages. EmptyBroadcasts counts those without a payload.
	Broadcasts, EmptyBroadcasts uint64
	// Rounds, Messages and PayloadBytes count the deliveries to the Sink. Empty messages do not
	// count.
	Rounds, Messages, PayloadBytes uint64
	// Batches counts the turns of the loop in which frames were received.
	Batches uint64
}

// waiting is kept from one status to the next: the round that this server waits in, and since when.
type waiting struct {
	epoch order.Epoch
	round order.Round
	since time.Time
}

// note updates w from the engine's status.
func (w *waiting) note(status *order.Status, has bool, now time.Time) {
	switch {
	case !has:
		*w = waiting{}
	case w.since.IsZero() || w.epoch != status.Epoch || w.round != status.Round:
		*w = waiting{status.Epoch, status.Round, now}
	}
}

// publish publishes the current status.
func (r *running) publish() {
	engine := r.engine.Status()
	r.waiting.note(&engine, !r.engine.CanBroadcast() && engine.Halted == "" &&
		!engine.Ended, time.Now())
	status := &Status{Group: r.group, Running: true, Halted: r.halted,
		WaitingSince: r.waiting.since, Engine: engine, Traffic: r.traffic}
	if judge, can := r.engine.(interface{ OutsideMajority() bool }); can {
		status.OutsideMajority = judge.OutsideMajority()
	}
	if relay, is := r.engine.(order.Relay); is {
		status.Relayed, status.Stuck = true, relay.Stuck()
	}
	status.Engine.Members = r.group.PeerPlaces(status.Engine.Members)
	status.Engine.Suspected = r.group.PeerPlaces(status.Engine.Suspected)
	status.Engine.Awaited = r.group.PeerPlaces(status.Engine.Awaited)
	for place := range r.outboxes {
		box := &r.outboxes[place]
		if box.lost {
			status.Lost = append(status.Lost, r.group.Members[place])
		}
		if box.parked {
			status.Parked = append(status.Parked, r.group.Members[place])
			status.ParkedBytes += box.bytes
		}
	}
	r.driver.status.Store(status)
}

// publishEnd publishes the last status of a run.
func (r *running) publishEnd() {
	r.publish()
	last := *r.driver.status.Load()
	last.Running = false
	r.driver.status.Store(&last)
}

// remains returns what the run leaves behind. The run's goroutine must have ended.
func (r *running) remains() Remains {
	remains := Remains{Untaken: slices.Clone(r.untaken)}
	v, votes := r.engine.(order.Voter)
	if !votes {
		return remains
	}
	if w, sees := r.engine.(order.Witness); sees {
		remains.Known = w.KnownVotes()
	}
	remains.Votes, remains.VotesMax = v.Votes(), v.VotesMax()
	for i := range remains.Known {
		vote := &remains.Known[i]
		vote.Voter, vote.Origins = r.group.Members[vote.Voter], r.group.PeerPlaces(vote.Origins)
	}
	for i := range remains.Votes {
		vote := &remains.Votes[i]
		vote.Members = r.group.PeerPlaces(vote.Members)
		vote.Origins = r.group.PeerPlaces(vote.Origins)
		vote.Delivery.Removed = r.group.PeerPlaces(vote.Delivery.Removed)
		r.renameOrigins(vote.Delivery)
	}
	if h, holds := r.engine.(order.Holder); holds {
		remains.Held = h.Held()
	}
	for i := range remains.Held {
		r.renameOrigins(remains.Held[i].Delivery)
	}
	return remains
}

// renameOrigins converts the origins of a round to places in Config.Peers.
func (r *running) renameOrigins(d order.Delivery) {
	for i := range d.Messages {
		d.Messages[i].Origin = r.group.Members[d.Messages[i].Origin]
	}
}
