package dare

import (
	"fmt"

	"github.com/ledgerd/ledgerd/order"
)

// This file is the end of a run at a server that promises a new generation, for good.
//
// The promise is about memory that others write, so Freeze takes all permissions before it reads.
// Nothing lands in the log from then on. No leader can count this server any more for an entry that
// its report does not show.
//
// A majority of the shard that did so knows what any server A-delivered: the log of them with the
// most recent last entry (Server.last) has it all. Comparing logs by their last entries needs that
// no entry is committed without a leader's own stamp at or behind it (G1), and that a server does
// not lose what is committed when a leader adjusts its log (G16). Package generation has the rule
// and the proof (choose_log.go).

// Freeze ends this server's part in the run, and returns what its log has behind what it
// A-delivered. Nothing that others write lands in its memory any more. Close must follow. The error
// says that the memory could not be taken from them, that the log is not whole, or that the group
// changed in this run: then the majorities above are not those of one group.
func (s *Server) Freeze() (order.FrozenLog, error) {
	s.closed = true
	if s.config.Fault != FaultFreezeKeepsLog {
		if err := s.revoke(); err != nil {
			return order.FrozenLog{}, err
		}
	}
	return s.remains()
}

// revoke takes all permissions of others.
func (s *Server) revoke() error {
	for _, region := range s.Regions() {
		for seat, peer := range s.links {
			if !s.linked(seat) {
				continue
			}
			if err := region.Revoke(peer); err != nil {
				return fmt.Errorf("dare: freeze: revoke %s from %s: %w", region.Name(), peer, err)
			}
		}
	}
	return nil
}

// remains reads the log behind what this server A-delivered. It copies the payloads.
func (s *Server) remains() (order.FrozenLog, error) {
	index, stamp := s.last()
	log := order.FrozenLog{Index: index, Stamp: stamp, RoundsMax: s.layout.slots}
	if s.ended {
		return log, nil
	}
	if s.recovery != nil || s.configs[0].index > 0 {
		return log, fmt.Errorf("dare: freeze: the group changed in this run: %v",
			s.configs[0].Configuration)
	}
	rounds := s.rounds
	for at := s.applied + 1; at <= index; at++ {
		e := s.at(at)
		d, found := order.Delivery{}, e.index != 0
		if found && e.length > 0 {
			d, found = s.delivery(e, rounds)
		}
		if !found || len(log.Rounds) == log.RoundsMax {
			return log, fmt.Errorf("dare: freeze: the log reaches to entry %d, this server "+
				"A-delivered %d entries, and entry %d is no round of such a run", index, s.applied,
				at)
		}
		if e.length > 0 {
			log.Rounds = append(log.Rounds, copied(d))
			rounds++
		}
	}
	return log, nil
}
