package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/ledgerd/ledgerd/clock"
	"github.com/ledgerd/ledgerd/order"
)

// Time is the property that the time of blocks is right:
//
//   - A block is never older than its parent.
//   - It is more than clock.MaxStep younger only if its time is that of a batch that shows the
//     clocks of a majority of the parent's members.
//   - Servers that execute the same round after the same block give it the same time.
//   - While fewer than a majority of the members ever have wrong clocks, no block is dated later
//     than accuracy + clock.Bound after the true time.
//   - Under the same condition, a node proposes a time between A + accuracy + clock.Bound before
//     the true time and accuracy + clock.Bound after it, where A is the age of the oldest
//     announcement that any node heard so far.
//   - At rest, if a majority of the members run and their clocks were always right, each of them
//     proposes its time and warns of nothing, and a block that it alone proposes is dated no more
//     than accuracy before the true time. A node whose clock is far off proposes no time, and says
//     so.
//
// So the time comes back with the first such block. It is never later than accuracy + clock.Bound
// after the true time, which therefore reaches it within that time.
//
// The bounds follow from the rules of package clock. A node proposes its clock if the clocks of a
// majority seem to be within the bound of it. One of these clocks is right: it showed a time within
// accuracy of the true one when it was announced. It has advanced since then, and the node counts
// that from when it heard the announcement, which is at most A later. So the clock seems to show a
// time between A + accuracy before the true time and accuracy after it, and the proposal is within
// the bound of that. A block has its parent's time or at most a proposed time, and true time
// advances. So if the upper bound holds for the parent, it holds for the block.
const Time order.Property = "time"

// rounding is the maximum sum of rounding errors to whole milliseconds.
const rounding clock.Milliseconds = 2

// heardSince is the time after the last fault when everything that nodes know about clocks was
// heard after that fault.
const heardSince = Instant(clock.HeardLasts/time.Nanosecond) + 2_000*millisecond

// probeNumber numbers the entries of probes, far from the users' numbers.
const probeNumber = 1 << 20

// timed is the state of the oracle of the time.
type timed struct {
	// wrong are the servers whose clocks are wrong at some time. unsure reports that they were a
	// majority of some membership, so that they may decide the time.
	wrong  []bool
	unsure bool
	// oldest is the age of the oldest announcement that a node heard.
	oldest Instant
	// children are the blocks after each block, with the rounds that they were made of.
	children map[*block][]dated
	// probes counts the probes. probed is the true time at which a server with a right clock was
	// asked for a block at rest.
	probes int
	probed clock.Milliseconds
}

type dated struct {
	block *block
	round *content
}

func (s *simulation) newTimed() timed {
	return timed{wrong: make([]bool, len(s.servers)), children: make(map[*block][]dated)}
}

// noteMembers records whether a majority of a membership may have wrong clocks.
func (s *simulation) noteMembers(m *membership) {
	wrong := 0
	for _, id := range m.members {
		if s.life.timed.wrong[id] {
			wrong++
		}
	}
	s.life.unsure = s.life.unsure || wrong >= clock.Majority(len(m.members))
}

// noteAge records the age of an announcement that is heard.
func (s *simulation) noteAge(l *peerMessage) { s.life.oldest = max(s.life.oldest, s.now-l.sent) }

// judgeProposal judges the time that a server may propose.
func (s *simulation) judgeProposal(p *process, v *clock.View) {
	if v.Time == clock.NoTime || s.life.unsure {
		return
	}
	age := clock.Milliseconds(s.life.oldest / millisecond)
	off := v.Time - s.trueTime()
	if off > accuracy+clock.Bound+rounding || off < -age-accuracy-clock.Bound-rounding {
		s.broke(Time, fmt.Sprintf("server %d proposes a time that is %v from the true one",
			p.self, span(off)),
			fmt.Sprintf("the oldest announcement heard was on its way for %v, it shows %d of %d "+
				"clocks",
				s.life.oldest, len(v.Near), v.Members))
	}
}

// judgeTime judges the time of a block when the first server makes it from a round.
func (s *simulation) judgeTime(p *process, b *block, c *content) {
	if b.members != b.parent.members {
		s.noteMembers(b.members)
	}
	step := b.time - b.parent.time
	for _, sibling := range s.life.children[b.parent] {
		if sibling.block.time != b.time && sibling.round.same(c) {
			s.brokeTime(p, b, fmt.Sprintf("another server dated it %v after its parent, from "+
				"the same round",
				span(sibling.block.time-b.parent.time)))
			return
		}
	}
	s.life.children[b.parent] = append(s.life.children[b.parent], dated{b, c})
	proposed, proven := b.time == b.parent.time, false
	for _, m := range c.messages {
		said := stampOf(m.Payload)
		if said.time == b.time {
			proposed, proven = true, proven || shows(b.parent.members, said.clocks)
		}
	}
	switch {
	case step < 0:
		s.brokeTime(p, b, "time goes back")
	case !proposed:
		s.brokeTime(p, b, "no batch of the round has that time")
	case step > clock.MaxStep && !proven:
		s.brokeTime(p, b, "no batch with that time shows the clocks of a majority")
	case !s.life.unsure && b.time > s.trueTime()+accuracy+clock.Bound+rounding:
		s.brokeTime(p, b, "most clocks are right")
	}
}

// brokeTime records what is wrong with a block's time.
func (s *simulation) brokeTime(p *process, b *block, wrong string) {
	s.broke(Time, fmt.Sprintf("server %d dates block %d %v after its parent, %v from the true time",
		p.self, b.height, span(b.time-b.parent.time), span(b.time-s.trueTime())), wrong)
}

// shows reports whether clocks are those of a majority of the members.
func shows(m *membership, clocks []clock.MemberClock) bool {
	shown := make(map[clock.MemberIndex]bool)
	for _, each := range clocks {
		if m.has(order.ServerID(each.Member)) && max(each.Offset, -each.Offset) <= clock.Bound {
			shown[each.Member] = true
		}
	}
	return 2*len(shown) > len(m.members)
}

// probe makes servers propose blocks at rest, first one whose clock is wrong and then one whose
// clock was always right, and judges the results. It reports whether there is more to wait for.
func (s *simulation) probe() (waits bool) {
	if !s.options.Faults.Has(FaultClock) || s.life.setting.alone || s.over() {
		return false
	}
	l := s.life
	if s.now < s.faultsEnd+heardSince {
		return s.options.Seed%8 == 0 // only some lives wait until they hear clocks that count
	}
	right, wrong := s.keepers()
	judged := !l.unsure && 2*len(right) > len(l.tip().members.members)
	l.probes++
	switch {
	case l.probes == 1 && len(wrong) > 0:
		s.ask(wrong[0])
		return true
	case l.probes <= 2 && l.probed == 0 && judged:
		s.judgeViews(right, wrong)
		l.probed = s.trueTime()
		s.ask(right[0])
		return true
	case l.probed != 0 && l.tip().time < l.probed-accuracy:
		s.broke(Time, fmt.Sprintf("at rest, server %d proposes a block", right[0]),
			fmt.Sprintf("its time is %v from the true one", span(l.tip().time-l.probed)))
	}
	return false
}

// keepers lists the running members with clocks that were always right, and those with clocks that
// are far off now.
func (s *simulation) keepers() (right, wrong []order.ServerID) {
	for _, id := range s.life.tip().members.members {
		v := &s.servers[id]
		if v.process == nil || !v.process.works() {
			continue
		}
		if off := v.wall.off(s.now); !s.life.wrong[id] {
			right = append(right, id)
		} else if max(off, -off) > clock.Bound+3*accuracy {
			wrong = append(wrong, id)
		}
	}
	return right, wrong
}

// judgeViews judges what nodes know about their clocks at rest.
func (s *simulation) judgeViews(right, wrong []order.ServerID) {
	for _, id := range right {
		if view := s.servers[id].process.ownView(); view.Time == clock.NoTime ||
			view.Warning() != "" {
			s.broke(Time, fmt.Sprintf("the clocks of servers %v are right, a majority", right),
				fmt.Sprintf("server %d says: %s", id, view.Warning()))
		}
	}
	for _, id := range wrong {
		if view := s.servers[id].process.ownView(); !view.Far() || view.Warning() == "" {
			off := span(s.servers[id].wall.off(s.now))
			s.broke(Time, fmt.Sprintf("the clock of server %d is %v off", id, off),
				fmt.Sprintf("it says so: %v", view.Far()))
		}
	}
}

// ask makes a user submit an entry to a server.
func (s *simulation) ask(id order.ServerID) {
	entry := payload(s.adversary, int(id), probeNumber+s.life.probes, payloadMin)
	s.trace.Say(s.now, "a user submits to %d at rest", id)
	s.liveNow(event{at: s.now, kind: submission, server: id, frame: entry})
}

// span converts a span of the time of blocks, for output.
func span(ms clock.Milliseconds) time.Duration {
	return time.Duration(min(max(ms, -200*yearMs), 200*yearMs)) * time.Millisecond
}

// markWrong records which servers the plan gives wrong clocks.
func (s *simulation) markWrong() {
	for i := range s.life.disturbances {
		if d := &s.life.disturbances[i]; d.kind == FaultClock {
			s.life.wrong[d.server] = true
		}
	}
	s.noteMembers(s.life.genesis.members)
}

// indexes returns the members with the numbers of package clock.
func (m *membership) indexes() []clock.MemberIndex {
	indexes := make([]clock.MemberIndex, len(m.members))
	for i, id := range m.members {
		indexes[i] = clock.MemberIndex(id)
	}
	return slices.Clip(indexes)
}
