package sim

import (
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"slices"

	"github.com/ledgerd/ledgerd/allconcur"
	"github.com/ledgerd/ledgerd/allconcur/generation"
	"github.com/ledgerd/ledgerd/order"
)

// life is what a run has besides where the shard lives on past the run of an engine: processes (member) in the place of bare engines, more kinds of fault, and a
// group that changes.
type life struct {
	setting      *setting
	disturbances []disturbance
	// quickest and slowest bound how long a detector takes to notice something, either way; detector draws it.
	quickest, slowest Instant
	detector          *rand.Rand
	// slander counts the false suspicions that last, by suspect and observer.
	slander map[[2]order.ServerID]int
	// chain is what anybody delivered, and writers says who delivered each block first.
	chain   *chain
	writers []order.ServerID
	// asked are the payloads that users submitted; asks lists them.
	asked map[string]*ask
	asks  []*ask
	// wishes are the operator's changes.
	wishes []*wish
	// gossip is the time between two words of where a server stands, and chatter draws whom they go to.
	gossip  Instant
	chatter *rand.Rand
	// pending counts what is planned and has not happened yet: disturbances under way, processes to come back.
	pending int
	// restful counts how often in a row there was rest.
	restful int
	// restarts counts the processes that came back.
	restarts int
	// pace stretches the workload.
	pace Instant
	// runs counts the runs that delivered something.
	runs int
	// cold tells that no generation is decided as the run begins.
	cold bool
}

// livingServer is what a server is besides where the shard lives on: a disk, and processes that come and go.
type livingServer struct {
	member *member
	disk   *disk
	// process numbers the processes from 1; crashes counts those that crashed.
	process, crashes int
	// pauses counts the pauses that last, and backlog is what has come meanwhile.
	pauses  int
	backlog []event
	// ticks tells that a tick is scheduled.
	ticks bool
	// vowed is the newest generation that any process of the server promised.
	vowed generation.Generation
	// retired is what the process's engine was last seen to be retired for, and gone that everybody was told of its leaving.
	retired string
	gone    bool
}

// ask is one payload that a user submitted.
type ask struct {
	server  order.ServerID
	process int
	// round is the block that holds it, 0 while there is none.
	round order.Round
}

// wish is a change of the membership that the operator wants ordered; it is asked for until it is.
type wish struct {
	change change
	tries  int
	// done tells that there is no more to ask for.
	done bool
}

const (
	// wishEvery is how long the operator waits before asking again, and wishTries how often it asks.
	wishEvery = 150 * millisecond
	wishTries = 40
	// restEvery is the time between two looks at whether there is rest.
	restEvery = 40 * millisecond
	// unsyncedMax bounds the blocks that a crash loses from a disk.
	unsyncedMax = 3
)

// newLife begins the life of the shard: all servers are members, and know that generation 1 is theirs.
func (s *simulation) newLife() {
	o := &s.options
	driver := stream(o.Seed, driverStream+1)
	l := &life{
		detector: stream(o.Seed, detectorStream+1), chatter: stream(o.Seed, driverStream+2),
		slander: make(map[[2]order.ServerID]int), asked: make(map[string]*ask), chain: newChain(o.Servers),
	}
	s.life, s.network.extraLast = l, true
	l.cold = driver.IntN(6) == 0 && o.Detector != allconcur.DetectorEventualPaper && !o.group.EngineAlone
	slowest := s.network.slowest()
	s.servers = make([]server, o.slots())
	l.setting = &setting{
		engine: o.group.Engine, detector: o.Detector, fault: o.group.Fault, slots: o.slots(), reliable: o.reliable, synod: o.Detector != allconcur.DetectorEventualPaper && !o.group.EngineAlone,
		promiseNotFrozen: o.group.PromiseNotFrozen, turnFault: o.group.turnFault(),
		tick:       max(between(4*millisecond, 15*millisecond)(driver), slowest/4),
		stallAfter: between(30*millisecond, 200*millisecond)(driver) + 4*slowest,
	}
	l.pace = between(1, 8)(driver)
	l.gossip = between(20*millisecond, 100*millisecond)(driver)
	switch driver.IntN(4) {
	case 0, 1:
		l.quickest, l.slowest = 100*microsecond, 1*millisecond
	case 2:
		l.quickest, l.slowest = 2*millisecond, 20*millisecond
	case 3:
		l.slowest = 80 * millisecond
	}
	if o.group.EngineAlone {
		l.quickest, l.slowest = 0, 50*microsecond
	}
}

// begin plans the disturbances and begins the first processes.
func (s *simulation) begin(span Instant) {
	l := s.life
	l.disturbances = planDisturbances(&s.options, span)
	for number, d := range l.disturbances {
		l.pending++
		s.faultsEnd = max(s.faultsEnd, d.until)
		s.queue.push(event{at: d.at, kind: beginning, number: number})
		s.queue.push(event{at: d.until, kind: ending, number: number})
	}
	for id := range s.options.Servers {
		s.bear(order.ServerID(id))
	}
	s.queue.push(event{at: s.faultsEnd, kind: settling})
}

// bear begins a server's process: the first one, or the next incarnation.
func (s *simulation) bear(id order.ServerID) {
	v := &s.servers[id]
	v.process++
	v.crashed, v.ticks, v.acts, v.retired = false, false, false, ""
	if v.disk == nil {
		v.disk = &disk{generationDisk: newGenerationDisk(s.options.Servers, id, !s.life.cold && int(id) < s.options.Servers)}
	}
	v.member = newMember(s.life.setting, id, uint64(v.process), v.disk, newChain(s.options.Servers), s.now)
	s.queue.push(event{at: s.now + between(0, s.life.gossip)(s.life.chatter), kind: gossiping, server: id, process: v.process})
	s.reviewAll(id)
	s.settle(id)
}

// live hands an event to a server's process: not to one that is no more, and to one that pauses only later.
func (s *simulation) live(e event) {
	switch e.kind {
	case beginning, ending:
		s.disturb(e)
		return
	case settling:
		s.look()
		return
	case arming:
		s.armCrash(e.number)
		return
	case restarting:
		s.life.pending--
		s.trace.say(s.now, "%d comes back", e.server)
		s.trace.note(s.now, uint64(restarting), uint64(e.server))
		s.life.restarts++
		s.bear(e.server)
		return
	case wishing:
		s.wish(s.life.wishes[e.number], e.number)
		return
	case loss:
		return
	}
	v := &s.servers[e.server]
	if e.kind == arrival {
		if l := s.network.link(e.from, e.server); l.cuts > 0 || len(l.held) > 0 {
			l.held = append(l.held, e)
			return
		}
	}
	switch {
	case v.crashed || v.member == nil || e.process != 0 && e.process != v.process:
	case v.pauses > 0:
		v.backlog = append(v.backlog, e)
	default:
		s.liveNow(e)
	}
}

// liveNow has a server's process take an input.
func (s *simulation) liveNow(e event) {
	v := &s.servers[e.server]
	m := v.member
	m.now = s.now
	switch e.kind {
	case arrival:
		s.arriveLetter(e)
	case submission:
		if m.left {
			return
		}
		s.trace.note(s.now, uint64(submission), uint64(e.server))
		payload := append([]byte{payloadUser}, e.frame...)
		a := &ask{server: e.server, process: v.process}
		s.life.asked[string(payload)] = a
		s.life.asks = append(s.life.asks, a)
		m.submit(payload)
	case ticking:
		v.ticks = false
		m.tick()
	case lingering:
		if v.lingering == e.number && m.works() {
			m.machine.LingerOver()
		}
	case acting:
		v.acts = false
		s.settle(e.server)
		return
	case gossiping:
		s.tellStand(e.server)
	case reviewing:
		s.review(e.server, e.from)
	}
	s.settleSoon(e.server)
}

// arriveLetter hands a letter to its receiver's process.
func (s *simulation) arriveLetter(e event) {
	l := s.network.link(e.from, e.server)
	l.received++
	if s.trace.text != nil {
		s.trace.say(s.now, "%d receives %s from %d", e.server, s.describeLetter(e.letter, e.run, e.frame), e.from)
	}
	if e.letter == nil && crc32.Checksum(e.frame, checksums) != e.sum {
		s.breach(e.server, fmt.Sprintf("a frame of %d bytes that %d sent was changed afterwards", len(e.frame), e.from))
		return
	}
	s.servers[e.server].member.receive(e.from, e.letter, e.run, e.frame)
	if s.servers[e.from].crashed && l.received == l.sent {
		s.heardLast(e.from, e.server)
	}
}

// settleSoon lets a process act on its input: at once or, where the seed made servers lazy, sometimes after more input.
func (s *simulation) settleSoon(id order.ServerID) {
	v := &s.servers[id]
	if v.acts {
		return
	}
	if s.laziness > 0 && s.adversary.IntN(3) == 0 {
		v.acts = true
		s.queue.push(event{at: s.now + between(0, s.laziness)(s.adversary), kind: acting, server: id, process: v.process})
		return
	}
	s.settle(id)
}

// settle is the loop of package turn for a process, until it has nothing more to do.
func (s *simulation) settle(id order.ServerID) {
	v := &s.servers[id]
	m := v.member
	m.now = s.now
	for range actionsMax {
		moved := m.act()
		s.carryOutLetters(id)
		if v.crashed || s.over() {
			return
		}
		if m.started {
			m.started = false
			s.trace.say(s.now, "%d starts run %v of %v after block %d", id, m.group.run, m.group.members, m.group.first-1)
			s.reviewAll(id)
		}
		if m.retired != v.retired {
			v.retired = m.retired
			if m.retired != "" {
				s.trace.say(s.now, "%d retires from run %v: %s", id, m.group.run, m.retired)
				s.reviewBy(id)
			}
		}
		if m.lingers {
			m.lingers = false
			v.lingering++
			s.queue.push(event{
				at: s.now + s.lingerFor, kind: lingering, server: id, number: v.lingering, process: v.process,
			})
		}
		if !moved {
			s.tickOn(id)
			return
		}
	}
	s.breach(id, fmt.Sprintf("it takes %d turns without any input", actionsMax))
}

// tickOn has the process's clock tick where it has something to wait for.
func (s *simulation) tickOn(id order.ServerID) {
	if v := &s.servers[id]; !v.ticks && v.member.wantsTick() {
		v.ticks = true
		s.queue.push(event{at: s.now + s.life.setting.tick, kind: ticking, server: id, process: v.process})
	}
}

// carryOutLetters does what a process wants done, unless its time has come.
func (s *simulation) carryOutLetters(id order.ServerID) {
	v := &s.servers[id]
	if v.member.wrong != "" {
		s.breach(id, v.member.wrong)
		return
	}
	letters, blocks := v.member.hand()
	c := v.doom
	if c != nil && (s.now > s.faultsEnd || c.reliable && !(v.member.works() && v.member.engine.Status().Reliable) || !s.mayCrash(id)) {
		c = nil
	}
	if c != nil && c.moment == sending && len(letters) > 0 {
		if c.skip == 0 {
			var hops []hop
			for i, sent := range letters {
				for _, to := range sent.to {
					hops = append(hops, hop{to, i})
				}
			}
			s.sendSome(len(letters), hops, c, func(h hop) { s.sendLetter(id, h.to, &letters[h.item]) })
			s.crash(id)
			return
		}
		c.skip--
	}
	last := len(blocks)
	doomed := false
	if c != nil && c.moment == delivering && last > 0 {
		if doomed = c.skip == 0; doomed {
			last = 1 + s.adversary.IntN(last)
		} else {
			c.skip--
		}
	}
	gone := 0
	for _, t := range blocks[:last] {
		for ; gone < t.letters; gone++ {
			s.sendLetters(id, &letters[gone])
		}
		s.deliverBlock(id, t)
		if s.over() {
			return
		}
	}
	if doomed {
		letters = letters[:gone]
	}
	for ; gone < len(letters); gone++ {
		s.sendLetters(id, &letters[gone])
	}
	for _, sent := range letters {
		s.noteVow(id, sent.letter)
	}
	if v.member.left && !v.gone {
		v.gone = true
		s.trace.say(s.now, "%d has left", id)
		s.reviewBy(id)
	}
	if doomed {
		s.crash(id)
	}
}

// sendLetters sends a letter, or a frame, to all its receivers.
func (s *simulation) sendLetters(from order.ServerID, sent *outgoing) {
	sum := sent.sum()
	for _, to := range sent.to {
		s.sendOne(from, to, sent, sum)
	}
}

// sendLetter sends a letter, or a frame, to one receiver.
func (s *simulation) sendLetter(from, to order.ServerID, sent *outgoing) {
	s.sendOne(from, to, sent, sent.sum())
}

// sum is a frame's checksum.
func (o *outgoing) sum() uint32 {
	if o.letter != nil {
		return 0
	}
	return crc32.Checksum(o.frame, checksums)
}

// sendOne puts what is sent on a link. It is for the process that the receiver runs now.
func (s *simulation) sendOne(from, to order.ServerID, sent *outgoing, sum uint32) {
	if s.servers[to].member == nil {
		return // nobody ever listened there
	}
	kind := letterFrame
	if sent.letter != nil {
		kind = sent.letter.kind
	}
	at := s.network.put(from, to, s.now)
	s.trace.note(s.now, uint64(arrival), uint64(from), uint64(to), uint64(kind), uint64(sum), uint64(len(sent.frame)))
	if s.trace.text != nil {
		s.trace.say(s.now, "%d sends %s to %d, arriving at %v", from, s.describeLetter(sent.letter, sent.run, sent.frame), to, at)
	}
	s.queue.push(event{
		at: at, kind: arrival, server: to, from: from, letter: sent.letter, run: sent.run, frame: sent.frame, sum: sum, process: s.servers[to].process,
	})
}

// tellStand tells two others where a server stands, from time to time.
func (s *simulation) tellStand(id order.ServerID) {
	v := &s.servers[id]
	stand := &outgoing{letter: &letter{kind: letterStand, stand: v.member.stand()}}
	for range 2 {
		to := order.ServerID(s.life.chatter.IntN(len(s.servers)))
		if to != id {
			s.sendLetter(id, to, stand)
		}
	}
	if !v.member.left {
		s.queue.push(event{at: s.now + s.life.gossip, kind: gossiping, server: id, process: v.process})
	}
}

// crashProcess ends a server's process. Its disk may lose what was not synced yet; some come back.
func (s *simulation) crashProcess(id order.ServerID) {
	v := &s.servers[id]
	v.pauses, v.backlog = 0, nil
	v.crashes++
	lost := min(s.adversary.IntN(unsyncedMax+1), len(v.disk.blocks)-v.disk.synced)
	v.disk.blocks = slices.Clone(v.disk.blocks[:len(v.disk.blocks)-lost])
	s.reviewBy(id)
	if s.options.Faults.Has(FaultJoin) && !s.beyond() && s.adversary.IntN(3) > 0 {
		s.life.pending++
		s.queue.push(event{at: s.now + between(1*millisecond, 400*millisecond)(s.adversary), kind: restarting, server: id})
	}
}

// beyond tells that more servers may crash than a minority: then only safety is asked, and who crashed stays away.
func (s *simulation) beyond() bool { return s.options.Crashes > (s.options.Servers-1)/2 }

// mayCrash tells whether a majority of the membership would still remember what it voted for if a server crashed: who came back counts again when it works.
func (s *simulation) mayCrash(id order.ServerID) bool {
	if s.beyond() {
		return true
	}
	need := len(s.life.chain.members)/2 + 1
	starting := !slices.ContainsFunc(s.servers, func(v server) bool {
		return v.member != nil && !v.crashed && v.member.working() == s.life.chain.group.run
	})
	if starting || s.life.chain.last != 0 || slices.ContainsFunc(s.life.wishes, func(w *wish) bool { return !w.done && w.change.kind == payloadJoin }) {
		need++ // the membership may be about to grow; and until somebody works in the next run, a generation needs a majority of the one before, too
	}
	return s.sound(id) >= need
}

// sound counts the members that work, another one and those about to leave excepted, and remember what they voted for.
func (s *simulation) sound(but order.ServerID) int {
	sound := 0
	for _, id := range s.life.chain.members {
		v := &s.servers[id]
		leaves := slices.ContainsFunc(s.life.wishes, func(w *wish) bool { return !w.done && w.change == change{kind: payloadLeave, server: id} })
		if id != but && v.member != nil && !v.crashed && !v.member.left && v.member.starts > 0 && !leaves {
			sound++
		}
	}
	return sound
}
