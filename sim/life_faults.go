package sim

import (
	"github.com/ledgerd/ledgerd/order"
)

// disturb begins or ends a planned disturbance.
func (s *simulation) disturb(e event) {
	d := &s.life.disturbances[e.number]
	begins := e.kind == beginning
	s.trace.note(s.now, uint64(e.kind), uint64(e.number))
	if begins {
		s.trace.say(s.now, "begins: %s", d.text)
	} else {
		s.life.pending--
		s.trace.say(s.now, "ends: %s", d.text)
	}
	switch d.kind {
	case FaultSuspect:
		for _, link := range d.links {
			if begins {
				s.life.slander[link]++
			} else {
				s.life.slander[link]--
			}
			s.reviewSoon(link[1], link[0])
		}
	case FaultPartition:
		for _, link := range d.links {
			s.cut(link[0], link[1], begins)
		}
	case FaultPause:
		s.pause(d.server, begins)
	case FaultJoin:
		if begins {
			s.want(change{kind: payloadJoin, server: d.server})
			return
		}
		s.bear(d.server)
		for number := range s.adversary.IntN(3) {
			s.queue.push(event{at: s.now + between(0, 50*millisecond)(s.adversary), kind: submission, server: d.server,
				frame: payload(s.adversary, int(d.server), number, payloadMin)})
		}
	case FaultLeave:
		if begins {
			s.want(change{kind: payloadLeave, server: d.server})
		}
	}
}

// cut cuts a link, or heals it: then all that came to its end meanwhile arrives, in order.
func (s *simulation) cut(from, to order.ServerID, begins bool) {
	l := s.network.link(from, to)
	if begins {
		l.cuts++
		s.reviewSoon(to, from)
		return
	}
	if l.cuts--; l.cuts > 0 {
		return
	}
	s.reviewSoon(to, from)
	for len(l.held) > 0 && l.cuts == 0 && !s.over() {
		e := l.held[0]
		held := l.held
		l.held = nil
		s.current = e.server
		s.live(e)
		l.held = held[1:]
	}
}

// pause stops a server, or lets it go on: then it takes all that came meanwhile.
func (s *simulation) pause(id order.ServerID, begins bool) {
	v := &s.servers[id]
	if begins {
		if !v.crashed && v.member != nil {
			v.pauses++
			s.reviewBy(id)
		}
		return
	}
	if v.pauses == 0 {
		return // it crashed meanwhile
	}
	if v.pauses--; v.pauses > 0 {
		return
	}
	s.reviewBy(id)
	backlog := v.backlog
	v.backlog = nil
	for _, e := range backlog {
		if s.over() {
			return
		}
		s.current = e.server
		s.live(e)
	}
}

// want has the operator ask for a change.
func (s *simulation) want(c change) {
	s.life.wishes = append(s.life.wishes, &wish{change: c})
	s.wish(s.life.wishes[len(s.life.wishes)-1], len(s.life.wishes)-1)
}

// wish asks some server that works to have a change ordered, again and again until it is.
func (s *simulation) wish(w *wish, number int) {
	s.trace.note(s.now, uint64(wishing), uint64(number))
	member := s.life.chain.has(w.change.server)
	if w.tries >= wishTries || member == (w.change.kind == payloadJoin) || w.change.kind == payloadJoin && s.life.chain.was(w.change.server) {
		w.done = true
		return
	}
	w.tries++
	if w.change.kind == payloadLeave && s.sound(w.change.server) < len(s.life.chain.members)/2+1 {
		w.done = true // no operator takes a majority away
		return
	}
	first := s.adversary.IntN(len(s.servers))
	for i := range s.servers {
		id := order.ServerID((first + i) % len(s.servers))
		v := &s.servers[id]
		if v.member != nil && !v.crashed && v.pauses == 0 && v.member.works() {
			s.trace.say(s.now, "the operator asks %d for %c%d", id, w.change.kind, w.change.server)
			v.member.propose(w.change)
			s.current = id
			s.settle(id)
			break
		}
	}
	s.queue.push(event{at: s.now + wishEvery, kind: wishing, number: number})
}

// bad tells whether an observer has reason to suspect another server in its run: what it would see of the other's heartbeats, which name the run.
func (s *simulation) bad(observer, target order.ServerID) bool {
	v := &s.servers[target]
	if v.member == nil || v.crashed || v.member.over(s.servers[observer].member.group) && !v.member.passed(s.servers[observer].member.group) {
		return true
	}
	return v.pauses > 0 || s.network.link(target, observer).cuts > 0 || s.life.slander[[2]order.ServerID{target, observer}] > 0
}

// watches tells whether an observer's engine has the other as a predecessor.
func (s *simulation) watches(observer, target order.ServerID) bool {
	v := &s.servers[observer]
	if v.member == nil || v.crashed || !v.member.works() {
		return false
	}
	g := v.member.group
	from, known := g.place(target)
	to, _ := g.place(observer)
	return known && s.life.setting.reliable[len(g.members)].HasEdge(int(from), int(to))
}

// review has a detector suspect or trust.
func (s *simulation) review(observer, target order.ServerID) {
	if !s.watches(observer, target) {
		return
	}
	m := s.servers[observer].member
	bad := s.bad(observer, target)
	if bad == m.suspects[target] {
		return
	}
	s.trace.note(s.now, uint64(reviewing), uint64(observer), uint64(target))
	if bad {
		s.trace.say(s.now, "%d suspects %d", observer, target)
	} else {
		s.trace.say(s.now, "%d trusts %d", observer, target)
	}
	m.suspect(target, bad)
}

// reviewSoon has a detector look at another server, after the while that it takes to notice.
func (s *simulation) reviewSoon(observer, target order.ServerID) {
	if !s.watches(observer, target) {
		return
	}
	at := s.now + between(s.life.quickest, s.life.slowest)(s.life.detector)
	s.queue.push(event{at: at, kind: reviewing, server: observer, from: target, process: s.servers[observer].process})
}

// reviewBy has all look at a server.
func (s *simulation) reviewBy(target order.ServerID) {
	for observer := range s.servers {
		s.reviewSoon(order.ServerID(observer), target)
	}
}

// reviewAll has a server look at all others.
func (s *simulation) reviewAll(observer order.ServerID) {
	for target := range s.servers {
		s.reviewSoon(observer, order.ServerID(target))
	}
}
