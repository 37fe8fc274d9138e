package sim

import (
	"fmt"
	"slices"

	"github.com/ledgerd/ledgerd/allconcur/generation"
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/shard"
)

// look is the liveness phase. Faults are over. After a while every member that comes back is in the
// group with a disk that counts, unreliable rounds are back, nothing is left to do, and all blocks
// are everywhere, on disks, and durable. Then the run is over.
func (s *simulation) look() {
	if !s.life.setting.alone && s.life.pending == 0 && s.now >= s.faultsEnd &&
		!s.allSound(nobody, spared, s.inserted()) {
		s.insertSound(s.inserted()) // the operator sees that the shard cannot go on
	}
	if s.life.pending == 0 && s.now >= s.faultsEnd && s.restless() == nil {
		s.life.restful++
		if waits := s.probe(); s.life.restful >= 2 && !waits {
			s.judgeBlocks()
			s.done = true
			return
		}
	} else {
		s.life.restful = 0
	}
	every := restEvery
	if s.life.setting.alone {
		every = 40 * millisecond
	}
	s.queue.push(event{at: s.now + every, kind: settling})
}

// restless lists what keeps the shard from rest.
func (s *simulation) restless() []string {
	var evidence []string
	tip := s.life.tip()
	newest := generation.Run(0)
	for id := range s.servers {
		if p := s.servers[id].process; p != nil && p.works() {
			newest = max(newest, p.group.Run)
		}
	}
	for number, w := range s.life.wishes {
		if !w.done {
			evidence = append(evidence, fmt.Sprintf("the operator still wants %v (wish %d)",
				w.change, number))
		}
	}
	for _, id := range tip.members.members {
		v := &s.servers[id]
		if v.away {
			continue
		}
		if why := s.restlessAt(v, tip, newest); why != "" {
			text := "it has no process"
			if v.process != nil {
				text = v.process.describe()
			}
			evidence = append(evidence, fmt.Sprintf("server %d: %s; %s", id, why, text))
		}
	}
	return evidence
}

// restlessAt returns what keeps one member from rest.
func (s *simulation) restlessAt(v *server, tip *block, newest generation.Run) string {
	p := v.process
	if p == nil || !p.up() || !p.works() {
		return "it does not work"
	}
	view := p.view()
	heights := p.chain.Heights()
	switch {
	case p.chain.head() != tip || p.group.Run != newest:
		return fmt.Sprintf("others are at block %d in run %v", tip.height, run(newest))
	case len(p.pool.entries) > 0 || p.pool.due.any():
		return "it has something to say"
	case p.engine.Undelivered():
		return "it has rounds to deliver"
	case p.row.unreliable && p.engine.Status().Reliable &&
		!slices.Contains(s.life.broken, p.group.Run):
		return "unreliable rounds are not back"
	case s.life.setting.alone:
		return ""
	case view.Mode != shard.Ordering || view.Stalled:
		return "it does not order"
	case view.Learner:
		return "its disk does not count"
	case heights.Stored != tip.height || heights.Durable != tip.height:
		return "not all of it is stored and durable"
	}
	return ""
}

// judgeBlocks checks that every entry is in the chain that was submitted to a process that is still
// there.
func (s *simulation) judgeBlocks() {
	for _, a := range s.life.asks {
		v := &s.servers[a.server]
		if v.number != a.number || v.process == nil || !v.process.up() ||
			!s.life.tip().members.has(a.server) {
			continue
		}
		if _, placed := v.process.chain.placed[a.entry]; !placed {
			s.broke(order.Validity, fmt.Sprintf("an entry that was submitted to server %d is "+
				"never A-delivered", a.server), "the server has not failed")
			return
		}
	}
}

// judgeRestless is like judgeProgress, for a shard that lives on.
func (s *simulation) judgeRestless() {
	if s.clash() {
		s.trace.Say(s.now,
			"two disks of one server are needed at once: no operator can put both in")
		return
	}
	evidence := []string{fmt.Sprintf("at %v, after %d events, there is no rest, though the last "+
		"fault or submission was before %v", s.now, s.events, s.faultsEnd)}
	if s.life.pending > 0 {
		evidence = append(evidence, fmt.Sprintf("%d disturbances are not over", s.life.pending))
	}
	s.broke(Progress, append(evidence, s.restless()...)...)
}
