package shard

import (
	"fmt"
	"slices"

	"github.com/ledgerd/ledgerd/order"
)

// leaving is the end of a member that was removed. It stays until it knows that the block that removed
// it is durable, and then for a moment, so that the others get the rest of what it sent, and clients
// an answer. If that block is given up, it is a member still, and perhaps needed in a majority.
type leaving struct {
	leavingSince int // one more than the tick; 0 while it is a member
	known        uint64
	leavers      []leaver // the servers that left while this process ran
}

// leaver is a server that left, and when this process last had reason to talk to it.
type leaver struct {
	server order.ServerID
	at     int
}

// Leavers returns the servers that left and that this member still talks to: those that may be members
// again since the block that removed them is not known to be durable, those that take part in the
// run at hand, and both for a moment longer, in which they hear that their removal is durable. A
// driver asks whenever the membership or the group may have changed, and with each tick.
func (m *Member) Leavers() []order.ServerID {
	durable := m.chain.Heights().Durable
	var now []order.ServerID
	for _, former := range m.chain.Former() {
		if former.Server == m.config.Self {
			continue
		}
		at := slices.IndexFunc(m.leavers, func(l leaver) bool { return l.server == former.Server })
		needed := former.Left > durable || m.group != nil && m.group.Includes(former.Server)
		if at < 0 {
			if !needed && !m.peer(former.Server).linked {
				continue // it left before this process began
			}
			at = len(m.leavers)
			m.leavers = append(m.leavers, leaver{former.Server, m.now})
		}
		if needed {
			m.leavers[at].at = m.now
		}
		if m.now-m.leavers[at].at <= m.config.Timing.Leaver {
			now = append(now, former.Server)
		}
	}
	return now
}

// othersKnow reports whether each majority of the members has one that says that the block that removed
// this one is durable. With fewer that know it, the others might need this one after some are lost.
func (m *Member) othersKnow(left uint64) bool {
	membership, _ := m.chain.Membership()
	know := 0
	for _, server := range membership.Members {
		if p := m.peer(server); m.recent(p) && !p.Learner && p.Heights.Durable >= left {
			know++
		}
	}
	return know > len(membership.Members)-membership.Quorum()
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
	if m.chain.Heights().Durable >= left && m.known != left && m.othersKnow(left) {
		m.known = left
		m.emit(RemovedForGood{Height: left})
	}
	if m.known != left {
		if m.now-m.leavingSince == m.config.Timing.Removed {
			m.setMode(Halted, because(Removed), "%v at block %d, which is not known to be durable yet: it "+
				"ends once enough of the other nodes say so; where a majority of them run and `ledgerd "+
				"cluster list` at each of these does not show it, it can be stopped and its home removed",
				ErrRemoved, left)
		}
		return
	}
	if m.now-m.leavingSince >= m.config.Timing.Removed {
		m.finish(end)
	}
}

// TooFew says why the shard would stand still after a change of the membership that leaves so many
// members, nil where it would go on: of those that work, given by their indexes, fewer than a majority
// have disks that count. A member may work with a disk that counts no more: it entered the run before
// the chain named another one. One of which nothing was heard counts as it did when it entered.
//
// A driver asks before it has the change ordered, with the members that work and stay. The shard may
// still lose members before the change is ordered. From one member to two it has to stand still until
// the second is there.
func (m *Member) TooFew(members int, working []order.ServerID) error {
	now, _ := m.chain.Membership()
	var learners []order.ServerID
	for _, server := range working {
		forgets := m.learner()
		if server != m.config.Self {
			p := m.peer(server)
			forgets = p.heard && m.forgets(p, now)
		}
		if forgets {
			learners = append(learners, server)
		}
	}
	count, need := len(working)-len(learners), members/2+1
	switch {
	case count >= need || len(now.Members) <= 1:
		return nil
	case len(learners) == 0:
		return fmt.Errorf("of the %d members that there would be, %d order, and a majority is %d: "+
			"start the members that are down, or remove them first", members, count, need)
	}
	return fmt.Errorf("of the %d members that there would be, %d order with disks that count, and a "+
		"majority is %d: the chain has to admit the disk of %s first, which it does by itself (see "+
		"ledgerd status); or start the members that are down",
		members, count, need, listServers(learners))
}
