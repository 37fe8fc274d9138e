package dare

import (
	"fmt"

	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/protected"
)

// This file brings what a server A-broadcasts to all servers, whichever of them leads (G15).

// target is this server's ring of proposals in another server's memory.
type target struct {
	protected.Petition
	next uint64
}

// The kind of a post to a ring of proposals.
const postProposal protected.Kind = 1

// PayloadMax returns the most bytes that Broadcast takes.
func (s *Server) PayloadMax() int { return s.config.PayloadMax }

// CanBroadcast reports whether Broadcast takes a payload.
func (s *Server) CanBroadcast() bool {
	return s.halted == "" && !s.closed && s.recovery == nil &&
		s.sent < s.numbers[s.self]+uint64(s.config.Window) && !s.box.Lent(s.sent+1)
}

// Broadcast A-broadcasts a payload, which is copied. It returns order.ErrNotNow if there is no room
// until earlier ones are A-delivered, order.ErrTooLarge, or order.ErrHalted.
func (s *Server) Broadcast(payload []byte) error {
	switch {
	case s.halted != "" || s.closed:
		return fmt.Errorf("%w: %s", order.ErrHalted, s.halted)
	case len(payload) > s.config.PayloadMax:
		return fmt.Errorf("%w: %d bytes, want up to %d", order.ErrTooLarge, len(payload),
			s.config.PayloadMax)
	case !s.CanBroadcast():
		return order.ErrNotNow
	}
	s.matches()
	s.sent++
	copy(s.box.Put(s.sent, len(payload))[:len(payload)], payload)
	s.buffers[s.self].Fill(s.sent, payload)
	return nil
}

// offer writes this server's proposals into its rings in the memory of all. It reports whether
// there was anything to do.
func (s *Server) offer() bool {
	busy := false
	for p, t := range s.targets {
		if !s.linked(p) {
			continue
		}
		switch t.State {
		case protected.PetitionIdle, protected.PetitionAsked:
			if s.sent == s.numbers[s.self] && t.State == protected.PetitionIdle {
				continue
			}
			stamp := protected.MakeTimestamp(s.counter, s.config.Self)
			switch outcome, by := t.Ask(s.ways, s.offers, stamp); outcome {
			case protected.Moving:
				busy = true
			case protected.Refused, protected.Exhausted:
				// another request of this server was later, or there are no more: begin anew
				s.counter = max(s.counter, by.Timestamp().Counter()) + 1
				t.Retire(s.ways)
				busy = true
			case protected.Waiting:
			}
		case protected.PetitionReads:
			t.State, t.next, busy = protected.PetitionWorks, s.numbers[s.self]+1, true
		case protected.PetitionWorks:
			for t.next = max(t.next, s.numbers[s.self]+1); t.next <= s.sent &&
				s.ways.Room(1); t.next++ {
				s.box.Post(s.ways, &t.Way, postProposal, t.next)
				busy = true
			}
		case protected.PetitionAttaches:
		}
	}
	return busy
}
