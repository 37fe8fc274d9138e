package shard

import (
	"slices"

	"github.com/ledgerd/ledgerd/allconcur/generation"
	"github.com/ledgerd/ledgerd/order"
)

// Durability computes which blocks of a run a majority of the shard's disks holds. Members of the
// group count: each entered the run with a disk that counts under Group.Shard. Members outside of
// the group count too if they follow the run, took part in its generation, and promised no later
// one (countsOutside). A disk that recorded the round of a block counts like one that holds the
// block (record.go).
//
// A change of the membership takes effect with the next run. Once the change is durable, the
// membership before it is no longer needed. Therefore no block from the change on is durable before
// each majority of the earlier membership contains a disk that holds the change. For a join or a
// leave, a majority of the members after the change is enough. If the change names another disk for
// a member, and the number of members is odd, one more of the old disks is needed, because the new
// disk is not one of them.
type Durability struct {
	// Fault plants a bug. Production leaves it FaultNone.
	Fault Fault

	run    generation.Run
	quorum int
	// stored[i] is the height that the disk of members[i] holds.
	members []order.ServerID
	stored  []uint64
	former  []formerDisks
	// shard is the membership of the run. most[i] is the height up to which the disk of members[i]
	// counts; nil for no limit.
	shard generation.Membership
	most  []uint64
	// recorded are the rounds that the disk of members[i] recorded, and matched is the height of
	// the last block among them. blocks are those of the run, ascending. The lists are bounded.
	recorded [][]Recorded
	matched  []uint64
	blocks   []executed
	// sorted is scratch space for Height, which is called for every block and every message.
	sorted []uint64
}

// formerDisks are the members whose disks counted before a change of the chain and still count.
type formerDisks struct {
	members []order.ServerID
	// needed is how many of them intersect every majority of that membership.
	needed int
	// until is the height of the change.
	until uint64
}

// Begin starts counting for a run, among the members of its Group.Shard. Former are the memberships
// before changes that are not known to be durable, as in Start.Former.
func (d *Durability) Begin(run generation.Run, shard generation.Membership,
	former []generation.Former) {
	d.run, d.quorum = run, shard.Quorum()
	d.members = slices.Clone(shard.Members)
	d.stored = make([]uint64, len(d.members))
	d.shard, d.most, d.former = shard, nil, nil
	d.recorded, d.matched = make([][]Recorded, len(d.members)), make([]uint64, len(d.members))
	d.blocks = d.blocks[:0]
	for _, f := range former {
		before := formerDisks{needed: len(f.Membership.Members) - f.Membership.Quorum() + 1,
			until: f.Until}
		for _, member := range f.Membership.Members {
			if shard.Includes(member) && shard.Disk(member) == f.Membership.Disk(member) {
				before.members = append(before.members, member)
			}
		}
		d.former = append(d.former, before)
	}
}

// Changed says that the block at a height of the run changed the membership. If the change named
// another disk for a member, the disk that the member entered the run with does not count from
// there on: the majorities after the change need none of the old disk's blocks. An admission is
// proposed only while its member is in no group, but it may be ordered after the member entered
// with the old disk.
func (d *Durability) Changed(to generation.Membership, height uint64) {
	for at, member := range d.members {
		if !to.Includes(member) || to.Disk(member) == d.shard.Disk(member) {
			continue
		}
		if d.most == nil {
			d.most = slices.Repeat([]uint64{^uint64(0)}, len(d.members))
		}
		d.most[at] = min(d.most[at], height-1)
	}
}

// holds returns the height up to which the disk of members[at] counts.
func (d *Durability) holds(at int) uint64 {
	held := max(d.stored[at], d.matched[at])
	if d.most == nil {
		return held
	}
	return min(held, d.most[at])
}

// End stops counting. From here on the chain grows by blocks of other runs.
func (d *Durability) End() { *d = Durability{Fault: d.Fault} }

// Counts reports whether blocks of a run are being counted.
func (d *Durability) Counts() bool { return d.quorum != 0 }

// Stored records that a member's disk holds the chain up to a height, as the member reported in a
// run. It reports whether that counts: the server is a member, and the run is the one being
// counted.
func (d *Durability) Stored(run generation.Run, member order.ServerID, height uint64) bool {
	at, found := slices.BinarySearch(d.members, member)
	if !found || run != d.run {
		return false
	}
	d.stored[at] = max(d.stored[at], height)
	return true
}

// Height returns the height of the highest durable block, 0 for none. It may be beyond the own
// chain. There it is not yet known which disks count, so a caller takes at most its own head.
func (d *Durability) Height() uint64 {
	if d.quorum == 0 || len(d.stored) < d.quorum {
		return 0
	}
	d.sorted = d.sorted[:0]
	for at := range d.stored {
		d.sorted = append(d.sorted, d.holds(at))
	}
	slices.Sort(d.sorted)
	height := d.sorted[len(d.sorted)-d.quorum]
	for _, f := range d.former {
		holders := 0
		for at, member := range d.members {
			if _, counted := slices.BinarySearch(f.members, member); counted &&
				d.holds(at) >= f.until {
				holders++
			}
		}
		if holders < f.needed {
			height = min(height, f.until-1)
		}
	}
	return height
}
