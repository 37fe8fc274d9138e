package shard

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ledgerd/ledgerd/allconcur/generation"
	"github.com/ledgerd/ledgerd/order"
)

// waiting is why no generation is formed, for people.
type waiting struct {
	reason string // what is said
	// next is what is to be said once it has been true for a moment, since the tick nextAt. An attempt
	// that has just begun has no promises yet, which is nothing to speak of.
	next   string
	nextAt int
	asked  int // the tick at which it was last asked for
}

// waitingFor says what a member without a group waits for.
func (m *Member) waitingFor() string {
	membership, _ := m.chain.Membership()
	if !membership.Includes(m.config.Self) {
		return "fetching the chain up to the block that let this node in"
	}
	w := m.synod.Waiting()
	forgot := slices.Clone(w.Forgot)
	var unheard []order.ServerID
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
		case p.Learner:
			forgot = append(forgot, server)
		}
	}
	slices.Sort(forgot)
	w.Forgot = slices.Compact(forgot)
	reason := explainWaiting(membership, w, unheard)
	if reason != m.next {
		m.next, m.nextAt = reason, m.now
	}
	again := m.now-m.asked <= 1
	m.asked = m.now
	if !again || m.reason == "" || m.now-m.nextAt >= m.config.Timing.Announce {
		m.reason = reason
	}
	return m.reason
}

// explainWaiting says in words why no generation can be formed. Unheard are the members of which
// nothing was heard lately: one of them may remember what is missing. Members are named by their
// indexes.
func explainWaiting(
	m generation.Membership,
	w generation.Waiting,
	unheard []order.ServerID,
) string {
	parts := []string{fmt.Sprintf("waiting for a majority of the %d nodes", len(m.Members))}
	say := func(format string, servers []order.ServerID) {
		if len(servers) > 0 {
			parts = append(parts, fmt.Sprintf(format, listServers(servers)))
		}
	}
	if w.Missing > 0 {
		parts = append(parts, fmt.Sprintf("%d more needed", w.Missing))
	}
	say("%s unreachable", w.Unreachable)
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
	hopeless := remember < m.Quorum() && len(unheard) == 0 && len(w.Unreachable) == 0
	switch {
	case hopeless || w.Durable > 0 && len(unheard) == 0:
		parts = append(parts, "too few disks remember: stop all nodes, and see `ledgerd recover --help`")
	case remember < m.Quorum():
		parts = append(parts, "start the others; if that does not help, see `ledgerd recover --help`")
	}
	return strings.Join(parts, "; ")
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
