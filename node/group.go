package node

import (
	"context"
	"errors"
	"time"

	"github.com/ledgerd/ledgerd/allconcur"
	"github.com/ledgerd/ledgerd/allconcur/generation"
	"github.com/ledgerd/ledgerd/digraph"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/detector"
	"github.com/ledgerd/ledgerd/node/driver"
	"github.com/ledgerd/ledgerd/node/mempool"
	"github.com/ledgerd/ledgerd/node/pipeline"
	"github.com/ledgerd/ledgerd/order"
)

// outsideAfter is how long a node waits that knows that it is outside of the majority, or hears none, until it says so.
const outsideAfter = time.Second

// group is who takes part in a run, from where. It is not changed once its run began.
type group struct {
	run   generation.Run
	first order.Round
	// base is the last block before the run.
	base     ledger.Height
	baseHash ledger.Hash
	members  []order.ServerID // as the run begins, ascending
	entrants []mempool.Entrant
	// shard is the membership of the chain as the run begins, of which majorities are taken.
	shard   generation.Membership
	digraph *digraph.Digraph // set by begin
	// declared tells that the synod knows that this node takes part.
	declared bool
}

// settling is an engine that was stopped: what it delivered is still being executed, and the synod has to be told.
type settling struct {
	active  bool
	ended   generation.Generation // the generation, if it ended in order
	untaken []order.Delivery
	votes   []allconcur.Vote
	known   []allconcur.KnownVote
}

// at is the group that this node's engine is in, nil for none.
func (s *supervisor) at() *group {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.group
}

// membership is the chain's, as the synod wants it.
func (s *supervisor) membership() generation.Membership {
	chain := s.node.Store().Membership()
	membership := generation.Membership{Number: chain.Number, Members: make([]order.ServerID, len(chain.Members))}
	for i := range chain.Members {
		membership.Members[i] = order.ServerID(chain.Members[i].Index)
	}
	return membership
}

// begin starts the engine of s.next. Everything up to its base, and its first round, is executed. errUnwritten changes nothing: it is tried again.
func (s *supervisor) begin() error {
	g := s.next
	if s.synod.Frozen(g.run) || g.run <= s.synod.Activated() && !g.declared {
		s.next = nil // a later generation is being decided, or an earlier process was there
		return nil
	}
	var err error
	if g.digraph, err = s.reliable(len(g.members)); err != nil {
		return err
	}
	if err := s.node.pipeline.Sync(); err != nil {
		return err
	}
	s.announce() // what is stored now counts in the run that was, too, for those who leave with it
	s.synod.Report(s.holdings())
	s.synod.Working(g.run, g.shard)
	g.declared = true
	if err := s.carryOut(); err != nil { // that this node takes part is on disk before it does
		return err
	}
	s.next, s.pending = nil, nil
	s.node.pipeline.Begin(pipeline.Run{Number: uint64(g.run), First: g.first, Members: g.members, Shard: len(g.shard.Members)})
	s.ticket = newTicket()
	s.mu.Lock()
	s.group, s.over, s.stalled = g, nil, false
	clear(s.marked)
	s.mu.Unlock()
	if err := s.refreshPeers(); err != nil {
		return err
	}
	s.contents.forgetVotes()
	if err := s.contents.clear(s.synod.Decided()); err != nil {
		s.node.logger.Warn("rounds that are in the chain by now could not be removed", "error", err)
	}
	s.node.pool.Again()
	if err := s.detector.Activate(detector.Group{Generation: uint64(g.run), Members: g.members, Reliable: g.digraph}); err != nil {
		return err
	}
	if err := s.driver.Activate(driver.Group{Generation: uint64(g.run), FirstRound: g.first, Members: g.members, Shard: len(g.shard.Members)}); err != nil {
		return err
	}
	s.node.logger.Info("ordering", "generation", g.run.Generation(), "eon", g.run.Eon(), "round", g.first, "members", g.members, "of", len(g.shard.Members))
	s.setMode(api.ModeOrdering, "")
	return nil
}

// stopEngine ends the run at hand, if any; ended tells the generation, if that ended in order. The engine is frozen for good.
func (s *supervisor) stopEngine(ended generation.Generation) {
	s.mu.Lock()
	g := s.group
	s.group, s.over, s.stalled = nil, nil, false
	s.mu.Unlock()
	if g == nil {
		return
	}
	remains := s.driver.Freeze()
	s.detector.Deactivate()
	s.settling = settling{active: true, ended: ended, untaken: remains.Untaken, votes: remains.Votes,
		known: remains.Known}
	s.fullAt = time.Time{}
	s.next = nil
}

// settled tells the synod that the node is idle, once everything that was delivered is executed and on the disk.
func (s *supervisor) settled() error {
	if !s.settling.active {
		return nil
	}
	patience, cancel := context.WithTimeout(s.context, settleFor)
	defer cancel()
	if untaken := s.settling.untaken; untaken != nil {
		if s.node.pipeline.Deliver(patience, untaken) != nil {
			return nil
		}
		s.settling.untaken = nil
	}
	if s.node.pipeline.Barrier(patience) != nil {
		return nil // the disk is full, or much was delivered: the next turn looks again
	}
	if err := s.node.pipeline.Sync(); err != nil {
		return err
	}
	report := s.holdings()
	for i := range s.settling.votes {
		report.Votes = append(report.Votes, s.vote(&s.settling.votes[i]))
	}
	for _, k := range s.settling.known {
		report.Known = append(report.Known, generation.KnownVote{
			Voter: k.Voter, Round: k.Round, Epoch: s.node.pipeline.ChainEpoch(k.Epoch),
			Reliable: k.Reliable, Confirmed: k.Confirmed, Origins: k.Origins,
		})
	}
	s.settling.active = false
	s.synod.Idle(report, s.settling.ended)
	return nil
}

// vote is what the synod has to know of an engine's vote. What it is for stays here, for whoever will need it.
func (s *supervisor) vote(v *allconcur.Vote) generation.Vote {
	v.Delivery.Epoch = s.node.pipeline.ChainEpoch(v.Epoch)
	vote := generation.Vote{Confirmed: v.Confirmed, Voters: v.Members, TailRound: generation.TailRound{
		Round: v.Round, Epoch: v.Delivery.Epoch, Reliable: v.Reliable, Removed: v.Delivery.Removed, Content: s.contents.remember(encodeRound(v.Delivery)),
	}}
	for _, message := range v.Delivery.Messages {
		vote.Origins = append(vote.Origins, message.Origin)
	}
	return vote
}

// halted hears from the driver that an engine delivers no more.
func (s *supervisor) halted(g driver.Group, reason string) {
	s.mu.Lock()
	s.haltedIn, s.haltedWhy = generation.Run(g.Generation), reason
	s.mu.Unlock()
	s.announceSoon()
}

// watchGroup looks after the run at hand: whether its eon is over, it halted, gets on, or goes on without this node.
func (s *supervisor) watchGroup() error {
	s.mu.Lock()
	g, over, haltedIn, haltedWhy := s.group, s.over, s.haltedIn, s.haltedWhy
	s.mu.Unlock()
	switch {
	case g == nil:
		return nil
	case over != nil && over.run == g.run:
		err := s.switchEon(g, over)
		if errors.Is(err, errUnwritten) {
			// The others are in the next eon already, and this node's signs of life in the last one would have them wait for it.
			s.stopEngine(0)
			s.setMode(api.ModeHalted, "the disk is full; free some space, the node comes back by itself")
			return nil
		}
		return err
	case haltedIn == g.run:
		s.stopEngine(0)
		s.setMode(api.ModeHalted, "%s; it goes on as soon as a majority of the %d nodes is there", haltedWhy, len(g.shard.Members))
	case s.leftBehind(g):
		s.stopEngine(0)
		s.setMode(api.ModeFollowing, "the group goes on without this node, which enters again as soon as it holds the chain")
	default:
		s.stepOut(g)
		s.watchProgress(g)
	}
	return nil
}

// leftBehind tells whether a member says that the shard went on without this node: in a later generation, or in this one after it was removed.
func (s *supervisor) leftBehind(g *group) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for server, h := range s.heard {
		if !h.orders() || !s.recent(server, h) {
			continue
		}
		later := h.run.Generation() > g.run.Generation()
		removed := h.run.Generation() == g.run.Generation() && h.run >= g.run && !h.includes(s.node.home.Self)
		if later || removed {
			return true
		}
	}
	return false
}

// watchProgress finds out whether the group gets on, and tells the synod and people.
func (s *supervisor) watchProgress(g *group) {
	status := s.driver.Status()
	if generation.Run(status.Group.Generation) != g.run {
		return
	}
	waiting := status.Stalled(time.Now())
	outside := status.OutsideMajority || !s.majorityHeard()
	stalled := waiting > s.stallAfter() || outside && waiting > outsideAfter
	s.synod.Stalled(stalled)
	s.mu.Lock()
	was := s.stalled
	s.stalled = stalled
	s.mu.Unlock()
	shard := len(g.shard.Members)
	switch {
	case stalled && outside:
		s.setMode(api.ModeHalted, "outside of the majority: fewer than %d of the %d nodes can be reached; it goes on by itself as soon as a majority is there", g.shard.Quorum(), shard)
	case stalled:
		s.setMode(api.ModeHalted, "no progress: round %d waits for nodes %v; a majority of the %d nodes will start anew", status.Engine.Round, status.Engine.Awaited, shard)
	case was:
		s.setMode(api.ModeOrdering, "")
	}
}

// stallAfter is how long a group may get nowhere before its members may be asked to start anew without it.
func (s *supervisor) stallAfter() time.Duration {
	return max(2*s.node.home.Config.Ordering.SuspectAfter, 2*time.Second)
}

// stepOut leaves the group when this node's disk holds it up: the others go on without it.
func (s *supervisor) stepOut(g *group) {
	reason := s.node.pipeline.Stalled()
	if reason == "" {
		s.fullAt = time.Time{}
		return
	}
	if s.fullAt.IsZero() {
		s.fullAt = time.Now()
	}
	if time.Since(s.fullAt) > stepOutAfter && len(g.members) > 2 {
		s.stopEngine(0)
		s.setMode(api.ModeHalted, "%s; free some space, the node comes back by itself", reason)
	}
}
