package dare

import (
	"errors"
	"fmt"
	"slices"

	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/rdmanet"
)

// This file is group reconfiguration by the leader [Poke19, section 4.3.4].

// Errors of reconfigurations and read requests.
var (
	// ErrNotLeading: only a leader does this.
	ErrNotLeading = errors.New("dare: this server does not lead")
	// ErrUnsettled: the group is not ready. Its last configuration, or the leader's first own
	// entry, is not committed (G2), or the log has no room. It may be in a while.
	ErrUnsettled = errors.New("dare: the group is not ready for a change")
	// ErrSeat: the group cannot change in this way, or not at all (Config.Change, Config.Shard).
	ErrSeat = errors.New("dare: the group cannot change this way")
)

// recoverFor is how many timeouts a leader waits for the newcomer in an extended group.
const recoverFor = 256

// settled reports whether the leader may append a configuration: an entry with its own stamp and
// the configuration in force are committed (G2). Two majorities, of whatever configurations are in
// force at once, then have a server in common.
func (s *Server) settled() bool {
	if s.config.Fault == FaultConfigWithoutCommit {
		return true
	}
	if s.tail() < s.own {
		s.noop = true // an empty log has no entry to commit
	}
	return s.commit >= max(s.own, s.group().index)
}

// begins checks whether a reconfiguration may begin.
func (s *Server) begins() error {
	switch {
	case s.config.fixed():
		return fmt.Errorf("%w: the servers of this run stay the same", ErrSeat)
	case s.role != leading:
		return ErrNotLeading
	case !s.settled():
		return ErrUnsettled
	}
	return nil
}

// Remove removes servers, whatever they do: the size of the group stays, and their seats are free.
// The leader cannot remove itself, nor so many that no majority is left.
func (s *Server) Remove(servers ...order.ServerID) error {
	if err := s.begins(); err != nil {
		return err
	}
	g := s.group()
	next := g.Configuration
	for _, server := range servers {
		if int(server) >= len(next.Seats) || !next.held(int(server)) || int(server) == s.self {
			return fmt.Errorf("%w: seat %d is not one to free", ErrSeat, server)
		}
		next = next.with(int(server), Seat{})
	}
	if !next.most(func(int) bool { return true }) {
		return fmt.Errorf("%w: without %v there is no majority", ErrSeat, servers)
	}
	if g.Phase == Extended && !next.held(g.Size) {
		next.Phase, next.Next = Stable, g.Size
	}
	return s.configure(next)
}

// frees reports whether a configuration's servers need less of the log than those of the one in
// force.
func (s *Server) frees(next *Configuration) bool {
	return s.needed(next) > s.needed(&s.group().Configuration)
}

// Add adds a server, whose incarnation no earlier configuration had, in a free seat. The first seat
// behind the group extends it: the server recovers, then the group grows, and the leader goes
// through these phases by itself. The server is made with Config.Joins.
func (s *Server) Add(server order.ServerID, peer rdmanet.Peer) error {
	if err := s.begins(); err != nil {
		return err
	}
	g, seat := s.group(), int(server)
	switch {
	case g.Phase != Stable:
		return fmt.Errorf("%w: the group is being resized", ErrUnsettled)
	case seat >= len(g.Seats) || seat > g.Size || g.held(seat):
		return fmt.Errorf("%w: seat %d of %v is not the next free one", ErrSeat, server,
			g.Configuration)
	case peer == (rdmanet.Peer{}) || len(peer.ID) > peerIDMax || slices.ContainsFunc(g.Seats,
		func(s Seat) bool { return s.Peer.ID == peer.ID }):
		return fmt.Errorf("%w: %v is no new server", ErrSeat, peer)
	}
	next := g.with(seat, Seat{peer, s.floor()})
	if seat == g.Size {
		next.Phase, next.Next = Extended, g.Size+1
	}
	// A group that grows while a seat is free needs a majority of its new size.
	if grown := next; grown.Phase == Extended {
		if grown.Phase = Transitional; !grown.most(func(int) bool { return true }) {
			return fmt.Errorf("%w: %d servers are no majority of %d", ErrSeat,
				len(grown.Servers()), grown.Next)
		}
	}
	return s.configure(next)
}

// Shrink makes the group smaller. The servers in its last seats leave. If the leader is one of
// them, it leads until that is committed, and does not count itself (G9).
func (s *Server) Shrink(size int) error {
	if err := s.begins(); err != nil {
		return err
	}
	g := s.group()
	next := g.Configuration
	next.Phase, next.Next = Transitional, size
	switch {
	case g.Phase != Stable:
		return fmt.Errorf("%w: the group is being resized", ErrUnsettled)
	case size < 1 || size >= g.Size || !next.most(func(int) bool { return true }):
		return fmt.Errorf("%w: %d seats of %v", ErrSeat, size, g.Configuration)
	}
	return s.configure(next)
}

// configure appends a configuration, which is in force from here on. One that frees a full log has
// a slot of its own (G4).
func (s *Server) configure(next Configuration) error {
	used, slots := s.used(), uint64(s.config.LogSlots)
	if used > slots || used == slots && !s.frees(&next) {
		return fmt.Errorf("%w: the log is full", ErrUnsettled)
	}
	next.head = s.needed(&next)
	b := appendConfiguration(nil, &next)
	s.add(kindConfig, b)
	s.config.note("appends configuration %d: %v", s.tail(), next)
	s.extended = s.ways.Now()
	s.seek()
	return nil
}

// proceed moves a configuration on that is not stable, also one that an earlier leader began (G10).
func (s *Server) proceed() bool {
	g := s.group()
	if g.Phase == Stable || !s.settled() {
		return false
	}
	next := g.Configuration
	if g.Phase == Extended {
		switch newcomer := s.members[g.Size]; {
		case newcomer.acked >= g.index: // it recovered
			next.Phase = Transitional
		case s.ways.Now() > s.extended+recoverFor*s.config.Timeout:
			next = next.with(g.Size, Seat{})
			next.Phase, next.Next = Stable, g.Size
		default:
			return false
		}
	} else {
		next.Phase, next.Size = Stable, g.Next
		for seat := g.Next; seat < len(next.Seats); seat++ {
			next = next.with(seat, Seat{})
		}
	}
	return s.configure(next) == nil
}
