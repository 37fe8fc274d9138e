package state

import (
	"crypto/sha256"
	"encoding/binary"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/internal/pairs"
)

// slotTree is a Merkle tree over the transactions that wait, by the numbers of their slots. Almost
// every one of them leaves its slot some blocks later, so it takes two changes of the digest. In an
// LtHash these cost two expansions to 2 KiB; here they cost one hash of the entry, and few of the
// nodes above, because the slots in use lie next to each other.
//
// The hash of a leaf is SHA-256(0x00, entry of the slot), or zero if the slot is free. A node has
// four children. It is zero if all of them are, and like its first child if that is the only one.
// Otherwise it is SHA-256(0x01, hashes of its children up to the last one that is not zero). So the
// root depends only on the slots in use: free slots after them change nothing, however many there
// are. And it stands for these entries and no others, because each entry has its slot's number.
type slotTree struct {
	levels []treeLevel
	// restored is the root of a tree that was restored, until fill makes its levels.
	restored ledger.Hash
}

// slotNode returns the hash over four children, or over the first ones of a level's last four.
func slotNode(children []ledger.Hash) ledger.Hash {
	for len(children) > 1 && children[len(children)-1] == (ledger.Hash{}) {
		children = children[:len(children)-1]
	}
	return nodeHash(children)
}

// slotLeaf is a leaf, or a node above, at its place in its level.
type slotLeaf struct {
	place uint32
	hash  ledger.Hash
}

// slotLeaves returns the leaves of the slots in use. The slots are ascending.
func slotLeaves(slots []*slot) []slotLeaf {
	leaves := make([]slotLeaf, 0, len(slots))
	var entry []byte
	for _, each := range slots {
		if each.entry != nil {
			entry, _ = each.appendEntry(entry[:0])
			leaves = append(leaves, slotLeaf{each.number, accountHash(entry)})
		}
	}
	return leaves
}

// restoredSlots returns the tree of restored slots. What comes from another member may have any
// numbers, and is checked by the root. So this takes no memory for the free slots between.
func restoredSlots(slots []*slot) *slotTree {
	level := slotLeaves(slots)
	for len(level) > 1 || len(level) == 1 && level[0].place > 0 {
		level = slotLevel(level)
	}
	t := &slotTree{}
	if len(level) == 1 {
		t.restored = level[0].hash
	}
	return t
}

// slotLevel returns the level above one of which the hashes are not zero and ascend by place. It
// uses the memory of that level.
func slotLevel(below []slotLeaf) []slotLeaf {
	above := below[:0]
	for first := 0; first < len(below); {
		var children [treeArity]ledger.Hash
		place := below[first].place / treeArity
		for ; first < len(below) && below[first].place/treeArity == place; first++ {
			children[below[first].place%treeArity] = below[first].hash
		}
		above = append(above, slotLeaf{place, slotNode(children[:])})
	}
	return above
}

// fill makes the levels of a restored tree. The slots are all up to the highest one in use.
func (t *slotTree) fill(slots []*slot, divide Divide) {
	if t.restored == (ledger.Hash{}) {
		return
	}
	t.grow(len(slots))
	for _, leaf := range slotLeaves(slots) {
		t.set(leaf.place, leaf.hash)
	}
	t.restored = ledger.Hash{}
	t.root(divide)
}

// grow makes room for the leaves of this many slots, and for all nodes above them.
func (t *slotTree) grow(slots int) {
	for level, length := 0, slots; length > 0; level++ {
		if level == len(t.levels) {
			t.levels = append(t.levels, treeLevel{})
			t.outdateNewLevel()
		}
		t.levels[level].grow(max(length, t.levels[level].length))
		if length == 1 {
			return
		}
		length = (length + treeArity - 1) / treeArity
	}
}

// outdateNewLevel notes that the first node of a level that is new has to be computed: so far the
// node below was the root.
func (t *slotTree) outdateNewLevel() {
	if last := len(t.levels) - 1; last > 0 {
		t.levels[last].grow(1)
		t.levels[last].outdate(0)
	}
}

// leaf returns the hash of a slot for which the tree has room.
func (t *slotTree) leaf(number uint32) ledger.Hash { return *t.levels[0].at(int(number)) }

// set sets the hash of a slot for which the tree has room.
func (t *slotTree) set(number uint32, hash ledger.Hash) {
	*t.levels[0].at(int(number)) = hash
	if len(t.levels) > 1 {
		t.levels[1].outdate(int(number) / treeArity)
	}
}

// root brings all hashes up to date and returns that of the root; zero if no transaction waits. The
// computation is divided.
func (t *slotTree) root(divide Divide) ledger.Hash {
	if t.restored != (ledger.Hash{}) || len(t.levels) == 0 {
		return t.restored
	}
	return refresh(t.levels, divide, hashSlotNodes)
}

// hashSlotNodes computes the hashes of the nodes at these places of a level. Two with all their
// children take little longer than one.
func hashSlotNodes(level, below *treeLevel, places []int) {
	var pair pairs.Pair
	waiting := -1 // a place whose node has all of its children, and no other one to go with
	for _, place := range places {
		children := below.children(place)
		if len(children) < treeArity || children[treeArity-1] == (ledger.Hash{}) {
			*level.at(place) = slotNode(children)
			continue
		}
		if waiting < 0 {
			waiting = place
			continue
		}
		data, otherData := pair.Room(len(nodeData{}))
		(*nodeData)(data).set((*[treeArity]ledger.Hash)(below.children(waiting)))
		(*nodeData)(otherData).set((*[treeArity]ledger.Hash)(children))
		*level.at(waiting), *level.at(place) = pair.SumRoom()
		waiting = -1
	}
	if waiting >= 0 {
		*level.at(waiting) = nodeHash(below.children(waiting))
	}
}

// settleSlots brings the tree up to date with the slots that the block touched, and lists what
// changed.
func (s *State) settleSlots(changes *Changes) {
	if len(s.touchedSlots) == 0 {
		return
	}
	t := s.slotTree
	t.grow(len(s.pending.slots))
	var pair pairs.Pair
	var before *kept // an entry that is not hashed yet
	var first kept
	var firstSlot uint32
	settle := func(number uint32, at kept, hash ledger.Hash) {
		if hash != t.leaf(number) {
			t.set(number, hash)
			changes.Entries.note(at.start, at.value-at.start, at.end-at.value, 0)
		}
	}
	for _, each := range s.touchedSlots {
		each.mark = mark{}
		if each.entry == nil {
			if t.leaf(each.number) != (ledger.Hash{}) { // otherwise it came in this block
				t.set(each.number, ledger.Hash{})
				start := len(s.arena)
				s.arena = appendSlotKey(s.arena, each.number)
				changes.Entries.note(start, len(s.arena)-start, 0, 0)
			}
			continue
		}
		s.arena = append(s.arena, treeLeaf)
		at := kept{start: len(s.arena)}
		var keyLength int
		s.arena, keyLength = each.appendEntry(s.arena)
		at.value, at.end = at.start+keyLength, len(s.arena)
		if before == nil {
			first, firstSlot, before = at, each.number, &first
			continue
		}
		hash, other := pair.Sum(s.arena[first.start-1:first.end], s.arena[at.start-1:at.end])
		settle(firstSlot, first, hash)
		settle(each.number, at, other)
		before = nil
	}
	if before != nil {
		settle(firstSlot, first, accountHash(s.arena[first.start:first.end]))
	}
}

// appendSlotKey appends the key of a slot's entry.
func appendSlotKey(to []byte, number uint32) []byte {
	return append(binary.BigEndian.AppendUint32(append(to, kindPending), number), 0)
}

// beginSlotTree moves the transactions that wait from the LtHash into the tree, once the chain has
// the version.
func (s *State) beginSlotTree() {
	var entry []byte
	for _, each := range s.pending.slots {
		if each.entry != nil {
			entry, _ = each.appendEntry(entry[:0])
			s.digest.Remove(entry)
		}
	}
	s.slotTree = restoredSlots(s.pending.slots)
	s.slotTree.fill(s.pending.slots, s.divide)
}

// takesSlotTree reports whether the chain's version has the tree.
func (s *State) takesSlotTree() bool {
	return s.tree != nil && s.Version() >= ledger.CrossingVersion
}

// othersDigest returns the digest of all entries but accounts.
func (s *State) othersDigest() ledger.Hash {
	if s.assetTree == nil {
		return s.plainDigest()
	}
	return s.assetRoot().Digest(s.plainDigest())
}

// plainDigest returns the digest of all entries but accounts and assets.
func (s *State) plainDigest() ledger.Hash {
	others := s.digest.Sum()
	if s.slotTree == nil {
		return others
	}
	root := s.slotTree.root(s.divide)
	to := append(make([]byte, 0, len(slotDigestDomain)+2*ledger.HashSize), slotDigestDomain...)
	return sha256.Sum256(append(append(to, root[:]...), others[:]...))
}
