package generation

import (
	"slices"

	"github.com/ledgerd/ledgerd/order"
)

// Receive takes one message. It drops messages that make no sense: the sender is a member, but may
// run an old version.
func (s *Synod) Receive(from order.ServerID, m Message) {
	if s.broken != nil {
		return
	}
	switch m.Kind {
	case KindPrepare:
		s.onPrepare(from, m)
	case KindPromise:
		s.onPromise(from, m)
	case KindAccept:
		s.onAccept(from, m)
	case KindAccepted:
		s.onAccepted(from, m)
	case KindDecided:
		if s.credible(m.Value) {
			s.hear(from, m.Value, m.Holders)
		}
	case KindRefuse:
		s.onRefuse(m)
	}
}

// onPrepare promises (phase 1b), unless the generation is settled, the node works, or a higher
// ballot was promised. A ballot is its proposer's: nobody else may ask for promises in it.
func (s *Synod) onPrepare(from order.ServerID, m Message) {
	if m.Ballot.Proposer != from || m.Generation == 0 || m.Generation > 1 &&
		(!s.credible(m.Known) || m.Known.Generation+1 != m.Generation) {
		return
	}
	// What this node reports or chooses must never go back behind the known decision.
	if m.Known != nil && !s.hear(from, m.Known, nil) {
		s.settled(from, m.Known.Generation) // tells it what this node knows
		return
	}
	if s.settled(from, m.Generation) {
		return
	}
	if s.working != 0 && s.config.Fault != FaultPromiseDoesNotFreeze {
		switch working := s.working.Generation(); {
		case working+1 < m.Generation:
			// The shard went on without this node, which has just learned of it. Its driver stops
			// the engine, and the proposer asks again.
		case m.Regroup || s.stalled:
			// The engine has to stop before the promise is given. MustEnd reports that, and the
			// promise waits until Idle. Idle alone sets ended: only a node that delivered the last
			// round itself may claim that the generation ended in order.
			s.waiting = &pending{from: from, message: m}
		default:
			s.send(from, Message{Kind: KindRefuse, Generation: m.Generation, Ballot: m.Ballot,
				Working: working})
		}
		return
	}
	s.enter(m.Generation)
	if s.outbids(m.Ballot) {
		return
	}
	s.note(m.Ballot)
	if m.Ballot.Less(s.state.Promised) {
		s.send(from, Message{Kind: KindRefuse, Generation: m.Generation, Ballot: m.Ballot,
			Accepted: s.state.Promised})
		return
	}
	if m.Ballot != s.state.Promised {
		s.state.Promised = m.Ballot
		s.accepting = nil
		s.dirty = true
	}
	if from != s.config.Self {
		// Another proposer is active: give it time, and give up an own attempt, which it outbids.
		s.reset()
	}
	s.send(from, Message{Kind: KindPromise, Generation: m.Generation, Ballot: m.Ballot,
		Report:   s.report,
		Accepted: s.state.Accepted, Value: s.state.AcceptedValue, Known: s.state.Decided})
}

// onAccept accepts (phase 2b) once everything that the value names is on this node's disk, unless a
// higher ballot was promised.
func (s *Synod) onAccept(from order.ServerID, m Message) {
	if m.Ballot.Proposer != from || m.Value == nil || !m.Value.sound() ||
		m.Value.Generation != m.Generation || s.settled(from, m.Generation) ||
		m.Generation > s.Next() {
		return
	}
	if s.working != 0 && s.config.Fault != FaultPromiseDoesNotFreeze {
		if !s.stalled {
			s.send(from, Message{Kind: KindRefuse, Generation: m.Generation, Ballot: m.Ballot,
				Working: s.working.Generation()})
		}
		return
	}
	s.enter(m.Generation)
	if s.outbids(m.Ballot) {
		return
	}
	s.note(m.Ballot)
	if m.Ballot.Less(s.state.Promised) && s.config.Fault != FaultAcceptBelowPromise {
		s.send(from, Message{Kind: KindRefuse, Generation: m.Generation, Ballot: m.Ballot,
			Accepted: s.state.Promised})
		return
	}
	if m.Ballot != s.state.Promised {
		// Accepting in a later ballot implies a promise.
		s.state.Promised = m.Ballot
		s.dirty = true
	}
	if from != s.config.Self {
		s.waited = 0
	}
	if s.report.Durable > m.Value.Base.Height+uint64(len(m.Value.Tail)) {
		// The value would give up a durable block. No proposer with enough promises does that.
		return
	}
	if !s.holdsAll(*m.Value) {
		s.accepting = &pending{from: from, message: m}
		return
	}
	value := *m.Value
	s.accepting = nil
	s.state.Accepted, s.state.AcceptedValue = m.Ballot, &value
	s.dirty = true
	s.send(from, Message{Kind: KindAccepted, Generation: m.Generation, Ballot: m.Ballot,
		Disk: s.state.Disk, Original: s.config.Original})
}

// settled reports whether a generation is decided already, and answers the sender if so.
func (s *Synod) settled(from order.ServerID, generation Generation) bool {
	if s.state.Decided == nil || generation > s.state.Decided.Generation {
		return generation < s.state.Instance
	}
	if from != s.config.Self {
		s.send(from, Message{Kind: KindDecided, Generation: s.state.Decided.Generation,
			Value: s.state.Decided, Holders: s.holders})
	}
	return true
}

// enter moves the acceptor to a later instance. Its promises for earlier ones no longer matter.
func (s *Synod) enter(generation Generation) {
	if generation > s.state.Instance {
		s.state.Instance = generation
		s.state.Promised, s.state.Accepted, s.state.AcceptedValue = Ballot{}, Ballot{}, nil
		s.highest = Ballot{}
		s.accepting = nil
		s.dirty = true
	}
}

func (s *Synod) note(b Ballot) {
	if s.highest.Less(b) {
		s.highest = b
	}
}

// broadcast sends a message to all servers. This node handles its own copy at once, and last.
func (s *Synod) broadcast(to []order.ServerID, m Message) {
	for _, server := range to {
		if server != s.config.Self {
			s.send(server, m)
		}
	}
	if slices.Contains(to, s.config.Self) {
		s.Receive(s.config.Self, m)
	}
}

func (s *Synod) send(to order.ServerID, m Message) {
	if to == s.config.Self {
		s.Receive(to, m)
		return
	}
	s.out = append(s.out, Envelope{To: to, Message: m})
}
