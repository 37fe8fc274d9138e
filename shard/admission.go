package shard

// A disk that forgot comes to count again in three steps. A learner fetches and syncs what it
// lacks. Then it asks a member that works, which proposes the entry "this server counts with this
// disk" if the learner holds all that the member knew to be durable a moment ago. Once the
// learner's own chain names its disk, it asks to enter like any other member.
// docs/design/durability.md has the argument. It does not rest on what the learner holds, since the
// disk counts only in decisions whose chain contains the entry, and so all that was durable before
// it. Holding it keeps the disk from counting while it adds nothing to what the others have.

// learner reports whether this member's disk counts in no majority, as far as its own chain tells.
func (m *Member) learner() bool {
	membership, _ := m.chain.Membership()
	return membership.Includes(m.config.Self) &&
		!membership.Counts(m.config.Self, m.config.Disk.ID, m.config.Disk.Original)
}

// mayAdmit reports whether the disk of a learner holds all that this member knows to be durable, or
// held lately all that it had known a moment before.
func (m *Member) mayAdmit(in WishReceived) bool {
	p := m.peer(in.From)
	if !m.recent(p) || p.Disk != in.Wish.Disk {
		return false
	}
	caughtUp := p.caughtUp && p.disk == p.Disk && m.now-p.caughtAt < m.config.Timing.Hearsay
	if !caughtUp && p.Heights.Stored < m.chain.Heights().Durable {
		return false
	}
	if p.Heights.Ordered > m.chain.Tip().Height {
		return false // whether that is this chain shows once this one is as long: it asks again
	}
	hash, err := m.chain.Hash(p.Heights.Ordered)
	return err == nil && hash == p.Tip
}
