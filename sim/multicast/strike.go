package multicast

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/ledgerd/ledgerd/order"
)

// strike executes a fault, unless its victim is gone already.
func (s *simulation) strike(f fault) {
	if s.calm > 0 {
		return
	}
	victim := f.victim
	if f.leads {
		victim.Server = s.oracle.leader(victim.Group)
	}
	if f.kind == FaultReconfigure {
		if s.sizes[victim.Group] == 1 {
			return
		}
		victim.Server = order.ServerID(s.sizes[victim.Group] - 1)
	} else if s.gone(victim) && f.kind != FaultOverwhelm && f.kind != FaultSuspect {
		return
	}
	s.result.Faults++
	s.result.struck = append(s.result.struck, f.number)
	s.world.trace.Note(s.world.Now(), 3, uint64(f.number), uint64(s.world.number(victim)))
	if s.world.trace.HasText() {
		s.world.trace.Say(s.world.Now(), "%v (it is %v)", f, victim)
	}
	switch f.kind {
	case FaultCrash, FaultClient:
		s.crash(victim)
	case FaultSuspect:
		s.oracle.err(s, f)
	case FaultSlow, FaultPartition:
		s.cut(victim, f.others, f.span)
	case FaultHang:
		s.hang(victim, f.span)
	case FaultRestart:
		s.goDown(victim)
		s.stage.network.After(f.span, func() { s.restart(victim) })
	case FaultReconfigure:
		s.resize(victim, f.span)
	case FaultOverwhelm:
		s.result.Overwhelmed = true
		members := s.plan.deployment.Members(victim.Group)
		for _, member := range members[:s.plan.deployment.Tolerated(victim.Group)+1] {
			if !s.gone(member) {
				s.crash(member)
			}
		}
	}
}

// crash crashes a process.
func (s *simulation) crash(victim order.Replica) {
	p := &s.world.processes[s.world.number(victim)]
	p.crashed, p.letters = true, nil
	s.world.trace.Say(s.world.Now(), "%v is gone", victim)
	s.leave(victim)
	s.stage.crash(s.world.number(victim), PeerOf(victim), len(s.world.processes)+len(s.world.logs))
}

// goDown ends a replica's host, which starts again later. What it sent last may get lost.
func (s *simulation) goDown(victim order.Replica) {
	p := &s.world.processes[s.world.number(victim)]
	p.crashed, p.letters = true, nil
	s.world.trace.Say(s.world.Now(), "%v is down", victim)
	s.stage.crash(s.world.number(victim), PeerOf(victim), len(s.world.processes)+len(s.world.logs))
}

// restart starts a replica again as its next incarnation, unless it crashed meanwhile.
func (s *simulation) restart(victim order.Replica) {
	number := s.world.number(victim)
	if s.gone(victim) || !s.world.processes[number].crashed {
		return
	}
	p := &s.world.processes[number]
	p.host, p.crashed, p.hangs = nil, false, false
	s.world.trace.Say(s.world.Now(), "%v starts again", victim)
	s.guard(victim, "panics", func() {
		if err := s.form.(Changer).Restart(victim); err != nil {
			s.breaks(Contract, fmt.Sprintf("%v does not start again: %v", victim, err))
		}
	})
	if s.asleep[number] {
		s.asleep[number] = false
		s.poll(number)
	}
}

// resize makes a group smaller by its last replica, for a span or, if that is 0, for good.
func (s *simulation) resize(last order.Replica, span time.Duration) {
	group, changer := last.Group, s.form.(Changer)
	s.sizes[group]--
	s.guard(last, "panics", func() { changer.Resize(group, s.sizes[group]) })
	if s.gone(last) {
		return
	}
	if span == 0 {
		s.leave(last)
		return
	}
	s.stage.network.After(span, func() {
		switch {
		case s.gone(last):
			return
		case s.sizes[group] != int(last.Server): // only the next one behind the last comes back
			s.leave(last)
			return
		}
		s.goDown(last)
		s.restart(last)
		s.sizes[group]++
		s.guard(last, "panics", func() { changer.Resize(group, s.sizes[group]) })
	})
}

// leave counts a process as failed.
func (s *simulation) leave(victim order.Replica) {
	s.history.Fail(victim)
	s.result.Crashed = append(s.result.Crashed, victim)
	if victim.Group != order.Clients {
		s.oracle.lose(s, victim)
	}
}

// hang stops a process's program, for a span or, if that is 0, for good.
func (s *simulation) hang(victim order.Replica, span time.Duration) {
	p := &s.world.processes[s.world.number(victim)]
	p.hangs = true
	if span == 0 {
		s.leave(victim)
		return
	}
	s.oracle.doubt(s, victim)
	s.stage.network.After(span, func() {
		if p.hangs && !s.gone(victim) {
			s.resume(victim)
		}
	})
}

// resume resumes a process that hung.
func (s *simulation) resume(victim order.Replica) {
	s.world.processes[s.world.number(victim)].hangs = false
	s.world.trace.Say(s.world.Now(), "%v goes on", victim)
	s.oracle.catchUp(s, victim)
	for _, m := range s.held[victim] {
		s.guard(victim, "panics", func() { s.form.Submit(victim, m) })
	}
	delete(s.held, victim)
}

// cut holds back everything on wires for a span.
func (s *simulation) cut(victim order.Replica, others []order.Replica, span time.Duration) {
	var wires [][2]order.Replica
	for _, other := range others {
		wires = append(wires, [2]order.Replica{victim, other})
		s.stage.cut(s.world.number(victim), s.world.number(other), PeerOf(victim), PeerOf(other))
	}
	s.wires = append(s.wires, wires...)
	s.stage.network.After(span, func() { s.mend(wires...) })
}

// mend mends the given wires, or all wires if none is given.
func (s *simulation) mend(wires ...[2]order.Replica) {
	if wires == nil {
		wires = slices.Clone(s.wires)
	}
	for _, ends := range wires {
		at := slices.Index(s.wires, ends)
		if at < 0 {
			continue
		}
		s.wires = slices.Delete(s.wires, at, at+1)
		s.world.trace.Say(s.world.Now(), "the wire between %v and %v is whole again", ends[0],
			ends[1])
		s.stage.mend(s.world.number(ends[0]), s.world.number(ends[1]), PeerOf(ends[0]),
			PeerOf(ends[1]))
	}
}

// oracle is the leader oracle of each group, with an output at each replica [TRAM, section 2.1].
type oracle struct {
	random *rand.Rand
	// truth is the leader of each group. said is each replica's output, and unheard whether it
	// changed while the replica hung.
	truth   []order.ServerID
	said    []order.ServerID
	unheard []bool
}

// begin makes all oracles of each group name one replica.
func (o *oracle) begin(s *simulation) {
	o.random = stream(s.options.Seed, oracleStream)
	o.said, o.unheard = make([]order.ServerID, len(s.world.processes)),
		make([]bool, len(s.world.processes))
	for group, size := range s.plan.deployment.Sizes {
		o.truth = append(o.truth, order.ServerID(o.random.IntN(size)))
		for _, member := range s.plan.deployment.Members(order.GroupID(group)) {
			o.say(s, member, o.truth[group])
		}
	}
}

func (o *oracle) leader(group order.GroupID) order.ServerID { return o.truth[group] }

// say changes an oracle's output at a replica.
func (o *oracle) say(s *simulation, at order.Replica, leader order.ServerID) {
	number := s.world.number(at)
	o.said[number] = leader
	p := &s.world.processes[number]
	switch {
	case p.crashed:
	case p.hangs:
		o.unheard[number] = true
	default:
		s.world.trace.Note(s.world.Now(), 4, uint64(number), uint64(leader))
		if s.world.trace.HasText() {
			s.world.trace.Say(s.world.Now(), "%v hears that %d leads", at, leader)
		}
		s.guard(at, "panics", func() { s.form.Lead(at, leader) })
	}
}

// catchUp tells a resumed replica its oracle's current output.
func (o *oracle) catchUp(s *simulation, at order.Replica) {
	if number := s.world.number(at); o.unheard[number] {
		o.unheard[number] = false
		o.say(s, at, o.said[number])
	}
}

// sayLater changes an oracle's output after a while, unless the run has reached its calm part by
// then.
func (o *oracle) sayLater(s *simulation, after time.Duration, at order.Replica,
	leader order.ServerID) {
	s.stage.network.After(after, func() {
		if s.calm == 0 {
			o.say(s, at, leader)
		}
	})
}

// wavering is the longest time that a wavering oracle keeps naming one leader.
const wavering = 300 * time.Microsecond

// err makes oracles name another leader, for a while or until they name the next. It also holds
// back operations of the previous leader, so that they may land after the new one took over.
func (o *oracle) err(s *simulation, f fault) {
	group := f.victim.Group
	before := order.Replica{Group: group, Server: o.truth[group]}
	if others := slices.DeleteFunc(slices.Clone(f.others), func(r order.Replica) bool {
		return r == before
	}); len(others) > 0 {
		s.cut(before, others, f.held)
	}
	if f.span == 0 {
		o.truth[group] = f.other
	}
	for i, at := range f.told {
		o.sayLater(s, f.late[i], at, f.other)
		wavers := f.late[i]
		for range f.turns {
			wavers += between(o.random, time.Microsecond, wavering)
			o.sayLater(s, wavers, at, before.Server)
			wavers += between(o.random, time.Microsecond, wavering)
			o.sayLater(s, wavers, at, f.other)
		}
		if f.span > 0 {
			s.stage.network.After(wavers+f.span, func() {
				if s.calm == 0 {
					o.say(s, at, o.truth[group])
				}
			})
		}
	}
}

// lose makes the oracles that name a lost replica learn, each after a while, that it is gone.
func (o *oracle) lose(s *simulation, lost order.Replica) {
	if o.truth[lost.Group] == lost.Server {
		o.truth[lost.Group] = o.choose(s, lost.Group)
	}
	for _, at := range s.plan.deployment.Members(lost.Group) {
		s.stage.network.After(between(o.random, 20*time.Microsecond, time.Millisecond), func() {
			if s.calm == 0 && o.said[s.world.number(at)] == lost.Server {
				o.say(s, at, o.truth[lost.Group])
			}
		})
	}
}

// doubt sometimes makes oracles treat a hanging replica as gone.
func (o *oracle) doubt(s *simulation, hanging order.Replica) {
	if hanging.Group != order.Clients && o.random.IntN(3) != 0 {
		o.lose(s, hanging)
	}
}

// choose picks a replica of a group that is fit to lead, or server 0 if there is none.
func (o *oracle) choose(s *simulation, group order.GroupID) order.ServerID {
	fit := slices.DeleteFunc(s.plan.deployment.Members(group), func(r order.Replica) bool {
		p := &s.world.processes[s.world.number(r)]
		return p.crashed || p.hangs || s.gone(r)
	})
	if len(fit) == 0 {
		return 0
	}
	return fit[o.random.IntN(len(fit))].Server
}

// settle makes the oracles of each group name one live replica, for good.
func (o *oracle) settle(s *simulation) {
	for group := range s.plan.deployment.Sizes {
		g := order.GroupID(group)
		truth := order.Replica{Group: g, Server: o.truth[group]}
		if s.gone(truth) {
			o.truth[group] = o.choose(s, g)
		}
		for _, at := range s.plan.deployment.Members(g) {
			if o.said[s.world.number(at)] != o.truth[group] {
				s.stage.network.After(between(o.random, 0, 200*time.Microsecond), func() {
					o.say(s, at, o.truth[group])
				})
			}
		}
	}
}
