package sim

import (
	"fmt"
	"slices"

	"github.com/ledgerd/ledgerd/allconcur/generation"
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/shard"
)

// Stored is the property that everything that a server claims to have stored is on its disk, even
// after a loss of power there. Only a damaged or lost disk, or a shard that goes on without the
// blocks, removes it.
const Stored order.Property = "stored"

// Persistence is the property that a server's claims are on its disk before it makes them: a
// promise, an acceptance, the blocks that it reports.
const Persistence order.Property = "persistence"

// Branch is the property that the head that a server reports with a promise is not on another
// branch than the generation that it names with the head.
const Branch order.Property = "branch"

// judgeStored records which blocks a server claims to have stored.
func (s *simulation) judgeStored(p *process, height uint64) {
	s.servers[p.self].acked = p.chain.blocks[height]
}

// judgeRecorded records which rounds a server claims to have recorded. It does so before it
// promises a later generation: the promise reports the record.
func (s *simulation) judgeRecorded(p *process, r *diskRecord) {
	s.servers[p.self].ackedRecord = r
	if p.disk.vowed > r.Run.Generation() && s.judgesPersistence() {
		s.broke(Persistence, fmt.Sprintf("server %d says that it recorded %v in run %v", p.self,
			r.Names(), run(r.Run)), fmt.Sprintf("it promised generation %d before", p.disk.vowed))
	}
}

// lacksRecord reports whether a promise lacks the record that the server claimed, as long as that
// may matter: its head is of the generation of the record, and not past its rounds. The record goes
// with the block that it follows.
func (s *simulation) lacksRecord(p *process, report *generation.Report) bool {
	r := s.servers[p.self].ackedRecord
	if r == nil || r.Run != report.Run || report.Head.Generation > r.Run.Generation() ||
		report.Head.Round >= r.Last() || p.setsAside && r.Height > p.keeps {
		return false
	}
	return !slices.ContainsFunc(report.Recorded, func(t generation.TailRound) bool {
		return t.Round == r.Last()
	})
}

// judgeRestart checks the disk of a server that starts again.
func (s *simulation) judgeRestart(id order.ServerID) {
	v := &s.servers[id]
	if r := v.ackedRecord; r != nil && v.acked != nil && v.disk.record != r &&
		v.disk.blocks[v.disk.height()].round < r.Last() && (v.disk.record == nil ||
		v.disk.record.Run <= r.Run && v.disk.record.Last() < r.Last()) {
		s.broke(Stored, fmt.Sprintf("server %d said that it recorded %v in run %v", id, r.Names(),
			run(r.Run)), "after a restart its disk has no such record")
	}
	if v.acked == nil {
		return
	}
	if v.acked.height >= uint64(len(v.disk.blocks)) || v.disk.blocks[v.acked.height] != v.acked {
		s.broke(Stored, fmt.Sprintf("server %d said that it stored block %d", id, v.acked.height),
			fmt.Sprintf("after a restart its chain ends with block %d", v.disk.height()))
	}
}

// judgeAnnouncement checks that a server's announcement is true.
func (s *simulation) judgeAnnouncement(p *process, a *shard.Announcement) {
	if before := p.before; a.Heights.Ordered < uint64(len(before)) &&
		before[a.Heights.Ordered].hash == a.Tip {
		return
	}
	if a.Heights.Stored > p.disk.synced || a.Heights.Ordered >= uint64(len(p.chain.blocks)) ||
		p.chain.blocks[a.Heights.Ordered].hash != a.Tip {
		s.broke(Persistence, fmt.Sprintf("server %d announces heights %+v", p.self, a.Heights),
			fmt.Sprintf("its chain has %d blocks, its disk %d", len(p.chain.blocks)-1,
				p.disk.synced))
	}
}

// judgeSynod checks that a server's disk holds what its message is based on.
func (s *simulation) judgeSynod(p *process, m *generation.Message) {
	d := p.disk
	settled := d.state.Decided != nil && d.state.Decided.Generation >= m.Generation
	wrong := ""
	switch m.Kind {
	case generation.KindPromise:
		if !settled && (d.state.Instance < m.Generation || d.state.Instance == m.Generation &&
			d.state.Promised.Less(m.Ballot)) {
			wrong = "its disk holds no such promise"
		}
		if h := m.Report.Head; h.Height > d.synced || d.blocks[h.Height].hash != h.Hash {
			wrong = fmt.Sprintf("its disk does not hold block %d", h.Height)
		}
		if s.lacksRecord(p, &m.Report) {
			wrong = "it lacks a record that it announced"
		}
		s.judgeHead(p, m)
	case generation.KindAccepted:
		if !settled && (d.state.Instance < m.Generation || d.state.Instance == m.Generation &&
			d.state.Accepted.Less(m.Ballot)) {
			wrong = "its disk holds no such acceptance"
		}
		if v := d.state.AcceptedValue; !settled && v != nil && !d.suffices(v) {
			wrong = fmt.Sprintf("its disk does not hold what begins after block %d", v.Base.Height)
		}
	}
	if wrong != "" && s.judgesPersistence() {
		s.broke(Persistence, fmt.Sprintf("server %d sends a %s", p.self, describeSynod(m)), wrong)
	}
}

// judgeHead checks that the head that a server reports is not on another branch than the generation
// that it names and all later ones. Heads compare by generation first. Blocks of a branch that was
// given up, fetched and reported under a later generation, could therefore replace durable ones. A
// head that is further, on the chain of a later generation, is harmless.
func (s *simulation) judgeHead(p *process, m *generation.Message) {
	h := m.Report.Head
	l := s.life.lines[h.Generation]
	if l == nil || s.lossExcused() || h.Height >= uint64(len(p.disk.blocks)) {
		return
	}
	b := p.disk.blocks[h.Height]
	if same := min(b.height, l.tip.height); b.ancestor(same) == l.tip.ancestor(same) {
		return
	}
	for _, later := range s.life.all {
		if later.generation > l.generation && b.height <= later.tip.height &&
			later.tip.ancestor(b.height) == b {
			return
		}
	}
	s.broke(Branch, fmt.Sprintf("server %d sends a %s", p.self, describeSynod(m)),
		fmt.Sprintf("block %d %x is on another branch than generation %d, which begins after "+
			"block %d and ends with block %d %x",
			b.height, b.hash[:4], h.Generation, l.base.height, l.tip.height, l.tip.hash[:4]))
}

// noteVow records what a server's disk holds from now on: its promise and the server's state at
// that time, its acceptance, and the decision that it knows.
func (s *simulation) noteVow(p *process, state *generation.State) {
	l := s.life
	if d := state.Decided; d != nil {
		l.decided[d.Generation] = d
	}
	if state.Promised == (generation.Ballot{}) {
		return
	}
	p.disk.vowed = max(p.disk.vowed, state.Instance)
	key := vowKey{p.self, state.Instance}
	if known := l.vows[key]; known == nil || known.ballot != state.Promised {
		l.vows[key] = &vow{
			ballot: state.Promised, runs: p.runs, held: p.disk.blocks[:p.disk.synced+1],
			id: p.disk.id, original: p.disk.original, activated: state.Activated,
		}
	}
	if state.AcceptedValue != nil {
		s.noteProposal(state.AcceptedValue)
	}
}

// noteProposal records an accepted value, with the vows of its members.
func (s *simulation) noteProposal(value *generation.Decision) {
	proposals := s.life.proposals[value.Generation]
	for i := range proposals {
		if proposals[i].value.Equal(*value) {
			return
		}
	}
	vows := make(map[order.ServerID]*vow)
	for _, id := range value.Members {
		vows[id] = s.life.vows[vowKey{id, value.Generation}]
	}
	s.life.proposals[value.Generation] = append(proposals, proposal{value, vows})
}

// judgesPersistence reports whether persistence is judged as it happens, and not only by the
// consequences.
func (s *simulation) judgesPersistence() bool { return !s.options.group.ByConsequence }
