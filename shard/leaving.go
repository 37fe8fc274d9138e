package shard

import (
	"fmt"
	"slices"
)

// leaving is the end of a member that was removed. It stays for a moment, so that the others get
// the rest of what it sent, and clients an answer. Where it does not know whether the block that
// removed it is durable it stays longer: if that block is given up, it is a member.
type leaving struct {
	leavingSince int // one more than the tick; 0 while it is a member
	known        uint64
}

// leave ends this member's part when the operator has removed it from the membership.
func (m *Member) leave() {
	if m.end != nil || m.group != nil || m.starting != nil || m.job == settling {
		return
	}
	former := m.chain.Former()
	at := slices.IndexFunc(former, func(f Former) bool { return f.Server == m.config.Self })
	if at < 0 {
		if m.leavingSince != 0 {
			m.leavingSince, m.known = 0, 0
			m.setMode(Starting, because(Between), "the block that removed this node was given up")
		}
		return
	}
	left := former[at].Left
	end := fmt.Errorf("%w at block %d; its home can be removed", ErrRemoved, left)
	if m.leavingSince == 0 {
		m.leavingSince = m.now + 1
		m.setMode(Halted, because(Removed), "%v", ErrRemoved)
		if m.config.Disk.Gone {
			m.finish(end)
			return
		}
	}
	if m.chain.Heights().Durable >= left && m.known != left {
		m.known = left
		m.emit(RemovedForGood{Height: left})
	}
	stay := m.config.Timing.RemovedInDoubt
	if m.known == left {
		stay = m.config.Timing.Removed
	}
	if m.now-m.leavingSince >= stay {
		m.finish(end)
	}
}
