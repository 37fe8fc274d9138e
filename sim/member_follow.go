package sim

import (
	"slices"

	"github.com/ledgerd/ledgerd/order"
)

// follower is a member's way back: who is further, what was asked, when to ask again.
type follower struct {
	// best is the furthest that somebody said it stands, and ahead who said so.
	best  stand
	ahead order.ServerID
	// hearing is when each server was heard last.
	hearing []Instant
	// heardWorking is when another server last said that it works, in the newest generation that is known.
	heardWorking Instant
	// ticks counts those on which this process did not work or stood still; asked counts questions.
	ticks int
	asked int
}

// standstill is how long an engine has reached nothing new.
type standstill struct {
	since   Instant
	epoch   order.Epoch
	round   order.Round
	height  order.Round
	stalled bool
}

const (
	// askEvery and enterEvery are how many ticks pass between two questions, and two wishes to enter.
	askEvery   = 2
	enterEvery = 8
	// quietTicks is how long a process that does not work leaves the next generation alone after it heard that others do. Who promises that one may not enter theirs.
	quietTicks = 20
	// blocksMax bounds the blocks of a letter.
	blocksMax = 256
)

// wantsTick tells whether time matters to this process: it does not work, or its engine waits for others.
func (m *member) wantsTick() bool {
	return !m.left && (!m.works() || !m.engine.CanBroadcast() || m.behind())
}

// behind tells whether somebody holds more blocks.
func (m *member) behind() bool { return m.follower.best.height > m.chain.height() }

// tick passes time.
func (m *member) tick() {
	if m.left || !m.setting.synod {
		return
	}
	if m.works() {
		m.watch()
	}
	if m.works() && !m.standstill.stalled {
		m.follower.ticks = 0
		return
	}
	m.follow()
	if m.works() || m.endedInOrder() || m.now-m.follower.heardWorking > quietTicks*m.setting.tick {
		m.tickSynod()
	}
}

// endedInOrder tells that the group's generation ended in order, and that no later one is decided: one that is may be at work already, without this server.
func (m *member) endedInOrder() bool {
	ended, decided := m.chain.ended(), m.synod.Decided()
	return ended != 0 && (decided == nil || decided.Generation <= ended)
}

// watch notices a halt and a standstill: the own message is sent, or others are further, and nothing new is reached for too long.
func (m *member) watch() {
	status := m.engine.Status()
	if status.Halted != "" {
		m.retire("halted: " + status.Halted)
		return
	}
	s := &m.standstill
	waits := !m.engine.CanBroadcast() || m.behind()
	if !waits || s.epoch != status.Epoch || s.round != status.Round || s.height != m.chain.height() {
		*s = standstill{since: m.now, epoch: status.Epoch, round: status.Round, height: m.chain.height(), stalled: s.stalled}
	}
	if stalled := m.now-s.since >= m.setting.stallAfter; stalled != s.stalled {
		s.stalled = stalled
		m.synod.Stalled(stalled)
		m.pump()
	}
}

// follow asks for the blocks that others hold, and once there are none more, for the entrance into the group.
func (m *member) follow() {
	f := &m.follower
	f.ticks++
	if f.ticks%askEvery == 0 {
		to := f.ahead
		if !m.behind() || f.ticks%(3*askEvery) == 0 {
			to = m.someone()
		}
		m.post(to, &letter{kind: letterAsk, height: m.chain.height()})
	}
	working := m.chain.remaining
	if f.ticks%enterEvery == 0 && !m.works() && !m.behind() && m.chain.has(m.self) && len(working) > 0 {
		enter := m.entrance()
		if r := m.chain.group.run; m.frozen(r) {
			enter = change{payloadRegroup, m.self, uint64(r.generation())}
		}
		m.post(working[(f.ticks/enterEvery+int(m.self))%len(working)], &letter{kind: letterEnter, enter: enter})
	}
}

// startsMax bounds the engines that one process starts.
const startsMax = 1 << 32

// entrance is the wish to enter, another one after each run that this process took part in.
func (m *member) entrance() change {
	return change{payloadEnter, m.self, m.incarnation*startsMax + m.starts}
}

// someone is another member of the chain, each in turn.
func (m *member) someone() order.ServerID {
	others := m.chain.members
	return others[(m.turn()+int(m.self))%len(others)]
}

// stand is where this process stands. An engine that stands still does not work.
func (m *member) stand() stand {
	if !m.works() || m.standstill.stalled {
		return stand{height: m.chain.height()}
	}
	return stand{m.chain.height(), m.group}
}

// heard takes word of where another server stands. Who holds all blocks before a group's first learns the group from it, as that may have none yet.
func (m *member) heard(from order.ServerID, s stand) {
	if s.height > m.follower.best.height {
		m.follower.best, m.follower.ahead = s, from
	}
	if s.working == nil {
		return
	}
	if d := m.synod.Decided(); d != nil && s.run().generation() == d.Generation {
		m.follower.heardWorking = m.now
	}
	if g := s.working; !m.works() && g.run > m.chain.group.run && g.first == m.chain.height()+1 {
		m.chain.begin(g)
		m.start()
	}
}

// answer sends the blocks after a height, and where this process stands.
func (m *member) answer(to order.ServerID, height order.Round) {
	m.post(to, &letter{kind: letterStand, stand: m.stand()})
	if height < m.chain.height() {
		m.post(to, &letter{kind: letterBlocks, blocks: m.chain.blocks[height:min(m.chain.height(), height+blocksMax)]})
	}
}

// receiveBlocks takes blocks from another server, as long as the own engine does not work: one that stands still while others are further is left behind.
func (m *member) receiveBlocks(blocks []*block) {
	for _, b := range blocks {
		if b.round != m.chain.height()+1 {
			continue
		}
		if m.works() {
			if !m.standstill.stalled {
				return
			}
			m.retire("left behind")
		}
		if b.group.run.generation() > m.chain.group.run.generation() {
			m.chain.begin(b.group)
			if m.start(); m.works() {
				return
			}
		}
		if m.awaitsDecision() {
			break
		}
		m.take(b, false)
		if m.start(); m.works() {
			return
		}
	}
	m.generationMoved()
}

// receiveEnter has another process's entrance ordered.
func (m *member) receiveEnter(enter change) {
	if enter.kind == payloadRegroup && enter.incarnation != uint64(m.chain.group.run.generation()) {
		return
	}
	if m.chain.has(enter.server) && !slices.Contains(m.chain.group.entrants, enter) {
		m.propose(enter)
	}
}
