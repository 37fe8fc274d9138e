package dare

import "github.com/ledgerd/ledgerd/order"

// This file makes full rounds (Config.FullRounds). A leader appends an entry only once it has a
// message of each server that it does not think missing. A server with nothing to say is solicited,
// as in AllConcur. Messages that wait for their rounds are ahead: a server's first one is for the
// next round, the second for the one after that, and so on. A server that finds a message further
// ahead than its own answers with messages, until its own are as far ahead.
//
// That happens once for each message. Otherwise those of a server that is cut off from the leader
// would be answered for ever, in rounds in which they have no part. So messages that were left out
// of rounds may find no answer when their server has a part again. The leader sees them, and asks
// for what it lacks with its heartbeats.

// Solicited reports whether CanBroadcast is true and another server waits for this one's message,
// even an empty one (Config.FullRounds).
func (s *Server) Solicited() bool {
	if !s.config.FullRounds || s.ended || !s.CanBroadcast() {
		return false
	}
	if s.wants() > s.rounds+s.ahead() {
		return true
	}
	for origin, b := range s.buffers {
		next := s.numbers[origin] + s.ahead() + 1
		if s.group().held(origin) && next > s.answered[origin] && b.Found(next) {
			return true // never by an own message: next is not sent yet
		}
	}
	return false
}

// NextRound returns the round of the next message that this server A-broadcasts. With
// Config.FullRounds that is certain, unless a leader thinks the server missing. Else, or if the run
// ends before, it is a lower bound.
func (s *Server) NextRound() order.Round {
	round := s.config.FirstRound + order.Round(s.rounds)
	if s.config.FullRounds {
		round += order.Round(s.ahead())
	}
	return round
}

// ahead returns how many messages of this server wait for their rounds.
func (s *Server) ahead() uint64 { return s.sent - s.numbers[s.self] }

// matches notes that this server's next message answers those of others that are as far ahead.
func (s *Server) matches() {
	for origin, number := range s.numbers {
		s.answered[origin] = max(s.answered[origin], number+s.ahead()+1)
	}
}

// wants returns how many rounds the leader has, with the one for which it lacks messages. It is 0
// if it asked for none.
func (s *Server) wants() uint64 {
	switch {
	case s.role == leading:
		return s.want
	case s.leader == none:
		return 0
	}
	return s.boards.Load(s.leader, wordWants)
}

// awaits reports whether a leader appends no entry without a message of a server.
func (s *Server) awaits(origin int) bool {
	m := s.members[origin]
	return s.config.FullRounds && !s.missing[origin] && (m == nil || !m.excluded) &&
		s.config.Fault != FaultPartialRounds
}

// lacks reports whether a full round waits for a server's message here: all entries are applied,
// another server's message is there, and this one's is not.
func (s *Server) lacks(origin int) bool {
	return s.awaits(origin) && !s.buffers[origin].Found(s.numbers[origin]+1) &&
		s.tail() == s.applied && s.Waiting()
}

// solicit makes a leader ask for messages for the next round, if one of some server waits for it.
// Who has a message for that round has no use for the question.
func (s *Server) solicit() {
	waits := false
	for origin, b := range s.buffers {
		waits = waits || s.group().held(origin) && b.Found(s.appended[origin]+1)
	}
	if !waits {
		return
	}
	s.asks(s.before(s.tail()+1) + 1)
}

// asks makes a leader ask for messages for rounds up to a number; 0 ends that.
func (s *Server) asks(rounds uint64) {
	s.want = rounds
	for p, row := range s.boards.Rows() {
		if s.linked(p) {
			row.Put(wordWants, rounds)
		}
	}
}
