package sim

import (
	"fmt"
	"slices"

	"github.com/ledgerd/ledgerd/allconcur/generation"
	"github.com/ledgerd/ledgerd/order"
)

// Ordered is the property that a block that an engine A-delivered survives every failure that
// leaves the group working. A later generation may give it up in one case only. Of the servers
// whose promises the generation is based on, none that took part in the block's generation or a
// later one had the block on its disk. And fewer than a majority of the run's shard were still the
// process that took part in the run: the others restarted, or came with another disk, and had
// forgotten their votes. If a generation never began, the next one begins where it would have, and
// gives up the same blocks.
const Ordered order.Property = "ordered"

// noteOrdered records a block that an engine A-delivered first. If later generations have begun
// already, they must have the block, up to the first one that may give it up.
func (s *simulation) noteOrdered(p *process, l *line, b *block) {
	o := &orderedBlock{block: b, run: l.run(p.group.Run), by: p.self}
	for number := l.generation + 1; number <= s.life.newest.generation; number++ {
		if later := s.life.lines[number]; later != nil && s.judgeOrdered(later, o) {
			return // it was given up before it was recorded
		}
	}
	s.life.ordered = append(s.life.ordered, o)
	s.firstDelivered(p)
}

// judgeOrdered judges whether a generation that begins without a block may do so. It reports
// whether the block is given up.
func (s *simulation) judgeOrdered(l *line, o *orderedBlock) bool {
	if o.run.run.Generation() >= l.generation || l.base.height >= o.block.height &&
		l.base.ancestor(o.block.height) == o.block {
		return false
	}
	if s.lossExcused() {
		return true
	}
	remember := 0
	number, members := s.gaveUp(l, o.run.run.Generation())
	for _, id := range members {
		v := s.vowed(number, id)
		switch {
		case v == nil || !l.base.members.counts(id, v.id, v.original):
			continue
		case v.holds(o.block, o.run.run):
			s.broke(Ordered, describeOrdered(o),
				fmt.Sprintf("generation %d begins after block %d %x, without it", number,
					l.base.height, l.base.hash[:4]),
				fmt.Sprintf("server %d had it on its disk as it promised", id))
			return true
		case v.took(o.run.run) && o.run.shard.Includes(id):
			remember++
		}
	}
	if remember >= o.run.shard.Quorum() {
		s.broke(Ordered, describeOrdered(o),
			fmt.Sprintf("generation %d of %v begins after block %d %x, without it", number, members,
				l.base.height, l.base.hash[:4]),
			fmt.Sprintf("%d of the %d members of the run's shard promised and remember their votes",
				remember, len(o.run.shard.Members)))
	}
	return true
}

// gaveUp returns the generation whose promises decided where a line begins, and its members. It
// goes back from the line's generation to older ones that never began, as long as their base and
// tail are the same, and not before since.
func (s *simulation) gaveUp(l *line, since generation.Generation) (generation.Generation,
	[]order.ServerID) {
	number, members := l.generation, l.members
	for d := s.life.decided[number]; d != nil && number-1 > since &&
		s.life.lines[number-1] == nil; {
		before := s.life.decided[number-1]
		if before == nil || before.Base != d.Base ||
			!slices.EqualFunc(before.Tail, d.Tail, generation.TailRound.Equal) {
			break
		}
		number, members, d = number-1, before.Members, before
	}
	return number, members
}

// vowed returns the vow of a member of a decided generation, as of the first proposal of the
// decided value.
func (s *simulation) vowed(number generation.Generation, member order.ServerID) *vow {
	decided := s.life.decided[number]
	for _, proposed := range s.life.proposals[number] {
		if decided != nil && proposed.value.Equal(*decided) {
			return proposed.vows[member]
		}
	}
	return s.life.vows[vowKey{member, number}]
}

// judgeGivenUp judges all blocks that a generation begins without.
func (s *simulation) judgeGivenUp(l *line) {
	kept := s.life.ordered[:0]
	for _, o := range s.life.ordered {
		if !s.judgeOrdered(l, o) {
			kept = append(kept, o)
		}
	}
	s.life.ordered = kept
}

func describeOrdered(o *orderedBlock) string {
	return fmt.Sprintf("server %d A-delivered block %d %x in run %v", o.by, o.block.height,
		o.block.hash[:4], run(o.run.run))
}
