package shard

// Rest returns after how many ticks the next one has something to do, at least 1. Until then a
// driver may keep ticks back, if it gives those that passed before any other input. So it wakes
// seldom while nothing happens.
//
// Rest returns more than 1 while the member rests: it orders, in a group without trouble that has
// all members of the chain, and does nothing else. Then only the next announcement is due. The
// member does not know whether rounds are under way; the driver does.
func (m *Member) Rest() int {
	if !m.rests() {
		return 1
	}
	return max(1, m.announced+m.config.Timing.Rest-m.now)
}

// rests reports whether this member rests. Everything that counts ticks keeps it from resting,
// except for times that only have to be long enough: Hearsay, and the time since a member last had
// reason to talk to one that left.
func (m *Member) rests() bool {
	g := m.group
	working := g != nil && m.starting == nil && m.job == idle && m.view.Mode == Ordering &&
		!m.stalled && !m.stopping && m.end == nil
	if !working || len(m.removed) > 0 || len(m.lags) > 0 || m.pending != nil || m.unflushed() != 0 {
		return false
	}
	if m.saving || m.unsaved || m.full != "" || m.low || m.noSpace || m.view.Learner {
		return false
	}
	membership, _ := m.chain.Membership()
	for _, server := range membership.Members {
		p := m.peer(server)
		if m.troubledLately(p) { // its announcements have to be regular, and their watch exact
			return false
		}
		if server != m.config.Self && (!m.recent(p) || p.Group.Run != g.Run || !p.orders()) {
			return false
		}
	}
	return true
}

func (m *Member) troubledLately(p *peer) bool {
	for _, at := range p.troubles {
		if m.now-at < m.config.Timing.Trouble {
			return true
		}
	}
	return false
}
