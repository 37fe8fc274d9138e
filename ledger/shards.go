package ledger

import (
	"fmt"
	"slices"
)

// Bounds of a book of several shards.
const (
	// MaxShards bounds the shards of a book.
	MaxShards = 1024
	// MaxShardedMembers bounds the members in the genesis of such a book, over all shards.
	MaxShardedMembers = 1 << 14
)

// ShardTree is the static tree of a book's shards. It tells which shards lie below which, and
// therefore where an entry enters, through which shards it passes and which shards it concerns. It
// is read-only.
type ShardTree struct {
	parents  []ShardID
	children [][]ShardID
	depths   []int
	// A depth-first walk visits the shards. The shards below shard s, including s, are those with
	// first[s] <= first < last[s].
	first, last []uint32
	root        ShardID
}

// newShardTree returns the tree in which parents holds each shard's parent, and the root is its own
// parent. It returns ErrGenesis if that is not a tree.
func newShardTree(parents []ShardID) (*ShardTree, error) {
	count := len(parents)
	t := &ShardTree{parents: slices.Clone(parents), children: make([][]ShardID, count),
		depths: make([]int, count), first: make([]uint32, count), last: make([]uint32, count)}
	roots := 0
	for i, parent := range parents {
		shard := ShardID(i)
		switch {
		case int(parent) >= count:
			return nil, fmt.Errorf("%w: the parent of shard %d is shard %d, there are %d",
				ErrGenesis, shard, parent, count)
		case parent == shard:
			t.root = shard
			roots++
		default:
			t.children[parent] = append(t.children[parent], shard)
		}
	}
	if roots != 1 {
		return nil, fmt.Errorf("%w: %d shards are their own parents: exactly one shard, the root "+
			"of the tree, must be its own parent", ErrGenesis, roots)
	}
	var entered uint32
	path := []ShardID{t.root}
	for next := make([]int, count); len(path) > 0; {
		shard := path[len(path)-1]
		if next[shard] == 0 {
			t.first[shard], t.depths[shard] = entered, len(path)-1
			entered++
		}
		if next[shard] < len(t.children[shard]) {
			path = append(path, t.children[shard][next[shard]])
			next[shard]++
			continue
		}
		t.last[shard] = entered
		path = path[:len(path)-1]
	}
	if int(entered) != count {
		return nil, fmt.Errorf("%w: the tree has a cycle: %d of %d shards lie below its root, "+
			"shard %d", ErrGenesis, entered, count, t.root)
	}
	return t, nil
}

// Shards returns the number of shards. They are numbered from 0.
func (t *ShardTree) Shards() int { return len(t.parents) }

// Root returns the root of the tree.
func (t *ShardTree) Root() ShardID { return t.root }

// Parent returns a shard's parent, and false for the root.
func (t *ShardTree) Parent(shard ShardID) (ShardID, bool) {
	parent := t.parents[shard]
	return parent, parent != shard
}

// Children returns a shard's children, in ascending order. The slice is read-only.
func (t *ShardTree) Children(shard ShardID) []ShardID { return t.children[shard] }

// Depth returns the number of steps from the root to a shard.
func (t *ShardTree) Depth(shard ShardID) int { return t.depths[shard] }

// Reaches reports whether shard is other or lies above it.
func (t *ShardTree) Reaches(shard, other ShardID) bool {
	return t.first[shard] <= t.first[other] && t.first[other] < t.last[shard]
}

// Covers reports whether a shard reaches all of these shards.
func (t *ShardTree) Covers(shard ShardID, all []ShardID) bool {
	return !slices.ContainsFunc(all, func(each ShardID) bool { return !t.Reaches(shard, each) })
}

// Concerns reports whether a shard reaches any of these shards.
func (t *ShardTree) Concerns(shard ShardID, any []ShardID) bool {
	return slices.ContainsFunc(any, func(each ShardID) bool { return t.Reaches(shard, each) })
}

// Entry returns the shard where an entry that concerns these shards, at least one, enters: their
// lowest common ancestor [TRAM, section 3.1].
func (t *ShardTree) Entry(shards []ShardID) ShardID {
	entry := shards[0]
	for !t.Covers(entry, shards) {
		entry = t.parents[entry]
	}
	return entry
}

// validateShards checks the fields of a genesis that describe several shards.
func (g *Genesis) validateShards() error {
	switch {
	case len(g.Shards) == 0 && len(g.Tree) == 0 && g.Shard == 0:
		return nil
	case len(g.Shards) < 2 || len(g.Shards) > MaxShards:
		return fmt.Errorf("%w: %d shards, 2 to %d allowed; a book of one shard names its "+
			"members only", ErrGenesis, len(g.Shards), MaxShards)
	case len(g.Tree) != len(g.Shards):
		return fmt.Errorf("%w: a tree of %d shards, and members of %d", ErrGenesis, len(g.Tree),
			len(g.Shards))
	case int(g.Shard) >= len(g.Shards):
		return fmt.Errorf("%w: shard %d of %d", ErrGenesis, g.Shard, len(g.Shards))
	case !slices.EqualFunc(g.Members, g.Shards[g.Shard], func(a, b Member) bool {
		return a.equal(&b)
	}):
		return fmt.Errorf("%w: the members are not those of shard %d", ErrGenesis, g.Shard)
	}
	if _, err := newShardTree(g.Tree); err != nil {
		return err
	}
	names, keys, total := map[string]ShardID{}, map[string]ShardID{}, 0
	for i, members := range g.Shards {
		shard := ShardID(i)
		if err := validateMembers(members); err != nil {
			return fmt.Errorf("shard %d: %w", shard, err)
		}
		if total += len(members); total > MaxShardedMembers {
			return fmt.Errorf("%w: more than %d members", ErrGenesis, MaxShardedMembers)
		}
		for m := range members {
			member := &members[m]
			if other, taken := names[member.Name]; taken {
				return fmt.Errorf("%w: a member named %s in shard %d and in shard %d", ErrGenesis,
					member.Name, other, shard)
			}
			if other, taken := keys[string(member.Key)]; taken && len(member.Key) > 0 {
				return fmt.Errorf("%w: member %s of shard %d has the key of a member of shard %d",
					ErrGenesis, member.Name, shard, other)
			}
			names[member.Name], keys[string(member.Key)] = shard, shard
		}
	}
	return nil
}

// Sharded reports whether the book has several shards.
func (g *Genesis) Sharded() bool { return len(g.Shards) > 0 }

// ShardTree returns the tree of the book's shards, or nil if the book has only one shard. The
// genesis must be valid.
func (g *Genesis) ShardTree() *ShardTree {
	if !g.Sharded() {
		return nil
	}
	tree, err := newShardTree(g.Tree)
	if err != nil {
		panic("ledger: the tree of a genesis that was not validated: " + err.Error())
	}
	return tree
}

// ForShard returns the genesis of a shard of the same book, or ErrGenesis if there is no such
// shard. It shares the memory of g.
func (g *Genesis) ForShard(shard ShardID) (*Genesis, error) {
	if !g.Sharded() && shard == 0 {
		return g, nil
	}
	if int(shard) >= len(g.Shards) {
		return nil, fmt.Errorf("%w: shard %d of %d", ErrGenesis, shard, max(1, len(g.Shards)))
	}
	other := *g
	other.Shard, other.Members = shard, g.Shards[shard]
	return &other, nil
}

func (m *Member) equal(other *Member) bool {
	return m.Name == other.Name && m.Address == other.Address &&
		slices.Compare(m.Key, other.Key) == 0
}
