package shard

import (
	"math/bits"
	"slices"

	"github.com/ledgerd/ledgerd/order"
)

// A round is as slow as its slowest member. Each member therefore counts for how long the rounds
// waited for one member alone. A member that held them up for longer than a bound goes on the
// bench: a mark, ordered like an entrant's, makes the next eon begin without it. It stays a member
// of the shard. It follows, its disk counts as far as it keeps up, and it asks to enter again at
// once.
//
// The group takes it in once it has announced itself regularly for a while. The more often it was
// benched or removed recently, the longer that takes. A machine that pauses again and again
// therefore stays out as long as it keeps pausing.

// lagWindow is how many ticks the watch covers; at most 64.
const lagWindow = 30

// Lag counts the ticks, of the last lagWindow, in which the rounds waited for Server alone.
type Lag struct {
	Server order.ServerID
	Ticks  int
}

// lag has one bit for each tick, the latest in bit 0.
type lag struct {
	server order.ServerID
	ticks  uint64
}

func (l *lag) count() int { return bits.OnesCount64(l.ticks & (1<<lagWindow - 1)) }

// watchLags records which member the rounds waited for in this tick, and benches a member that held
// them up for too long. If several members are awaited at once, the machine or the network is slow
// rather than one member. If messages go from member to member, all wait for one, and none knows
// for which: nobody is benched.
func (m *Member) watchLags(in Progressed) {
	for i := range m.lags {
		m.lags[i].ticks <<= 1
	}
	m.lags = slices.DeleteFunc(m.lags, func(l lag) bool { return l.ticks&(1<<lagWindow-1) == 0 })
	if in.Waiting < 1 || len(in.Awaited) != 1 || in.Awaited[0] == m.config.Self ||
		in.Relayed {
		return
	}
	slow := in.Awaited[0]
	at := slices.IndexFunc(m.lags, func(l lag) bool { return l.server == slow })
	if at < 0 {
		at = len(m.lags)
		m.lags = append(m.lags, lag{server: slow})
	}
	m.lags[at].ticks |= 1
	if m.lags[at].count() < m.config.Timing.Bench || !m.mayBench(slow) {
		return
	}
	bench := WishReceived{From: slow, Wish: Wish{Kind: wishBench}}
	if m.mark(bench) {
		m.emit(Mark{Bench: true, Entrant: Entrant{Server: slow}})
	}
}

// mayBench reports whether the group can go on without a server.
func (m *Member) mayBench(server order.ServerID) bool {
	left := len(m.group.Members) - len(m.removed) - 1
	return m.group.Includes(server) && !slices.Contains(m.removed, server) &&
		left >= m.group.Shard.Quorum()
}

// benched removes the marked members from the next group, in the order of the marks, as long as a
// majority is left. Every member computes the same result.
func benched(next *Group, marked []order.ServerID) {
	for _, server := range marked {
		at, found := slices.BinarySearch(next.Members, server)
		if found && len(next.Members) > next.Shard.Quorum() {
			next.Members = slices.Delete(next.Members, at, at+1)
		}
	}
}

// troubled records that a member was benched or removed.
func (m *Member) troubled(server order.ServerID) {
	p := m.peer(server)
	p.troubles = slices.DeleteFunc(p.troubles, func(at int) bool {
		return m.now-at >= m.config.Timing.Trouble
	})
	p.troubles = append(p.troubles, m.now)
	if len(p.troubles) > troublesMax {
		p.troubles = p.troubles[1:]
	}
}

// troublesMax bounds the troubles remembered for one member.
const troublesMax = 4

// steady reports whether a member's troubles allow it to enter. After one trouble it may enter at
// once, after more only once it has announced itself regularly for a while.
func (m *Member) steady(p *peer) bool {
	recent := 0
	for _, at := range p.troubles {
		if m.now-at < m.config.Timing.Trouble {
			recent++
		}
	}
	if recent < 2 {
		return true
	}
	return m.now-p.steadySince >= (recent-1)*m.config.Timing.Steady
}

// Lags returns, for each member that the rounds of this run waited for alone recently, for how long
// they did.
func (m *Member) Lags() []Lag {
	var lags []Lag
	for i := range m.lags {
		lags = append(lags, Lag{Server: m.lags[i].server, Ticks: m.lags[i].count()})
	}
	return lags
}
