package ledger

import "math/bits"

// idTree is the tree over a bundle's ids without the nodes at its right edge that are not full: its
// leaves, then the full nodes of each level above. The tree of a block with this bundle has most of
// these nodes, too. It takes less than 2 hashes an id. The zero value stands for a tree that is not
// known.
type idTree struct {
	nodes []Hash
	size  int // of the leaves
}

func newIDTree(ids []Hash) idTree {
	full := 2*len(ids) - bits.OnesCount(uint(len(ids)))
	t := idTree{nodes: make([]Hash, full), size: len(ids)}
	below, rest := t.nodes[:len(ids)], t.nodes[len(ids):]
	hashIDs(below, len(ids), func(i int) *Hash { return &ids[i] })
	for len(below) > 1 {
		above := rest[:len(below)/2]
		hashNodes(above, below)
		below, rest = above, rest[len(above):]
	}
	return t
}

// level returns the full nodes of a level, counted from the leaves.
func (t *idTree) level(number int) []Hash {
	first := 0
	for below := range number {
		first += t.size >> below
	}
	return t.nodes[first : first+t.size>>number]
}

// root returns the same as IDRoot.
func (t *idTree) root() Hash {
	var edge rightEdge
	for number := 0; t.size>>number > 0; number++ {
		edge.add(t.level(number))
	}
	return edge.root()
}

// rightEdge makes the root of a tree from its full nodes, level by level from the leaves.
type rightEdge struct {
	hash  Hash
	begun bool
}

// add takes a level's full nodes. The last one of an odd number is not below another full node. Its
// sibling is the node over all leaves to the right of it, because RFC 6962 splits a tree at the
// largest power of two below its size.
func (e *rightEdge) add(level []Hash) {
	if len(level)%2 == 0 {
		return
	}
	last := &level[len(level)-1]
	if e.begun {
		e.hash = nodeHash(last, &e.hash)
	} else {
		e.hash, e.begun = *last, true
	}
}

func (e *rightEdge) root() Hash {
	if !e.begun {
		return sum256()
	}
	return e.hash
}

// run is a row of leaves of a block's tree that are next to each other in a bundle's tree, too.
type run struct {
	first, end int // in the block
	shift      int // how many leaves later they are in the block than in the bundle
	tree       *idTree
}

// shared returns those full nodes of a level that are over leaves of the run only, with the place
// of the first one in the block. It returns nothing if the bundle's tree does not have them,
// because it pairs the leaves differently.
func (r *run) shared(number int) (from int, nodes []Hash) {
	size := 1 << number
	from, to := (r.first+size-1)/size, r.end/size
	if r.shift%size != 0 || from >= to {
		return 0, nil
	}
	return from, r.tree.level(number)[from-r.shift/size : to-r.shift/size]
}

// idRoot returns the RFC 6962 root over the ids of a block's entries. It takes what it can from the
// trees of the block's bundles. It overwrites level, which has as many hashes as there are entries.
func (b *Block) idRoot(level []Hash) Hash {
	runs := b.runs()
	var edge rightEdge
	for number := 0; len(level) > 0; number++ {
		// A node overwrites one that no later node is above.
		hash := func(from, to int) {
			if number == 0 {
				hashIDs(level[from:to], to-from, func(i int) *Hash {
					return &b.Unpacked[from+i].ID
				})
			} else if from < to {
				hashNodes(level[from:to], level[2*from:2*to])
			}
		}
		done, sharing := 0, runs[:0]
		for _, r := range runs {
			if from, nodes := r.shared(number); len(nodes) > 0 {
				hash(done, from)
				done = from + copy(level[from:], nodes)
				sharing = append(sharing, r)
			}
		}
		full := len(b.Unpacked) >> number
		hash(done, full)
		// What a run does not share on a level, it does not share on the levels above.
		level, runs = level[:full], sharing
		edge.add(level)
	}
	return edge.root()
}

// runs returns the runs of the block's entries in their order, of bundles with known trees.
func (b *Block) runs() []run {
	runs := make([]run, 0, len(b.Bundles))
	for i := range b.Unpacked {
		entry := &b.Unpacked[i]
		tree := &b.Bundles[entry.Bundle].tree
		if tree.size == 0 {
			continue
		}
		if i > 0 && b.Unpacked[i-1].Bundle == entry.Bundle &&
			b.Unpacked[i-1].Place+1 == entry.Place {
			runs[len(runs)-1].end++
			continue
		}
		runs = append(runs, run{first: i, end: i + 1, shift: i - entry.Place, tree: tree})
	}
	return runs
}
