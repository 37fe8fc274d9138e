package sim

import (
	"fmt"
	"slices"

	"github.com/ledgerd/ledgerd/order"
)

// Some partitions follow a leader of package dare step by step. In their schedules the rules matter
// by which a generation goes on from frozen logs (choose_log.go of package generation). A leader
// commits by what it wrote into the memory of others, within microseconds. A partition at a drawn
// instant hardly ever falls between two of its steps. And servers that reach each other's memory
// elect another leader long before they stall, so no generation begins there.

// lead is what a disturbance does around a leader. 0 is nothing.
type lead uint8

const (
	// leadSucceeded cuts a minority off, often with the leader, whose log then goes on alone. As
	// soon as the leader of the others A-delivers a block, that leader is cut off in their place,
	// before it tells any follower what is committed. The rest hear each other in one direction
	// only. They share no memory, stall, and promise a generation with what their logs have.
	leadSucceeded lead = iota + 1
	// leadBridged makes two parts that do not share memory, each a majority with one follower, the
	// bridge. Wrong suspicions make the bridge and the part without the leader stall and promise a
	// generation, while the leader works. As soon as the bridge froze its log, users give the
	// leader something to order. As soon as the leader A-delivers it, the bridge is cut off from
	// it, and can tell nobody.
	leadBridged
)

// leads plans partitions around leaders.
func (d *disturber) leads() {
	plan := func(kind lead, text string) {
		for range d.random.IntN(3) {
			w := d.wait(FaultPartition, text)
			w.lead, w.while = kind, between(4*second, 10*second)(d.random)
		}
	}
	plan(leadSucceeded, "a leader is succeeded")
	if d.options.Faults.Has(FaultSuspect) {
		plan(leadBridged, "a bridge between two parts")
	}
}

// leader returns the process that leads the newest term of a run, nil if there is none.
func (s *simulation) leader() (newest *process) {
	for id := range s.servers {
		p := s.servers[id].process
		if p == nil || !p.works() || p.polled == nil || p.polled.machine == nil ||
			!p.polled.machine.Leading() {
			continue
		}
		if newest == nil || newest.group.Run < p.group.Run || newest.group.Run == p.group.Run &&
			newest.engine.Status().Epoch < p.engine.Status().Epoch {
			newest = p
		}
	}
	return newest
}

// fellows lists the members of a process's group without it, in a drawn order.
func (s *simulation) fellows(p *process) (all []order.ServerID) {
	for _, at := range s.life.olds.Perm(len(p.group.Members)) {
		if member := p.group.Members[at]; member != p.self {
			all = append(all, member)
		}
	}
	return all
}

// succeed begins a disturbance of leadSucceeded. It reports whether there is a leader.
func (s *simulation) succeed(d *disturbance) bool {
	p := s.leader()
	if p == nil || len(p.group.Members) < 3 {
		return false
	}
	d.servers = s.fellows(p)[:1+s.life.olds.IntN((len(p.group.Members)-1)/2)]
	if s.life.olds.IntN(3) > 0 {
		d.servers[0] = p.self
	}
	d.links = s.apart(d.servers...)
	d.text = fmt.Sprintf("%v cut off; %d led", d.servers, p.self)
	for _, member := range p.group.Members {
		s.submits(member, between(0, 2*second)(s.life.olds))
	}
	return true
}

// submits makes a user submit something to a server some time later.
func (s *simulation) submits(server order.ServerID, after Instant) {
	s.life.extra++
	s.queue.push(event{at: s.now + after, kind: submission, server: server,
		frame: payload(s.life.olds, int(server), extraFrom+s.life.extra, payloadMin)})
}

// extraFrom is greater than the numbers of other submissions.
const extraFrom = 2 * probeNumber

// firstDelivered is called when a server A-delivered a block that no other did.
func (s *simulation) firstDelivered(p *process) {
	if p.polled == nil || p.polled.machine == nil || !p.polled.machine.Leading() {
		return
	}
	for number := range s.life.disturbances {
		d := &s.life.disturbances[number]
		switch {
		case d.lead == 0 || !d.begun || s.now >= d.until || slices.ContainsFunc(d.servers,
			func(id order.ServerID) bool { return !p.group.Includes(id) }):
		case d.lead == leadSucceeded && !d.met && !slices.Contains(d.servers, p.self):
			d.met = true
			s.endNow(number)
			s.succeeded(p)
			return
		case d.lead == leadBridged && d.met && !d.again && slices.Contains(d.servers, p.self):
			d.again = true
			s.unbridge(d)
			return
		}
	}
}

// succeeded cuts a leader off that A-delivered a block first, and lets the others hear each other
// one way.
func (s *simulation) succeeded(p *process) {
	others := s.fellows(p)
	var oneWay [][2]order.ServerID
	for i, to := range others {
		for _, from := range others[:i] {
			oneWay = append(oneWay, [2]order.ServerID{to, from})
		}
		s.submits(to, between(0, 1*second)(s.life.olds))
	}
	while := between(4*second, 9*second)(s.life.olds)
	s.cutNow(oneWay, while, fmt.Sprintf("%v hear each other one way", others))
	s.cutNow(s.apart(p.self), while+between(3*second, 12*second)(s.life.olds),
		fmt.Sprintf("%d cut off, which just A-delivered a block first", p.self))
}

// cutNow cuts links at once, for a while.
func (s *simulation) cutNow(links [][2]order.ServerID, while Instant, text string) {
	for _, link := range links {
		s.cut(link[0], link[1], true)
	}
	d := disturbance{kind: FaultPartition, at: s.now, until: s.now + while, links: links,
		begun: true, text: text}
	number := len(s.life.disturbances)
	s.trace.Note(s.now, uint64(beginning), uint64(number))
	s.trace.Say(s.now, "begins: %s", d.text)
	s.life.pending++
	s.faultsEnd = max(s.faultsEnd, d.until)
	s.life.disturbances = append(s.life.disturbances, d)
	s.queue.push(event{at: d.until, kind: ending, number: number})
}

// endNow ends a partition before its time, once the present event is handled.
func (s *simulation) endNow(number int) {
	s.life.pending++
	s.queue.push(event{at: s.now, kind: ending, number: number})
}

// bridge begins a disturbance of leadBridged. It reports whether there is a leader, of a group with
// two such parts. There are none in a group of three: a follower stalls there only if it suspects
// the leader too. Then it campaigns, and takes its log away, before it promises.
func (s *simulation) bridge(d *disturbance) bool {
	p := s.leader()
	if p == nil || len(p.group.Members) < 5 ||
		len(p.group.Members) != len(p.group.Shard.Members) || len(p.group.Members)%2 == 0 {
		return false
	}
	others, most := s.fellows(p), len(p.group.Members)/2+1
	d.server, d.servers = others[0], append(others[1:most-1:most-1], p.self)
	d.links = nil
	for _, apart := range others[most-1:] {
		for _, one := range d.servers {
			d.links = append(d.links, [2]order.ServerID{one, apart})
		}
	}
	d.text = fmt.Sprintf("%v cannot be heard by %v, and %d hears all; %d leads", d.servers,
		others[most-1:], d.server, p.self)
	return true
}

// bridged makes the bridge suspect all but the leader, and the minority suspect all.
func (s *simulation) bridged(d *disturbance) {
	leader := d.servers[len(d.servers)-1]
	var wrong [][2]order.ServerID
	for id := range s.servers {
		observer := order.ServerID(id)
		for other := range s.servers {
			other := order.ServerID(other)
			if observer != other && !slices.Contains(d.servers, observer) &&
				(observer != d.server || other != leader) {
				wrong = append(wrong, [2]order.ServerID{other, observer})
			}
		}
	}
	s.addNow(disturbance{kind: FaultSuspect, links: wrong,
		text: fmt.Sprintf("%d suspects all but %d, and the others suspect all", d.server, leader)},
		d.while)
}

// unbridge cuts a bridge off from the part of the leader.
func (s *simulation) unbridge(d *disturbance) {
	var links [][2]order.ServerID
	for _, one := range d.servers {
		links = append(links, [2]order.ServerID{one, d.server}, [2]order.ServerID{d.server, one})
	}
	s.cutNow(links, between(3*second, 9*second)(s.life.olds), fmt.Sprintf("%d cut off from %v",
		d.server, d.servers))
}

// freezes is called when a process froze its part in a run.
func (s *simulation) freezes(p *process) {
	for number := range s.life.disturbances {
		d := &s.life.disturbances[number]
		if d.lead == leadBridged && d.begun && !d.met && s.now < d.until && d.server == p.self {
			d.met = true
			for range 4 {
				s.submits(d.servers[len(d.servers)-1], between(0, 20*millisecond)(s.life.olds))
			}
		}
	}
}
