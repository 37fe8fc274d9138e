package sim

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/ledgerd/ledgerd/allconcur/generation"
	"github.com/ledgerd/ledgerd/dare"
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/shard"
	"github.com/ledgerd/ledgerd/shard/turn"
	"github.com/ledgerd/ledgerd/sim/fabric"
)

// remembering is a process's part in the one-sided memory of its life, and its runs of engines that
// work on it.
type remembering struct {
	host *fabric.Host
	// polled is the current run, if its engine works on memory. served are runs that ended, and
	// that others may need.
	polled *polledRun
	served []*polledRun
	// met is the last process that was met of each server.
	met []int
	// look is the next look at the memory: when it is, and its number.
	look struct {
		planned bool
		at      Instant
		number  int
	}
}

// polledRun is a run of an engine that works on memory.
type polledRun struct {
	process *process
	group   *shard.Group
	// machine is nil until all members were met: access to memory is granted to incarnations.
	machine *dare.Server
	turns   *turn.Polled
	peers   []rdmanet.Peer
	// lost are the servers that restarted since, and opinions says that there are some to pass on.
	lost     []bool
	opinions bool
	// gone says that it is frozen. until is when a run that ended is frozen, 0 for the current one.
	gone  bool
	until Instant
}

// inMemory starts the host of a process, if there is memory.
func (p *process) inMemory() (err error) {
	m := p.sim.life.memory
	if m == nil {
		return nil
	}
	if p.host, err = m.network.Start(hostOf(p.self)); err != nil {
		return err
	}
	p.met = make([]int, p.sim.life.setting.slots)
	p.met[p.self] = p.number
	if int(p.host.Incarnation()) != p.number {
		return fmt.Errorf("process %d is incarnation %d", p.number, p.host.Incarnation())
	}
	return nil
}

// startPolled starts a run of an engine that works on memory. It begins once all members were met.
func (p *process) startPolled(g *shard.Group) {
	p.turn, p.watched = nil, nil
	p.polled = &polledRun{process: p, group: g, lost: make([]bool, len(p.met))}
	p.engine = p.polled
	p.lookSoon()
}

// leavePolled ends the current run of an engine that works on memory, because another run starts.
// If it ended by itself, it goes on for members that do not know that.
func (p *process) leavePolled() {
	r := p.polled
	p.polled = nil
	switch {
	case r == nil || r.machine == nil || r.gone:
	case p.retired == eonOver:
		r.until = p.sim.now + serveFor
		p.served = append(p.served, r)
		p.lookSoon()
	default:
		p.freezePolled(r)
	}
}

// unmet lists the places of the members that were not met.
func (r *polledRun) unmet() (places []order.ServerID) {
	for place, member := range r.group.Members {
		if r.process.met[member] == 0 {
			places = append(places, order.ServerID(place))
		}
	}
	return places
}

// begin makes the engine, if all members were met.
func (r *polledRun) begin() {
	p, g := r.process, r.group
	s := p.sim
	if len(r.unmet()) > 0 {
		return
	}
	r.peers = nil
	for _, member := range g.Members {
		r.peers = append(r.peers, rdmanet.Peer{ID: hostOf(member),
			Incarnation: rdmanet.Incarnation(p.met[member])})
	}
	at, _ := place(g, p.self)
	machine, err := p.row.makeMachine(s.options.group.with(p.row), seat{
		self: at, servers: len(g.Members), shard: len(g.Shard.Members), run: uint64(g.Run),
		first: g.First, payloadMax: s.options.PayloadMax + overhead, changes: changes,
		silence: time.Duration(s.life.memory.silence),
		note: func(format string, arguments ...any) {
			if s.trace.HasText() {
				s.trace.Say(s.now, "%d in run %v: %s", p.self, run(g.Run),
					fmt.Sprintf(format, arguments...))
			}
		},
	}, r.peers, p.host)
	if err != nil {
		s.breach(p.self, fmt.Sprintf("no engine for run %v of %v in a shard of %d: %v", run(g.Run),
			g.Members, len(g.Shard.Members), err))
		return
	}
	r.machine = machine
	r.turns = turn.NewPolled(machine, g.Members, len(g.Shard.Members))
	r.opinions = true
}

// meets notes which process of a server was met. A member of the run that restarted has lost its
// part in it.
func (p *process) meets(server order.ServerID, number int) {
	if p.host == nil || p.met[server] >= number {
		return
	}
	p.met[server] = number
	if r := p.polled; r != nil {
		at := slices.Index(r.group.Members, server)
		r.lost[server] = r.lost[server] || r.machine != nil && at >= 0 &&
			int(r.peers[at].Incarnation) < number
		r.opinions = true
		p.lookSoon()
	}
}

// lookIn plans the next look at the memory, unless there is an earlier one.
func (p *process) lookIn(after Instant) {
	s := p.sim
	at := s.now + after
	if p.look.planned && p.look.at <= at {
		return
	}
	p.look.planned, p.look.at = true, at
	p.look.number++
	s.queue.push(event{at: at, kind: polling, server: p.self, process: p.number,
		number: p.look.number})
}

// lookSoon makes a process look at its memory as soon as it can.
func (p *process) lookSoon() {
	if p.polled != nil || len(p.served) > 0 {
		p.lookIn(between(0, wakesWithin)(p.sim.life.memory.random))
	}
}

// polls takes a turn of each run that works on memory, and plans the next ones.
func (p *process) polls() {
	p.look.planned = false
	busy, waits := false, false
	now := time.Duration(p.sim.now)
	for _, r := range slices.Clone(p.served) {
		if r.until <= p.sim.now {
			p.freezePolled(r)
			p.served = slices.DeleteFunc(p.served, func(s *polledRun) bool { return s == r })
			continue
		}
		busy = r.machine.Poll(now) || busy
		r.attach()
		waits = waits || r.machine.Outstanding() > 0
	}
	if r := p.polled; r != nil && !r.gone {
		if r.machine == nil {
			r.begin()
		}
		if r.machine != nil && !p.sim.over() {
			busy = p.turnPolled(r) || busy
			waits = waits || !r.gone && r.machine.Outstanding() > 0
		}
	}
	switch {
	case !p.up() || p.polled == nil && len(p.served) == 0:
	case busy:
		p.lookIn(between(1*microsecond, wakesWithin)(p.sim.life.memory.random))
	case waits:
		p.lookIn(underWay)
	default:
		p.lookIn(p.sim.life.memory.idle)
	}
}

// turnPolled is a turn as in node/poller: opinions, batches, a poll, attachments, deliveries.
func (p *process) turnPolled(r *polledRun) (busy bool) {
	if r.opinions {
		r.opinions = false
		r.turns.Opine(func(member order.ServerID) bool {
			return p.suspects[member] || r.lost[member]
		})
		busy = true
	}
	busy = p.broadcastPolled(r) || busy
	busy = r.machine.Poll(time.Duration(p.sim.now)) || busy
	if p.works() && r.machine.Outstanding() > 0 && p.sim.endsInPosts(p) {
		return false
	}
	r.attach()
	if !p.works() || p.polled != r {
		return busy
	}
	if rounds := r.turns.Deliver(); rounds != nil && !p.withheld() {
		r.turns.Taken()
		p.sim.deliverRounds(p, rounds)
		busy = true
	}
	if p.works() && p.polled == r && !p.sim.over() {
		p.endPolled(r)
	}
	return busy
}

// endsInPosts crashes a process whose planned crash is due while operations of it are under way.
func (s *simulation) endsInPosts(p *process) bool {
	c := s.due(p.self, p.engine)
	if c == nil || c.moment != sending {
		return false
	}
	if c.skip > 0 {
		c.skip--
		return false
	}
	s.crash(p.self)
	return true
}

// attach makes the attachments that the engine wants.
func (r *polledRun) attach() {
	for _, want := range r.machine.Wanted() {
		attachment, err := r.process.host.Attach(context.Background(), want.Peer, want.Region)
		if err != nil {
			r.machine.Attached(want.Number, nil, err)
			continue
		}
		r.machine.Attached(want.Number, attachment, nil)
	}
}

// broadcastPolled A-broadcasts what is to be ordered.
func (p *process) broadcastPolled(r *polledRun) (some bool) {
	for p.works() && p.polled == r && r.turns.MayBroadcast() {
		payload := p.batch()
		if payload == nil && !r.turns.EmptyDue() {
			return some
		}
		if !r.turns.Broadcast(payload) {
			p.sim.breach(p.self, "it refuses an A-broadcast though CanBroadcast holds: "+
				r.turns.Halted())
			return some
		}
		p.broadcasts(payload)
		some = true
	}
	return some
}

// endPolled tells the member that the engine halted, or that the eon is over.
func (p *process) endPolled(r *polledRun) {
	if reason := r.turns.Halted(); reason != "" {
		p.retire("halted: " + reason)
		p.step(shard.EngineHalted{Run: r.group.Run, Reason: reason})
	} else if members, ended := r.turns.Ended(); ended {
		p.endEon(members)
	}
}

// freezePolled ends this server's part in a run, and returns what it leaves behind. The memory of
// the run is closed some time later: a process may lose its processor between the two.
func (p *process) freezePolled(r *polledRun) turn.Left {
	if r.machine == nil || r.gone {
		r.gone = true
		return turn.Left{}
	}
	r.gone = true
	fails := func(err error) {
		if err != nil && p.up() {
			p.sim.breach(p.self, fmt.Sprintf("run %v cannot be frozen: %v", run(r.group.Run), err))
		}
	}
	left, err := r.turns.Freeze()
	fails(err)
	m := p.sim.life.memory
	m.network.After(time.Duration(between(0, closesWithin)(m.random)),
		func() { fails(r.machine.Close()) })
	return left
}

// reportPolled freezes the current run. It passes on the rounds that it A-delivered, and returns
// what the log has behind them.
func (p *process) reportPolled(r *polledRun) (report generation.Report) {
	began := r.machine != nil
	left := p.freezePolled(r)
	for _, d := range left.Untaken {
		c := p.content(d)
		if p.sim.judgeDelivery(p, c); p.sim.over() {
			return report
		}
		p.executing.queue = append(p.executing.queue, work{round: c})
	}
	if !began {
		return report
	}
	report.Bound = generation.LogBound(left.Log.RoundsMax)
	report.Last = generation.LogEnd{Stamp: left.Log.Stamp, Index: left.Log.Index}
	for _, v := range left.Votes {
		report.Votes = append(report.Votes, p.vote(v))
	}
	return report
}

// The following methods are what the rest of a process asks its engine.

// CanBroadcast reports whether the engine takes a message.
func (r *polledRun) CanBroadcast() bool { return r.machine != nil && r.turns.MayBroadcast() }

// Solicited reports whether others wait for a message, even an empty one.
func (r *polledRun) Solicited() bool { return r.CanBroadcast() && r.turns.EmptyDue() }

// Undelivered reports whether something waits for its round.
func (r *polledRun) Undelivered() bool { return r.machine == nil || r.turns.Waits() }

// OutsideMajority reports whether so many members are missing that no majority is left.
func (r *polledRun) OutsideMajority() bool { return r.machine != nil && r.turns.Outside() }

// Status describes the engine, or a run that waits for members.
func (r *polledRun) Status() order.Status {
	if r.machine != nil {
		return r.machine.Status()
	}
	status := order.Status{Round: r.group.First, Awaited: r.unmet()}
	for place := range r.group.Members {
		status.Members = append(status.Members, order.ServerID(place))
	}
	return status
}
