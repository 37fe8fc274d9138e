package sim

import (
	"fmt"
	"slices"

	"github.com/ledgerd/ledgerd/order"
)

// Some disturbances wait for their moment: a disk may be lost, an old one is at hand, or a server
// is ahead of the others or on a branch that the shard gave up.

// stray is what a disturbance does with a stray, which is a server with blocks that the shard gave
// up. 0 is nothing.
type stray uint8

const (
	// strayMade makes a stray: a server that stored a block first is cut off, and the others lose
	// their power.
	strayMade stray = iota + 1
	// strayMet leaves a member alone with a stray, preferably a member that asks for blocks at that
	// moment.
	strayMet
)

// ripeEvery is the time between two checks whether a disturbance can begin.
const ripeEvery = 150 * millisecond

// ripe reports whether a waiting disturbance begins now. Otherwise it is checked again later, or
// given up.
func (s *simulation) ripe(d *disturbance, number int) bool {
	can := false
	switch {
	case d.stray == strayMet:
		can = s.meetStray(d, nobody)
	case d.stray == strayMade:
		can = s.findAhead(d, nobody)
	case d.lead == leadSucceeded:
		can = s.succeed(d)
	case d.lead == leadBridged:
		can = s.bridge(d)
	case d.disk == diskReplaced:
		v := &s.servers[d.server]
		can = v.process != nil && v.process.ended == nil && s.mayForget(d.server)
	case d.disk == diskReturned:
		can = slices.ContainsFunc(d.servers, s.hasOther)
	}
	switch {
	case can:
		d.until = s.now + d.while
		s.queue.push(event{at: d.until, kind: ending, number: number})
		return true
	case s.now+ripeEvery <= d.patience:
		s.queue.push(event{at: s.now + ripeEvery, kind: beginning, number: number})
	default:
		s.life.pending--
	}
	return false
}

// moment begins the disturbances that wait for a server to ask for blocks, or to store some.
func (s *simulation) moment(what stray, id order.ServerID) {
	for number := range s.life.disturbances {
		d := &s.life.disturbances[number]
		if d.stray != what || d.until > 0 || s.now < d.at || s.now+ripeEvery > d.patience {
			continue
		}
		if what == strayMet && s.meetStray(d, id) || what == strayMade &&
			s.life.olds.IntN(2) == 0 && s.findAhead(d, id) {
			d.until = s.now + d.while
			s.queue.push(event{at: s.now, kind: beginning, number: number})
			s.queue.push(event{at: d.until, kind: ending, number: number})
			return
		}
	}
	if what == strayMet {
		s.meetMade(id)
	} else {
		s.strandAgain(id)
	}
}

// strandAgain cuts the power of all servers but a stray as soon as one of them stored a block at a
// height at which the stray has another block. The servers that lack the new block take part in the
// next generation, and must ask for it.
func (s *simulation) strandAgain(id order.ServerID) {
	b := s.servers[id].disk.blocks[s.servers[id].disk.synced]
	for number := range s.life.disturbances {
		d := &s.life.disturbances[number]
		stray := &s.servers[d.server]
		if d.stray != strayMade || !d.begun || d.again || s.now > d.until || id == d.server ||
			!s.isStray(d.server) ||
			b.height >= uint64(len(stray.disk.blocks)) || stray.disk.blocks[b.height] == b {
			continue
		}
		d.again = true
		var others []order.ServerID
		for other := range s.servers {
			if order.ServerID(other) != d.server {
				others = append(others, order.ServerID(other))
			}
		}
		s.addNow(disturbance{kind: FaultPower, servers: others,
			text: fmt.Sprintf("%v without power", others)},
			between(20*millisecond, 1*second)(s.life.olds))
		return
	}
}

// addNow begins a disturbance now, for a while.
func (s *simulation) addNow(d disturbance, while Instant) {
	d.at, d.until = s.now, s.now+while
	s.life.pending++
	s.faultsEnd = max(s.faultsEnd, d.until)
	s.life.disturbances = append(s.life.disturbances, d)
	number := len(s.life.disturbances) - 1
	s.queue.push(event{at: d.at, kind: beginning, number: number})
	s.queue.push(event{at: d.until, kind: ending, number: number})
}

// meetMade leaves a member that asks for blocks alone with a server that was made a stray before.
func (s *simulation) meetMade(id order.ServerID) {
	for number := range s.life.disturbances {
		d := &s.life.disturbances[number]
		if d.stray != strayMade || !d.begun || d.met || !d.again && s.life.olds.IntN(2) == 0 ||
			s.now > d.until+5*second || !s.isStray(d.server) || id == d.server {
			continue
		}
		d.met = true
		s.rejoin(d.server)
		s.addNow(disturbance{kind: FaultPartition, links: s.apart(id, d.server),
			text: fmt.Sprintf("%d alone with %d, which holds blocks that were given up", id,
				d.server)}, drawDuration(s.life.olds))
		return
	}
}

// isStray reports whether a running server holds blocks that the shard gave up.
func (s *simulation) isStray(id order.ServerID) bool {
	v := &s.servers[id]
	tip, head := s.life.tip(), v.disk.blocks[len(v.disk.blocks)-1]
	return v.process != nil && v.process.up() && (head.height > tip.height ||
		tip.ancestor(head.height) != head)
}

// meetStray looks for a stray, and for the member that will be alone with it: a given member, or
// any that lags.
func (s *simulation) meetStray(d *disturbance, member order.ServerID) bool {
	var strays, members []order.ServerID
	for id := range s.servers {
		v := &s.servers[id]
		switch id := order.ServerID(id); {
		case v.process == nil || !v.process.up():
		case s.isStray(id):
			strays = append(strays, id)
		case id == member || member == nobody && v.process.chain.head() != s.life.tip():
			members = append(members, id)
		}
	}
	if len(strays) == 0 || len(members) == 0 {
		return false
	}
	one, other := members[s.life.olds.IntN(len(members))], strays[s.life.olds.IntN(len(strays))]
	s.rejoin(other)
	d.links = s.apart(one, other)
	d.text = fmt.Sprintf("%d alone with %d, which holds blocks that were given up", one, other)
	return true
}

// apart lists the links between some servers and all others.
func (s *simulation) apart(some ...order.ServerID) (links [][2]order.ServerID) {
	for id := range s.servers {
		if other := order.ServerID(id); !slices.Contains(some, other) {
			for _, one := range some {
				links = append(links, [2]order.ServerID{one, other}, [2]order.ServerID{other, one})
			}
		}
	}
	return links
}

// rejoin reconnects a server that is cut off since it became a stray.
func (s *simulation) rejoin(id order.ServerID) {
	for number := range s.life.disturbances {
		d := &s.life.disturbances[number]
		if d.stray == strayMade && d.server == id && s.now < d.until {
			for _, link := range d.links {
				s.cut(link[0], link[1], false)
			}
			d.links = nil
		}
	}
}

// findAhead looks for a server that stored a block that too few others stored: a given server, or
// any.
func (s *simulation) findAhead(d *disturbance, server order.ServerID) bool {
	m := s.life.tip().members
	for _, id := range m.members {
		v := &s.servers[id]
		if v.process == nil || !v.process.works() || server != nobody && id != server {
			continue
		}
		newest := v.disk.blocks[v.disk.synced]
		hold := s.count(m.members, func(other order.ServerID) bool {
			return s.servers[other].disk.holds(newest)
		})
		if newest.height > v.disk.durable && hold < m.quorum() {
			d.server, d.links = id, s.apart(id)
			d.text = fmt.Sprintf("%d stored block %d first, is cut off, and the others lose "+
				"their power", id, newest.height)
			return true
		}
	}
	return false
}

// strand cuts the power of all servers but the one that is ahead. They come back before they hear
// from it.
func (s *simulation) strand(d *disturbance) {
	for id := range s.servers {
		id, v := order.ServerID(id), &s.servers[id]
		if id == d.server || v.process == nil || !v.process.up() {
			continue
		}
		s.stop(id)
		v.disk.losePower(lossZeros, s.life.disks)
		s.trace.Note(s.now, 112, uint64(id), uint64(lossZeros), v.disk.height())
		s.trace.Say(s.now, "%d is without power: %d blocks are left", id, v.disk.height())
		s.comeBack(id, between(20*millisecond, 1*second)(s.life.olds))
	}
}
