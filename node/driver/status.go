package driver

import (
	"slices"
	"time"

	"github.com/ledgerd/ledgerd/allconcur"
	"github.com/ledgerd/ledgerd/order"
)

// Status is a published copy of what a driver knows. Servers are places in Config.Peers. It is
// shared: do not change it.
type Status struct {
	// Group is the run that runs or ran last; its Generation is 0 before the first activation.
	Group Group
	// Running tells whether its engine runs: it was not frozen, did not halt, and its eon is not
	// over.
	Running bool
	// Halted says why the engine delivers no more, "" while it does and after Freeze.
	Halted string
	// WaitingSince is when this server's message of the current round was A-broadcast, or a little
	// later (StatusInterval), and the zero time while that is still to come: how long it waits for
	// others by now.
	WaitingSince time.Time
	// OutsideMajority tells that the engine knows that too few servers can be heard for a majority
	// of the shard.
	OutsideMajority bool
	// Engine is the engine's own account; its Awaited tells whom the round waits for.
	Engine order.Status
	// Lost are the members whose lane broke or whose frames were malformed in this generation,
	// ascending.
	Lost []order.ServerID
	// Parked are the members whose lanes have no room, ascending, and ParkedBytes what waits for
	// them.
	Parked      []order.ServerID
	ParkedBytes int
	Traffic     Traffic
}

// Stalled is for how long nothing was completed although this server did its part, 0 where it has
// yet to, or the engine does not run.
func (s *Status) Stalled(now time.Time) time.Duration {
	if !s.Running || s.WaitingSince.IsZero() {
		return 0
	}
	return max(0, now.Sub(s.WaitingSince))
}

// Traffic counts what went through the driver in the generation.
type Traffic struct {
	// FramesSent and BytesSent count what was put on lanes, a frame once for each receiver, without
	// the fabric's own headers.
	FramesSent, BytesSent uint64
	// FramesReceived and BytesReceived count what the engine was given.
	FramesReceived, BytesReceived uint64
	// Broadcasts counts own messages, EmptyBroadcasts those without a payload.
	Broadcasts, EmptyBroadcasts uint64
	// Rounds, Messages and PayloadBytes count what was delivered to the Sink; empty messages are
	// not counted.
	Rounds, Messages, PayloadBytes uint64
	// Batches counts the turns of the loop in which frames were received.
	Batches uint64
}

// waiting is what the status needs to know of its predecessor: the state that this server waits in.
type waiting struct {
	epoch order.Epoch
	round order.Round
	since time.Time
}

// note looks at the engine, now and then.
func (w *waiting) note(status *order.Status, has bool, now time.Time) {
	switch {
	case !has:
		*w = waiting{}
	case w.since.IsZero() || w.epoch != status.Epoch || w.round != status.Round:
		*w = waiting{status.Epoch, status.Round, now}
	}
}

// publish makes the status visible.
func (r *running) publish() {
	engine := r.engine.Status()
	r.waiting.note(&engine, !r.engine.CanBroadcast() && engine.Halted == "" &&
		!engine.Ended, time.Now())
	status := &Status{Group: r.group, Running: true, Halted: r.halted,
		WaitingSince: r.waiting.since, Engine: engine, Traffic: r.traffic}
	if judge, can := r.engine.(interface{ OutsideMajority() bool }); can {
		status.OutsideMajority = judge.OutsideMajority()
	}
	status.Engine.Members = r.outside(status.Engine.Members)
	status.Engine.Suspected = r.outside(status.Engine.Suspected)
	status.Engine.Awaited = r.outside(status.Engine.Awaited)
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

// publishEnd makes the last status of a run visible.
func (r *running) publishEnd() {
	r.publish()
	last := *r.driver.status.Load()
	last.Running = false
	r.driver.status.Store(&last)
}

// voter is an engine that knows what it may have made possible without knowing that it came to be.
type voter interface{ Votes() []allconcur.Vote }

// witness is an engine that saw the votes of others.
type witness interface{ KnownVotes() []allconcur.KnownVote }

// remains tells what the run leaves behind, when its goroutine is done.
func (r *running) remains() Remains {
	remains := Remains{Untaken: slices.Clone(r.untaken)}
	v, votes := r.engine.(voter)
	if !votes {
		return remains
	}
	if w, sees := r.engine.(witness); sees {
		remains.Known = w.KnownVotes()
	}
	remains.Votes = v.Votes()
	for i := range remains.Known {
		vote := &remains.Known[i]
		vote.Voter, vote.Origins = r.group.Members[vote.Voter], r.outside(vote.Origins)
	}
	for i := range remains.Votes {
		vote := &remains.Votes[i]
		vote.Members = r.outside(vote.Members)
		vote.Delivery.Removed = r.outside(vote.Delivery.Removed)
		for k := range vote.Delivery.Messages {
			message := &vote.Delivery.Messages[k]
			message.Origin = r.group.Members[message.Origin]
		}
	}
	return remains
}
