package shard

// A disk that forgot comes to count again in three steps. A learner fetches and syncs what it lacks.
// Then it asks a member that works, which proposes the entry "this server counts with this disk" if
// the learner holds all that the member knows to be durable. Once the learner's own chain names its
// disk, it asks to enter like any other member. docs/disks.md says when a disk is a learner.

// learner reports whether this member's disk counts in no majority, as far as its own chain tells.
func (m *Member) learner() bool {
	membership, _ := m.chain.Membership()
	return membership.Includes(m.config.Self) &&
		!membership.Counts(m.config.Self, m.config.Disk.ID, m.config.Disk.Original)
}

// mayAdmit reports whether the disk of a learner holds this chain, up to all that this member knows to
// be durable.
func (m *Member) mayAdmit(in WishReceived) bool {
	p := m.peer(in.From)
	heights := m.chain.Heights()
	if !m.recent(p) || p.Disk != in.Wish.Disk || p.Heights.Stored < heights.Durable {
		return false
	}
	if p.Heights.Ordered > m.chain.Tip().Height {
		return false // whether that is this chain shows once this one is as long: it asks again
	}
	hash, err := m.chain.Hash(p.Heights.Ordered)
	return err == nil && hash == p.Tip
}
