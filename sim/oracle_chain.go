package sim

import (
	"fmt"
	"slices"

	"github.com/ledgerd/ledgerd/order"
)

// Freeze is the property that who promised a generation A-delivers nothing more by an engine of an earlier one.
const Freeze order.Property = "freeze"

// deliverBlock judges a block that a server took: by set agreement, which holds for ever and across runs; by the form of the round; by integrity; and by what the server promised.
func (s *simulation) deliverBlock(id order.ServerID, t taken) {
	b := t.block
	s.trace.note(s.now, 102, uint64(id), uint64(b.group.run), uint64(b.epoch), uint64(b.round), uint64(len(b.messages)), uint64(len(b.removed)))
	if s.trace.text != nil {
		how := "takes"
		if t.own {
			how = "A-delivers"
		}
		s.trace.say(s.now, "%d %s [run %v, epoch %d, round %d]: %s", id, how, b.group.run, b.epoch, b.round, blockContents(b))
	}
	v := &s.servers[id]
	if t.own && v.vowed > b.group.run.generation() {
		s.broke(Freeze, fmt.Sprintf("server %d promised generation %d", id, v.vowed),
			fmt.Sprintf("then its engine A-delivers round %d of run %v", b.round, b.group.run))
		return
	}
	c := s.life.chain
	if b.round <= c.height() {
		s.judgeSame(id, b)
		return
	}
	if b.round != c.height()+1 {
		s.broke(order.RoundForm, fmt.Sprintf("server %d takes round %d, nobody delivered round %d", id, b.round, b.round-1))
		return
	}
	if b.group.run.generation() > c.group.run.generation() {
		c.begin(b.group)
	}
	if wrong := s.blockForm(b); wrong != "" {
		s.broke(order.RoundForm, fmt.Sprintf("server %d A-delivers %s", id, describeBlock(b)), wrong)
		return
	}
	if c.height() == 0 || c.blocks[c.height()-1].group.run != b.group.run {
		s.life.runs++
	}
	c.apply(b)
	s.life.writers = append(s.life.writers, id)
	s.judgeIntegrity(id, b)
	s.judgeMajority(id, b)
}

// broke records a violation.
func (s *simulation) broke(property order.Property, evidence ...string) {
	s.broken = append(s.broken, &order.Violation{Property: property, Evidence: evidence})
}

// judgeSame: the same round is A-delivered with the same contents at all servers [Poke19, Theorem 6.4.11].
func (s *simulation) judgeSame(id order.ServerID, b *block) {
	known := s.life.chain.blocks[b.round-1]
	if !known.same(b) {
		s.broke(order.SetAgreement,
			fmt.Sprintf("server %d A-delivers %s", s.life.writers[b.round-1], describeBlock(known)),
			fmt.Sprintf("server %d A-delivers %s", id, describeBlock(b)))
	}
}

// blockForm: the run is the one that the chain before says, and origins and removed servers together are those of its group who were left, each once.
func (s *simulation) blockForm(b *block) string {
	c := s.life.chain
	if b.group.run != c.group.run || !slices.Equal(b.group.members, c.group.members) {
		return fmt.Sprintf("by the rounds before, it is for run %v of %v, not for run %v of %v", c.group.run, c.group.members, b.group.run, b.group.members)
	}
	var all []order.ServerID
	for _, m := range b.messages {
		all = append(all, m.Origin)
	}
	if !slices.IsSorted(all) || !slices.IsSorted(b.removed) {
		return "its origins or its removed servers are not ascending"
	}
	all = append(all, b.removed...)
	slices.Sort(all)
	if !slices.Equal(all, c.remaining) {
		return fmt.Sprintf("the group is %v", c.remaining)
	}
	return ""
}

// judgeIntegrity: each payload is A-delivered once, as a message of who was asked to A-broadcast it.
func (s *simulation) judgeIntegrity(id order.ServerID, b *block) {
	for _, m := range b.messages {
		if len(m.Payload) == 0 || m.Payload[0] != payloadUser {
			continue
		}
		a := s.life.asked[string(m.Payload)]
		switch {
		case a == nil || a.server != m.Origin:
			s.broke(order.Integrity, fmt.Sprintf("server %d A-delivers %s", id, describeBlock(b)), fmt.Sprintf("nobody submitted the payload to server %d", m.Origin))
			return
		case a.round != 0:
			s.broke(order.Integrity, fmt.Sprintf("a payload of server %d is A-delivered in round %d", m.Origin, a.round), fmt.Sprintf("it is A-delivered again in round %d", b.round))
			return
		}
		a.round = b.round
	}
}

// judgeMajority: no round is A-delivered by less than a majority of the shard.
func (s *simulation) judgeMajority(id order.ServerID, b *block) {
	if len(b.messages) < b.group.shard/2+1 {
		s.broke(Tolerance, fmt.Sprintf("server %d A-delivers %s", id, describeBlock(b)), fmt.Sprintf("the shard has %d members", b.group.shard))
	}
}

// noteVow notes what a server promises, for deliverBlock.
func (s *simulation) noteVow(id order.ServerID, l *letter) {
	if l != nil && l.kind == letterSynod {
		if generation := promised(&l.synod); generation > s.servers[id].vowed {
			s.servers[id].vowed = generation
		}
	}
}

// describeBlock shows a round in evidence.
func describeBlock(b *block) string {
	return fmt.Sprintf("round %d in [run %v, epoch %d]: %s", b.round, b.group.run, b.epoch, blockContents(b))
}

// blockContents shows what is in a round.
func blockContents(b *block) string {
	text := "messages of"
	for _, m := range b.messages {
		text += fmt.Sprintf(" %d", m.Origin)
		switch c, is := decodeChange(m.Payload); {
		case is:
			text += fmt.Sprintf("(%c%d)", c.kind, c.server)
		case len(m.Payload) > 0:
			text += fmt.Sprintf("(%d bytes)", len(m.Payload))
		}
	}
	if len(b.removed) > 0 {
		text += fmt.Sprintf(", removed %v", b.removed)
	}
	return text
}
