package sim

import (
	"fmt"
	"slices"

	"github.com/ledgerd/ledgerd/allconcur/generation"
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/shard"
)

// The reason that a server gives is compared with the simulator's knowledge. A server learns of
// changes only after a while, so a claim is a breach once it has been false continuously for longer
// than that takes. Each claim has its own bound, in ticks of the server.

// claim is one kind of claim that a reason makes.
type claim uint8

const (
	// claimOwn is about the server's own disk, chain and engine: full, a learner, removed, behind a
	// base, a round that waits. It is reported with the next tick, and a disk is tried again every
	// Announce ticks.
	claimOwn claim = iota
	// claimMoment says that another reason will follow soon.
	claimMoment
	// claimNames is about the named members: unreachable, silent, forgetful, restarted.
	claimNames
	// claimHelp says that the shard goes on if the named members come back, and that no group
	// orders.
	claimHelp
	// claimEnter says that the server enters the group as soon as it holds the chain.
	claimEnter
	// claimRecover says that too few disks remember, so an operator must stop all nodes. It must
	// never be false, because an operator may act on it at once.
	claimRecover
	claimsEnd
)

// within returns for how many ticks a claim may be false.
func (c claim) within(t shard.Timing) int {
	// A member's announcement counts for Hearsay, and is repeated every Announce. A link that is
	// cut or mended is noticed after linkTicksMax.
	news := t.Hearsay + 2*t.Announce + linkTicksMax
	switch c {
	case claimOwn:
		return 2*t.Announce + 2
	case claimMoment, claimNames, claimHelp:
		return news
	case claimEnter:
		// A wish takes up to Enter, a mark up to Mark, and a member with many troubles waits for
		// Steady for each.
		return news + t.Enter + t.Mark + 4*t.Steady
	}
	return 0
}

// within returns for how many ticks a claim may be false now. Servers learn late of a disk that the
// operator inserted.
func (s *simulation) within(c claim) int {
	t := s.life.setting.timing
	if at := s.life.insertedAt; c == claimRecover && at > 0 {
		if news := claimHelp.within(t); s.now-at <= Instant(news)*tick {
			return news
		}
	}
	return c.within(t)
}

// linkTicksMax bounds life.linkTicks.
const linkTicksMax = 12

// falsehood is a false claim, the truth, and since when it is false.
type falsehood struct {
	claim claim
	truth string
	since Instant
}

// claims are the false claims of a process, and when they were last judged.
type claims struct {
	false  []falsehood
	judged Instant
}

// judgeClaims judges a server's claims, at each of its ticks. A server that paused starts anew,
// because it could not learn anything.
func (s *simulation) judgeClaims(p *process) {
	if p.member == nil || !p.up() || s.over() {
		return
	}
	before := p.claims.false
	if s.now-p.claims.judged > 2*tick {
		before = nil
	}
	v := p.view()
	p.claims = claims{s.falsehoods(p, &v.Reason), s.now}
	for i := range p.claims.false {
		f := &p.claims.false[i]
		f.since = s.now
		for _, b := range before {
			if b.claim == f.claim && b.truth == f.truth {
				f.since = b.since
			}
		}
		if within := s.within(f.claim); s.now-f.since >= Instant(within)*tick {
			s.broke(Reason, fmt.Sprintf("server %d says %v (%s)", p.self, v.Mode, v.Why),
				fmt.Sprintf("%s, for %d ticks", f.truth, within), fmt.Sprintf("%+v", v.Reason),
				p.describe())
			return
		}
	}
}

// falsehoods lists the false claims of a reason.
func (s *simulation) falsehoods(p *process, r *shard.Reason) []falsehood {
	wrong := s.wrongOfOwn(p, r)
	says := func(c claim, holds bool, format string, arguments ...any) {
		if !holds {
			wrong = append(wrong, falsehood{claim: c, truth: fmt.Sprintf(format, arguments...)})
		}
	}
	switch r.Kind {
	case shard.NoReason:
		says(claimMoment, p.works(), "it does not order")
		says(claimMoment, !p.disk.full || len(p.executing.queue) == 0,
			"its disk is full, and holds it up")
	case shard.Looking, shard.Between:
		says(claimMoment, false, "it does not say what it waits for")
	case shard.Forming:
		wrong = append(wrong, s.wrongNames(p, r)...)
		wrong = append(wrong, s.wrongHelp(p, r)...)
		if r.Recover {
			maps := []*membership{s.effectiveFor(p)}
			// old disks may be in the place of those that a later membership needs
			if s.life.insertedAt != 0 {
				maps = append(maps, s.maps(p.self, s.inserted())...)
			}
			m := slices.IndexFunc(maps, func(m *membership) bool {
				return s.count(m.members, func(id order.ServerID) bool {
					return s.disksCount(m, id)
				}) < m.quorum()
			})
			says(claimRecover, m >= 0, "a majority of the disks of %v remembers", maps[0].members)
		}
	case shard.Entering, shard.Benched, shard.Learning:
		// A server that hears others and is not heard cannot know that it is not.
		ordered := s.ordered(p, r.Generation, func(q *process) bool {
			return s.answers(p, q.self) || q.knows(p.self) && s.hears(p, q.self)
		})
		says(claimHelp, ordered, "no server that it can reach orders")
		says(claimEnter, !ordered || r.Kind != shard.Entering ||
			!s.holdsChain(p), "it holds the chain")
	case shard.Outside, shard.EngineStopped:
		members := p.group.Shard.Members
		if r.Kind == shard.Outside {
			members = p.chain.head().members.members
		}
		reached := s.count(members, func(id order.ServerID) bool { return s.answers(p, id) })
		says(claimNames, reached < len(members)/2+1, "a majority of %v can be reached", members)
	case shard.NoProgress:
		for _, id := range r.Servers {
			says(claimNames, p.group.Includes(id), "server %d is not in the run", id)
		}
	}
	return wrong
}

// effectiveFor returns the newest membership that a server can know to be in force: one that a disk
// shows to be durable, or that the server knows to be durable although its disk does not show it
// yet. Durable blocks stay, and every generation goes on from them. The majority of a generation is
// therefore one of this membership, or of a later one, even if the server forgets that it knew.
func (s *simulation) effectiveFor(p *process) *membership {
	shown, known := s.effective(p.self, s.inserted(), false),
		p.chain.head().ancestor(p.chain.durable).members
	if known.number > shown.number {
		return known
	}
	return shown
}

// wrongOfOwn lists the false claims of a server about its own disk, chain and engine.
func (s *simulation) wrongOfOwn(p *process, r *shard.Reason) (wrong []falsehood) {
	head := p.chain.head()
	says := func(holds bool, truth string) {
		if !holds {
			wrong = append(wrong, falsehood{claim: claimOwn, truth: truth})
		}
	}
	switch r.Kind {
	case shard.NoSpace:
		says(p.disk.full, "its disk is not full")
	case shard.Learning:
		counts := head.members.counts(p.self, p.disk.id, p.disk.original)
		says(head.members.has(p.self) && !counts, "its disk counts")
	case shard.Removed:
		says(was(head, p.self), "it is not removed")
	case shard.Joining:
		says(!head.members.has(p.self), "its chain says that it is a member")
	case shard.Fetching:
		d := p.disk.state.Decided
		says(d != nil && d.Base.Height == r.Height, "nobody decided to go on from there")
		says(head.height < r.Height, "it holds the block")
	case shard.FetchingRounds:
		d := p.disk.state.Decided
		says(d != nil && d.Base.Height == r.Height, "nobody decided to go on from there")
		says(head.height >= r.Height, "it does not hold the block")
		says(d != nil && slices.ContainsFunc(d.Tail, func(round generation.TailRound) bool {
			return !slices.Contains(p.disk.held, round.Content)
		}), "it holds the rounds")
	case shard.SettingAside:
		says(p.setsAside, "it sets nothing aside")
	case shard.NoBlock:
		says(false, "each server that has a chain has all of it")
	case shard.Benched:
		says(slices.Contains(p.marked.benched, p.self), "no round says so")
	case shard.NoProgress:
		status := p.engine.Status()
		says(status.Round == r.Round, "its round is another")
		says(slices.EqualFunc(status.Awaited, r.Servers, func(at, server order.ServerID) bool {
			return p.group.Members[at] == server
		}), "its round waits for others")
	}
	switch r.Kind {
	case shard.Looking, shard.Between, shard.Fetching, shard.FetchingRounds, shard.SettingAside,
		shard.Learning, shard.Entering, shard.Benched:
		says(!p.disk.full, "its disk is full, and it does not say so")
	}
	return wrong
}

// wrongNames lists the members that do not match the claims of a server that forms a generation.
func (s *simulation) wrongNames(p *process, r *shard.Reason) (wrong []falsehood) {
	m := p.chain.head().members
	w := &r.Waiting
	newest := s.newestRun()
	for _, list := range []struct {
		what    string
		servers []order.ServerID
		is      func(id order.ServerID) bool
	}{
		{"unreachable", w.Unreachable, func(id order.ServerID) bool { return !s.answers(p, id) }},
		// A link that came up for a moment lets a server hear another one between two looks.
		{"reachable", w.Silent, func(id order.ServerID) bool {
			return s.hears(p, id) || s.heardLately(p, id)
		}},
		{"full", r.Full, func(id order.ServerID) bool { return s.servers[id].disk.full }},
		{"forgetful", w.Forgot, func(id order.ServerID) bool {
			return !s.disksCount(m, id) || !s.disksCount(s.life.tip().members, id) ||
				!s.hears(p, id) ||
				s.takesItsWord(p, id)
		}},
		{"restarted", w.Restarted, func(id order.ServerID) bool {
			// Here and above, the server cannot know what happened to a member that it does not
			// hear.
			return !s.hears(p, id) || !slices.Contains(s.servers[id].process.runs, newest)
		}},
		{"one that had perhaps more", w.Perhaps, func(id order.ServerID) bool {
			return !s.hears(p, id) || s.ambiguous(id, s.servers[id].disk)
		}},
	} {
		for _, id := range list.servers {
			if !list.is(id) {
				truth := fmt.Sprintf("server %d is not %s", id, list.what)
				wrong = append(wrong, falsehood{claim: claimNames, truth: truth})
			}
		}
	}
	if w.Durable == 0 {
		return wrong
	}
	truth := fmt.Sprintf("block %d is not durable", w.Durable)
	if w.Durable < uint64(len(s.life.durable)) {
		b := s.life.durable[w.Durable]
		holders := s.count(m.members, func(id order.ServerID) bool {
			return s.disksCount(m, id) && s.servers[id].disk.holds(b)
		})
		if holders < m.quorum() {
			return wrong
		}
		truth = fmt.Sprintf("a majority of %v holds block %d", m.members, w.Durable)
	}
	return append(wrong, falsehood{claim: claimNames, truth: truth})
}

// takesItsWord reports whether a server can only repeat the claim of another one that its disk does
// not count. The chain of the other one names another disk for it. The chain of the server itself
// names none, so it cannot know better. Both are wrong only if an old disk came back and was
// admitted again by a block that neither of them has: only then does the chain name a disk a second
// time.
func (s *simulation) takesItsWord(p *process, id order.ServerID) bool {
	own, m := s.servers[id].process.chain.head().members, p.chain.head().members
	at, found := slices.BinarySearch(m.members, id)
	return s.life.insertedAt != 0 && found && m.disks[at] == noDisk && own.has(id) &&
		!s.disksCount(own, id)
}

// wrongHelp lists the ways in which a server's claim to wait for the named members is false: a
// group orders, or more members are needed. Only a server that knows the newest membership can know
// the latter.
func (s *simulation) wrongHelp(p *process, r *shard.Reason) []falsehood {
	if s.ordered(p, s.newestRun().Generation(), func(q *process) bool {
		return s.answers(p, q.self)
	}) {
		return []falsehood{{claim: claimHelp, truth: "a group that it can reach orders"}}
	}
	m, w := p.chain.head().members, &r.Waiting
	if m != s.life.tip().members || r.Recover || w.Durable > 0 || len(w.Perhaps) > 0 {
		return nil
	}
	if w.Missing == 0 && !w.Memory {
		there := s.count(m.members, func(id order.ServerID) bool {
			return s.disksCount(m, id) && s.answers(p, id)
		})
		if there < m.quorum() {
			return []falsehood{{claim: claimHelp, truth: "no majority is there that remembers"}}
		}
	}
	var unnamed []order.ServerID // members that remember and are not there
	there := s.count(m.members, func(id order.ServerID) bool {
		named := slices.Contains(w.Unreachable, id) || slices.Contains(w.Silent, id) ||
			slices.Contains(r.Full, id)
		// A link may lead one way: the server considers a member that it heard recently as there.
		is := named || s.heardLately(p, id) || s.answers(p, id)
		if s.disksCount(m, id) && !is {
			unnamed = append(unnamed, id)
		}
		return s.disksCount(m, id) && is
	})
	remember := s.count(m.members, func(id order.ServerID) bool { return s.disksCount(m, id) })
	if there >= m.quorum() || remember < m.quorum() {
		return nil // otherwise the operator has disks on the shelf that are needed
	}
	truth := fmt.Sprintf("with those that it names no majority remembers, and it does not name %v",
		unnamed)
	return []falsehood{{claim: claimHelp, truth: truth}}
}

// ordered reports whether another process orders in a generation or a later one. Only those count
// that the server p is in touch with.
func (s *simulation) ordered(p *process, since generation.Generation,
	touch func(q *process) bool) bool {
	return slices.ContainsFunc(s.servers, func(v server) bool {
		q := v.process
		return q != p && q != nil && q.works() && q.view().Group != nil && !q.view().Stalled &&
			q.group.Run.Generation() >= since && touch(q) && !alone(p, q)
	})
}

// alone reports whether the disk of q is full and p left a group of these two. A server without
// space begins no round. It therefore does not notice that it waits for the server that left, and
// never reports that it is stalled. One of two is no majority, so it cannot order.
func alone(p, q *process) bool {
	left := q.engine.Status().Members
	return q.disk.full && !p.works() && len(left) <= 2 &&
		slices.ContainsFunc(left, func(at order.ServerID) bool {
			return q.group.Members[at] == p.self
		})
}

// holdsChain reports whether a server holds the chain of the newest run, and can reach a member of
// it that would admit it.
func (s *simulation) holdsChain(p *process) bool {
	newest := s.newestRun()
	return slices.ContainsFunc(s.servers, func(v server) bool {
		q := v.process
		return q != p && s.orders(q) && q.group.Run == newest && s.answers(p, q.self) &&
			q.chain.head() == p.chain.head()
	})
}

// orders reports whether a process takes part in a group that makes progress, as far as it knows.
func (s *simulation) orders(q *process) bool {
	return q != nil && q.works() && q.view().Mode == shard.Ordering
}

// answers reports whether a server gets an answer from another.
func (s *simulation) answers(p *process, id order.ServerID) bool {
	return id == p.self || s.reaches(p, id) && s.servers[id].pauses == 0
}

// hears reports whether messages of another server reach a process.
func (s *simulation) hears(p *process, id order.ServerID) bool {
	v := &s.servers[id]
	return v.process != nil && v.process.up() && v.pauses == 0 &&
		s.network.link(id, p.self).cuts == 0
}

// heardLately reports whether a process heard another server so recently that it considers it as
// there.
func (s *simulation) heardLately(p *process, id order.ServerID) bool {
	hearsay := Instant(s.life.setting.timing.Hearsay) * tick
	return p.heardAt[id] > 0 && s.now-p.heardAt[id] < hearsay
}

// disksCount reports whether the disk of a server counts under a membership, even if the server is
// unreachable.
func (s *simulation) disksCount(m *membership, id order.ServerID) bool {
	v := &s.servers[id]
	return m.counts(id, v.disk.id, v.disk.original)
}

// count returns how many of the servers satisfy holds.
func (s *simulation) count(servers []order.ServerID, holds func(id order.ServerID) bool) int {
	count := 0
	for _, id := range servers {
		if holds(id) {
			count++
		}
	}
	return count
}
