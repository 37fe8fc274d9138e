package sim

import (
	"github.com/ledgerd/ledgerd/allconcur/generation"
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/shard"
)

// diskRecord is a record on a disk, with the contents of its rounds.
type diskRecord struct {
	shard.Record
	contents []*content
}

// offer takes complete rounds of the engine. They go to the disk beside the rounds that follow.
func (p *process) offer(rounds []order.Delivery) {
	p.recorder.Offer(rounds)
	if p.recorder.Waits(p.chain.round) {
		p.kick()
	}
}

// writeRecord puts the record that waits into the sync that begins.
func (p *process) writeRecord() {
	s := p.sim
	if p.disk.full || p.disk.writing != nil || !p.works() {
		return
	}
	rounds := p.recorder.Take(p.chain.round)
	if len(rounds) == 0 {
		return
	}
	head := p.chain.head()
	r := &diskRecord{Record: shard.Record{Run: p.group.Run, Height: head.height, Hash: head.hash,
		After: rounds[0].Round - 1}}
	for _, d := range rounds {
		r.contents = append(r.contents, p.content(d))
	}
	for _, c := range r.contents {
		r.Rounds = append(r.Rounds, c.tailRound())
	}
	p.disk.writing = r
	s.trace.Say(s.now, "%d writes a record of %v in run %v", p.self, r.Names(), run(r.Run))
	if s.life.setting.plant == PlantRecordAnnouncedEarly {
		p.announceRecord(r)
	}
}

// announceRecord tells the members of the run what the disk recorded.
func (p *process) announceRecord(r *diskRecord) {
	l := &peerMessage{kind: letterStored, run: r.Run, height: p.chain.stored, recorded: r.Names()}
	for _, to := range p.group.Members {
		p.sim.post(p.self, to, l)
	}
	p.heardRecorded(p.self, r.Run, l.recorded)
}

// heardRecorded records what a member of the current run recorded.
func (p *process) heardRecorded(from order.ServerID, r generation.Run, rounds []shard.Recorded) {
	if len(rounds) > 0 && p.durability.Recorded(r, from, rounds) {
		p.knowDurable(p.durability.Height())
	}
}

// tailRound names a complete round of a whole group.
func (c *content) tailRound() generation.TailRound {
	r := generation.TailRound{Round: c.round, Epoch: c.epoch, Content: c.hash()}
	for _, m := range c.messages {
		r.Origins = append(r.Origins, m.Origin)
	}
	return r
}

// lastRecord returns what the disk recorded last, and remembers its contents for servers that need
// them.
func (p *process) lastRecord() *shard.Record {
	r := p.disk.record
	if r == nil {
		return nil
	}
	for i, c := range r.contents {
		p.memory[r.Rounds[i].Content] = c
	}
	return &r.Record
}
