package generation

import (
	"cmp"
	"slices"

	"github.com/ledgerd/ledgerd/order"
)

// Tick passes one tick. A node that does not work waits for its turn, in the order of the members,
// and proposes. A node whose engine stalls gives it up after a while.
func (s *Synod) Tick() {
	s.askedSince++
	if s.broken != nil || !s.report.Membership.Includes(s.config.Self) {
		return
	}
	if s.working == 0 && s.Learner() && s.config.Fault != FaultLostDiskIgnored {
		return
	}
	if s.working != 0 {
		if s.stalled {
			s.waited++
			patience := s.config.Patience
			if s.stuck != 0 {
				patience = 1
			}
			s.givingUp = s.givingUp || s.waited >= s.rank()+patience
		}
		return
	}
	s.waited++
	switch s.phase {
	case phaseWaiting:
		// The lowest member goes first. Each other member waits a little longer, so that attempts
		// do not collide.
		turn := 1 + s.rank()
		if s.highest != (Ballot{}) && s.highest.Proposer != s.config.Self && !s.prompt {
			// Another proposer's attempt may take this long.
			turn += s.config.Patience + 2*s.config.Grace
		}
		if s.refused != 0 && !s.prompt {
			// Another node works, so this node should follow it. It asks only to notice the end of
			// that.
			turn += 4 * s.config.Patience
		}
		if s.waited >= turn {
			s.prepare()
		}
	case phasePreparing:
		s.waitsFor = s.missing()
		s.tryAccept()
		if s.phase == phasePreparing && s.waited > s.config.Patience+2*s.config.Grace {
			s.reset()
		}
	case phaseAccepting:
		if s.waited > 2*s.config.Patience {
			s.reset()
		}
	}
}

// rank returns this node's place among the members.
func (s *Synod) rank() int {
	i, _ := slices.BinarySearch(s.report.Membership.Members, s.config.Self)
	return i
}

// reset gives up the own attempt. After its turn's wait the node tries again with a higher ballot.
func (s *Synod) reset() {
	s.phase = phaseWaiting
	s.waited = 0
	s.asked, s.promises, s.accepted, s.surveyed = nil, nil, nil, survey{}
}

// prepare opens an attempt: phase 1a.
func (s *Synod) prepare() {
	s.enter(s.Next())
	s.reset()
	s.prompt = false
	s.phase = phasePreparing
	s.ballot = Ballot{Number: max(s.highest.Number, s.state.Promised.Number) + 1,
		Proposer: s.config.Self,
		Disk:     s.state.Disk}
	s.ask(s.report)
}

// ask sends the own Prepare to the members that were not asked yet, of every membership that a
// survey may need: for its majority, or for the votes that its members remember. A server that left
// is among them while its leave is not known to be durable. If it was not asked and the others
// remembered too few votes, the proposer would wait for its promise for ever.
func (s *Synod) ask(report Report) {
	var to []order.ServerID
	memberships := []Membership{report.Membership, report.Shard}
	for _, former := range report.Former {
		memberships = append(memberships, former.Membership)
	}
	for _, m := range memberships {
		for _, server := range m.Members {
			if _, found := slices.BinarySearch(s.asked, server); !found {
				i, _ := slices.BinarySearch(s.asked, server)
				s.asked = slices.Insert(s.asked, i, server)
				to = append(to, server)
			}
		}
	}
	if len(to) > 0 {
		s.broadcast(to, Message{Kind: KindPrepare, Generation: s.state.Instance, Ballot: s.ballot,
			Known: s.state.Decided, Regroup: s.inOrder()})
	}
}

// inOrder reports whether this node saw the generation before the next one end in order.
func (s *Synod) inOrder() bool { return s.ended != 0 && s.ended+1 == s.state.Instance }

// wasStuck reports whether the generation before the next one was stuck here.
func (s *Synod) wasStuck() bool { return s.stuck != 0 && s.stuck+1 == s.state.Instance }

func (s *Synod) onPromise(from order.ServerID, m Message) {
	if s.phase != phasePreparing || m.Generation != s.state.Instance || m.Ballot != s.ballot ||
		m.Report.Head.Generation >= m.Generation {
		return
	}
	at, found := slices.BinarySearchFunc(s.promises, from,
		func(p pending, server order.ServerID) int { return cmp.Compare(p.from, server) })
	if found {
		return // the first promise stands: a server that promised does not change
	}
	s.promises = slices.Insert(s.promises, at, pending{from: from, message: m})
	s.ask(m.Report)
	s.tryAccept()
}

// tryAccept proposes (phase 2a) once all members promised, or enough did and the grace for the
// others has passed.
func (s *Synod) tryAccept() {
	if s.phase != phasePreparing {
		return
	}
	v := s.survey()
	if !s.mayPropose(v) {
		return
	}
	s.surveyed = v
	s.value = s.propose(v)
	s.phase = phaseAccepting
	s.waited = 0
	value := s.value
	s.broadcast(s.asked, Message{Kind: KindAccept, Generation: s.state.Instance, Ballot: s.ballot,
		Value: &value, Holders: s.holdersOf(value)})
}

// survey examines the promises of the own attempt.
func (s *Synod) survey() survey {
	var reports []Promised
	known := s.state.Decided
	for _, p := range s.promises {
		reports = append(reports, Promised{p.from, p.message.Report})
		if k := p.message.Known; k != nil && (known == nil || known.Generation < k.Generation) {
			known = k
		}
	}
	return furthestSurvey(reports, known, s.config.Fault)
}

// mayPropose reports whether the promises suffice, and no other server is worth waiting for.
//
// Promises that suffice may come from too many servers that restarted and so have forgotten their
// votes. Then only servers that did not restart know what those votes made possible. The proposer
// therefore waits while such a server may be among the reachable ones. It does not wait for others:
// a server that is gone for good would keep the shard from ever going on. It does not wait for
// memory either if a value is bound already, since another proposer chose that value. It still
// waits for disks that perhaps had more. Such a disk may have had a change of the membership, and
// after the change another majority may accept another value.
func (s *Synod) mayPropose(v survey) bool {
	if !v.enough(false) {
		return false
	}
	bound := s.bound(&v) != nil
	if v.perhaps() && !(bound && s.config.Fault == FaultBoundIgnoresPerhaps) {
		return false
	}
	if !bound && (s.endsBelowDurable(v) || !v.enough(true) && s.mayHearFrom(v.remembering)) {
		return false
	}
	all := !slices.ContainsFunc(v.membership().Members, func(server order.ServerID) bool {
		return !s.promised(server)
	})
	if all || (s.inOrder() || s.wasStuck()) && !s.mayHearFrom([]Membership{v.membership()}) {
		return true
	}
	grace := s.config.Grace
	if s.state.Decided == nil {
		grace *= 2 // a chain's first start: give all members time to start
	}
	return s.waited >= grace
}

// endsBelowDurable reports whether the value to be proposed leaves out a block that is known to be
// durable. With enough promises it does not, unless more disks forgot than the shard tolerates.
func (s *Synod) endsBelowDurable(v survey) bool {
	base, tail := v.choose(s.state.Decided)
	return base.Height+uint64(len(tail)) < v.durable
}

func (s *Synod) promised(server order.ServerID) bool {
	return slices.ContainsFunc(s.promises, func(p pending) bool { return p.from == server })
}

// mayHearFrom reports whether a member that has not promised can be reached.
func (s *Synod) mayHearFrom(memberships []Membership) bool {
	for _, m := range memberships {
		for _, server := range m.Members {
			if !s.promised(server) && (s.linked[server] || server == s.config.Self) {
				return true
			}
		}
	}
	return false
}

// bound returns the promise with the value that may have been decided: the value accepted in the
// highest ballot. It returns nil if no value was accepted. What learners accepted binds no
// proposer: the quorum that chose a value and the present one have a disk in common that counts.
// Without this rule, a copy of an old disk might bind the shard to a base that no disk holds any
// more.
func (s *Synod) bound(v *survey) *Message {
	var bound *Message
	for i := range s.promises {
		p := &s.promises[i].message
		learner := v.learner(Promised{s.promises[i].from, p.Report})
		if p.Value == nil || learner {
			continue
		}
		lowest := s.config.Fault == FaultLowestAccepted
		if bound == nil || !lowest && bound.Accepted.Less(p.Accepted) || lowest &&
			p.Accepted.Less(bound.Accepted) {
			bound = p
		}
	}
	if bound != nil && s.neverChosen(v, bound.Value) {
		return nil
	}
	return bound
}

// neverChosen reports whether an accepted value can be left out although Paxos would propose it
// again. That is so if the value was not chosen and no server that promised holds its base, which a
// damaged disk may have had.
//
// Suppose a proposer had the value chosen, or still may. It needs a majority of some membership
// that this proposer needs as well (see the package comment; this proposer goes on only if no disk
// perhaps had more, so the argument holds with damaged disks too). The members of that majority
// accepted the value. Anything they accepted later is the same value, and their promises report
// what they accepted last. Servers that promised without having accepted it can no longer accept it
// in a lower ballot. So there is no such majority if, in each membership, more members promised
// without it than a majority leaves out. A member that did not promise may have accepted it, and so
// may a member with a disk that does not count now.
func (s *Synod) neverChosen(v *survey, value *Decision) bool {
	for _, p := range s.promises {
		head := p.message.Report.Head
		if head.Hash == value.Base.Hash && head.Height == value.Base.Height ||
			head.Generation == value.Base.Generation && head.Height >= value.Base.Height {
			return false
		}
	}
	spared := truth(s.config.Fault == FaultChosenLeftOut)
	for _, m := range v.memberships {
		without := spared
		for _, p := range s.promises {
			accepted := p.message.Value != nil && p.message.Value.Equal(*value)
			if !accepted && v.counts(m, Promised{p.from, p.message.Report}) {
				without++
			}
		}
		if len(m.Members)-without >= m.Quorum() {
			return false
		}
	}
	return len(v.memberships) > 0
}

// propose is the core of Paxos: it proposes again a value that may have been decided. If there is
// none, it proposes the point that choose determines, with all members that promised from disks
// that count.
func (s *Synod) propose(v survey) Decision {
	if bound := s.bound(&v); bound != nil {
		return *bound.Value
	}
	fresh := Decision{Generation: s.state.Instance}
	for _, p := range s.promises {
		report := p.message.Report
		if v.counts(v.membership(), Promised{p.from, report}) {
			fresh.Members = append(fresh.Members, p.from)
			fresh.Disks = append(fresh.Disks, report.Disk)
		}
	}
	fresh.Base, fresh.Tail = v.choose(s.state.Decided)
	fresh.Bound = v.bound(s.state.Decided)
	return fresh
}

// holdersOf lists the servers that hold the base or the tail of a value, according to the promises.
func (s *Synod) holdersOf(d Decision) []order.ServerID {
	var holders []order.ServerID
	for _, p := range s.promises {
		r := p.message.Report
		voted := slices.ContainsFunc(r.Votes, func(v Vote) bool {
			return slices.ContainsFunc(d.Tail, v.Equal)
		})
		isInTail := func(r TailRound) bool { return slices.ContainsFunc(d.Tail, r.Equal) }
		recorded := slices.ContainsFunc(r.Recorded, isInTail)
		vouched := slices.ContainsFunc(r.Vouched, isInTail)
		based := r.Head.Generation == d.Base.Generation && r.Head.Height >= d.Base.Height
		accepted := p.message.Value != nil && p.message.Value.Equal(d)
		again := s.state.Decided != nil && s.state.Decided.Base == d.Base && len(d.Tail) > 0 &&
			slices.Contains(s.holders, p.from)
		if voted || recorded || vouched || accepted || again || based && len(d.Tail) == 0 {
			holders = append(holders, p.from)
		}
	}
	return holders
}

func (s *Synod) onAccepted(from order.ServerID, m Message) {
	if s.phase != phaseAccepting || m.Generation != s.state.Instance || m.Ballot != s.ballot {
		return
	}
	if a := (acceptance{from, m.Disk, m.Original}); !slices.Contains(s.accepted, a) {
		s.accepted = append(s.accepted, a)
	}
	for _, membership := range s.surveyed.memberships {
		if s.countAccepted(membership) < quorum(membership, s.config.Fault) {
			return
		}
	}
	value, asked := s.value, s.asked
	var holders []order.ServerID
	for _, a := range s.accepted {
		if at, found := slices.BinarySearch(holders, a.server); !found {
			holders = slices.Insert(holders, at, a.server)
		}
	}
	s.broadcast(asked, Message{Kind: KindDecided, Generation: value.Generation, Value: &value,
		Holders: holders})
	// A proposer that is no longer a member, and was not asked, learns it too.
	s.hear(s.config.Self, &value, s.holders)
	s.counted = true
}

// countAccepted returns the number of members that accepted with disks that count.
func (s *Synod) countAccepted(m Membership) int {
	var servers []order.ServerID
	for _, a := range s.accepted {
		report := Report{Disk: a.disk, Original: a.original}
		if s.surveyed.counts(m, Promised{a.server, report}) && !slices.Contains(servers, a.server) {
			servers = append(servers, a.server)
		}
	}
	return len(servers)
}

func (s *Synod) onRefuse(m Message) {
	if m.Working != 0 && m.Working >= s.Next()-1 {
		s.refused = max(s.refused, m.Working)
	}
	if m.Generation == s.state.Instance && !s.outbids(m.Accepted) {
		s.note(m.Accepted)
		if s.phase != phaseWaiting && m.Ballot == s.ballot && s.ballot.Less(m.Accepted) {
			s.reset()
		}
	}
}
