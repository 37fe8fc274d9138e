package shard

import (
	"fmt"
	"slices"

	"github.com/ledgerd/ledgerd/order"
)

// leaving is the state of a member that was removed. It stays until it knows that the block that
// removed it is durable, and then for a moment longer, so that the others get the rest of what it
// sent and its clients get their answers. If the block is given up, the server is still a member,
// and a majority may need it.
type leaving struct {
	// leavingSince is the tick at which leaving began, plus one; 0 while this server is a member.
	leavingSince int
	known        uint64
	leavers      []leaver // the servers that left while this process ran
}

// leaver is a server that left, and when this process last had reason to talk to it.
type leaver struct {
	server order.ServerID
	at     int
}

// Leavers returns the servers that left and that this member still talks to. A server is included
// while it may become a member again, because the block that removed it is not known to be durable,
// and while it takes part in the present run. It is included for Timing.Leaver longer, so that it
// learns that its removal is durable. A driver asks whenever the membership or the group may have
// changed, and with each tick.
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

// othersKnow reports whether each majority of the members contains a member that announces that the
// block that removed this one is durable. If fewer knew it, the others might need this member after
// losing some of their own.
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

// leave ends this member after the operator removed it from the membership.
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
			m.setMode(Halted, because(Removed),
				"%v at block %d, which is not known to be durable yet: it ends once enough of "+
					"the other nodes say so; where a majority of them run and `ledgerd cluster "+
					"list` at each of these does not show it, it can be stopped and its home "+
					"removed",
				ErrRemoved, left)
		}
		return
	}
	if m.now-m.leavingSince >= m.config.Timing.Removed {
		m.finish(end)
	}
}

// TooFew returns an error if the shard would stand still after a change of the membership. Members
// is the number of members after the change. Working are the members that work and stay, by their
// indexes. The shard would stand still if fewer of them than a majority have disks that count. The
// disk of a working member may no longer count: the member entered the run before the chain named
// another disk. The disk of a member that has not been heard counts as it did when the member
// entered.
//
// A driver asks before it has the change ordered. The shard may still lose members before the
// change is ordered. When a shard grows from one member to two, it has to stand still until the
// second one is there.
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
	return fmt.Errorf("of the %d members that there would be, %d order with disks that count, "+
		"and a majority is %d: the chain has to admit the disk of %s first, which it does by "+
		"itself (see ledgerd status); or start the members that are down",
		members, count, need, listServers(learners))
}
