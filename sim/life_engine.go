package sim

import (
	"fmt"
	"hash/crc32"
	"math/rand/v2"

	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/shard"
	"github.com/ledgerd/ledgerd/shard/turn"
)

// intact reports whether a frame is as it was sent.
func (s *simulation) intact(e event) bool {
	if crc32.Checksum(e.frame, checksums) == e.sum {
		return true
	}
	s.breach(e.server, fmt.Sprintf("a frame of %d bytes that %d sent was changed afterwards",
		len(e.frame), e.from))
	return false
}

// settleSoon makes a process act on its input: at once or, if the seed made servers lazy, sometimes
// after more input.
func (s *simulation) settleSoon(id order.ServerID) {
	v := &s.servers[id]
	if v.acts || v.process == nil || !v.process.up() {
		return
	}
	if s.laziness > 0 && s.adversary.IntN(3) == 0 {
		v.acts = true
		s.queue.push(event{at: s.now + between(0, s.laziness)(s.adversary), kind: acting,
			server: id, process: v.number})
		return
	}
	s.settle(id)
}

// settle is the loop of package turn for a process, until there is nothing more to do.
func (s *simulation) settle(id order.ServerID) {
	p := s.servers[id].process
	if p.settling {
		return
	}
	if p.polled != nil {
		if p.works() && p.pool.unsaid() {
			p.lookSoon()
		}
		return
	}
	p.settling = true
	defer func() { p.settling = false }()
	for range actionsMax {
		if !p.works() || p.polled != nil || !s.takeTurn(p) {
			return
		}
	}
	s.breach(id, fmt.Sprintf("it takes %d turns without any input", actionsMax))
}

// takeTurn takes a turn of a process, and reports whether another turn may find more to do.
func (s *simulation) takeTurn(p *process) bool {
	machine := p.turn
	frames, opinions := p.gate.Take(p.arrivals)
	p.watched.weighed = false
	machine.Step(frames, opinions)
	s.judgeTurn(p, p.watched.wrong != "", p.watched.wrong)
	clear(frames)
	p.arrivals = frames[:0]
	p.broadcast()
	s.carryOutLife(p)
	if !p.up() || s.over() {
		return false
	}
	if p.turn == machine && p.works() && machine.Over() {
		p.reportEnd()
	}
	return p.turn != machine || machine.Again()
}

// carryOutLife executes the actions of a process's turn, unless its planned crash is due. A
// delivery may make the member freeze the engine and start another one.
func (s *simulation) carryOutLife(p *process) {
	machine, g := p.turn, p.group
	for do := machine.Next(); do.Kind != turn.Done; do = machine.Next() {
		member := g.Members[do.Server]
		switch do.Kind {
		case turn.Send:
			p.watched.unsent = false
			s.sendAll(p.self, p.engine, g.Members, do.Sends, func(at order.ServerID, frame []byte) {
				if !machine.Lost(at) {
					s.sendFrame(p, g.Members[at], g, frame)
				}
			})
		case turn.Deliver:
			s.judgeTurn(p, p.watched.unsent, "a turn hands a round over before it sends")
			s.deliverRounds(p, do.Deliveries)
		case turn.Record:
			p.offer(do.Deliveries)
		case turn.Linger:
			v := &s.servers[p.self]
			v.lingering++
			at := s.now + s.lingerFor
			s.queue.push(event{at: at, kind: lingering, server: p.self, number: v.lingering,
				process: v.number})
		case turn.Lost:
			s.trace.Say(s.now, "%d loses %d: %v", p.self, member, do.Cause)
			s.losesSight(p, member)
		case turn.Silenced:
			s.breach(p.self, fmt.Sprintf("it refuses a frame of server %d: %v", member, do.Cause))
		case turn.Removed:
			for _, at := range do.Deliveries[0].Removed {
				if g.Members[at] != p.self {
					p.gate.Silence(g.Members[at])
				}
			}
			if p.prompt {
				p.loses(do.Deliveries[0])
			}
		case turn.Suspected, turn.Trusted:
			s.judgeTurn(p, do.Kind == turn.Trusted && machine.Lost(do.Server),
				fmt.Sprintf("it trusts server %d, to which frames of this run are lost", member))
			if do.Refused != nil && s.watches(p.self, member) && p.engine.Status().Halted == "" {
				s.breach(p.self, fmt.Sprintf("it refuses a word on predecessor %d: %v", member,
					do.Refused))
			}
		}
		if !p.works() || p.turn != machine || s.over() {
			return
		}
	}
}

// deliverRounds hands rounds to the chain, or crashes after some of them. All are handed over
// before any is executed, because a change in them may freeze the engine.
func (s *simulation) deliverRounds(p *process, deliveries []order.Delivery) {
	last, doomed := s.delivers(p.self, p.engine, len(deliveries))
	for _, d := range deliveries[:last] {
		c := p.content(d)
		if s.judgeDelivery(p, c); s.over() {
			return
		}
		p.executing.queue = append(p.executing.queue, work{round: c})
	}
	p.execute()
	if doomed && p.up() {
		s.crash(p.self)
	}
}

// sendFrame puts a frame on a link. It is for the process that the receiver runs now.
func (s *simulation) sendFrame(p *process, to order.ServerID, g *shard.Group, frame []byte) {
	v := &s.servers[to]
	if v.process == nil {
		return // the receiver never had a process
	}
	sum := crc32.Checksum(frame, checksums)
	at := s.network.put(p.self, to, s.now)
	s.trace.Note(s.now, uint64(arrival), uint64(p.self), uint64(to), uint64(sum),
		uint64(len(frame)))
	if s.trace.HasText() {
		s.trace.Say(s.now, "%d sends %s to %d, arriving at %v", p.self,
			s.describeLetter(nil, g.Run, frame), to, at)
	}
	s.queue.push(event{at: at, kind: arrival, server: to, from: p.self, run: g.Run, frame: frame,
		sum: sum, process: v.number, incarnation: p.number})
}

// post puts a letter on a link. A cut link loses it.
func (s *simulation) post(from, to order.ServerID, l *peerMessage) {
	v := &s.servers[to]
	if from == to || v.process == nil || s.network.link(from, to).cuts > 0 {
		return
	}
	at := s.network.put(from, to, s.now)
	s.trace.Note(s.now, uint64(arrival), uint64(from), uint64(to), uint64(l.kind))
	if s.trace.HasText() {
		s.trace.Say(s.now, "%d sends %s to %d, arriving at %v", from, s.describeLetter(l, 0, nil),
			to, at)
	}
	s.queue.push(event{at: at, kind: arrival, server: to, from: from, letter: l, process: v.number,
		incarnation: s.servers[from].number})
}

// diesBefore crashes a process before an effect if its planned crash is due. It reports whether it
// did.
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
	s.trace.Say(s.now, "%d dies before %T", p.self, effect)
	s.crash(p.self)
	return true
}

// crashProcess ends a server's process. Some servers stay away for good.
func (s *simulation) crashProcess(id order.ServerID) {
	v := &s.servers[id]
	v.pauses, v.backlog = 0, nil
	v.crashes++
	v.process.dead = true
	s.endMemory(id)
	v.disk.crash(s.life.disks, s.mayBe(id, torn))
	s.reviewBy(id)
	if s.life.setting.alone || s.beyond() {
		v.away = true
		return
	}
	if s.adversary.IntN(5) == 0 && s.mayGoAway(id) {
		v.away = true
		s.trace.Say(s.now, "%d stays away", id)
		return
	}
	s.comeBack(id, drawDuration(s.adversary))
}

// drawDuration draws how long a fault lasts in the life of a shard: for a moment, for less than any
// timeout, or for longer.
func drawDuration(random *rand.Rand) Instant {
	return []func(*rand.Rand) Instant{
		between(1*millisecond, 60*millisecond), between(60*millisecond, 2*second),
		between(2*second, 12*second),
	}[random.IntN(3)](random)
}

// comeBack schedules a server's next process.
func (s *simulation) comeBack(id order.ServerID, after Instant) {
	s.life.pending++
	s.queue.push(event{at: s.now + after, kind: restarting, server: id})
}

// stop ends a server's process without a crash of its disk, which the caller handles.
func (s *simulation) stop(id order.ServerID) {
	v := &s.servers[id]
	v.pauses, v.backlog, v.doom = 0, nil, nil
	if v.process == nil || !v.process.up() {
		return
	}
	v.process.dead, v.crashed = true, true
	v.crashes++
	s.endMemory(id)
	s.trace.Note(s.now, 100, uint64(id))
	s.trace.Say(s.now, "%d crashes", id)
	s.reviewBy(id)
}

// beyond reports whether more servers may crash than a minority. Only safety is required then, and
// crashed servers stay away.
func (s *simulation) beyond() bool { return s.options.Crashes > (s.options.Servers-1)/2 }
