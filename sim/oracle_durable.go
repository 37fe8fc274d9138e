package sim

import (
	"fmt"

	"github.com/ledgerd/ledgerd/order"
)

// Durable is the property that a block that any server knew to be durable is in every later
// generation, that there is one such block at each height, and that no server ever sets it aside.
// It holds unless a majority of the disks of the map forgot unnoticed, which only happens if a bug
// is planted. A server never sets aside what it knew itself to be durable, whatever the others
// forgot.
const Durable order.Property = "durable"

// judgeDurable judges a height that a server considers durable.
func (s *simulation) judgeDurable(p *process, height uint64) {
	s.trace.Note(s.now, 115, uint64(p.self), height)
	s.trace.Say(s.now, "%d knows block %d to be durable", p.self, height)
	if s.lossExcused() {
		return
	}
	l := s.life
	if len(l.durable) == 0 {
		l.durable = append(l.durable, l.genesis)
	}
	for h := uint64(1); h <= height; h++ {
		b := p.chain.blocks[h]
		if h < uint64(len(l.durable)) {
			if l.durable[h] != b {
				s.broke(Durable, fmt.Sprintf("server %d takes block %d %x for durable", p.self,
					h, b.hash[:4]),
					fmt.Sprintf("block %d %x was durable before", h, l.durable[h].hash[:4]))
				return
			}
			continue
		}
		l.durable = append(l.durable, b)
		if newest := l.newest; newest != nil && (newest.tip.height < h ||
			newest.tip.ancestor(h) != b) {
			s.broke(Durable, fmt.Sprintf("server %d takes block %d %x for durable", p.self, h,
				b.hash[:4]),
				fmt.Sprintf("generation %d goes on without it: its chain begins after block %d "+
					"and ends with block %d", newest.generation, newest.base.height,
					newest.tip.height))
			return
		}
	}
}

// judgeLine judges the base of a generation: it must have everything durable, and everything
// ordered that may not be given up.
func (s *simulation) judgeLine(l *line) {
	if !s.lossExcused() {
		for h, b := range s.life.durable {
			if l.base.height < uint64(h) || l.base.ancestor(uint64(h)) != b {
				s.broke(Durable, fmt.Sprintf("block %d %x is durable", h, b.hash[:4]),
					fmt.Sprintf("generation %d of %v begins after block %d %x, without it",
						l.generation, l.members, l.base.height, l.base.hash[:4]))
				return
			}
		}
	}
	s.judgeGivenUp(l)
}

// judgeSetAside judges which blocks a server removes from its chain.
func (s *simulation) judgeSetAside(p *process, keep uint64) {
	if known := max(p.disk.knew, p.chain.durable); keep < known {
		s.broke(Durable, fmt.Sprintf("server %d sets the blocks above %d aside", p.self, keep),
			fmt.Sprintf("it knew that block %d is durable", known))
		return
	}
	if s.lossExcused() {
		return
	}
	for h := keep + 1; h < uint64(len(p.chain.blocks)) && h < uint64(len(s.life.durable)); h++ {
		if s.life.durable[h] == p.chain.blocks[h] && !s.unclaimed(p, h) && !p.makesAnew(keep, h) {
			s.broke(Durable, fmt.Sprintf("server %d sets the blocks above %d aside", p.self, keep),
				fmt.Sprintf("block %d %x is durable", h, s.life.durable[h].hash[:4]))
			return
		}
	}
}

// unclaimed reports whether a server that is about to begin a generation holds a block that it
// never reported as stored, so its disk does not count for it. It fetched the block before it knew
// where the generation begins. It executes the tail of the decision in place of the block, which
// may make the same block.
func (s *simulation) unclaimed(p *process, height uint64) bool {
	d := p.disk.state.Decided
	if d == nil || p.disk.state.Activated.Generation() >= d.Generation {
		return false
	}
	claimed := p.disk.claimed
	return claimed == nil || claimed.height < height ||
		claimed.ancestor(height) != p.chain.blocks[height]
}

// makesAnew reports whether the tail of a decision on a server's disk makes a block again, once the
// blocks above the decision's base are set aside. The block was durable because a majority recorded
// its round, and the server does not know that. A majority accepted the decision, with the round.
func (p *process) makesAnew(keep, height uint64) bool {
	d := p.disk.state.Decided
	if d == nil || p.disk.state.Activated.Generation() >= d.Generation || d.Base.Height != keep ||
		d.Base.Hash != p.chain.blocks[keep].hash {
		return false
	}
	made := newChain(p.chain.all, p.chain.blocks[:keep+1])
	made.fault = p.chain.fault
	for _, r := range d.Tail {
		c := p.disk.contents[r.Content]
		if c == nil {
			return false
		}
		if b := made.execute(c.epoch, c.round, c.messages); b != nil && b.height == height {
			return b == p.chain.blocks[height]
		}
	}
	return false
}

// lossExcused reports whether more disks may have forgotten than the guarantee allows.
func (s *simulation) lossExcused() bool { return s.life.hopeless != "" }
