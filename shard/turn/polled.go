package turn

import (
	"slices"

	"github.com/ledgerd/ledgerd/order"
)

// PolledEngine is what Polled needs of an engine that works on one-sided memory (package dare).
type PolledEngine interface {
	CanBroadcast() bool
	Solicited() bool
	Broadcast(payload []byte) error
	Deliveries() []order.Delivery
	Missing(server order.ServerID, missing bool)
	Waiting() bool
	Ended() bool
	Halted() string
	Freeze() (order.FrozenLog, error)
	Status() order.Status
}

// Polled decides what one server does with an engine that is polled and takes no frames, as Machine
// does with one that takes frames. It serves one run. The driver (node/poller, sim) polls the
// engine itself, and calls these methods between two polls.
//
// Outside of the engine a member has its name in the shard, and inside it its place in the group.
type Polled struct {
	engine  PolledEngine
	members []order.ServerID // by place
	shard   int              // the number of members of the shard
	untaken []order.Delivery // rounds that Deliver returned, with the names of members
	halted  string
	outside bool
}

// NewPolled returns the machine of a run. members are the members of the group by place, and shard
// is the number of members of the shard.
func NewPolled(engine PolledEngine, members []order.ServerID, shard int) *Polled {
	return &Polled{engine: engine, members: members, shard: max(shard, len(members))}
}

// Opine tells the engine which members are missing: those that a failure detector suspects, and
// those that restarted and so lost their part in the run.
func (p *Polled) Opine(missing func(member order.ServerID) bool) {
	left := 0
	for place, member := range p.members {
		gone := missing(member)
		p.engine.Missing(order.ServerID(place), gone)
		if !gone {
			left++
		}
	}
	p.outside = left < p.shard/2+1
}

// Outside reports whether so many members are missing that no majority of the shard is left.
func (p *Polled) Outside() bool { return p.outside }

// MayBroadcast reports whether Broadcast takes a batch.
func (p *Polled) MayBroadcast() bool {
	return p.halted == "" && !p.engine.Ended() && p.engine.CanBroadcast()
}

// EmptyDue reports whether Broadcast would A-broadcast an empty message now: others wait for it. A
// batch that is no reason for a round may go in its place. Call it only if MayBroadcast is true.
func (p *Polled) EmptyDue() bool { return p.engine.Solicited() }

// Broadcast A-broadcasts a batch, which is copied, or, if the batch is empty, an empty message if
// one is due. It reports whether it did. If the engine refuses a batch, the run halts here.
func (p *Polled) Broadcast(batch []byte) bool {
	if len(batch) == 0 && !p.EmptyDue() {
		return false
	}
	err := p.engine.Broadcast(batch)
	if err != nil {
		p.Halt(err.Error())
	}
	return err == nil
}

// Deliver returns the next rounds to hand over, nil for none. They are the same until Taken.
// Messages have the names of members.
func (p *Polled) Deliver() []order.Delivery {
	if p.halted != "" {
		return nil
	}
	if p.untaken == nil {
		p.untaken = p.take()
	}
	return p.untaken
}

// Taken says that the rounds of the last Deliver were handed over.
func (p *Polled) Taken() { p.untaken = nil }

// Halt ends the exchange with the engine, for a reason outside of it.
func (p *Polled) Halt(reason string) {
	if p.halted == "" {
		p.halted = reason
	}
}

// Halted returns why the run halted here, or "".
func (p *Polled) Halted() string {
	if p.halted == "" {
		p.halted = p.engine.Halted()
	}
	return p.halted
}

// Ended returns the members that are left at the end of the run, once all rounds were handed over.
// A run that ended has to be polled on, for members that do not know its end.
func (p *Polled) Ended() (members []order.ServerID, ended bool) {
	if p.Halted() != "" || !p.engine.Ended() || p.untaken != nil {
		return nil, false
	}
	return p.named(p.engine.Status().Members), true
}

// Waits reports whether something waits for its round here.
func (p *Polled) Waits() bool {
	return p.halted == "" && (p.engine.Waiting() || p.untaken != nil || p.outside)
}

// Left is what a run leaves behind.
type Left struct {
	// Untaken are rounds that the engine A-delivered, for good, and that were not handed over.
	Untaken []order.Delivery
	// Votes are the rounds of the log behind those, without voters, and Log is its end.
	Votes []order.Vote
	Log   order.FrozenLog
}

// Freeze ends this server's part in the run, for good: nothing that others write lands in its
// memory any more. The engine is not polled again, and has to be closed. An error says that the
// server must promise nothing.
func (p *Polled) Freeze() (Left, error) {
	left := Left{Untaken: append(p.untaken, p.take()...)}
	p.untaken = nil
	log, err := p.engine.Freeze()
	for _, d := range log.Rounds {
		p.name(&d)
		vote := order.Vote{Round: d.Round, Epoch: d.Epoch, Delivery: d}
		for _, m := range d.Messages {
			vote.Origins = append(vote.Origins, m.Origin)
		}
		left.Votes = append(left.Votes, vote)
	}
	left.Log, left.Log.Rounds = log, nil
	return left, err
}

// take returns what the engine A-delivered, nil for nothing.
func (p *Polled) take() []order.Delivery {
	delivered := p.engine.Deliveries()
	if len(delivered) == 0 {
		return nil
	}
	rounds := slices.Clone(delivered)
	for i := range rounds {
		p.name(&rounds[i])
	}
	return rounds
}

// name gives a round the names of members in place of their places.
func (p *Polled) name(d *order.Delivery) {
	for i := range d.Messages {
		m := &d.Messages[i]
		m.Origin = p.members[m.Origin]
	}
	d.Removed = p.named(d.Removed)
}

// named converts places in the group to the names of members.
func (p *Polled) named(places []order.ServerID) []order.ServerID {
	if len(places) == 0 {
		return nil
	}
	members := make([]order.ServerID, len(places))
	for i, place := range places {
		members[i] = p.members[place]
	}
	return members
}
