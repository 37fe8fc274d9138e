package shard

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ledgerd/ledgerd/allconcur/generation"
	"github.com/ledgerd/ledgerd/order"
)

// waiting is the explanation of why no generation is formed.
type waiting struct {
	reason Reason
	said   string
	// next is the explanation to give once it has been true for a moment, since the tick nextAt. An
	// attempt that has just begun has no promises yet, which is not worth reporting.
	next   string
	nextAt int
	// trueAt is the tick at which the present explanation was last true. If the explanation keeps
	// changing, it is replaced after a while all the same.
	trueAt int
	// asked is the tick of the last call of waitingFor.
	asked int
	// helplessAt is the tick since when too few disks remember, as far as this member knows. An
	// operator is called only once all members have confirmed it, since one of them may have come
	// back with its old disk.
	helpless   bool
	helplessAt int
}

// waitingFor returns what a member without a group waits for.
func (m *Member) waitingFor() (Reason, string) {
	membership, _ := m.chain.Membership()
	if !membership.Includes(m.config.Self) {
		return because(Joining), "fetching the chain up to the block that let this node in"
	}
	m.linkSynod()
	reason := Reason{Kind: Forming, Waiting: m.synod.Waiting()}
	w := &reason.Waiting
	// Promises of members that can no longer be reached prove nothing about them: they may have
	// come back since, with another disk or a better memory. Gone lists those. Neither do promises
	// of members that have since decided the generation without this member. Later lists those:
	// they have to promise the next one.
	var forgot, unheard, gone, later []order.ServerID
	w.Unreachable = slices.DeleteFunc(slices.Clone(w.Unreachable),
		func(server order.ServerID) bool {
			p := m.peer(server)
			full := m.recent(p) && p.Full
			if full {
				reason.Full = append(reason.Full, server)
			}
			return full
		})
	for _, server := range membership.Members {
		if server == m.config.Self {
			if m.learner() {
				forgot = append(forgot, server)
			}
			continue
		}
		switch p := m.peer(server); {
		case !m.recent(p):
			unheard = append(unheard, server)
			switch forgets := slices.Contains(w.Forgot, server); {
			case forgets && p.linked:
				forgot = append(forgot, server)
			case forgets, !p.linked && (slices.Contains(w.Restarted, server) ||
				slices.Contains(w.Perhaps, server)):
				gone = append(gone, server)
			}
		default:
			if m.forgets(p, membership) {
				forgot = append(forgot, server)
			}
			if p.Changes > membership.Number {
				reason.Newer = append(reason.Newer, server)
			}
			if p.Decided >= m.synod.Next() && (slices.Contains(w.Restarted, server) ||
				slices.Contains(w.Perhaps, server)) {
				later = append(later, server)
			}
		}
	}
	reason.Newer = append(reason.Newer, m.joinedLater(membership)...)
	slices.Sort(reason.Newer)
	w.Forgot = forgot
	w.Unreachable = append(w.Unreachable, gone...)
	w.Silent = slices.Concat(w.Silent, later)
	slices.Sort(w.Silent)
	lost := func(server order.ServerID) bool {
		return slices.Contains(forgot, server) || slices.Contains(gone, server) ||
			slices.Contains(later, server)
	}
	w.Restarted = slices.DeleteFunc(slices.Clone(w.Restarted), lost)
	w.Perhaps = slices.DeleteFunc(slices.Clone(w.Perhaps), lost)
	if !w.Memory {
		w.Restarted = nil // no member waits for their votes
	}
	if len(w.Silent)+len(w.Unreachable)+len(reason.Full)+len(unheard) > 0 {
		reason.Sought, w.Durable = w.Durable, 0 // a member that has not answered may hold it
	}
	absent := len(unheard)
	for _, server := range forgot {
		if !slices.Contains(unheard, server) {
			absent++
		}
	}
	if more := membership.Quorum() - len(membership.Members) + absent; more > 0 {
		// Promises are of no use while the members that made them cannot be heard. There is no new
		// attempt either. A member that had perhaps more may have fetched it meanwhile.
		w.Missing = max(w.Missing, more)
		w.Unreachable = append(w.Unreachable, unheard...)
		w.Perhaps = nil
	}
	slices.Sort(w.Unreachable)
	w.Unreachable = slices.Compact(w.Unreachable)
	if was := m.helpless; !was || m.now-m.asked > 1 {
		m.helplessAt = m.now
	}
	left := m.leftForGood(membership)
	if m.helpless = helpless(membership, &reason, unheard, left); m.helpless {
		w.Unreachable = slices.DeleteFunc(w.Unreachable, left)
	}
	reason.Recover = m.helpless && m.now-m.helplessAt >= m.config.Timing.Hearsay
	why := explainWaiting(membership, &reason, unheard)
	if why != m.next {
		m.next, m.nextAt = why, m.now
	}
	again := m.now-m.asked <= 1
	m.asked = m.now
	lasts := m.now-m.nextAt >= m.config.Timing.Announce ||
		m.now-m.trueAt >= 4*m.config.Timing.Announce
	if !again || m.said == "" || lasts {
		m.reason, m.said = reason, why
	}
	if m.said == why {
		m.trueAt = m.now
	}
	return m.reason, m.said
}

// joinedLater lists the servers that announced a later change of the membership and are no members
// by this chain. They include servers that joined, if this disk is new or lost the block that let
// them in. A server need not be reachable now: its announcement stays valid.
func (m *Member) joinedLater(membership generation.Membership) (servers []order.ServerID) {
	for i := range m.peers {
		p := &m.peers[i]
		if p.heard && p.Changes > membership.Number && !membership.Includes(p.server) {
			servers = append(servers, p.server)
		}
	}
	return servers
}

// forgets reports whether the disk of a heard member does not count, according to this chain and
// the latest decision. The member's own chain may not have its admission yet.
func (m *Member) forgets(p *peer, membership generation.Membership) bool {
	named := membership.Disk(p.server)
	if p.Learner {
		return !membership.Counts(p.server, p.Disk, false)
	}
	if p.Changes < membership.Number && named != (generation.DiskID{}) && named != p.Disk {
		// It came back with a replaced disk and does not know that yet.
		return true
	}
	if p.Changes > membership.Number {
		// It has a later membership, which may count the disk. This chain does not know that one.
		return false
	}
	d := m.synod.Decided()
	replaced := d != nil && slices.Contains(d.Members, p.server) && !d.Seats(p.server, p.Disk)
	return replaced && named == generation.DiskID{}
}

// leftForGood returns a function that reports whether a server left by a block that is known to be
// durable. Such a server was told that its home can be removed, and its disk counts in no majority
// of a chain from that block on. The function excludes a server that announced a later change of
// the membership than this chain has: that change may name the missing disks.
func (m *Member) leftForGood(membership generation.Membership) func(order.ServerID) bool {
	former, durable := m.chain.Former(), m.chain.Heights().Durable
	return func(server order.ServerID) bool {
		left := slices.ContainsFunc(former, func(f Former) bool {
			return f.Server == server && f.Left <= durable
		})
		return left && !membership.Includes(server) && m.peer(server).Changes <= membership.Number
	}
}

// helpless reports whether too few disks remember, and no event short of an operator's help can
// change that. Unheard are the members that were not heard recently: one of them may remember what
// is missing. So may servers that know of later changes of the membership, and servers that a later
// change let in. If all members forgot, it is unknown whether this is the latest membership.
//
// A server that left may still be asked for the votes of the run in which it left. If it left for
// good, its memory does not replace a member's disk.
func helpless(m generation.Membership, reason *Reason, unheard []order.ServerID,
	left func(order.ServerID) bool) bool {
	w := &reason.Waiting
	if len(unheard) > 0 || reason.outdated(m) || len(w.Forgot) == len(m.Members) {
		return false
	}
	helps := slices.ContainsFunc(w.Unreachable, func(server order.ServerID) bool {
		return !left(server)
	})
	return w.Durable > 0 || len(m.Members)-len(w.Forgot) < m.Quorum() && !helps
}

// explainWaiting explains to people why no generation can be formed and what helps. It names
// members by their indexes.
func explainWaiting(m generation.Membership, reason *Reason, unheard []order.ServerID) string {
	w := &reason.Waiting
	parts := []string{fmt.Sprintf("waiting for a majority of the %d nodes", len(m.Members))}
	say := func(format string, servers []order.ServerID) {
		if len(servers) > 0 {
			parts = append(parts, fmt.Sprintf(format, listServers(servers)))
		}
	}
	if w.Missing > 0 {
		parts = append(parts, fmt.Sprintf("%d more needed", w.Missing))
	}
	if len(w.Unreachable) > 1 {
		say("%s unreachable: start or reconnect them", w.Unreachable)
	} else {
		say("%s unreachable: start or reconnect it", w.Unreachable)
	}
	say("no space on the disk of %s: free some there", reason.Full)
	say("%s forgot (a new disk)", w.Forgot)
	if w.Missing > 0 || w.Memory {
		say("%s reachable, no promise yet", w.Silent)
	}
	if w.Memory {
		say("%s restarted, and the others may know more", w.Restarted)
	}
	say("%s may have had more blocks before a crash: start more members", w.Perhaps)
	if w.Durable > 0 {
		parts = append(parts, fmt.Sprintf("block %d is durable, but too few disks hold it",
			w.Durable))
	}
	if reason.Sought > 0 {
		parts = append(parts, fmt.Sprintf("block %d is durable, but no member that answered "+
			"holds it: start one that does", reason.Sought))
	}
	forgetful := len(m.Members)-len(w.Forgot) < m.Quorum()
	switch {
	case reason.Recover:
		parts = append(parts, "too few disks remember: stop all nodes, and see `ledgerd recover "+
			"--help`")
	case forgetful && !reason.outdated(m) &&
		(len(unheard)+len(w.Unreachable) > 0 || len(w.Forgot) == len(m.Members)):
		parts = append(parts, "start the others; if that does not help, see `ledgerd recover "+
			"--help`")
	case w.Missing == 0 && !w.Memory && len(w.Perhaps) == 0 && w.Durable+reason.Sought == 0 &&
		len(m.Members)-len(unheard) >= m.Quorum():
		parts[0] = fmt.Sprintf("a majority of the %d nodes is present, and about to agree on "+
			"how to continue",
			len(m.Members))
	}
	return strings.Join(parts, "; ")
}

// listServers formats servers as "member 1" or "members 1, 2".
func listServers(servers []order.ServerID) string {
	text := make([]string, len(servers))
	for i, server := range servers {
		text[i] = fmt.Sprint(server)
	}
	if len(text) == 1 {
		return "member " + text[0]
	}
	return "members " + strings.Join(text, ", ")
}
