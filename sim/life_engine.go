package sim

import (
	"fmt"
	"hash/crc32"
	"math/rand/v2"

	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/shard"
)

// intact reports whether a frame is as it was sent.
func (s *simulation) intact(e event) bool {
	if crc32.Checksum(e.frame, checksums) == e.sum {
		return true
	}
	s.breach(e.server, fmt.Sprintf("a frame of %d bytes that %d sent was changed afterwards", len(e.frame), e.from))
	return false
}

// settleSoon lets a process act on its input: at once or, where the seed made servers lazy, sometimes
// after more input.
func (s *simulation) settleSoon(id order.ServerID) {
	v := &s.servers[id]
	if v.acts || v.process == nil || !v.process.up() {
		return
	}
	if s.laziness > 0 && s.adversary.IntN(3) == 0 {
		v.acts = true
		s.queue.push(event{at: s.now + between(0, s.laziness)(s.adversary), kind: acting, server: id, process: v.number})
		return
	}
	s.settle(id)
}

// settle is the loop of order.Broadcaster's comment for a process, until it has nothing more to do.
func (s *simulation) settle(id order.ServerID) {
	p := s.servers[id].process
	if p.settling {
		return
	}
	p.settling = true
	defer func() { p.settling = false }()
	for range actionsMax {
		broadcast := p.broadcast()
		flushed := s.flush(p)
		if !p.up() || s.over() {
			return
		}
		if !broadcast && !flushed {
			s.lingerOn(p)
			return
		}
	}
	s.breach(id, fmt.Sprintf("it A-broadcasts %d times without any input", actionsMax))
}

// flush does what the engine wants done: it sends, and only then acts on deliveries. It reports
// whether there was anything.
func (s *simulation) flush(p *process) bool {
	if !p.works() {
		return false
	}
	engine, g := p.engine, p.group
	ready := engine.Ready()
	status := engine.Status()
	if len(ready.Sends) == 0 && len(ready.Deliveries) == 0 {
		if status.Halted != "" || status.Ended {
			p.reportEnd()
			return true
		}
		return false
	}
	v := &s.servers[p.self]
	c := v.doom
	if c != nil && (s.now > s.faultsEnd || c.reliable && !status.Reliable) {
		c = nil
	}
	if c != nil && c.moment == sending && len(ready.Sends) > 0 {
		if c.skip == 0 {
			var hops []hop
			for i, sent := range ready.Sends {
				for _, to := range sent.To {
					hops = append(hops, hop{g.Members[to], i})
				}
			}
			s.sendSome(len(ready.Sends), hops, c, func(h hop) { s.sendFrame(p, h.to, g, ready.Sends[h.item].Frame) })
			s.crash(p.self)
			return true
		}
		c.skip--
	}
	for _, send := range ready.Sends {
		for _, to := range send.To {
			s.sendFrame(p, g.Members[to], g, send.Frame)
		}
	}
	last := len(ready.Deliveries)
	doomed := false
	if c != nil && c.moment == delivering && last > 0 {
		if doomed = c.skip == 0; doomed {
			last = 1 + s.adversary.IntN(last)
		} else {
			c.skip--
		}
	}
	rounds := make([]*content, last)
	for i, d := range ready.Deliveries[:last] {
		rounds[i] = p.content(d)
	}
	for _, c := range rounds {
		s.judgeDelivery(p, c)
		if s.over() {
			return true
		}
		p.deliver(c)
	}
	switch {
	case doomed:
		s.crash(p.self)
	case p.engine == engine && (status.Halted != "" || status.Ended):
		p.reportEnd()
	}
	return true
}

// lingerOn schedules an empty message where messages wait for a later round and nothing else will
// bring it.
func (s *simulation) lingerOn(p *process) {
	v := &s.servers[p.self]
	switch {
	case !p.undelivered():
		v.lingers, p.lingered = false, false
		v.lingering++
	case !v.lingers && !p.lingered:
		v.lingers = true
		v.lingering++
		s.queue.push(event{at: s.now + s.lingerFor, kind: lingering, server: p.self, number: v.lingering, process: v.number})
	}
}

// sendFrame puts a frame on a link. It is for the process that the receiver runs now.
func (s *simulation) sendFrame(p *process, to order.ServerID, g *shard.Group, frame []byte) {
	v := &s.servers[to]
	if v.process == nil {
		return // nobody ever listened there
	}
	sum := crc32.Checksum(frame, checksums)
	at := s.network.put(p.self, to, s.now)
	s.trace.note(s.now, uint64(arrival), uint64(p.self), uint64(to), uint64(sum), uint64(len(frame)))
	if s.trace.text != nil {
		s.trace.say(s.now, "%d sends %s to %d, arriving at %v", p.self, s.describeLetter(nil, g.Run, frame), to, at)
	}
	s.queue.push(event{at: at, kind: arrival, server: to, from: p.self, run: g.Run, frame: frame, sum: sum, process: v.number})
}

// post puts a letter on a link. A link that is cut loses it.
func (s *simulation) post(from, to order.ServerID, l *letter) {
	v := &s.servers[to]
	if from == to || v.process == nil || s.network.link(from, to).cuts > 0 {
		return
	}
	at := s.network.put(from, to, s.now)
	s.trace.note(s.now, uint64(arrival), uint64(from), uint64(to), uint64(l.kind))
	if s.trace.text != nil {
		s.trace.say(s.now, "%d sends %s to %d, arriving at %v", from, s.describeLetter(l, 0, nil), to, at)
	}
	s.queue.push(event{at: at, kind: arrival, server: to, from: from, letter: l, process: v.number})
}

// diesBefore ends a process between two effects, where its time has come.
func (s *simulation) diesBefore(p *process, effect shard.Effect) bool {
	c := s.servers[p.self].doom
	if c == nil || c.moment != effecting || s.now > s.faultsEnd {
		return false
	}
	switch effect.(type) {
	case shard.Announce, shard.Changed:
		return false
	}
	if c.skip > 0 {
		c.skip--
		return false
	}
	s.trace.say(s.now, "%d dies before %T", p.self, effect)
	s.crash(p.self)
	return true
}

// crashProcess ends a server's process. Some stay away for good.
func (s *simulation) crashProcess(id order.ServerID) {
	v := &s.servers[id]
	v.pauses, v.backlog = 0, nil
	v.crashes++
	v.process.dead = true
	v.disk.crash(s.life.disks, s.mayBe(id, torn))
	s.reviewBy(id)
	if s.life.setting.alone || s.beyond() {
		v.away = true
		return
	}
	if s.adversary.IntN(5) == 0 && s.mayGoAway(id) {
		v.away = true
		s.trace.say(s.now, "%d stays away", id)
		return
	}
	s.comeBack(id, awhile(s.adversary))
}

// awhile draws how long something lasts in the life of a shard: for a moment, for less than anybody
// waits, or for longer.
func awhile(random *rand.Rand) Instant {
	return []func(*rand.Rand) Instant{
		between(1*millisecond, 60*millisecond), between(60*millisecond, 2*second), between(2*second, 12*second),
	}[random.IntN(3)](random)
}

// comeBack schedules a server's next process.
func (s *simulation) comeBack(id order.ServerID, after Instant) {
	s.life.pending++
	s.queue.push(event{at: s.now + after, kind: restarting, server: id})
}

// stop ends a server's process without any crash of its disk: what follows takes care of that.
func (s *simulation) stop(id order.ServerID) {
	v := &s.servers[id]
	v.pauses, v.backlog, v.doom = 0, nil, nil
	if v.process == nil || !v.process.up() {
		return
	}
	v.process.dead, v.crashed = true, true
	v.crashes++
	s.trace.note(s.now, 100, uint64(id))
	s.trace.say(s.now, "%d crashes", id)
	s.reviewBy(id)
}

// beyond reports that more servers may crash than a minority: then only safety is asked, and those
// that crashed stay away.
func (s *simulation) beyond() bool { return s.options.Crashes > (s.options.Servers-1)/2 }
