package shard

import "fmt"

// fallBack sets the blocks past a height aside, which are not in what the majority goes on from.
// Never one that is durable: then the members disagree on what is, and only an operator can tell.
func (m *Member) fallBack(keep uint64) {
	if durable := m.chain.Heights().Durable; durable > keep {
		m.finish(fmt.Errorf("%w: it goes on from block %d, and block %d is durable here; a majority of the nodes has lost its disks, or a disk was rolled back: stop all nodes and compare them with `ledgerd recover`",
			ErrFork, keep, durable))
		return
	}
	if m.now < m.settleAt {
		return
	}
	m.followed, m.fetchedIn, m.fetchedTo = 0, 0, 0
	m.job = settingAside
	m.emit(SetAside{Keep: keep})
}

func (m *Member) onSetAside(in WasSetAside) {
	if m.job != settingAside {
		return
	}
	m.job = idle
	if in.Failed {
		m.settleAt = m.now + m.config.Timing.Announce
	}
}
