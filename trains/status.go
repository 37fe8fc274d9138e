package trains

import (
	"encoding/binary"
	"slices"

	"github.com/ledgerd/ledgerd/order"
)

// Status describes the engine; it allocates. The current round is the one that this server attaches
// a wagon to next.
func (e *Engine) Status() order.Status {
	s := order.Status{
		Epoch: e.epoch, Round: e.attached + 1, Ended: e.ended, Halted: e.halted,
		Members:   e.members.appendTo(nil),
		Suspected: (e.suspected | e.members&^e.ring).appendTo(nil),
	}
	s.Awaited = e.awaited(nil)
	if complete := e.complete(); complete > e.delivered {
		s.Undelivered = int(complete - e.delivered)
	}
	return s
}

// awaits reports whether this server waits for a train.
func (e *Engine) awaits() bool {
	return e.halted == "" && !e.isAlone() && e.waiting() == 0 && !e.ended && !e.rests(e.attached+1)
}

// awaited appends the servers that this one waits for: its predecessor or, if the ring may be
// broken, the suspected servers.
func (e *Engine) awaited(to []order.ServerID) []order.ServerID {
	switch {
	case !e.awaits():
		return to
	case e.Stuck():
		return (e.suspected & e.ring).appendTo(to)
	}
	return append(to, e.predecessor)
}

// Stuck reports whether the ring stands still, as far as this server knows: under ◇P, it waits for
// a train and suspects a server of the ring, which no train passes if the suspicion is right. If it
// is false, the train comes, and the next look finds another round.
func (e *Engine) Stuck() bool { return e.awaits() && e.suspected&e.ring != 0 }

// Progress is as order.Progress says.
func (e *Engine) Progress(awaited []order.ServerID) order.Progress {
	return order.Progress{Epoch: e.epoch, Round: e.attached + 1, Awaited: e.awaited(awaited)}
}

// complete returns the last round of which this server has all wagons: one whose train came back
// after the round.
func (e *Engine) complete() order.Round {
	complete := e.delivered
	if e.arrived-complete > e.trains {
		complete = e.arrived - e.trains
	}
	if e.last != 0 {
		complete = min(complete, e.last)
	}
	return complete
}

// VotesMax returns the maximum number of votes that Votes returns: one for each train.
func (e *Engine) VotesMax() int { return e.config.Trains }

// Votes returns the rounds that this server has not A-delivered and that another server may have
// A-delivered: those of which it has all wagons, at most Config.Trains. A server A-delivers a round
// after its train came to all servers once more, so each of them has the vote. A new generation
// starts from the votes of a server that takes no more frames. It allocates. Votes are for
// DetectorEventual: under DetectorPerfect there are no generations.
func (e *Engine) Votes() []order.Vote {
	var votes []order.Vote
	members := e.members.appendTo(nil)
	for round := e.delivered + 1; round <= e.complete(); round++ {
		held, epoch := e.heldOf(round), e.epoch
		if held.present&e.members != e.members {
			break
		}
		if round == e.last {
			epoch++
		}
		d := order.Delivery{Epoch: epoch, Round: round}
		for _, origin := range members {
			d.Messages = append(d.Messages, order.Message{Origin: origin,
				Payload: held.wagons[origin]})
		}
		votes = append(votes, order.Vote{Round: round, Epoch: epoch, Members: members,
			Origins: members, Delivery: d})
	}
	if e.config.Fault == FaultVotesShort && len(votes) > 0 {
		votes = votes[:len(votes)-1]
	}
	return votes
}

// Clone copies the engine. The copy shares frames and payloads, which never change. It does not
// include what Ready returned last.
func (e *Engine) Clone() *Engine {
	e.begin()
	c := *e
	c.stops = slices.Clone(e.stops)
	for i := range c.stops {
		c.stops[i].relayed = slices.Clone(e.stops[i].relayed)
		c.stops[i].sent = slices.Clone(e.stops[i].sent)
	}
	c.loading = slices.Clone(e.loading)
	for i := range c.loading {
		c.loading[i] = slices.Clone(e.loading[i])
	}
	c.held = slices.Clone(e.held)
	for i := range c.held {
		c.held[i].wagons = slices.Clone(e.held[i].wagons)
	}
	c.pending = slices.Clone(e.pending)
	c.sizes = slices.Clone(e.sizes)
	c.out = output{sends: slices.Clone(e.out.sends), deliveries: slices.Clone(e.out.deliveries)}
	for i := range c.out.deliveries {
		c.out.deliveries[i].Messages = slices.Clone(c.out.deliveries[i].Messages)
	}
	return &c
}

// AppendState appends the engine's state in a canonical form. Two engines of equal configuration
// that append the same bytes behave the same from here on. The form does not include what Ready has
// yet to return: take that first.
func (e *Engine) AppendState(state []byte) []byte {
	state = appendNumbers(state, uint64(e.ring), uint64(e.members), uint64(e.suspected),
		uint64(e.arrived), uint64(e.attached), uint64(e.delivered), uint64(e.epoch),
		uint64(e.restsFrom), uint64(e.last), uint64(e.room))
	for _, size := range e.sizes {
		state = appendNumbers(state, uint64(size))
	}
	state = append(state, flag(e.ended), flag(e.hasPending))
	state = appendBytes(state, []byte(e.halted))
	if e.hasPending {
		state = appendBytes(state, e.pending)
	}
	for i := range e.stops {
		s := &e.stops[i]
		state = appendNumbers(state, s.clock, uint64(s.view))
		state = appendRelays(state, s.relayed)
		state = appendNumbers(state, uint64(len(s.sent)))
		for _, frame := range s.sent {
			state = appendBytes(state, frame)
		}
	}
	for _, loading := range e.loading {
		state = appendRelays(state, loading)
	}
	for i := range e.held {
		state = appendNumbers(state, uint64(e.held[i].present))
		for left := e.held[i].present; left != 0; left &= left - 1 {
			state = appendBytes(state, e.held[i].wagons[left.least()])
		}
	}
	return state
}

func appendRelays(state []byte, relays []relay) []byte {
	state = appendNumbers(state, uint64(len(relays)))
	for _, r := range relays {
		state = appendNumbers(state, uint64(r.origin), uint64(r.round))
		state = appendBytes(append(state, flag(r.frame != nil)), r.payload)
	}
	return state
}

func appendNumbers(state []byte, numbers ...uint64) []byte {
	for _, number := range numbers {
		state = binary.LittleEndian.AppendUint64(state, number)
	}
	return state
}

func appendBytes(state, bytes []byte) []byte {
	return append(appendNumbers(state, uint64(len(bytes))), bytes...)
}

func flag(set bool) byte {
	if set {
		return 1
	}
	return 0
}
