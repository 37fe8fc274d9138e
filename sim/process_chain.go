package sim

import (
	"slices"

	"github.com/ledgerd/ledgerd/allconcur/generation"
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/shard"
)

// executing holds the work that waits to change the chain. A full disk delays it.
type executing struct {
	queue []work
	// told is what the member was last told about the disk.
	told string
}

// work is a round of the engine, a block of a peer, or a function to call when all earlier work is
// done.
type work struct {
	round *content
	block *block
	then  func()
}

// then calls a function as soon as everything before is executed.
func (p *process) then(do func()) {
	p.executing.queue = append(p.executing.queue, work{then: do})
	p.execute()
}

// execute does the waiting work, as far as the disk has room.
func (p *process) execute() {
	for len(p.executing.queue) > 0 && p.up() && !p.sim.over() {
		w := p.executing.queue[0]
		if p.disk.full && w.then == nil && (w.block != nil || w.round.entries() > 0) {
			return
		}
		p.executing.queue = p.executing.queue[1:]
		switch {
		case w.then != nil:
			w.then()
		case w.block != nil:
			p.append(w.block)
		default:
			p.executeRound(w.round, true)
		}
	}
}

// entries counts a round's entries.
func (c *content) entries() int {
	count := 0
	for _, m := range c.messages {
		if entry, _ := splitPayload(m.Payload); len(entry) > 0 {
			count++
		}
	}
	return count
}

// executeRound executes a round of the current run, or one that is replayed.
func (p *process) executeRound(c *content, own bool) {
	s := p.sim
	for _, m := range c.messages {
		_, marked := splitPayload(m.Payload)
		p.marked.entrants = append(p.marked.entrants, marked.entrants...)
		p.marked.benched = append(p.marked.benched, marked.benched...)
		p.marked.regroup = p.marked.regroup || marked.regroup
	}
	p.remaining = slices.DeleteFunc(p.remaining, func(server order.ServerID) bool {
		return slices.Contains(c.removed, server)
	})
	known := len(s.life.blocks)
	b := p.chain.execute(c.epoch, c.round, c.messages)
	if b == nil {
		if p.recorder.Waits(c.round) {
			p.kick()
		}
		return
	}
	if len(s.life.blocks) > known && !s.life.setting.alone {
		s.judgeTime(p, b, c)
	}
	if b.changed == b.height {
		p.durability.Changed(b.members.generation(), b.height)
	}
	p.placed(b)
	s.judgeBlock(p, b, own)
	if own && b.engine != b.parent.engine && s.life.setting.plant == PlantEngineEarly {
		p.endEon(slices.Clone(p.remaining)) // the run is not over
	}
	if own && s.options.group.records() {
		p.durability.Executed(b.height, shard.Recorded{Round: b.round, Epoch: b.epoch})
		p.knowDurable(p.durability.Height())
		if b.height <= min(p.durability.Holds(p.self), p.chain.durable) {
			p.writtenLate()
			return
		}
	}
	p.written()
}

// append appends a block of a peer. What members stored no longer counts.
func (p *process) append(b *block) {
	if p.chain.head() != b.parent {
		return // the chain was cut meanwhile
	}
	p.durability.End()
	p.chain.append(b)
	p.placed(b)
	p.sim.judgeBlock(p, b, false)
	p.written()
}

// placed removes a block's entries from the pool. It also removes proposed changes that are no
// longer valid.
func (p *process) placed(b *block) {
	kept := p.pool.entries[:0]
	next := p.pool.next
	for i, entry := range p.pool.entries {
		_, in := p.chain.placed[string(entry)]
		c, change := decodeChange(entry)
		stale := change && c.kind == entryAdmit && b.members.after(c) == nil
		if in || stale {
			if i < p.pool.next {
				next--
			}
			continue
		}
		kept = append(kept, entry)
	}
	p.pool.entries, p.pool.next = kept, next
}

// replay executes the rounds of a decision's tail.
func (p *process) replay(rounds []generation.TailRound) {
	p.then(func() {
		p.durability.End()
		for _, r := range rounds {
			c := p.find(r.Content)
			if c == nil || p.disk.full {
				p.answer(shard.Replayed{Failed: true})
				return
			}
			p.executeRound(c, false)
		}
		p.answer(shard.Replayed{})
	})
}

// setAside removes blocks from the chain, unless one of them became known to be durable since the
// member asked for it. Entries of these blocks that users submitted here are submitted again.
func (p *process) setAside(keep uint64) {
	s := p.sim
	p.setsAside = false
	switch {
	case p.disk.full:
		p.answer(shard.WasSetAside{Reason: fullDisk})
		return
	case p.chain.durable > keep && s.life.setting.plant != PlantDurableSetAside:
		s.trace.Say(s.now, "%d keeps its blocks: block %d is durable", p.self, p.chain.durable)
		p.answer(shard.WasSetAside{Durable: true})
		return
	}
	if keep >= uint64(len(p.chain.blocks)) {
		s.breach(p.self, "it sets aside what it does not have")
		return
	}
	s.judgeSetAside(p, keep)
	if v := &s.servers[p.self]; v.acked != nil && v.acked.height > keep {
		v.acked = p.chain.blocks[keep] // the shard goes on without the blocks stored above
	}
	if r := p.disk.record; r != nil && r.Height > keep {
		s.servers[p.self].ackedRecord = nil // the shard goes on without the block before it
	}
	cut := p.chain.blocks[keep+1:]
	p.before = p.chain.blocks
	p.chain.cut(keep)
	p.disk.write(p.chain.blocks)
	p.disk.synced = p.chain.head().height
	p.disk.cut(keep)
	p.chain.stored = keep
	p.syncing.cuts++
	p.durability.End()
	for _, b := range cut {
		for _, m := range b.entries {
			if p.pool.own[string(m.Payload)] {
				p.pool.entries = append(p.pool.entries, m.Payload)
			}
		}
	}
	s.trace.Note(s.now, 111, uint64(p.self), keep)
	s.trace.Say(s.now, "%d sets %d blocks above %d aside", p.self, len(cut), keep)
	p.answer(shard.WasSetAside{})
}

// find returns the content of a round, from the votes in memory or from the disk.
func (p *process) find(hash [32]byte) *content {
	if c := p.memory[hash]; c != nil {
		return c
	}
	return p.disk.contents[hash]
}

// reportDisk tells the member when the disk becomes full, or no longer is.
func (p *process) reportDisk() {
	reason := ""
	if p.disk.full {
		reason = fullDisk
	}
	if reason != p.executing.told {
		p.executing.told = reason
		p.step(shard.DiskFull{Reason: reason})
	}
}
