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
// A change of the membership takes effect with the next run. Each member enters that with
// everything up to its base on its disk. So the change itself is on the disks of a majority of the
// members before it as soon as the next run A-delivers anything.
type Durability struct {
	run    generation.Run
	quorum int
	// members and stored go together.
	members []order.ServerID
	stored  []uint64
}

// Begin starts to count for a run, among the members of its Group.Shard.
func (d *Durability) Begin(run generation.Run, members []order.ServerID) {
	d.run, d.quorum = run, len(members)/2+1
	d.members = slices.Clone(members)
	d.stored = make([]uint64, len(members))
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

// Height returns the highest block that a majority has stored, 0 for none.
func (d *Durability) Height() uint64 {
	if d.quorum == 0 || len(d.stored) < d.quorum {
		return 0
	}
	heights := slices.Sorted(slices.Values(d.stored))
	return heights[len(heights)-d.quorum]
}
