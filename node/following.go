package node

import (
	"slices"
	"time"

	"github.com/ledgerd/ledgerd/allconcur/generation"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/mempool"
	"github.com/ledgerd/ledgerd/order"
)

// entryDistance is how many blocks behind the head a node may be that asks to enter.
const entryDistance = 256

// following is what a node needs that does not order.
type following struct {
	catching  bool
	caught    chan caughtUp
	from      ledger.Height // where the chain stood when catching began
	fetchedTo ledger.Height // the last block that this process has from a peer
	forked    bool          // the group holds other blocks past the common height: ours have to be set aside
	common    ledger.Height
	followed  generation.Generation // the generation that the peer worked in from which the head came
	ticket    uint64                // of this process's next entrance
	enteredAt time.Time
	asked     int // wishes to enter
}

// candidate is a peer that blocks can come from.
type candidate struct {
	heard
	server order.ServerID
}

// called tells whether a member announced a run that waits for this node.
func (s *supervisor) called() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.group != nil {
		return false
	}
	for _, h := range s.heard {
		if h.orders() && slices.ContainsFunc(h.entrants, func(e mempool.Entrant) bool { return e.Ticket == s.ticket }) {
			return true
		}
	}
	return false
}

// follow fetches blocks from the peers while this node does not order, asks to enter when it is close to the head, and enters.
func (s *supervisor) follow() error {
	if s.at() != nil || s.settling.active || s.catching {
		return nil
	}
	if s.next != nil {
		return nil // activate begins it
	}
	if s.forked {
		s.forked = false
		return s.fallBack(s.common)
	}
	ahead := s.ahead()
	tip := s.node.pipeline.Tip()
	run := generation.Run(0)
	var workers []candidate
	for _, p := range ahead {
		if p.orders() {
			run = max(run, p.run)
		}
	}
	for _, p := range ahead {
		if p.orders() && p.run == run {
			workers = append(workers, p)
		}
	}
	target := s.target()
	if next := tip.Height + 1; len(ahead) > 0 && s.leaving.IsZero() && noneHas(ahead, next) {
		s.setMode(api.ModeFollowing, "no member that runs has block %d, since they began with snapshots: start one that has it, "+
			"or stop this node, move %s away, and give `ledgerd cluster join --home %s --snapshot` again, so that it begins with "+
			"one too", next, s.node.home.Data(), s.node.home.Dir)
		return nil
	}
	switch {
	case s.pending != nil:
		s.setMode(api.ModeStarting, "fetching blocks up to %d, from where the group goes on", s.pending.Base.Height)
	case run != 0 && s.leaving.IsZero():
		s.setMode(api.ModeFollowing, "generation %d orders without this node; it enters as soon as it holds the chain", run.Generation())
	case s.mode() != api.ModeHalted && s.leaving.IsZero():
		s.waitingFor()
	}
	if len(ahead) == 0 || target != nil && s.pending != nil && uint64(tip.Height) >= target.Height {
		return nil
	}
	limit := ledger.Height(0)
	if target != nil {
		limit = ledger.Height(target.Height)
	}
	for i := range workers {
		if g := s.entrance(&workers[i].heard); g != nil && target == nil {
			if done, err := s.enter(g); done || err != nil {
				return err
			}
			limit = g.base
		}
	}
	same, err := s.holds(&ahead[0])
	if err != nil {
		return err
	}
	if same && ahead[0].heights.Ordered == tip.Height && ahead[0].orders() {
		s.followed = max(s.followed, ahead[0].run.Generation())
	}
	if !same && (limit == 0 || tip.Height < limit || ahead[0].heights.Ordered <= tip.Height) {
		s.catching, s.from = true, tip.Height
		s.workers.Add(1)
		go s.catchUp(ahead, limit)
	}
	if target == nil && run != 0 && s.mayEnter() && (same || ahead[0].heights.Ordered > tip.Height) && ahead[0].heights.Ordered <= tip.Height+entryDistance {
		s.askToEnter(run, workers)
	}
	return nil
}

// noneHas reports whether some peers are past a block, and none of them has it.
func noneHas(peers []candidate, height ledger.Height) bool {
	past := 0
	for i := range peers {
		if peers[i].heights.Ordered < height {
			continue
		}
		past++
		if peers[i].absent < height {
			return false
		}
	}
	return past > 0
}

// enter starts the engine of a run that takes this process in, where the chain stands right before it. It tells whether there is nothing more to do for now.
func (s *supervisor) enter(g *group) (bool, error) {
	head := s.node.Store().Head()
	switch {
	case head.Height < g.base:
		return false, nil
	case head.Height > g.base && s.fetchedTo <= g.base:
		// Blocks that the group does not have as this run begins, and that do not come from it, are in no chain of its.
		return true, s.fallBack(g.base)
	case head.Height > g.base || head.Hash != g.baseHash:
		s.ticket = newTicket() // too late: the next eon
		return false, nil
	}
	g.shard = s.membership()
	if !g.shard.Includes(s.node.home.Self) {
		return false, nil
	}
	s.followed = max(s.followed, g.run.Generation())
	s.next = g
	return true, ignoreUnwritten(s.begin())
}

// mayEnter tells whether this node can take part: it knows how the generation began, it is a member, and its disk has room.
func (s *supervisor) mayEnter() bool {
	membership := s.node.Store().Membership()
	_, member := membership.Find(ledger.MemberIndex(s.node.home.Self))
	return member && s.othersOrder() && !s.node.stopping.Load() && s.node.pipeline.Stalled() == "" && !s.node.disk.low()
}

// ahead lists the peers to follow, best first: those who order in the latest generation, by height. One that orders in a generation older than what this node knows was cut off, and
// its chain proves nothing. While a base is wanted, those who have it serve as well; and to a node whose chain does not have the block yet that let it in, everyone does.
func (s *supervisor) ahead() []candidate {
	latest := max(s.synod.Activated().Generation(), s.followed)
	if d := s.synod.Decided(); d != nil {
		latest = max(latest, d.Generation)
	}
	target := s.target()
	membership := s.node.Store().Membership()
	_, member := membership.Find(ledger.MemberIndex(s.node.home.Self))
	tip := s.node.pipeline.Tip()
	s.mu.Lock()
	defer s.mu.Unlock()
	var candidates []candidate
	for server, h := range s.heard {
		orders := h.orders() && h.run.Generation() >= latest
		atBase := target != nil && uint64(h.heights.Ordered) >= target.Height
		joining := !member && h.heights.Ordered > tip.Height
		if s.recent(server, h) && (orders || atBase || joining) {
			candidates = append(candidates, candidate{h, server})
		}
	}
	order := func(h *candidate) generation.Run {
		if h.orders() {
			return h.run
		}
		return 0
	}
	slices.SortFunc(candidates, func(a, b candidate) int {
		switch {
		case order(&a) != order(&b):
			return -compare(order(&a), order(&b))
		case a.heights.Ordered != b.heights.Ordered:
			return -compare(a.heights.Ordered, b.heights.Ordered)
		}
		return compare(a.server, b.server)
	})
	return candidates
}

func compare[T ~uint32 | ~uint64](a, b T) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}
