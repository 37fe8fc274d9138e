package shard

import (
	"math/bits"
	"slices"

	"github.com/ledgerd/ledgerd/order"
)

// A round is as slow as its slowest member. Each member therefore watches for how long the rounds
// waited for one member alone. A member that held them up for longer than a bound goes on the
// bench: a mark, ordered like an entrant's, has the next eon begin without it. It stays a member.
// It follows, its disk counts as far as it keeps up, and it asks to enter again at once. The
// members take it in once they have heard from it regularly for a while: longer, the more often it
// was benched or removed lately. So a machine that pauses again and again stays out while it does.

// lagWindow is how many ticks the watch remembers; at most 64.
const lagWindow = 30

// Lag is for how many of the last lagWindow ticks the rounds waited for a member alone.
type Lag struct {
	Server order.ServerID
	Ticks  int
}

// lag is a bit for each tick, the last one in bit 0.
type lag struct {
	server order.ServerID
	ticks  uint64
}

func (l *lag) count() int { return bits.OnesCount64(l.ticks & (1<<lagWindow - 1)) }

// watchLags notes for whom the rounds waited in this tick, and has the member benched that held
// them up for too long. Where several are awaited at once, the machine or the network is slow, and
// not one member.
func (m *Member) watchLags(in Progressed) {
	for i := range m.lags {
		m.lags[i].ticks <<= 1
	}
	m.lags = slices.DeleteFunc(m.lags, func(l lag) bool { return l.ticks&(1<<lagWindow-1) == 0 })
	if in.Waiting < 1 || len(in.Awaited) != 1 || in.Awaited[0] == m.config.Self {
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

// mayBench reports whether the group can go on without a member.
func (m *Member) mayBench(server order.ServerID) bool {
	left := len(m.group.Members) - len(m.removed) - 1
	return m.group.Includes(server) && !slices.Contains(m.removed, server) && left >= m.group.Shard.Quorum()
}

// benched takes the marked members out of the next group, in the order of the marks, as long as a
// majority is left. Every member comes to the same answer.
func benched(next *Group, marked []order.ServerID) {
	for _, server := range marked {
		at, found := slices.BinarySearch(next.Members, server)
		if found && len(next.Members) > next.Shard.Quorum() {
			next.Members = slices.Delete(next.Members, at, at+1)
		}
	}
}

// troubled notes that a member was benched or removed.
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

// troublesMax bounds what is remembered of a member.
const troublesMax = 4

// steady reports whether a member may enter as far as its troubles go: after the first one at once,
// after further ones only when it was heard regularly for a while.
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

// Lags returns for how long the rounds waited for single members lately, in this run.
func (m *Member) Lags() []Lag {
	var lags []Lag
	for i := range m.lags {
		lags = append(lags, Lag{Server: m.lags[i].server, Ticks: m.lags[i].count()})
	}
	return lags
}
