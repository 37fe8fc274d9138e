package generation

import (
	"slices"

	"github.com/ledgerd/ledgerd/order"
)

// Tick passes time: a node that does not work waits for its turn, the lowest first, and proposes. One whose engine stalls gives it up after a while.
func (s *Synod) Tick() {
	s.askedSince++
	if s.broken != nil || !s.report.Membership.Includes(s.config.Self) {
		return
	}
	if s.working != 0 {
		if s.stalled {
			s.waited++
			s.givingUp = s.givingUp || s.waited >= s.rank()+s.config.Patience
		}
		return
	}
	s.waited++
	switch s.phase {
	case phaseWaiting:
		// The lowest goes first; each other waits a little longer, so that attempts do not meet.
		turn := 1 + s.rank()
		if s.highest != (Ballot{}) && s.highest.Proposer != s.config.Self && !s.prompt {
			turn += s.config.Patience + 2*s.config.Grace // that attempt may take so long
		}
		if s.refused != 0 && !s.prompt {
			turn += 4 * s.config.Patience // somebody works: following is the way, asking is to notice when that ends
		}
		if s.waited >= turn {
			s.prepare()
		}
	case phasePreparing:
		if s.enough(false) && !s.enough(true) {
			s.starved++
		}
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

// rank is this node's place among the members.
func (s *Synod) rank() int {
	i, _ := slices.BinarySearch(s.report.Membership.Members, s.config.Self)
	return i
}

// reset gives up the own attempt; after its turn's wait the node tries again with a higher ballot.
func (s *Synod) reset() {
	s.phase = phaseWaiting
	s.waited = 0
	s.asked, s.promises, s.accepted, s.quorums = nil, nil, nil, nil
}

// prepare opens an attempt: phase 1a.
func (s *Synod) prepare() {
	s.enter(s.Next())
	s.reset()
	s.prompt = false
	s.phase = phasePreparing
	s.ballot = Ballot{Number: max(s.highest.Number, s.state.Promised.Number) + 1, Proposer: s.config.Self}
	s.ask(s.report.Membership, s.report.Shard)
}

// ask sends the own Prepare to the members that were not asked yet.
func (s *Synod) ask(memberships ...Membership) {
	var to []order.ServerID
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
		s.broadcast(to, Message{Kind: KindPrepare, Generation: s.state.Instance, Ballot: s.ballot, Known: s.state.Decided, Regroup: s.inOrder()})
	}
}

// inOrder tells whether this node saw the generation before the next one end in order.
func (s *Synod) inOrder() bool { return s.ended != 0 && s.ended+1 == s.state.Instance }

func (s *Synod) onPromise(from order.ServerID, m Message) {
	if s.phase != phasePreparing || m.Generation != s.state.Instance || m.Ballot != s.ballot || m.Report.Head.Generation >= m.Generation {
		return
	}
	at, found := slices.BinarySearchFunc(s.promises, from, func(p pending, server order.ServerID) int { return int(p.from) - int(server) })
	if found {
		return // what was promised first stays: nothing changes at who promised
	}
	s.promises = slices.Insert(s.promises, at, pending{from, m})
	s.ask(m.Report.Membership, m.Report.Shard)
	s.tryAccept()
}

// tryAccept proposes (phase 2a) once everyone promised, or enough did and the grace for the others has passed.
func (s *Synod) tryAccept() {
	if s.phase != phasePreparing || !s.mayPropose() {
		return
	}
	s.quorums = s.memberships()
	s.value = s.propose()
	s.phase = phaseAccepting
	s.waited = 0
	value := s.value
	s.broadcast(s.asked, Message{Kind: KindAccept, Generation: s.state.Instance, Ballot: s.ballot, Value: &value, Holders: s.holdersOf(value)})
}

// reports lists what the promises say.
func (s *Synod) reports() []Promised {
	var reports []Promised
	for _, p := range s.promises {
		reports = append(reports, Promised{p.from, p.message.Report})
	}
	return reports
}

// memberships lists those of which a majority is needed each: the newest that is known, and all back to the one that counts in the newest run. They are one
// or two, since a change waits for the run after the change before. A shard that has changed since a run cannot be judged by the new members alone, nor by the old ones: of these a
// majority may work in a newer run, of which the new members know.
func (s *Synod) memberships() []Membership {
	run, shard := newestRun(s.reports())
	var all []Membership
	add := func(m Membership) {
		known := slices.ContainsFunc(all, func(other Membership) bool { return other.Number == m.Number })
		if !known && len(m.Members) > 0 && m.Number >= shard.Number {
			all = append(all, m)
		}
	}
	if run != 0 {
		add(shard)
	}
	for _, p := range s.promises {
		add(p.message.Report.Membership)
	}
	slices.SortFunc(all, func(a, b Membership) int {
		switch {
		case a.Number < b.Number:
			return -1
		case a.Number > b.Number:
			return 1
		}
		return 0
	})
	if run == 0 && len(all) > 1 {
		all = all[len(all)-1:] // nobody ever took part in anything
	}
	return all
}

// quorum is how many of a membership have to promise, or accept.
func (s *Synod) quorum(m Membership) int {
	if s.config.Fault == FaultMinorityQuorum {
		return max(1, m.Quorum()-1)
	}
	return m.Quorum()
}

// enough tells whether a majority of each membership promised; remembering leaves out those that forgot the newest run. A node that lost its disk counts in neither case, where the disk that it
// had is known.
func (s *Synod) enough(remembering bool) bool {
	run, _ := newestRun(s.reports())
	known := s.state.Decided
	for _, p := range s.promises {
		if k := p.message.Known; k != nil && (known == nil || known.Generation < k.Generation) {
			known = k
		}
	}
	memberships := s.memberships()
	for _, membership := range memberships {
		count := 0
		for _, p := range s.promises {
			lost := known != nil && known.lost(p.from, p.message.Disk)
			forgot := remembering && p.message.Report.Forgot && p.message.Report.Run == run
			if membership.Includes(p.from) && !lost && !forgot {
				count++
			}
		}
		if count < s.quorum(membership) {
			return false
		}
	}
	return len(memberships) > 0
}

// mayPropose tells whether the promises suffice, and nobody else is worth waiting for.
func (s *Synod) mayPropose() bool {
	if !s.enough(false) {
		return false
	}
	all, missing := true, false
	for _, server := range s.newest().Members {
		promised := slices.ContainsFunc(s.promises, func(p pending) bool { return p.from == server })
		all = all && promised
		missing = missing || !promised && (s.linked[server] || server == s.config.Self)
	}
	if !s.enough(true) && !all && s.starved < s.config.Forgive {
		return false // somebody who remembers may still come
	}
	if all || s.inOrder() && !missing {
		return true
	}
	grace := s.config.Grace
	if s.state.Decided == nil {
		grace *= 2 // a chain's first start: give everyone the time to come up
	}
	return s.waited >= grace
}

// newest is the newest membership that any promise shows.
func (s *Synod) newest() Membership {
	memberships := s.memberships()
	if len(memberships) == 0 {
		return Membership{}
	}
	return memberships[len(memberships)-1]
}

// propose is the heart of Paxos: a value that may have been decided is proposed again; where there is none, what choose says, with all who promised as members.
func (s *Synod) propose() Decision {
	var bound *Message
	members := s.newest()
	fresh := Decision{Generation: s.state.Instance}
	for i := range s.promises {
		p := &s.promises[i].message
		if p.Value != nil && (bound == nil || bound.Accepted.Less(p.Accepted)) {
			bound = p
		}
		if members.Includes(s.promises[i].from) {
			fresh.Members = append(fresh.Members, s.promises[i].from)
			fresh.Disks = append(fresh.Disks, p.Disk)
		}
	}
	if bound != nil {
		return *bound.Value
	}
	fresh.Base, fresh.Tail = choose(s.reports(), s.state.Decided, s.config.Fault)
	return fresh
}

// holdersOf lists who holds the base or the tail of a value, as far as the promises tell.
func (s *Synod) holdersOf(d Decision) []order.ServerID {
	var holders []order.ServerID
	for _, p := range s.promises {
		r := p.message.Report
		voted := slices.ContainsFunc(r.Votes, func(v Vote) bool { return slices.ContainsFunc(d.Tail, v.Equal) })
		based := r.Head.Generation == d.Base.Generation && r.Head.Height >= d.Base.Height
		accepted := p.message.Value != nil && p.message.Value.Equal(d)
		again := s.state.Decided != nil && s.state.Decided.Base == d.Base && len(d.Tail) > 0 && slices.Contains(s.holders, p.from)
		if voted || accepted || again || based && len(d.Tail) == 0 {
			holders = append(holders, p.from)
		}
	}
	return holders
}

func (s *Synod) onAccepted(from order.ServerID, m Message) {
	if s.phase != phaseAccepting || m.Generation != s.state.Instance || m.Ballot != s.ballot {
		return
	}
	at, found := slices.BinarySearch(s.accepted, from)
	if !found {
		s.accepted = slices.Insert(s.accepted, at, from)
	}
	for _, membership := range s.quorums {
		count := 0
		for _, server := range s.accepted {
			if membership.Includes(server) {
				count++
			}
		}
		if count < s.quorum(membership) {
			return
		}
	}
	value, asked := s.value, s.asked
	s.broadcast(asked, Message{Kind: KindDecided, Generation: value.Generation, Value: &value, Holders: slices.Clone(s.accepted)})
	s.learn(value, s.holders) // who is no member any more, and was not asked, learns it, too
}

func (s *Synod) onRefuse(m Message) {
	if m.Working != 0 && m.Working >= s.Next()-1 {
		s.refused = max(s.refused, m.Working)
	}
	if m.Generation == s.state.Instance {
		s.note(m.Accepted)
		if s.phase != phaseWaiting && m.Ballot == s.ballot && s.ballot.Less(m.Accepted) {
			s.reset()
		}
	}
}
