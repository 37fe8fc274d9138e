package shard

import (
	"slices"

	"github.com/ledgerd/ledgerd/allconcur/generation"
	"github.com/ledgerd/ledgerd/order"
)

// Durability finds out which blocks of a run a majority of the shard's disks holds. Members of the
// group count: each entered the run with a disk that counts under Group.Shard. So do members
// outside of it that follow the run, took part in its generation, and promised no later one
// (countsOutside).
//
// A change of the membership takes effect with the next run. Once it is durable, the membership before
// it is needed no more. So nothing from the change on is durable before each majority of that
// membership has a disk with it. For a join or a leave a majority of the members after the change is
// enough. Where another disk was named for a member of an odd number, one of the old disks more is
// needed: the new disk is none of them.
type Durability struct {
	run    generation.Run
	quorum int
	// members and stored go together.
	members []order.ServerID
	stored  []uint64
	former  []formerDisks
	// shard is the membership of the run, and most up to where each disk of it counts; nil for any
	// height.
	shard generation.Membership
	most  []uint64
	// sorted is the room in which Height sorts: it is asked for every block and every word.
	sorted []uint64
}

// formerDisks are the members whose disks counted before a change of the chain, and still do.
type formerDisks struct {
	members []order.ServerID
	needed  int    // how many of them meet each majority of that membership
	until   uint64 // the height of the change
}

// Begin starts to count for a run, among the members of its Group.Shard. Former are the memberships
// before changes that are not known to be durable, as Start.Former has them.
func (d *Durability) Begin(run generation.Run, shard generation.Membership, former []generation.Former) {
	d.run, d.quorum = run, shard.Quorum()
	d.members = slices.Clone(shard.Members)
	d.stored = make([]uint64, len(d.members))
	d.shard, d.most, d.former = shard, nil, nil
	for _, f := range former {
		before := formerDisks{needed: len(f.Membership.Members) - f.Membership.Quorum() + 1, until: f.Until}
		for _, member := range f.Membership.Members {
			if shard.Includes(member) && shard.Disk(member) == f.Membership.Disk(member) {
				before.members = append(before.members, member)
			}
		}
		d.former = append(d.former, before)
	}
}

// Changed tells that the block at a height of the run changed the membership. Where it named another
// disk for a member, the one that the member entered the run with counts no more from there on: the
// majorities after the change need none of the old disk's blocks. An admission is proposed only while
// its member is in no group, but it may be ordered after the member entered with the old disk.
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

// holds returns up to which height the disk of the member at a place counts.
func (d *Durability) holds(at int) uint64 {
	if d.most == nil {
		return d.stored[at]
	}
	return min(d.stored[at], d.most[at])
}

// End stops counting: from here on the chain grows by blocks of other runs.
func (d *Durability) End() { *d = Durability{} }

// Counts reports whether a run is being counted for.
func (d *Durability) Counts() bool { return d.quorum != 0 }

// Stored notes that a member's disk holds the chain up to a height, as the member said in a run. It
// reports whether that counts: it is a member, and the run is the one that is being counted for.
func (d *Durability) Stored(run generation.Run, member order.ServerID, height uint64) bool {
	at, found := slices.BinarySearch(d.members, member)
	if !found || run != d.run {
		return false
	}
	d.stored[at] = max(d.stored[at], height)
	return true
}

// Height returns the highest block that is durable, 0 for none. It may be beyond what the own chain has;
// there it is not known yet which disks count, so that a caller takes at most its own head.
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
			if _, counted := slices.BinarySearch(f.members, member); counted && d.holds(at) >= f.until {
				holders++
			}
		}
		if holders < f.needed {
			height = min(height, f.until-1)
		}
	}
	return height
}
