package dare

import (
	"errors"
	"fmt"

	"github.com/ledgerd/ledgerd/protected"
	"github.com/ledgerd/ledgerd/rdmanet"
)

// This file is with whom a server shares memory: the incarnations that hold the seats of the
// configuration in force. The paper connects and disconnects queue pairs [Poke19, section 4.3.4].

// linked reports whether this server shares memory with the holder of a seat.
func (s *Server) linked(seat int) bool {
	return seat != s.self && s.links[seat] != (rdmanet.Peer{})
}

// member reports whether this server shares memory with the very incarnation that the configuration
// in force has in a seat. Only its votes and its log count (G5).
func (s *Server) member(seat int) bool {
	peer := s.group().Seats[seat].Peer
	if seat == s.self {
		return peer == s.me
	}
	return s.linked(seat) && (peer == s.links[seat] || s.config.Fault == FaultRestartedVotes)
}

// seatAll shares memory with the servers of the configuration in force, or of a committed one that
// is more recent and was learned from another server. A server that leaves keeps its access until
// its removal is committed: a leader that is removed leads until then.
func (s *Server) seatAll() {
	in := s.group()
	if s.learned.newer(in) {
		in = &s.learned
	}
	for seat, has := range s.links {
		if seat == s.self {
			continue
		}
		switch want := in.Seats[seat]; {
		case want.Peer == has:
		case want.Peer != (rdmanet.Peer{}):
			s.note(s.welcome(seat, want))
		case !s.names(seat, has):
			s.note(s.part(seat))
		}
	}
}

// note halts the server if there is an error.
func (s *Server) note(err error) {
	if err != nil {
		s.halt(err.Error())
	}
}

// names reports whether some configuration from the last applied one on names a peer.
func (s *Server) names(seat int, peer rdmanet.Peer) bool {
	for i := range s.configs {
		if s.configs[i].Seats[seat].Peer == peer {
			return true
		}
	}
	return false
}

// part shares no memory with the holder of a seat any more.
func (s *Server) part(seat int) error {
	peer, m, t, src := s.links[seat], s.members[seat], s.targets[seat], s.sources[seat]
	s.links[seat] = rdmanet.Peer{}
	if s.leader == seat {
		s.leader, s.deadline = none, s.ways.Now()+s.wait()
	}
	if s.role == voting && s.candidate == seat {
		s.role, s.candidate = following, none
	}
	m.Retire(s.ways)
	t.Retire(s.ways)
	s.ways.Detach(&s.offers.Rows()[seat].Way)
	s.ways.Detach(&src.Way)
	src.wanted, src.reading = false, false
	errs := []error{s.boards.Dismiss(seat), s.offers.Dismiss(seat), s.view.Revoke(peer)}
	if s.held.Holder == peer {
		errs = append(errs, s.held.Pass(rdmanet.Peer{}))
	}
	return errors.Join(append(errs, s.held.Region.Revoke(peer),
		s.buffers[seat].Pass(rdmanet.Peer{}))...)
}

// welcome shares memory with the new holder of a seat. Nothing is left of an earlier one.
func (s *Server) welcome(seat int, holder Seat) error {
	if s.linked(seat) {
		if err := s.part(seat); err != nil {
			return err
		}
	}
	s.config.note("shares memory with %v in seat %d", holder.Peer, seat)
	s.links[seat], s.beats[seat], s.missing[seat] = holder.Peer, 0, false
	s.askers[seat] = protected.Asker{Process: seat, Peer: holder.Peer}
	s.takers[seat] = s.askers[seat]
	m, t, src := s.members[seat], s.targets[seat], s.sources[seat]
	m.Retire(s.ways)
	*m = member{Petition: m.Petition, applied: holder.From}
	t.Retire(s.ways)
	*t = target{Petition: t.Petition}
	m.Peer, t.Peer, src.Peer = holder.Peer, holder.Peer, holder.Peer
	src.Tries, src.Since = 0, 0
	b := s.buffers[seat]
	b.Granted = 0
	clear(b.Region.Bytes()) // nobody else may write it
	for _, err := range []error{s.boards.Replace(s.ways, seat, holder.Peer),
		s.offers.Replace(s.ways, seat, holder.Peer), open(s.view, holder.Peer),
		open(s.held.Region, holder.Peer)} {
		// A peer that the host does not admit is one that cannot be reached.
		if err != nil && !errors.Is(err, rdmanet.ErrNotMember) {
			return err
		}
	}
	return nil
}

// open lets a peer read a region: the snapshots, for one that missed a configuration, and the log
// too for one that recovers.
func open(region rdmanet.Region, peer rdmanet.Peer) error {
	err := region.Grant(peer, rdmanet.PermissionRead)
	if err != nil && !errors.Is(err, rdmanet.ErrNotMember) {
		return fmt.Errorf("let %v read %s: %w", peer, region.Name(), err)
	}
	return nil
}

// renew puts another incarnation of a server in its seat, because it is there
// (FaultRestartedVotes).
func (s *Server) renew(peer rdmanet.Peer) {
	for seat, has := range s.links {
		if seat != s.self && has.ID == peer.ID && has.Incarnation < peer.Incarnation {
			s.note(s.welcome(seat, Seat{Peer: peer}))
		}
	}
}
