package state

import (
	"crypto/sha256"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/ledgerd/ledgerd/ledger"
)

// referenceSlots is the root over the slots from first to first+size, straight from the definition.
// Size is a power of the arity.
func referenceSlots(leaves map[uint32]ledger.Hash, first, size uint32) ledger.Hash {
	if size == 1 {
		return leaves[first]
	}
	var children []ledger.Hash
	for child := range uint32(treeArity) {
		children = append(children, referenceSlots(leaves, first+child*size/treeArity,
			size/treeArity))
	}
	for len(children) > 0 && children[len(children)-1] == (ledger.Hash{}) {
		children = children[:len(children)-1]
	}
	switch len(children) {
	case 0:
		return ledger.Hash{}
	case 1:
		return children[0]
	}
	data := []byte{1}
	for _, child := range children {
		data = append(data, child[:]...)
	}
	return sha256.Sum256(data)
}

func waitingSlot(number uint32, version uint64) *slot {
	return &slot{number: number, entry: &pending{id: ledger.Hash{1}, height: 1,
		index: uint32(version)}}
}

// TestSlotTree: however the tree grew and changed, its root is that of the definition, and of a
// tree that is restored from the slots in use.
func TestSlotTree(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var tree slotTree
		var room uint32
		const most = 64 * treeArity
		slots, leaves := map[uint32]*slot{}, map[uint32]ledger.Hash{}
		for range rapid.IntRange(1, 8).Draw(t, "blocks") {
			room = max(room, rapid.Uint32Range(0, most).Draw(t, "room"))
			tree.grow(int(room))
			for range rapid.IntRange(0, 40).Draw(t, "changes") {
				if room == 0 {
					break
				}
				number := rapid.Uint32Range(0, room-1).Draw(t, "slot")
				if rapid.Bool().Draw(t, "leaves") {
					delete(slots, number)
					delete(leaves, number)
					tree.set(number, ledger.Hash{})
					continue
				}
				slots[number] = waitingSlot(number, rapid.Uint64Range(0, 2).Draw(t, "version"))
				entry, _ := slots[number].appendEntry(nil)
				leaves[number] = accountHash(entry)
				tree.set(number, leaves[number])
			}
			want := referenceSlots(leaves, 0, most)
			if got := tree.root(inTurn); got != want {
				t.Fatalf("root %s, want %s", got, want)
			}
			used := slices.SortedFunc(maps.Values(slots), func(a, b *slot) int {
				return int(a.number) - int(b.number)
			})
			restored := restoredSlots(used)
			if got := restored.root(inTurn); got != want {
				t.Fatalf("restored root %s, want %s", got, want)
			}
			all := make([]*slot, 0, room)
			for number := range room {
				one := slots[number]
				if one == nil {
					one = &slot{number: number}
				}
				all = append(all, one)
			}
			if restored.fill(all, inTurn); restored.root(inTurn) != want {
				t.Fatalf("filled root %s, want %s", restored.root(inTurn), want)
			}
		}
	})
}

// TestSlotTreeTakesNoRoom: what comes from another member may have any numbers of slots.
func TestSlotTreeTakesNoRoom(t *testing.T) {
	t.Parallel()
	used := []*slot{waitingSlot(3, 0), waitingSlot(maxPending-1, 0)}
	if tree := restoredSlots(used); len(tree.levels) > 0 {
		t.Errorf("%d levels", len(tree.levels))
	}
	one := restoredSlots(used[:1]).root(inTurn)
	if both := restoredSlots(used).root(inTurn); both == one {
		t.Error("a slot does not count")
	}
}
