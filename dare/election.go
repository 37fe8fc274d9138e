package dare

import (
	"fmt"
	"time"

	"github.com/ledgerd/ledgerd/protected"
	"github.com/ledgerd/ledgerd/rdmanet"
)

// This file is leader election [Poke19, section 4.3.2], the detector of leaders [section 4.4.2.2],
// and who may write the own log.

// wait returns a span that differs between the servers and the terms, so that candidates do not
// stay in step.
func (s *Server) wait() time.Duration {
	x := (s.term+1)*0x9e3779b97f4a7c15 ^ uint64(s.self+1)*0xbf58476d1ce4e5b9
	x ^= x >> 31
	x *= 0x94d049bb133111eb
	x ^= x >> 29
	return s.timeout * time.Duration(x%1024) / 512
}

// Suspect makes the server stop following its leader. It then answers requests for its vote, and
// campaigns after a while. A detector other than heartbeats calls it.
func (s *Server) Suspect() {
	if s.role == following && s.leader != none {
		s.config.note("suspects leader %d", s.leader)
		s.leader, s.deadline = none, s.ways.Now()+s.wait()
	}
}

// Campaign makes the server a candidate for the next term, unless it leads.
func (s *Server) Campaign() {
	if s.role == leading || s.halted != "" || s.closed || s.recovery != nil {
		return
	}
	if g := s.group(); g.Phase == Extended && s.self >= g.Size {
		s.deadline = s.ways.Now() + s.timeout + s.wait() // it takes no part yet
		return
	}
	if s.term >= TermMax {
		s.halt("there are no more terms")
		return
	}
	s.advance(s.term + 1)
	if s.halted != "" {
		return
	}
	s.role = campaigning
	s.deadline = s.ways.Now() + s.timeout + s.wait()
	index, stamp := s.last()
	s.config.note("campaigns in term %d, its last entry is %d of term %d", s.term, index, stamp)
	for p := range s.links {
		if s.linked(p) {
			s.boards.Put(p, wordLastIndex, tagged(index, s.term))
			s.boards.Put(p, wordLastTerm, tagged(stamp, s.term))
			s.boards.Put(p, wordRequest, s.term)
			s.boards.Put(p, wordPrivate, s.term<<8|uint64(s.self))
		}
	}
}

// advance begins a term that another server, or this one, has begun. Nobody may write the log.
func (s *Server) advance(term uint64) {
	if s.role == leading {
		s.config.note("leads no more")
		for _, m := range s.members {
			if m != nil {
				m.Retire(s.ways)
				*m = member{Petition: m.Petition, applied: m.applied, excluded: m.excluded}
			}
		}
	}
	// Before anything else: a leader that reads it learns that this server may vote (G8).
	s.held.Region.Store(logTerm, term)
	s.role, s.leader, s.candidate, s.term = following, none, none, term
	s.deadline = s.ways.Now() + s.timeout + s.wait()
	s.pass(rdmanet.Peer{})
	s.seek() // nobody writes the log any more
}

// pass gives the log to a peer, or takes it from its holder.
func (s *Server) pass(peer rdmanet.Peer) {
	if err := s.held.Pass(peer); err != nil {
		s.halt(err.Error())
	}
}

// follow makes the server support the leader of its term.
func (s *Server) follow(leader int) {
	if s.leader != leader {
		s.config.note("follows %d in term %d", leader, s.term)
	}
	s.role, s.leader, s.candidate = following, leader, none
	s.deadline, s.looked = s.ways.Now()+s.timeout, s.beats[leader]
}

// listen reads the control data. It reports whether there was anything new.
func (s *Server) listen() bool {
	busy := false
	for p := range s.links {
		if !s.linked(p) {
			continue
		}
		if entry := s.boards.Load(p, wordRemoved); entry != 0 {
			s.leave(entry)
			return true
		}
		if left := s.boards.Load(p, wordLeft); left != 0 && left >= s.term {
			s.halt(fmt.Sprintf("it was left behind by the leader of term %d", left))
			return true
		}
		if outdated := s.boards.Load(p, wordOutdated); outdated > s.term {
			s.advance(outdated)
			busy = true
		}
		busy = s.hear(p) || busy
	}
	for i := range s.askers {
		if s.linked(i) {
			busy = s.answer(&s.askers[i]) || busy
		}
	}
	for i := range s.takers {
		a := &s.takers[i]
		if !s.linked(i) {
			continue
		}
		if asked, has := s.offers.Asked(a); has {
			busy = true
			b := s.buffers[a.Process]
			if asked > b.Granted {
				if err := b.Pass(a.Peer); err != nil {
					s.halt(err.Error())
				}
				b.Granted = asked
			}
			s.offers.Answer(a, asked, b.Granted)
		}
	}
	return s.consider() || busy
}

// hear looks at a server's heartbeat [Poke19, section 4.4.2.2].
func (s *Server) hear(p int) bool {
	beat := s.boards.Load(p, wordBeat)
	if beat == s.beats[p] {
		return false
	}
	s.beats[p] = beat
	switch term := beat >> 32; {
	case term > s.term:
		s.advance(term)
		s.follow(p)
	case term == s.term && s.role != leading && s.leader != p:
		s.follow(p)
	case term < s.term:
		// It was suspected by mistake. It learns of the later term, and this server waits longer.
		s.boards.Put(p, wordOutdated, s.term)
		s.timeout = min(s.timeout+s.config.Timeout/4, 8*s.config.Timeout)
	}
	return true
}

// answer answers a leader that asks for the log. A server that supports a leader gives it the log,
// whatever it voted (G3).
func (s *Server) answer(a *protected.Asker) bool {
	asked, has := s.boards.Asked(a)
	if !has {
		return false
	}
	term := asked.Timestamp().Counter()
	if term < s.term {
		s.boards.Answer(a, asked, protected.MakeTimestamp(s.term, 0).Ticket(0))
		return true
	}
	if s.config.Fault == FaultLateNeverGranted && s.held.Holder != a.Peer {
		a.Seen = asked
		return true
	}
	if term > s.term {
		s.advance(term)
	}
	s.follow(a.Process)
	s.grant(a.Peer)
	s.held.Granted = asked
	s.boards.Answer(a, asked, asked)
	return true
}

// grant gives the log to the leader, or to the candidate that this server votes for, with the list
// of entries that may not be committed.
func (s *Server) grant(peer rdmanet.Peer) {
	s.pass(rdmanet.Peer{})
	s.list()
	s.pass(peer)
}

// consider looks for a candidate to vote for, unless this server knows of a leader [Poke19, section
// 4.3.2.3]. It votes once in a term, because a request must have a higher term than its own.
func (s *Server) consider() bool {
	if s.role == leading || s.leader != none || s.halted != "" {
		return false
	}
	best, term, index, stamp := none, s.term, uint64(0), uint64(0)
	for p := range s.links {
		if !s.linked(p) {
			continue
		}
		t := s.boards.Load(p, wordRequest)
		i, l := s.boards.Load(p, wordLastIndex), s.boards.Load(p, wordLastTerm)
		if t > term && i == tagged(i>>tagBits, t) && l == tagged(l>>tagBits, t) {
			best, term, index, stamp = p, t, i>>tagBits, l>>tagBits
		}
	}
	if best == none {
		return false
	}
	deadline := s.deadline
	s.advance(term)
	ownIndex, ownStamp := s.last()
	if (stamp < ownStamp || stamp == ownStamp && index < ownIndex) &&
		s.config.Fault != FaultVoteWithoutCheck {
		s.config.note("does not vote for %d in term %d: entry %d of term %d is more recent", best,
			term, ownIndex, ownStamp)
		// Candidates that cannot win must not keep this one from its turn.
		if s.config.Fault != FaultRefusalWaits {
			s.deadline = min(s.deadline, deadline)
		}
		return true
	}
	s.role, s.candidate = voting, best
	for p := range s.links {
		if s.linked(p) {
			s.boards.Put(p, wordPrivate, term<<8|uint64(best))
		}
	}
	return true
}

// copied reports whether as many servers as make a majority hold this server's vote. A server that
// missed a configuration counts those that it learned of too.
func (s *Server) copied() bool {
	copies := 1
	for p, row := range s.boards.Rows() {
		if s.linked(p) && row.Written() {
			copies++
		}
	}
	return 2*copies > s.group().Size
}

// elect moves an election on. It reports whether there was anything to do.
func (s *Server) elect() bool {
	late := s.ways.Now() >= s.deadline
	switch s.role {
	case following:
		switch {
		case !late:
			return false
		case s.leader == none:
			s.study()
			s.Campaign()
		case s.alive():
			s.follow(s.leader)
		default:
			s.Suspect()
		}
		return true
	case voting:
		if !s.copied() {
			if late {
				s.study()
				s.Campaign()
			}
			return late
		}
		s.config.note("votes for %d in term %d", s.candidate, s.term)
		s.grant(s.links[s.candidate])
		s.held.Granted = protected.MakeTimestamp(s.term, 0).Ticket(0)
		s.boards.Put(s.candidate, wordVote, s.term)
		s.role, s.candidate = following, none
		return true
	case campaigning:
		if s.group().most(s.voted) {
			s.win()
			return true
		}
		if late {
			s.study()
			s.Campaign()
		}
		return late
	case leading:
	}
	return false
}

// alive reports whether the leader was heard since the last look: its heartbeat changed (G6).
func (s *Server) alive() bool {
	if s.config.Fault == FaultBeatIsTerm {
		return s.beats[s.leader]>>32 >= s.term
	}
	return s.beats[s.leader] != s.looked
}

// voted reports whether a server voted for this one in its term.
func (s *Server) voted(p int) bool {
	return s.member(p) && (p == s.self || s.boards.Load(p, wordVote) == s.term ||
		s.config.Fault == FaultZombieVotes && s.boards.Rows()[p].Written())
}
