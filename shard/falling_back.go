package shard

import "fmt"

// fallBack sets aside the blocks above a height: the majority goes on from a point that does not
// include them. It never sets aside a durable block. If it would have to, the members disagree on
// what is durable, and only an operator can resolve that.
func (m *Member) fallBack(keep uint64) {
	if durable := m.chain.Heights().Durable; durable > keep {
		m.finish(fmt.Errorf("%w: it continues from block %d, but this node holds block %d, which "+
			"was on the disks of a majority. More disks were lost, or replaced by older copies, "+
			"than the shard tolerates. Nothing is set aside here. Stop all nodes, keep all homes, "+
			"and compare their heights with `ledgerd recover`: this node's chain is the one to "+
			"continue from", ErrFork, keep, durable))
		return
	}
	if m.now < m.settleAt {
		return
	}
	// Waiting promises report the blocks that are about to go, so they are sent first.
	if m.pump(false); m.saving || m.job != idle || m.end != nil {
		return
	}
	m.followed, m.fetchedIn, m.fetchedTo, m.follows = 0, 0, 0, 0
	m.job = settingAside
	m.emit(SetAside{Keep: keep})
}

func (m *Member) onSetAside(in WasSetAside) {
	if m.job != settingAside {
		return
	}
	m.job = idle
	if m.asideRefused = in.Reason != ""; m.asideRefused {
		m.settleAt = m.now + m.config.Timing.Announce
		m.haltForSpace(in.Reason)
		return
	}
	m.recorded = nil // the driver's new chain has no record
}
