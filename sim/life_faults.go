package sim

import (
	"slices"

	"github.com/ledgerd/ledgerd/order"
)

// disturb begins or ends a planned disturbance.
func (s *simulation) disturb(e event) {
	d := &s.life.disturbances[e.number]
	begins := e.kind == beginning
	if begins && d.patience > 0 {
		if d.begun || d.until == 0 && !s.ripe(d, e.number) {
			return
		}
		d.begun = true
	}
	s.trace.Note(s.now, uint64(e.kind), uint64(e.number))
	if begins {
		s.trace.Say(s.now, "begins: %s", d.text)
	} else {
		s.life.pending--
		s.trace.Say(s.now, "ends: %s", d.text)
	}
	switch d.kind {
	case FaultCrash:
		s.crashes(d, begins)
	case FaultSuspect:
		s.slander(d, begins)
	case FaultPartition:
		for _, link := range d.links {
			s.cut(link[0], link[1], begins)
		}
		if !begins && d.lead != 0 {
			d.links = nil // it may end before its time
		}
		if begins && d.stray == strayMade {
			s.strand(d)
		}
		if begins && d.lead == leadBridged {
			s.bridged(d)
		}
	case FaultPause:
		s.pause(d.server, begins)
	case FaultJoin:
		s.joins(d, begins)
	case FaultLeave:
		if begins {
			s.want(change{kind: entryLeave, server: d.server})
		}
	case engineChange:
		if begins {
			s.want(change{kind: entryEngine, engine: d.engine})
		}
	case FaultBreak:
		for _, link := range d.links {
			s.breakLink(link[0], link[1])
		}
	case FaultPower:
		s.powerFails(d, begins)
	case FaultDisk:
		s.disksFail(d, begins)
	case FaultClock:
		s.clockFails(d, begins)
	}
}

func (s *simulation) slander(d *disturbance, begins bool) {
	for _, link := range d.links {
		if begins {
			s.life.slander[link]++
		} else {
			s.life.slander[link]--
		}
		s.reviewSoon(link[1], link[0])
	}
}

// joins makes the operator add a new server to the membership. It gets its process a while later.
func (s *simulation) joins(d *disturbance, begins bool) {
	if begins {
		s.want(change{kind: entryJoin, server: d.server})
		return
	}
	s.bear(d.server)
	for number := range s.adversary.IntN(3) {
		s.queue.push(event{at: s.now + between(0, 50*millisecond)(s.adversary), kind: submission,
			server: d.server,
			frame:  payload(s.adversary, int(d.server), number, payloadMin)})
	}
}

// crashes ends processes, and lets them come back together.
func (s *simulation) crashes(d *disturbance, begins bool) {
	for _, id := range d.servers {
		v := &s.servers[id]
		if v.process == nil {
			continue
		}
		if !begins {
			s.bear(id)
			continue
		}
		if v.process.up() {
			s.stop(id)
			v.disk.crash(s.life.disks, s.mayBe(id, torn))
		}
	}
}

// powerFails cuts the power of servers, and restores it.
func (s *simulation) powerFails(d *disturbance, begins bool) {
	for _, id := range d.servers {
		v := &s.servers[id]
		if v.process == nil {
			continue
		}
		if !begins {
			s.bear(id)
			continue
		}
		s.stop(id)
		how := powerLoss(s.life.disks.IntN(3))
		if how == lossDamaged && !s.mayBe(id, damaged) || how == lossTorn && !s.mayBe(id, torn) {
			how = lossZeros
		}
		v.disk.damaged = v.disk.damaged || how == lossDamaged && v.disk.damageable()
		v.disk.losePower(how, s.life.disks)
		if v.acked != nil && !v.disk.holds(v.acked) && how == lossDamaged {
			v.acked = v.disk.blocks[v.disk.synced]
		}
		if how == lossDamaged {
			v.ackedRecord = nil
		}
		s.trace.Note(s.now, 112, uint64(id), uint64(how), v.disk.height())
		s.trace.Say(s.now, "%d is without power: %d blocks are left, %v, perhaps more %v", id,
			v.disk.height(), how, v.disk.perhaps)
	}
}

// String names a loss.
func (l powerLoss) String() string {
	return [...]string{"zeros follow", "the last record is torn", "the last group is damaged"}[l]
}

// cut cuts a link, or heals it. After it heals, the frames that came to its end meanwhile arrive in
// order.
func (s *simulation) cut(from, to order.ServerID, begins bool) {
	l := s.network.link(from, to)
	if begins {
		l.cuts++
		s.cutMemory(from, to)
		s.reviewSoon(to, from)
		return
	}
	l.cuts--
	s.cutMemory(from, to)
	if l.cuts > 0 {
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

// pause pauses a server, or resumes it. A resumed server takes everything that came meanwhile.
func (s *simulation) pause(id order.ServerID, begins bool) {
	v := &s.servers[id]
	if begins {
		if v.process != nil && v.process.up() {
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

// want makes the operator ask for a change.
func (s *simulation) want(c change) {
	if s.life.setting.alone {
		return
	}
	s.life.wishes = append(s.life.wishes, &wish{change: c, since: s.life.tip().height})
	s.wish(s.life.wishes[len(s.life.wishes)-1], len(s.life.wishes)-1)
}

// wish asks some working server to get a change ordered, again and again until it is.
func (s *simulation) wish(w *wish, number int) {
	s.trace.Note(s.now, uint64(wishing), uint64(number))
	tip := s.life.tip()
	if w.tries >= wishTries || s.fulfilled(w, tip) {
		w.done = true
		return
	}
	w.tries++
	if w.change.kind == entryLeave && !s.mayLeave(w.change.server) {
		if s.now > s.faultsEnd {
			w.done = true // no operator removes a majority
			return
		}
		s.queue.push(event{at: s.now + wishEvery, kind: wishing, number: number})
		return
	}
	first := s.adversary.IntN(len(s.servers))
	for i := range s.servers {
		id := order.ServerID((first + i) % len(s.servers))
		v := &s.servers[id]
		if v.process != nil && v.pauses == 0 && v.process.works() {
			if err := s.tooFew(v.process, w.change); err != nil {
				s.trace.Say(s.now, "%d refuses %v: %v", id, w.change, err)
				break
			}
			s.trace.Say(s.now, "the operator asks %d for %v", id, w.change)
			c := w.change
			if c.kind != entryEngine {
				s.servers[c.server].leaves = c.kind == entryLeave
			}
			s.life.nonce++
			c.by, c.nonce = id, s.life.nonce
			v.process.propose(c)
			s.current = id
			s.settleSoon(id)
			break
		}
	}
	s.queue.push(event{at: s.now + wishEvery, kind: wishing, number: number})
}

// fulfilled reports whether the newest chain has what the operator wants. It had an engine that was
// named since the operator asked first.
func (s *simulation) fulfilled(w *wish, tip *block) bool {
	if w.change.kind == entryEngine {
		wanted := engineRows[w.change.engine].name
		for b := tip; ; b = b.ancestor(b.changed - 1) {
			if b.engine == wanted || b.changed <= w.since {
				return b.engine == wanted
			}
		}
	}
	member := tip.members.has(w.change.server)
	return member == (w.change.kind == entryJoin) ||
		w.change.kind == entryJoin && was(tip, w.change.server)
}

// tooFew returns why a server refuses to get a change ordered, as a node does.
func (s *simulation) tooFew(p *process, c change) error {
	if p.member == nil || c.kind == entryEngine {
		return nil
	}
	members := len(p.chain.head().members.members)
	var working []order.ServerID
	for _, place := range p.engine.Status().Members {
		working = append(working, p.group.Members[place])
	}
	switch c.kind {
	case entryJoin:
		members++
	case entryLeave:
		members--
		working = slices.DeleteFunc(working, func(id order.ServerID) bool { return id == c.server })
	}
	return p.member.TooFew(members, working)
}

// was reports whether a server left the membership.
func was(b *block, server order.ServerID) bool {
	for _, f := range b.former {
		if f.Server == server {
			return true
		}
	}
	return false
}

// bad reports whether an observer has reason to suspect another server in its run. The observer
// judges by the other's heartbeats, which name the run.
func (s *simulation) bad(observer, target order.ServerID) bool {
	v := &s.servers[target]
	g := s.servers[observer].process.group
	if v.process == nil || !v.process.up() || v.process.group == nil ||
		v.process.group.Run < g.Run ||
		v.process.group.Run == g.Run && v.process.retired != "" && v.process.retired != eonOver {
		return true
	}
	return v.pauses > 0 || s.network.link(target, observer).cuts > 0 ||
		s.life.slander[[2]order.ServerID{target, observer}] > 0
}

// watches reports whether an observer's engine has the other server as a predecessor.
func (s *simulation) watches(observer, target order.ServerID) bool {
	v := &s.servers[observer]
	if v.process == nil || !v.process.works() {
		return false
	}
	g := v.process.group
	from, known := place(g, target)
	to, _ := place(g, observer)
	overlay := s.life.setting.reliable[v.process.row.name][len(g.Members)]
	return known && overlay.HasEdge(int(from), int(to))
}

// review makes a detector suspect or trust.
func (s *simulation) review(observer, target order.ServerID) {
	if !s.watches(observer, target) {
		return
	}
	p := s.servers[observer].process
	bad := s.bad(observer, target)
	if bad == p.suspects[target] {
		return
	}
	s.trace.Note(s.now, uint64(reviewing), uint64(observer), uint64(target))
	if bad {
		s.trace.Say(s.now, "%d suspects %d", observer, target)
	} else {
		s.trace.Say(s.now, "%d trusts %d", observer, target)
	}
	p.suspect(target, bad)
}

// lifeSuspects makes a detector suspect a server that announced that it left the run.
func (s *simulation) lifeSuspects(p *process, target order.ServerID) {
	if s.watches(p.self, target) && s.bad(p.self, target) {
		s.trace.Say(s.now, "%d hears that %d left the run", p.self, target)
		p.suspect(target, true)
		p.gate.Probe(uint64(p.group.Run))
		s.settleSoon(p.self)
	}
}

// reviewSoon makes a detector check another server after the time that it takes to notice.
func (s *simulation) reviewSoon(observer, target order.ServerID) {
	s.reviewIn(observer, target, 0)
}

func (s *simulation) reviewIn(observer, target order.ServerID, atLeast Instant) {
	if !s.watches(observer, target) {
		return
	}
	at := s.now + max(atLeast, between(s.life.quickest, s.life.slowest)(s.life.detector))
	s.queue.push(event{at: at, kind: reviewing, server: observer, from: target,
		process: s.servers[observer].number})
}

// reviewBy makes all servers check a server.
func (s *simulation) reviewBy(target order.ServerID) {
	for observer := range s.servers {
		s.reviewSoon(order.ServerID(observer), target)
	}
}

// reviewAll makes a server check all others. A new group gets some time until its members have all
// begun.
func (s *simulation) reviewAll(observer order.ServerID) {
	atLeast := 500 * millisecond
	if s.life.setting.alone {
		atLeast = 0
	}
	for target := range s.servers {
		s.reviewIn(observer, order.ServerID(target), atLeast)
	}
}

// tip returns the end of the newest generation's chain.
func (l *life) tip() *block {
	if l.newest == nil {
		return l.genesis
	}
	return l.newest.tip
}

// losesSight makes a detector suspect a server to which frames are lost, as long as it has reason
// to.
func (s *simulation) losesSight(p *process, target order.ServerID) {
	p.suspect(target, true)
	s.reviewSoon(p.self, target)
}

// breakLink breaks the connection between two servers. The frames under way are lost in both
// directions, and both ends find out. Letters are sent again by themselves.
func (s *simulation) breakLink(a, b order.ServerID) {
	s.breakMemory(a, b)
	for _, way := range [][2]order.ServerID{{a, b}, {b, a}} {
		from, to := way[0], way[1]
		l := s.network.link(from, to)
		l.held = nil
		s.queue.scheduled(func(e *event) {
			if e.kind == arrival && e.from == from && e.server == to {
				e.kind = loss
				l.sent--
			}
		})
		v := &s.servers[from]
		if v.process != nil && v.process.up() && v.process.group != nil {
			s.current = from
			v.process.breaks(to, v.process.group.Run)
			s.settleSoon(from)
		}
	}
}
