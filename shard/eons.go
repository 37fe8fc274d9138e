package shard

import (
	"slices"

	"github.com/ledgerd/ledgerd/allconcur/generation"
)

// eonsMax is how many eons a generation has before it ends in order.
const eonsMax = 1<<16 - 1

// onEonEnded starts the next eon with the remaining members and the entrants that are members of
// the chain. Every member computes the same result, since it follows from the rounds alone. The
// generation ends in order if a mark asks for it, or if too few members are left.
func (m *Member) onEonEnded(in EonEnded) {
	g := m.group
	if g == nil || g.Run != in.Run || m.starting != nil {
		return
	}
	tip := m.chain.Tip()
	membership, _ := m.chain.Membership()
	next := &Group{
		Run: g.Run + 1, First: tip.Round + 1, Base: tip.Height, BaseHash: tip.Hash,
		Shard: membership,
	}
	for _, server := range in.Members {
		if membership.Includes(server) {
			next.Members = append(next.Members, server)
		}
	}
	for _, entrant := range in.Entrants {
		// A disk that the chain has replaced meanwhile does not count.
		if membership.Includes(entrant.Server) &&
			membership.Counts(entrant.Server, entrant.Disk, true) {
			next.Entrants = append(next.Entrants, entrant)
			next.Members = append(next.Members, entrant.Server)
		}
	}
	slices.Sort(next.Members)
	next.Members = slices.Compact(next.Members)
	benched(next, in.Benched)
	for _, server := range in.Benched {
		if !next.Includes(server) {
			m.troubled(server)
		}
	}
	switch {
	case !next.Includes(m.config.Self):
		m.freeze(0)
		m.onBench = slices.Contains(in.Benched, m.config.Self)
		m.setMode(Starting, because(Between), "the group continues without this node")
	case in.Regroup || len(next.Members) < membership.Quorum() || g.Run.Eon() >= eonsMax:
		m.freeze(g.Run.Generation())
		m.setMode(Starting, because(Between), "the group restarts to take a node in")
	case m.synod.Frozen(next.Run):
		m.freeze(0)
		m.setMode(Starting, because(Between), "the group restarts")
	default:
		m.begin(next)
	}
}

// onWish handles a request from a server outside of the group. The server enters with the next eon,
// by a mark in this server's next batch, or with the next generation. An admission is proposed as
// an entry of the chain.
func (m *Member) onWish(in WishReceived) {
	membership, _ := m.chain.Membership()
	if !membership.Includes(in.From) || m.group == nil || m.stalled || m.starting != nil {
		return
	}
	switch in.Wish.Kind {
	case WishRegroup:
		if generation.Generation(in.Wish.Number) == m.group.Run.Generation() && m.mark(in) {
			m.emit(Mark{Regroup: true})
		}
	case WishEnter:
		entrant := Entrant{Server: in.From, Ticket: in.Wish.Number, Disk: in.Wish.Disk}
		here := slices.Contains(m.group.Entrants, entrant) && !slices.Contains(m.removed, in.From)
		if here || !m.steady(m.peer(in.From)) || !membership.Counts(in.From, in.Wish.Disk, true) {
			return // it is in already, or the chain names another disk for it
		}
		if m.mark(in) {
			m.emit(Mark{Entrant: entrant})
		}
	case WishAdmit:
		if m.mayAdmit(in) && m.mark(in) {
			m.emit(Admit{Server: in.From, Disk: in.Wish.Disk})
		}
	}
}

// marksMax bounds the marks of one server's wishes in a while. A process has one ticket, so a
// server needs more only if it restarts again and again.
const marksMax = 4

// mark reports whether a wish was not marked recently, and records it. It does not take more wishes
// of one server than it should have.
func (m *Member) mark(in WishReceived) bool {
	m.marked = slices.DeleteFunc(m.marked, func(k marked) bool {
		return m.now-k.at >= m.config.Timing.Mark
	})
	ofSender := 0
	for _, k := range m.marked {
		if k.wish == in.Wish && (k.from == in.From || in.Wish.Kind == WishRegroup) {
			return false
		}
		if k.from == in.From {
			ofSender++
		}
	}
	if ofSender >= marksMax {
		return false
	}
	m.marked = append(m.marked, marked{in.Wish, in.From, m.now})
	return true
}

// entrance returns the group of a run that takes in this very process, as a member announced it, or
// nil.
func (m *Member) entrance(p *peer) *Group {
	g := &p.Group
	if !p.orders() || g.Run <= m.synod.Activated() || m.synod.Frozen(g.Run) ||
		!p.includes(m.config.Self) {
		return nil
	}
	own := Entrant{Server: m.config.Self, Ticket: m.ticket, Disk: m.config.Disk.ID}
	if !slices.Contains(g.Entrants, own) {
		return nil
	}
	if d := m.synod.Decided(); d == nil || d.Generation < g.Run.Generation() {
		return nil
	}
	entered := *g
	return &entered
}
