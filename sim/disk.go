package sim

import (
	"math/rand/v2"
	"slices"

	"github.com/ledgerd/ledgerd/allconcur/generation"
)

// disk is the contents of a server's home. It outlives processes, loses unsynced data when the
// power fails, and can be damaged, lost, or replaced by an older copy. A home is locked: one
// process at a time uses it.
type disk struct {
	id       generation.DiskID
	original bool
	// why is the reason why the disk is not the original one.
	why string

	// blocks are the blocks in the log, from the genesis on. Those above synced are lost when the
	// power fails. A crash of the process keeps some of them. group is where the last synced group
	// begins: a damaged tail loses everything above it.
	blocks        []*block
	synced, group uint64
	// durable is the height known to be durable as of the last sync, groupDurable as of the sync
	// before.
	durable, groupDurable uint64
	// knew is the value that durable should have, for the oracles. claimed is the last block that
	// the others were told the disk holds, so that it counts.
	knew    uint64
	claimed *block
	// perhaps reports that something other than zeros followed the last whole record. It stays
	// until the first sync after the member settled it.
	perhaps, settled bool
	// record is the last record, nil for none, and groupRecord the one before the last group.
	// writing is a record that is being written, in a group that begins after its block.
	record, groupRecord, writing *diskRecord

	// state is the contents of the file of promises, and promises reports that the file exists.
	state    generation.State
	promises bool
	// contents are the rounds on the disk, and held lists them.
	contents map[[32]byte]*content
	held     [][32]byte
	// removed is the block that, according to the server, removed it for good.
	removed *block

	// full reports that nothing more can be written.
	full bool
	// damaged reports that the last group of the log was damaged, and no run has settled that
	// since.
	damaged bool
	// vowed is the newest generation that a process promised with this home.
	vowed generation.Generation
}

// newDisk returns the disk of a new home.
func newDisk(id generation.DiskID, genesis *block) *disk {
	return &disk{id: id, original: true, blocks: []*block{genesis},
		contents: make(map[[32]byte]*content), promises: true, state: newState(id)}
}

// newState returns the contents of the file of promises of a new home.
func newState(id generation.DiskID) generation.State { return generation.State{Disk: id} }

func (d *disk) height() uint64 { return uint64(len(d.blocks) - 1) }

// write appends the blocks of a chain to the log, without a sync.
func (d *disk) write(held []*block) {
	d.blocks = held
}

// sync makes the disk hold a chain up to a height, and what is known to be durable of it.
func (d *disk) sync(held []*block, height, durable uint64, forgetful bool) {
	if height > d.synced || d.writing != nil {
		d.group, d.groupDurable, d.groupRecord = d.synced, d.durable, d.record
	}
	if d.writing != nil {
		d.record, d.writing = d.writing, nil
	}
	if d.settled {
		d.perhaps, d.settled = false, false
	}
	d.write(held)
	d.synced, d.knew = height, max(d.knew, min(durable, height))
	if !forgetful {
		d.durable = max(d.durable, min(durable, height))
	}
}

// cut removes the blocks above a height from the disk, for good.
func (d *disk) cut(keep uint64) {
	d.blocks = slices.Clone(d.blocks[:keep+1])
	d.synced, d.group = min(d.synced, keep), min(d.group, keep)
	d.durable, d.groupDurable = min(d.durable, keep), min(d.groupDurable, keep)
	d.knew = min(d.knew, keep)
	// The chain that is kept is copied, with its record, so a damaged last group loses the record.
	if d.groupRecord, d.writing = nil, nil; d.record != nil && d.record.Height > keep {
		d.record = nil
	}
}

// keep stores a round's content. It reports whether there was space.
func (d *disk) keep(hash [32]byte, c *content) bool {
	if d.contents[hash] != nil {
		return true
	}
	if d.full {
		return false
	}
	d.contents[hash] = c
	d.held = append(d.held, hash)
	return true
}

// clear removes all contents from the disk except those of a decision.
func (d *disk) clear(but *generation.Decision) {
	d.held = slices.DeleteFunc(d.held, func(hash [32]byte) bool {
		wanted := but != nil && slices.ContainsFunc(but.Tail, func(r generation.TailRound) bool {
			return r.Content == hash
		})
		if !wanted {
			delete(d.contents, hash)
		}
		return !wanted
	})
}

// crash handles the end of the process. Of what the process wrote, the part stays that left the
// process's memory. The last record may be torn, if torn allows it.
func (d *disk) crash(random *rand.Rand, torn bool) {
	lost := uint64(random.Int64N(int64(d.height()-d.synced) + 1))
	d.truncate(d.height() - lost)
	kept := d.keepRecord(random)
	if (lost > 0 || !kept) && random.IntN(4) == 0 && torn {
		d.perhaps = true
	}
}

// keepRecord keeps a record that was being written, or loses it. It reports whether it was kept, or
// there was none.
func (d *disk) keepRecord(random *rand.Rand) bool {
	r := d.writing
	d.writing = nil
	if r == nil {
		return true
	}
	if r.Height > d.height() || random.IntN(2) == 0 {
		return false
	}
	d.group, d.groupDurable, d.groupRecord = d.synced, d.durable, d.record
	d.record, d.synced = r, max(d.synced, r.Height)
	return true
}

// powerLoss is the kind of damage of a power failure.
type powerLoss uint8

const (
	lossZeros   powerLoss = iota // nothing follows the last whole record
	lossTorn                     // a record that was being written is there in part
	lossDamaged                  // the last group is damaged although it was synced
)

// losePower handles a power failure.
func (d *disk) losePower(how powerLoss, random *rand.Rand) {
	kept := d.synced
	if random.IntN(3) == 0 { // some blocks had been written back
		kept += uint64(random.Int64N(int64(d.height()-d.synced) + 1))
	}
	switch {
	case how == lossDamaged && d.damageable():
		kept, d.durable, d.perhaps = d.group, d.groupDurable, true
		d.synced, d.knew = d.group, min(d.knew, d.groupDurable)
		d.record, d.writing = d.groupRecord, nil
	case how == lossTorn && (d.height() > d.synced || d.writing != nil):
		d.perhaps, d.writing = true, nil
		if kept == d.height() && kept > d.synced {
			kept--
		}
	}
	d.truncate(kept)
	d.keepRecord(random)
}

// damageable reports whether there is a last group to damage.
func (d *disk) damageable() bool { return d.group < d.synced || d.groupRecord != d.record }

// truncate removes unsynced blocks from the log.
func (d *disk) truncate(height uint64) {
	d.blocks = slices.Clone(d.blocks[:height+1])
}

// settleDoubt records that the member no longer considers what the disk perhaps had.
func (d *disk) settleDoubt() { d.settled = true }

// open does what a process does with the log that it finds: it checks the log and syncs it.
func (d *disk) open() {
	d.settled = false
	if d.height() > d.synced {
		d.group, d.groupDurable, d.synced = d.synced, d.durable, d.height()
		d.groupRecord = d.record
	}
}

// loseData loses the folder of the data, losePromises the file of promises. The home then counts as
// another disk.
func (d *disk) loseData(genesis *block) {
	d.blocks, d.synced, d.group, d.durable, d.groupDurable, d.perhaps = []*block{genesis}, 0,
		0, 0, 0, false
	d.removed, d.knew = nil, 0
	d.record, d.groupRecord, d.writing = nil, nil, nil
}

func (d *disk) losePromises() {
	d.promises, d.state = false, generation.State{}
	clear(d.contents)
	d.held = nil
}

// renew gives the home a new identity, as a process does if it finds the home altered.
func (d *disk) renew(id generation.DiskID, why string) {
	d.id, d.original, d.why = id, false, why
	if !d.promises {
		d.promises, d.state, d.vowed = true, newState(id), 0
	}
}

// copy returns a copy of the home.
func (d *disk) copy() *disk {
	c := *d
	c.blocks, c.held, c.full = slices.Clone(d.blocks), slices.Clone(d.held), false
	c.contents = make(map[[32]byte]*content, len(d.contents))
	for hash, round := range d.contents {
		c.contents[hash] = round
	}
	return &c
}

// suffices reports whether the disk holds what a decision goes on from: its base, and the rounds
// behind it.
func (d *disk) suffices(v *generation.Decision) bool {
	return v.Base.Height <= d.synced && d.blocks[v.Base.Height].hash == v.Base.Hash &&
		!slices.ContainsFunc(v.Tail, func(r generation.TailRound) bool {
			return d.contents[r.Content] == nil
		})
}

// holds reports whether the synced blocks include a block.
func (d *disk) holds(b *block) bool { return b.height <= d.synced && d.blocks[b.height] == b }
