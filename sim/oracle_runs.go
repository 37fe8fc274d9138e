package sim

import (
	"fmt"
	"slices"

	"github.com/ledgerd/ledgerd/allconcur/generation"
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/shard"
)

// Freeze is the property that a server that promised a generation A-delivers nothing more by an
// engine of an earlier one.
const Freeze order.Property = "freeze"

// SameEngine is the property that all members of a run have the engine that the chain names.
const SameEngine order.Property = "same engine"

// judgeStart checks that all members of a run begin it alike: after the same block and round, with
// the same group. The first run of a generation must begin with everything that judgeLine requires.
func (s *simulation) judgeStart(p *process, g *shard.Group) {
	number := g.Run.Generation()
	l := s.life.lines[number]
	head := p.chain.head()
	if l == nil {
		l = &line{generation: number, base: head, tip: head, first: g.First}
		if d := p.disk.state.Decided; d != nil && d.Generation == number {
			l.members = d.Members
		}
		s.life.lines[number] = l
		s.life.all = append(s.life.all, l)
		// A server that stood still may begin a generation that the others left for a later one
		// before any of them acted in it. It makes no progress there.
		if s.life.newest == nil || s.life.newest.generation < number {
			s.life.newest = l
			s.judgeLine(l)
		}
	}
	if s.over() {
		return
	}
	p.runs, p.disk.damaged = append(p.runs, g.Run), false
	r := l.run(g.Run)
	if r == nil {
		r = &lineRun{run: g.Run, first: g.First, base: head, members: g.Members, shard: g.Shard,
			remaining: slices.Clone(g.Members), engine: p.row.name}
		l.runs = append(l.runs, r)
	}
	if r.base != head || r.first != g.First || !slices.Equal(r.members, g.Members) ||
		r.shard.Number != g.Shard.Number {
		s.broke(order.SetAgreement,
			fmt.Sprintf("run %v begins with round %d of %v after block %d %x", run(g.Run), r.first,
				r.members, r.base.height, r.base.hash[:4]),
			fmt.Sprintf("server %d begins it with round %d of %v after block %d %x", p.self,
				g.First, g.Members, head.height, head.hash[:4]))
	}
	s.judgeEngine(p, r)
	if !s.life.setting.alone && len(g.Members) < g.Shard.Quorum() {
		s.broke(Tolerance, fmt.Sprintf("server %d begins run %v of %v in a shard of %v", p.self,
			run(g.Run), g.Members, g.Shard.Members))
	}
	if p.chain.stored != head.height {
		s.broke(Persistence, fmt.Sprintf("server %d begins run %v after block %d, its disk "+
			"holds %d blocks", p.self, run(g.Run), head.height, p.chain.stored))
	}
}

// judgeEngine checks that a server begins a run with the engine that the chain names at the run's
// base, or with that of the settings if it names none, and so with the engine of all others.
func (s *simulation) judgeEngine(p *process, r *lineRun) {
	named := r.base.engine
	if named == "" {
		named = s.life.setting.engine.name
	}
	if p.row.name != named || p.row.name != r.engine {
		s.broke(SameEngine, fmt.Sprintf("run %v begins with %s", run(r.run), r.engine),
			fmt.Sprintf("server %d begins it with %s, and block %d of its chain says %s", p.self,
				p.row.name, r.base.height, named))
	}
}

// judgeDelivery judges a round that a server A-delivers: by set agreement, which holds within a
// generation; by the form of the round; and by the server's promises.
func (s *simulation) judgeDelivery(p *process, c *content) {
	g := p.group
	s.trace.Note(s.now, 102, uint64(p.self), uint64(g.Run), uint64(c.epoch), uint64(c.round),
		uint64(len(c.messages)), uint64(len(c.removed)))
	if s.trace.HasText() {
		s.trace.Say(s.now, "%d A-delivers %s", p.self, describeRound(g.Run, c))
	}
	if vowed := p.disk.vowed; vowed > g.Run.Generation() {
		s.broke(Freeze, fmt.Sprintf("server %d promised generation %d", p.self, vowed),
			fmt.Sprintf("then its engine A-delivers %s", describeRound(g.Run, c)))
		return
	}
	l := s.life.lines[g.Run.Generation()]
	r := l.run(g.Run)
	at := int(c.round - l.first)
	if at < len(l.rounds) {
		if known := l.rounds[at]; known.run != g.Run || !known.round.same(c) {
			s.broke(order.SetAgreement,
				fmt.Sprintf("server %d A-delivers %s", known.by,
					describeRound(known.run, known.round)),
				fmt.Sprintf("server %d A-delivers %s", p.self, describeRound(g.Run, c)))
		}
		return
	}
	if at > len(l.rounds) {
		s.broke(order.RoundForm,
			fmt.Sprintf("server %d A-delivers %s, no server delivered round %d",
				p.self, describeRound(g.Run, c), int(l.first)+len(l.rounds)))
		return
	}
	if wrong := r.wrongForm(c, p.prompt); wrong != "" {
		s.broke(order.RoundForm, fmt.Sprintf("server %d A-delivers %s", p.self,
			describeRound(g.Run, c)), wrong)
		return
	}
	if !p.prompt && len(c.messages) < len(r.shard.Members)/2+1 {
		s.broke(Tolerance, fmt.Sprintf("server %d A-delivers %s", p.self, describeRound(g.Run, c)),
			fmt.Sprintf("the shard has %d members", len(r.shard.Members)))
		return
	}
	if !r.delivers {
		r.delivers = true
		s.life.runs++
	}
	r.remaining = slices.DeleteFunc(r.remaining, func(server order.ServerID) bool {
		return slices.Contains(c.removed, server)
	})
	l.rounds = append(l.rounds, &lineRound{run: g.Run, by: p.self, round: c})
}

// loses judges a round with which servers leave the group of an engine with prompt delivery: all
// servers remove the same with it.
func (p *process) loses(d order.Delivery) {
	c, s := p.content(d), p.sim
	p.remaining = slices.DeleteFunc(p.remaining, func(server order.ServerID) bool {
		return slices.Contains(c.removed, server)
	})
	r := s.life.lines[p.group.Run.Generation()].run(p.group.Run)
	for _, known := range r.removals {
		if known.round == c.round && !known.same(c) {
			s.broke(order.SetAgreement, fmt.Sprintf("in run %v, round %d of epoch %d removes %v",
				run(p.group.Run), known.round, known.epoch, known.removed),
				fmt.Sprintf("at server %d, it is of epoch %d and removes %v", p.self, c.epoch,
					c.removed))
		}
	}
	r.removals = append(r.removals, c)
}

// wrongForm returns what is wrong with a round's form. Origins and removed servers together must be
// the remaining members of the group, each once. With prompt delivery it must have only messages
// with a payload, each of a server of the group.
func (r *lineRun) wrongForm(c *content, prompt bool) string {
	var all []order.ServerID
	for _, m := range c.messages {
		if prompt && (len(m.Payload) == 0 || !slices.Contains(r.members, m.Origin)) {
			return fmt.Sprintf("it has an empty message, or one of none of %v", r.members)
		}
	}
	for _, m := range c.messages {
		all = append(all, m.Origin)
	}
	if !slices.IsSorted(all) || !slices.IsSorted(c.removed) {
		return "its origins or its removed servers are not ascending"
	}
	all = append(all, c.removed...)
	slices.Sort(all)
	if prompt {
		if len(c.removed) > 0 || len(slices.Compact(slices.Clone(all))) < len(all) {
			return "it removes servers, or has two messages of one"
		}
		return ""
	}
	if !slices.Equal(all, r.remaining) {
		return fmt.Sprintf("the group is %v", r.remaining)
	}
	return ""
}

// same reports whether two rounds are equal.
func (c *content) same(other *content) bool {
	return c == other || c.round == other.round && c.epoch == other.epoch &&
		slices.Equal(c.removed, other.removed) &&
		slices.EqualFunc(c.messages, other.messages, func(m, o order.Message) bool {
			return m.Origin == o.Origin && string(m.Payload) == string(o.Payload)
		})
}

// judgeBlock judges a block that a server's chain takes: by integrity and, if the server's engine
// A-delivered it, by the chain of its generation.
func (s *simulation) judgeBlock(p *process, b *block, own bool) {
	s.judgeIntegrity(p.self, b)
	if s.trace.HasText() {
		s.trace.Say(s.now, "%d has block %d %x, members %v", p.self, b.height, b.hash[:4],
			b.members.members)
	}
	if !own || s.over() {
		return
	}
	if before := b.ancestor(b.parent.changed); b.changed == b.height &&
		b.parent.changed > 0 && before.round >= p.group.First {
		s.broke(Tolerance, fmt.Sprintf("server %d executes round %d of run %v, whose block %d "+
			"changes the members", p.self, b.round, run(p.group.Run), b.height),
			fmt.Sprintf("block %d, of round %d of the same run, changed them already",
				before.height, before.round))
	}
	l := s.life.lines[p.group.Run.Generation()]
	switch {
	case b.height <= l.tip.height && l.tip.ancestor(b.height) == b:
		return
	case b.parent != l.tip:
		s.broke(order.SetAgreement,
			fmt.Sprintf("in generation %d, server %d executes block %d %x", l.generation, p.self,
				b.height, b.hash[:4]),
			fmt.Sprintf("the chain of the generation ends with block %d %x", l.tip.height,
				l.tip.hash[:4]))
		return
	}
	l.tip = b
	s.noteOrdered(p, l, b)
}

// judgeIntegrity checks that each user's entry was submitted to its origin.
func (s *simulation) judgeIntegrity(id order.ServerID, b *block) {
	for _, m := range b.entries {
		if m.Payload[0] != entryUser {
			continue
		}
		if a := s.life.asked[string(m.Payload)]; a == nil || a.server != m.Origin {
			s.broke(order.Integrity,
				fmt.Sprintf("server %d has block %d with an entry of server %d", id, b.height,
					m.Origin), "no user submitted it there")
			return
		}
	}
}

// describeRound describes a round in evidence.
func describeRound(r generation.Run, c *content) string {
	text := fmt.Sprintf("round %d in [run %v, epoch %d]: messages of", c.round, run(r), c.epoch)
	for _, m := range c.messages {
		text += fmt.Sprintf(" %d", m.Origin)
		entry, marked := splitPayload(m.Payload)
		switch change, is := decodeChange(entry); {
		case is:
			text += fmt.Sprintf("(%c%d)", change.kind, change.server)
		case marked.any():
			text += fmt.Sprintf("(%d bytes, entrants %v, regroup %v)", len(entry), marked.entrants,
				marked.regroup)
		case len(entry) > 0:
			text += fmt.Sprintf("(%d bytes)", len(entry))
		}
	}
	if len(c.removed) > 0 {
		text += fmt.Sprintf(", removed %v", c.removed)
	}
	return text
}
