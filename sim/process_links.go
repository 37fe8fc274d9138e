package sim

import (
	"slices"

	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/shard"
)

// links are the servers that the fabric reaches, as the process was last told.
type links struct {
	linked []bool
	// processes are the processes that were reached last. missing counts for how many ticks each
	// server was not reached.
	processes []int
	missing   []int
	// heardAt is when each server last announced its state, 0 for never.
	heardAt []Instant
}

func newLinks(slots int) links {
	return links{
		linked: make([]bool, slots), processes: make([]int, slots), missing: make([]int, slots),
		heardAt: make([]Instant, slots),
	}
}

// knows reports whether a process talks to another server. It does if the server is a member of its
// chain, or a leaver. A process that is not in its own chain, or lost its chain, knows the others
// from its operator.
func (p *process) knows(server order.ServerID) bool {
	head := p.chain.head()
	return !p.disk.original || head.members.has(server) || !head.members.has(p.self) ||
		slices.Contains(p.member.Leavers(), server)
}

// reaches reports whether the fabric connects two processes now.
func (s *simulation) reaches(p *process, server order.ServerID) bool {
	other := s.servers[server].process
	return other != nil && other.up() && s.network.link(p.self, server).cuts == 0 &&
		s.network.link(server, p.self).cuts == 0 &&
		p.knows(server) && other.knows(p.self)
}

// checkLinks tells the member which links changed.
func (p *process) checkLinks() {
	s := p.sim
	for id := range s.servers {
		server := order.ServerID(id)
		if server == p.self {
			continue
		}
		if !s.reaches(p, server) {
			p.missing[id]++
			if p.linked[id] && p.missing[id] >= s.life.linkTicks {
				p.linked[id] = false
				p.step(shard.Linked{Server: server})
			}
			continue
		}
		p.missing[id] = 0
		now := s.servers[id].process.number
		p.meets(server, now)
		restarted := p.processes[id] != 0 && p.processes[id] != now
		if !p.linked[id] || restarted {
			p.linked[id], p.processes[id] = true, now
			p.step(shard.Linked{Server: server, Up: true, Restarted: restarted})
		}
	}
}
