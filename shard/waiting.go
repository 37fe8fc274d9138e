package shard

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ledgerd/ledgerd/allconcur/generation"
	"github.com/ledgerd/ledgerd/order"
)

// waiting is why no generation is formed.
type waiting struct {
	reason Reason
	said   string
	// next is what is to be said once it has been true for a moment, since the tick nextAt. An attempt
	// that has just begun has no promises yet, which is nothing to speak of.
	next   string
	nextAt int
	// trueAt is the tick at which what is said was last so. Where what is to be said changes again and
	// again, it is said after a while all the same.
	trueAt int
	asked  int // the tick at which it was last asked for
}

// waitingFor says what a member without a group waits for.
func (m *Member) waitingFor() (Reason, string) {
	membership, _ := m.chain.Membership()
	if !membership.Includes(m.config.Self) {
		return because(Joining), "fetching the chain up to the block that let this node in"
	}
	m.linkSynod()
	reason := Reason{Kind: Forming, Waiting: m.synod.Waiting()}
	w := &reason.Waiting
	forgot := slices.Clone(w.Forgot)
	var unheard []order.ServerID
	w.Unreachable = slices.DeleteFunc(slices.Clone(w.Unreachable), func(server order.ServerID) bool {
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
		default:
			// Its chain may not have its admission yet that is in this one, and the other way round.
			if p.Learner && !membership.Counts(server, p.Disk, false) {
				forgot = append(forgot, server)
			}
			if p.Changes > membership.Number {
				reason.Newer = append(reason.Newer, server)
			}
		}
	}
	slices.Sort(forgot)
	w.Forgot = slices.Compact(forgot)
	if more := membership.Quorum() - len(membership.Members) + len(unheard); more > 0 {
		// What was promised is of no use while those that promised cannot be heard any more.
		w.Missing = max(w.Missing, more)
		w.Unreachable = append(w.Unreachable, unheard...)
		slices.Sort(w.Unreachable)
		w.Unreachable = slices.Compact(w.Unreachable)
	}
	var why string
	why, reason.Recover = explainWaiting(membership, &reason, unheard)
	if why != m.next {
		m.next, m.nextAt = why, m.now
	}
	again := m.now-m.asked <= 1
	m.asked = m.now
	lasts := m.now-m.nextAt >= m.config.Timing.Announce || m.now-m.trueAt >= 4*m.config.Timing.Announce
	if !again || m.said == "" || lasts {
		m.reason, m.said = reason, why
	}
	if m.said == why {
		m.trueAt = m.now
	}
	return m.reason, m.said
}

// explainWaiting says in words why no generation can be formed. Unheard are the members of which
// nothing was heard lately: one of them may remember what is missing. Members are named by their
// indexes. Recovery says that an operator has to help.
func explainWaiting(
	m generation.Membership,
	reason *Reason,
	unheard []order.ServerID,
) (why string, recovery bool) {
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
	say("%s had perhaps more blocks before a crash: start more members", w.Perhaps)
	if w.Durable > 0 {
		parts = append(parts, fmt.Sprintf("block %d is durable, and too few disks hold it", w.Durable))
	}
	remember := 0
	for _, server := range m.Members {
		if !slices.Contains(w.Forgot, server) {
			remember++
		}
	}
	say("%s ahead, with a newer list of the nodes", reason.Newer)
	hopeless := remember < m.Quorum() && len(unheard) == 0 && len(w.Unreachable) == 0
	recovery = (hopeless || w.Durable > 0 && len(unheard) == 0) && len(reason.Newer) == 0
	switch {
	case recovery:
		parts = append(parts, "too few disks remember: stop all nodes, and see `ledgerd recover --help`")
	case remember < m.Quorum():
		parts = append(parts, "start the others; if that does not help, see `ledgerd recover --help`")
	case w.Missing > 0 || w.Memory || len(w.Perhaps) > 0 || w.Durable > 0:
	case len(m.Members)-len(unheard) >= m.Quorum():
		parts[0] = fmt.Sprintf("a majority of the %d nodes is there, and about to agree on how to go on",
			len(m.Members))
	}
	return strings.Join(parts, "; "), recovery
}

// listServers names servers: member 1, or members 1, 2.
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
