package dare

// This file is read requests [Poke19, section 4.3.3.1]: what a leader checks before it answers from
// its own state.

// check is what a leader has to find out before read requests may be answered. All requests that
// come while a check is under way take the next one together.
type check struct {
	asked, begun, passed uint64
	index                uint64 // has to be applied
}

// Barrier begins a check that this server may answer read requests, and returns the check's number.
// The check is passed once nothing that any server A-delivered before the call is missing from what
// Deliveries returned: no later leader has committed anything that this one does not know. It
// returns ErrNotLeading, or ErrUnsettled if the log is empty.
func (s *Server) Barrier() (uint64, error) {
	if s.role != leading {
		return 0, ErrNotLeading
	}
	if s.tail() < s.own {
		s.noop = true
		return 0, ErrUnsettled
	}
	s.check.asked++
	return s.check.asked, nil
}

// Passed reports whether a check is passed. It returns ErrNotLeading for one that is not, if the
// server leads no more.
func (s *Server) Passed(number uint64) (bool, error) {
	if number <= s.check.passed {
		return true, nil
	}
	if s.role != leading {
		return false, ErrNotLeading
	}
	return false, nil
}

// verify moves checks on: the leader reads the terms of the others. A server stores its term before
// it takes its log away and before it votes, so a majority that has no higher term than this one's
// elected nobody since (G8). It reports whether there was anything to do.
func (s *Server) verify() bool {
	c, busy := &s.check, false
	if c.begun == c.passed && c.asked > c.passed {
		c.begun, c.index, busy = c.asked, max(s.commit, s.own), true
		for _, m := range s.members {
			if m != nil {
				m.asks, m.confirms = false, false
			}
		}
	}
	if c.begun == c.passed {
		return false
	}
	for seat, m := range s.members {
		if m != nil && s.member(seat) && m.works() && !m.asks && !m.Reading() && s.ways.Room(1) {
			m.asks, busy = true, true
			s.ways.ReadWord(&m.Way, postTerm, logTerm)
		}
	}
	confirmed := s.group().most(func(seat int) bool {
		return s.member(seat) && (seat == s.self || s.members[seat].confirms)
	})
	if (confirmed || s.config.Fault == FaultReadWithoutCheck) && s.applied >= c.index {
		c.passed, busy = c.begun, true
	}
	return busy
}
