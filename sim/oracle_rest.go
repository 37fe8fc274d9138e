package sim

import (
	"fmt"
	"slices"

	"github.com/ledgerd/ledgerd/allconcur"
	"github.com/ledgerd/ledgerd/order"
)

// look is the liveness phase: faults are over, so that after a while every server that has not crashed for good or left is back in the group, unreliable rounds
// are back, nothing is left to do, and all blocks are everywhere. Then the run is over.
func (s *simulation) look() {
	if s.life.pending == 0 && s.now >= s.faultsEnd && s.restless() == nil {
		if s.life.restful++; s.life.restful >= 2 {
			s.judgeBlocks()
			s.done = true
			return
		}
	} else {
		s.life.restful = 0
	}
	s.queue.push(event{at: s.now + restEvery, kind: settling})
}

// restless lists what keeps the shard from rest.
func (s *simulation) restless() []string {
	var evidence []string
	c := s.life.chain
	newest := run(0)
	for id := range s.servers {
		if m := s.servers[id].member; m != nil && !s.servers[id].crashed {
			newest = max(newest, m.working())
		}
	}
	for number, w := range s.life.wishes {
		if !w.done {
			evidence = append(evidence, fmt.Sprintf("the operator still wants %c%d (wish %d)", w.change.kind, w.change.server, number))
		}
	}
	for id := range s.servers {
		v := &s.servers[id]
		m := v.member
		if m == nil || v.crashed || m.left || !slices.Contains(c.members, order.ServerID(id)) {
			continue
		}
		why := ""
		switch {
		case !m.works():
			why = "it does not work"
		case m.chain.height() != c.height() || m.group.run != newest:
			why = fmt.Sprintf("others are at block %d in run %v", c.height(), newest)
		case len(m.pool)+len(m.marks)+len(m.doubtful) > 0:
			why = "it has something to say"
		case m.engine.Undelivered():
			why = "it has rounds to deliver"
		case s.options.group.Engine == allconcur.EngineAllConcurPlus && m.engine.Status().Reliable:
			why = "unreliable rounds are not back"
		}
		if why != "" {
			evidence = append(evidence, fmt.Sprintf("server %d: %s; %s", id, why, m.describe()))
		}
	}
	return evidence
}

// judgeBlocks: what was submitted to a member that has neither crashed since nor left is A-delivered.
func (s *simulation) judgeBlocks() {
	for _, a := range s.life.asks {
		v := &s.servers[a.server]
		if a.round == 0 && !v.crashed && v.process == a.process && s.life.chain.has(a.server) {
			s.broke(order.Validity, fmt.Sprintf("a payload that was submitted to server %d is never A-delivered", a.server), "the server has not failed")
			return
		}
	}
}

// judgeRestless is judgeProgress for a shard that lives on.
func (s *simulation) judgeRestless() {
	evidence := []string{fmt.Sprintf("at %v, after %d events, there is no rest, though the last fault or submission was before %v", s.now, s.events, s.faultsEnd)}
	if s.life.pending > 0 {
		evidence = append(evidence, fmt.Sprintf("%d disturbances are not over", s.life.pending))
	}
	s.broke(Progress, append(evidence, s.restless()...)...)
}

// describe shows where a process stands.
func (m *member) describe() string {
	text := fmt.Sprintf("process %d, block %d, %d changes and %d doubtful payloads, next run %v of %v", m.incarnation, m.chain.height(), len(m.marks), len(m.doubtful), m.chain.group.run, m.chain.group.members)
	if m.engine != nil {
		text += fmt.Sprintf(", run %v: %s", m.group.run, describeStatus(m.engine.Status(), len(m.pool)))
	}
	if m.retired != "" {
		text += ", retired: " + m.retired
	}
	return text + m.describeGenerations()
}
