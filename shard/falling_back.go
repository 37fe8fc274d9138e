package shard

import (
	"fmt"
	"slices"

	"github.com/ledgerd/ledgerd/allconcur/generation"
)

// fallBack sets aside the blocks above a height: the majority goes on from a point that does not
// include them. It never sets aside a durable block. If it would have to, the members disagree on
// what is durable, and only an operator can resolve that.
func (m *Member) fallBack(keep uint64) {
	if durable := m.durable(); durable > keep {
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
	m.job, m.keeps = settingAside, keep
	if m.reportKept(); m.end == nil {
		m.emit(SetAside{Keep: keep})
	}
}

// reportKept reports the chain that this member keeps, as if the blocks above it were set aside
// already. Promises and acceptances do not wait for that, and may reach others only afterwards. To
// report less is as safe as to set the blocks aside: whatever makes this member do so has them, or
// they were never durable.
func (m *Member) reportKept() {
	hash, err := m.chain.Hash(m.keeps)
	if err != nil {
		m.finish(err)
		return
	}
	round, _, err := m.chain.RoundOf(m.keeps)
	if err != nil {
		m.finish(err)
		return
	}
	membership, changed := m.chain.MembershipAt(m.keeps)
	report := generation.Report{
		Membership: membership, Durable: m.durable(), Perhaps: m.perhaps,
		Head: generation.Head{Height: m.keeps, Hash: hash, Round: round},
	}
	m.reportRecord(&report)
	report.Former = m.formers(changed, report.Durable)
	m.synod.Report(report)
	m.heldBases = slices.DeleteFunc(m.heldBases, func(base generation.Head) bool {
		goes := base.Height > m.keeps
		if goes {
			m.synod.Lacks(base.Hash)
		}
		return goes
	})
}

// onSetAside ends a fall back. It takes time. If one of the blocks became known to be durable
// meanwhile, they stay, and whatever asks for a shorter chain is judged again. That need not be a
// fork: if a majority recorded a round, the others may make its block durable by executing the tail
// of the very decision for which this member falls back.
func (m *Member) onSetAside(in WasSetAside) {
	if m.job != settingAside {
		return
	}
	m.job = idle
	m.asideRefused = in.Reason != ""
	switch {
	case m.asideRefused:
		m.settleAt = m.now + m.config.Timing.Announce
		m.haltForSpace(in.Reason)
	case in.Durable:
	default:
		m.followed, m.fetchedIn, m.fetchedTo, m.follows = 0, 0, 0, 0
		if r := m.recorded; r != nil && r.Height > m.keeps {
			m.recorded = nil
		}
	}
}
