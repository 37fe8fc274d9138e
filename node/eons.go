package node

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/ledgerd/ledgerd/allconcur/generation"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/control"
	"github.com/ledgerd/ledgerd/node/driver"
	"github.com/ledgerd/ledgerd/node/mempool"
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/rdmanet"
)

const (
	// enterEvery is how often a node asks to enter, and markEvery how often a member asks for it in the group.
	enterEvery = time.Second
	markEvery  = 2 * time.Second
	// eonsMax is how many eons a generation has before it ends in order.
	eonsMax = 1<<16 - 1
)

// eonEnd is the end of a run, with those who are left.
type eonEnd struct {
	run     generation.Run
	members []order.ServerID
}

// ended hears from the driver that an eon is over.
func (s *supervisor) ended(g driver.Group, members []order.ServerID) {
	s.mu.Lock()
	s.over = &eonEnd{generation.Run(g.Generation), slices.Clone(members)}
	s.mu.Unlock()
	s.announceSoon()
}

// switchEon goes on with the next eon: with who is left and who enters, as far as they are members of the chain. Every member comes to the same answer, since it follows from the rounds alone. The
// generation ends in order where it is asked to, or where too few are left.
func (s *supervisor) switchEon(g *group, over *eonEnd) error {
	patience, cancel := context.WithTimeout(s.context, settleFor)
	defer cancel()
	if s.node.pipeline.Barrier(patience) != nil {
		return nil
	}
	marks := s.node.pipeline.Marks()
	head := s.node.Store().Head()
	next := &group{run: g.run + 1, first: s.node.pipeline.Round() + 1, base: head.Height, baseHash: head.Hash, shard: s.membership()}
	for _, server := range over.members {
		if next.shard.Includes(server) {
			next.members = append(next.members, server)
		}
	}
	for _, entrant := range marks.Entrants {
		if server := order.ServerID(entrant.Server); next.shard.Includes(server) {
			next.entrants = append(next.entrants, entrant)
			next.members = append(next.members, server)
		}
	}
	slices.Sort(next.members)
	next.members = slices.Compact(next.members)
	self := s.node.home.Self
	switch {
	case !next.shard.Includes(self), !slices.Contains(next.members, self):
		s.stopEngine(0)
		return nil
	case marks.Regroup || len(next.members) < next.shard.Quorum() || g.run.Eon() >= eonsMax:
		s.stopEngine(g.run.Generation())
		s.setMode(api.ModeStarting, "the group starts anew to take a node in")
		return nil
	case s.synod.Frozen(next.run):
		s.stopEngine(0)
		return nil
	}
	s.next = next
	return s.begin()
}

// newTicket draws what tells this process's wish to enter apart from that of any other, and from its earlier ones.
func newTicket() uint64 { return rand.Uint64() | 1 }

// A wish to enter is one byte of kind and a number: the ticket, or the generation that is to end.
const (
	wishEnter   byte = 1
	wishRegroup byte = 2
	wishSize         = 1 + 8
)

// askToEnter asks a member of the group to have this node taken in.
func (s *supervisor) askToEnter(run generation.Run, members []candidate) {
	if time.Since(s.enteredAt) < enterEvery {
		return
	}
	s.enteredAt = time.Now()
	s.asked++
	kind, number := wishEnter, s.ticket
	if s.synod.Frozen(run) {
		// What this node promised keeps it out of this generation for good.
		kind, number = wishRegroup, uint64(run.Generation())
	}
	payload := binary.LittleEndian.AppendUint64([]byte{kind}, number)
	to := members[s.asked%len(members)].server
	if err := s.node.control.Send(s.node.peers.id(to), control.KindEnter, payload); err != nil {
		s.node.logger.Debug("not asked to enter", "member", to, "error", err)
	}
}

// onEnter has the group take the asking node in: with the next eon, by a mark in this node's next batch, or with the next generation.
func (s *supervisor) onEnter(from rdmanet.Peer, payload []byte) {
	server, known := s.isPeer(from)
	if !known {
		return
	}
	if len(payload) != wishSize || payload[0] != wishEnter && payload[0] != wishRegroup {
		s.node.logger.Error("malformed wish to enter dropped", "peer", from)
		return
	}
	membership := s.node.Store().Membership()
	if _, member := membership.Find(ledger.MemberIndex(server)); !member {
		return
	}
	number := binary.LittleEndian.Uint64(payload[1:])
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.group
	if g == nil || s.stalled {
		return
	}
	entrant := mempool.Entrant{Server: uint32(server), Ticket: number}
	ticket := number
	if payload[0] == wishRegroup {
		ticket = 0
		if generation.Generation(number) != g.run.Generation() {
			return
		}
	} else if slices.Contains(g.entrants, entrant) {
		return // it is in already, and does not know
	}
	if time.Since(s.marked[ticket]) < markEvery {
		return
	}
	if len(s.marked) > mempool.EntrantsMax {
		clear(s.marked)
	}
	s.marked[ticket] = time.Now()
	if payload[0] == wishRegroup {
		s.node.logger.Info("a node wants to enter that cannot enter this generation: the next one takes it in", "member", server)
		s.node.pool.Regroup()
		return
	}
	s.node.logger.Info("a node wants to enter: the next eon takes it in", "member", server)
	s.node.pool.Enter(entrant)
}

// entrance is the group of a run that takes this very process in, as a member announced it; nil if that does not.
func (s *supervisor) entrance(h *heard) *group {
	own := mempool.Entrant{Server: uint32(s.node.home.Self), Ticket: s.ticket}
	if !h.orders() || !slices.Contains(h.entrants, own) || h.run <= s.synod.Activated() || s.synod.Frozen(h.run) {
		return nil
	}
	if d := s.synod.Decided(); d == nil || d.Generation < h.run.Generation() {
		return nil
	}
	return &group{run: h.run, first: h.first, base: h.base, baseHash: h.baseHash, members: h.members, entrants: h.entrants}
}
