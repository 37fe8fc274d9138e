package sim

import (
	"time"

	"github.com/ledgerd/ledgerd/clock"
	"github.com/ledgerd/ledgerd/order"
)

// telling is what a process knows about the time: its own clock, and the announced clocks of
// members.
type telling struct {
	began  Instant
	clocks *clock.Clocks
	// counted are the members whose clocks count.
	counted *membership
}

// clocksMax is the maximum number of clocks in a payload.
const clocksMax = 64

func (p *process) newTelling() telling {
	s := p.sim
	return telling{began: s.now, clocks: clock.New(clock.MemberIndex(p.self),
		s.life.setting.plant.clock())}
}

// sinceStart returns the process's monotonic clock.
func (p *process) sinceStart() time.Duration { return time.Duration(p.sim.now - p.telling.began) }

// countMembers makes the clocks of the chain's members count.
func (p *process) countMembers() {
	if now := p.chain.head().members; p.counted != now {
		p.counted = now
		p.clocks.SetMembers(now.indexes())
	}
}

// heardClock takes a member's announced time of day.
func (p *process) heardClock(from order.ServerID, l *peerMessage) {
	p.countMembers()
	p.sim.noteAge(l)
	p.clocks.Heard(clock.MemberIndex(from), clock.Milliseconds(l.announcement.Clock),
		p.sinceStart())
}

// ownView returns how the process's clock compares with the members' clocks.
func (p *process) ownView() clock.View {
	p.countMembers()
	return p.clocks.View(p.sim.timeOfDay(p.self), p.sinceStart())
}

// stamp returns the next batch's stamp of the time.
func (p *process) stamp() stamp {
	if p.member == nil {
		return stamp{} // an engine alone
	}
	view := p.ownView()
	p.sim.judgeProposal(p, &view)
	fits := func(clocks int) bool { return clocks <= clocksMax }
	var own stamp
	own.time, own.clocks = clock.Stamp(&view, p.chain.head().time, fits,
		p.sim.life.setting.plant.clock())
	return own
}
