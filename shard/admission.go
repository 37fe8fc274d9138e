package shard

import "slices"

// A disk that forgot comes to count again in three steps. First, a learner fetches and syncs what
// it lacks. Then it asks a working member for admission. That member proposes the entry "this
// server counts with this disk" if the learner holds everything that the member knew to be durable
// a moment ago. Once the learner's own chain names its disk, the learner asks to enter like any
// other member.
//
// docs/design/durability.md has the argument. Safety does not depend on what the learner holds: its
// disk counts only in decisions whose chain contains the entry, and therefore everything that was
// durable before it. The check keeps the disk from counting while it adds nothing to what the
// others hold.

// learner reports whether this member's disk counts in no majority, according to its own chain.
func (m *Member) learner() bool {
	membership, _ := m.chain.Membership()
	return membership.Includes(m.config.Self) &&
		!membership.Counts(m.config.Self, m.config.Disk.ID, m.config.Disk.Original)
}

// mayAdmit reports whether a learner's disk holds all that this member knows to be durable, or
// recently held all that this member had known a moment earlier. It refuses a learner that is still
// in the group: the group has it with its previous disk, which counts until the group has removed
// it.
func (m *Member) mayAdmit(in WishReceived) bool {
	p := m.peer(in.From)
	if !m.recent(p) || p.Disk != in.Wish.Disk {
		return false
	}
	if m.group.Includes(in.From) && !slices.Contains(m.removed, in.From) {
		return false
	}
	caughtUp := p.caughtUp && p.disk == p.Disk && m.now-p.caughtAt < m.config.Timing.Hearsay
	if !caughtUp && p.Heights.Stored < m.chain.Heights().Durable {
		return false
	}
	if p.Heights.Ordered > m.chain.Tip().Height {
		// The learner is ahead. Its chain can be compared once this one is as long, and it asks
		// again.
		return false
	}
	hash, err := m.chain.Hash(p.Heights.Ordered)
	return err == nil && hash == p.Tip
}
