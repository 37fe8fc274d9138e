package driver

import (
	"slices"

	"github.com/ledgerd/ledgerd/node/rounds"
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/shard/turn"
)

// watching notes what passes in a run while a client watches (Config.Rounds). It belongs to the
// goroutine that holds running.turning. Unless on is set, it costs a branch.
type watching struct {
	// on says that a client watches in this turn.
	on bool
	// last is what was noted of the progress, and awaited the memory of the next list.
	last    order.Progress
	known   bool
	awaited []order.ServerID
	members []order.ServerID // memory for lists of places in Config.Peers
}

// progressing is an engine that says which servers it waits for.
type progressing interface {
	Progress(awaited []order.ServerID) order.Progress
}

// tracking is an engine that says, after a failure, where messages can still be.
type tracking interface {
	Tracking(origin order.ServerID) ([]order.ServerID, [][2]order.ServerID)
}

// watch begins a turn's notes.
func (r *running) watch() {
	r.watching.on = r.config.Rounds.Watched()
	if !r.watching.on {
		r.watching.known = false
	}
}

// note notes an event of this run.
func (r *running) note(e rounds.Event) {
	e.Run = r.group.Run
	r.config.Rounds.Note(&e)
}

// named returns places in Config.Peers, in memory that the next call uses again.
func (r *running) named(places []order.ServerID) []order.ServerID {
	r.watching.members = r.watching.members[:0]
	for _, place := range places {
		r.watching.members = append(r.watching.members, r.group.Members[place])
	}
	return r.watching.members
}

// noteFrame notes a frame on its edge.
func (r *running) noteFrame(kind rounds.Kind, from, to order.ServerID, frame []byte) {
	if r.config.FrameHead == nil {
		return
	}
	head, is := r.config.FrameHead(frame)
	if !is || int(max(head.Origin, head.Target)) >= len(r.group.Members) {
		return
	}
	r.note(rounds.Event{Kind: kind, Frame: head.Name, Epoch: head.Epoch, Round: head.Round,
		From: r.group.Members[from], To: r.group.Members[to],
		Origin: r.group.Members[head.Origin], Target: r.group.Members[head.Target],
		Bytes: len(frame)})
}

// noteArrivals notes frames that the engine is given.
func (r *running) noteArrivals(frames []turn.Arrival) {
	for i := range frames {
		r.noteFrame(rounds.Received, frames[i].From, r.place, frames[i].Frame)
	}
}

// progress returns the engine's progress, with a list that the next call uses again.
func (r *running) progress() order.Progress {
	if engine, can := r.engine.(progressing); can {
		return engine.Progress(r.watching.awaited[:0])
	}
	return order.Progress{}
}

// noteProgress notes which servers the current round waits for, if that has changed.
func (r *running) noteProgress() {
	engine, can := r.engine.(progressing)
	if !can {
		return
	}
	w := &r.watching
	now, before := engine.Progress(w.awaited[:0]), w.last
	if w.known && now.Epoch == before.Epoch && now.Round == before.Round &&
		now.Reliable == before.Reliable && now.Decided == before.Decided &&
		now.Failures == before.Failures && slices.Equal(now.Awaited, before.Awaited) {
		w.awaited = now.Awaited
		return
	}
	w.last, w.awaited = now, before.Awaited
	if !w.known || now.Epoch != before.Epoch || now.Reliable != before.Reliable {
		r.note(rounds.Event{Kind: rounds.Mode, Epoch: now.Epoch, Round: now.Round,
			Reliable: now.Reliable})
	}
	w.known = true
	r.note(rounds.Event{Kind: rounds.Waits, Epoch: now.Epoch, Round: now.Round,
		Reliable: now.Reliable, Decided: now.Decided, Servers: r.named(now.Awaited)})
	tracker, tracks := engine.(tracking)
	if !tracks || !now.Reliable || now.Failures == 0 || now.Decided {
		return
	}
	for _, origin := range now.Awaited {
		holders, _ := tracker.Tracking(origin)
		r.note(rounds.Event{Kind: rounds.Tracks, Epoch: now.Epoch, Round: now.Round,
			Reliable: true, Origin: r.group.Members[origin], Servers: r.named(holders)})
	}
}

// noteDeliveries notes A-delivered rounds, whose servers are places in Config.Peers.
func (r *running) noteDeliveries(deliveries []order.Delivery) {
	for i := range deliveries {
		d := &deliveries[i]
		bytes, servers := 0, r.watching.members[:0]
		for k := range d.Messages {
			bytes += len(d.Messages[k].Payload)
			servers = append(servers, d.Messages[k].Origin)
		}
		r.watching.members = servers
		r.note(rounds.Event{Kind: rounds.Delivered, Epoch: d.Epoch, Round: d.Round, Bytes: bytes,
			Servers: servers})
	}
}

// noteOpinion notes what this node now thinks of a member.
func (r *running) noteOpinion(do *turn.Action) {
	kind := rounds.Lost
	switch {
	case do.Refused != nil:
		return
	case do.Kind == turn.Suspected:
		kind = rounds.Suspected
	case do.Kind == turn.Trusted:
		kind = rounds.Trusted
	}
	at := r.progress()
	r.note(rounds.Event{Kind: kind, Epoch: at.Epoch, Round: at.Round,
		Origin: r.group.Members[do.Server]})
}

// noteEnd notes why the run ended.
func (r *running) noteEnd(reason string, ended bool) {
	switch {
	case ended:
		reason = "the eon is over"
	case reason == "":
		reason = "a later generation was promised"
	}
	r.config.Rounds.End(r.group.Run, reason)
}
