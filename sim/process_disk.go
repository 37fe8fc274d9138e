package sim

import (
	"github.com/ledgerd/ledgerd/allconcur/generation"
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/shard"
)

// fullDisk is the reason why a disk takes no writes.
const fullDisk = "the disk is full: free some space"

// syncing is what is on its way to the disk, and what is known about the other disks.
type syncing struct {
	// under reports that a sync is under way, of the blocks up to height. cuts counts how often
	// blocks were set aside.
	under  bool
	height uint64
	cuts   int
	cutsAt int
	// due is the height up to which blocks are to be synced at once. late reports that those above
	// it wait for the next record, but not for long.
	due  uint64
	late bool
	// durability counts what the members of the current run stored in it.
	durability shard.Durability
	// records reports that the process records complete rounds. recorder decides which.
	records  bool
	recorder shard.Recorder
}

// save makes the disk hold everything that was executed, and the state.
func (p *process) save(state generation.State) {
	s := p.sim
	if p.disk.full {
		p.answer(shard.SaveFailed{Reason: fullDisk})
		return
	}
	if wait := s.life.saveFor(s.life.disks); wait > 0 {
		p.busy = true
		s.queue.push(event{at: s.now + wait, kind: saving, server: p.self, process: p.number,
			state: &state})
		return
	}
	p.saved(state)
}

// saved is called when the disk holds the state.
func (p *process) saved(state generation.State) {
	s := p.sim
	p.syncNow()
	switch plant := s.life.setting.plant; {
	case plant == PlantPromiseNotPersisted && state.Promised != p.disk.state.Promised:
		before := p.disk.state
		p.disk.state = state
		p.disk.state.Instance, p.disk.state.Promised = before.Instance, before.Promised
	case plant == PlantSaveAfterSend:
		s.queue.push(event{at: s.now + between(1*millisecond, 100*millisecond)(s.life.disks),
			kind: savingLate, server: p.self, process: p.number, state: &state})
	default:
		p.disk.state = state
	}
	s.noteVow(p, &state)
	p.answer(shard.Saved{})
}

// written is called after blocks were executed. It puts them on their way to the disk.
func (p *process) written() {
	p.disk.write(p.chain.blocks)
	if p.syncing.due = p.chain.head().height; p.chain.stored < p.syncing.due {
		p.kick()
	}
}

// lazySync is how long a block may wait for the next record, to share its sync, as in a node.
const lazySync = 50 * millisecond

// writtenLate is like written for a block of the run that records make durable, one of which is on
// this disk.
func (p *process) writtenLate() {
	p.disk.write(p.chain.blocks)
	if !p.syncing.late {
		p.syncing.late = true
		p.sim.queue.push(event{at: p.sim.now + lazySync, kind: syncingLate, server: p.self,
			process: p.number})
	}
}

// kick begins a sync, unless one is under way.
func (p *process) kick() {
	if !p.syncing.under {
		p.syncSoon()
	}
}

func (p *process) syncSoon() {
	s := p.sim
	p.writeRecord()
	p.syncing.under, p.syncing.height, p.syncing.cutsAt = true, p.chain.head().height,
		p.syncing.cuts
	s.queue.push(event{at: s.now + s.life.syncFor(s.life.disks), kind: synced, server: p.self,
		process: p.number})
}

// syncEnds ends a sync.
func (p *process) syncEnds() {
	p.syncing.under = false
	if p.disk.full {
		p.syncSoon()
		return
	}
	if p.syncing.cuts == p.syncing.cutsAt {
		p.synced(p.syncing.height)
	}
	due := min(p.syncing.due, p.chain.head().height)
	if p.chain.stored < due || p.recorder.Waits(p.chain.round) {
		p.syncSoon()
	}
}

// syncNow makes the disk hold everything that was executed. It waits for a record that is being
// written.
func (p *process) syncNow() { p.synced(p.chain.head().height) }

// synced records that the disk holds the chain up to a height, and tells the other members of the
// run.
func (p *process) synced(height uint64) {
	if height < p.chain.stored {
		return
	}
	s := p.sim
	written := p.disk.writing
	p.disk.sync(p.chain.blocks, height, p.chain.durable,
		s.life.setting.plant == PlantDurableNotPersisted)
	if height == p.chain.stored && written == nil {
		return
	}
	p.chain.stored = height
	s.judgeStored(p, height)
	s.moment(strayMade, p.self)
	if !p.works() || s.life.setting.alone {
		return
	}
	p.claim(height)
	l := &peerMessage{kind: letterStored, run: p.group.Run, height: height}
	if written != nil && written.Run == p.group.Run {
		l.recorded = written.Names()
		s.judgeRecorded(p, written)
	}
	for _, to := range p.group.Members {
		said := l
		if len(l.recorded) > 0 && s.life.recorders.IntN(20) == 0 {
			said = &peerMessage{kind: letterStored, run: l.run, height: height} // the rest is lost
		}
		s.post(p.self, to, said)
	}
	p.heardRecorded(p.self, p.group.Run, l.recorded)
	p.heardStored(p.self, p.group.Run, height)
}

// beginStored begins to count what the members of a run stored.
func (p *process) beginStored(former []generation.Former) {
	p.durability.Fault = p.sim.life.setting.plant.member()
	p.recorder = shard.Recorder{Fault: p.durability.Fault}
	p.durability.Begin(p.group.Run, p.group.Shard, former)
	p.claim(p.chain.stored)
	p.heardStored(p.self, p.group.Run, p.chain.stored)
	if !p.sim.life.setting.alone {
		for _, to := range p.group.Members {
			p.sim.post(p.self, to, &peerMessage{kind: letterStored, run: p.group.Run,
				height: p.chain.stored})
		}
	}
}

// claim records up to which block the others are told that this disk holds the chain.
func (p *process) claim(height uint64) { p.disk.claimed = p.chain.blocks[height] }

// heardStored records what a member of the current run stored in it. What a majority stored is
// durable.
func (p *process) heardStored(from order.ServerID, r generation.Run, height uint64) {
	if p.durability.Stored(r, from, height) {
		p.knowDurable(p.durability.Height())
	}
}

// knowDurable records that a height is durable.
func (p *process) knowDurable(height uint64) {
	height = min(height, p.chain.head().height)
	if height > p.chain.durable {
		p.chain.durable = height
		p.sim.judgeDurable(p, height)
	}
}
