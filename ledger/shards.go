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

// ShardTree is the tree of a book's shards. It tells which shards lie below which, and therefore
// where an entry enters, through which shards it passes and which shards it concerns. It is
// read-only: a book whose shards change gets another tree (Grow, Rehang). Of a shard that was added
// later, which is not in the tree, it says that it lies right below the root.
type ShardTree struct {
	parents  []ShardID
	children [][]ShardID
	depths   []int
	// homes is the number of shards in the genesis, among which Rendezvous chooses.
	homes int
	// rehung are the changes of the tree so far, in order.
	rehung []TreeChange
	// A depth-first walk visits the shards. The shards below shard s, including s, are those with
	// first[s] <= first < last[s].
	first, last []uint32
	root        ShardID
}

// newShardTree returns the tree in which parents holds each shard's parent, and the root is its own
// parent. The first shards, homes in number, are those of the genesis. It returns ErrGenesis if
// that is not a tree.
func newShardTree(parents []ShardID, homes int) (*ShardTree, error) {
	count := len(parents)
	t := &ShardTree{parents: slices.Clone(parents), homes: homes,
		children: make([][]ShardID, count), depths: make([]int, count),
		first: make([]uint32, count), last: make([]uint32, count)}
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

// Parents returns each shard's parent. The root is its own parent.
func (t *ShardTree) Parents() []ShardID { return slices.Clone(t.parents) }

// Root returns the root of the tree.
func (t *ShardTree) Root() ShardID { return t.root }

// Parent returns a shard's parent, and false for the root.
func (t *ShardTree) Parent(shard ShardID) (ShardID, bool) {
	if !t.has(shard) {
		return t.root, true
	}
	parent := t.parents[shard]
	return parent, parent != shard
}

// Children returns a shard's children, in ascending order. The slice is read-only.
func (t *ShardTree) Children(shard ShardID) []ShardID {
	if !t.has(shard) {
		return nil
	}
	return t.children[shard]
}

func (t *ShardTree) has(shard ShardID) bool { return int64(shard) < int64(len(t.parents)) }

// Depth returns the number of steps from the root to a shard.
func (t *ShardTree) Depth(shard ShardID) int {
	if !t.has(shard) {
		return 1
	}
	return t.depths[shard]
}

// Reaches reports whether shard is other or lies above it.
func (t *ShardTree) Reaches(shard, other ShardID) bool {
	if !t.has(shard) || !t.has(other) {
		return shard == other || shard == t.root
	}
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
		entry, _ = t.Parent(entry)
	}
	return entry
}

// validateShards checks the fields of a genesis that describe several shards.
func (g *Genesis) validateShards() error {
	switch {
	case len(g.Shards) == 0 && len(g.Tree) == 0 && g.Shard == 0 && len(g.Grown) == 0:
		return nil
	case len(g.Shards) < 2 || len(g.Shards) > MaxShards:
		return fmt.Errorf("%w: %d shards, 2 to %d allowed; a book of one shard names its "+
			"members only", ErrGenesis, len(g.Shards), MaxShards)
	case len(g.Tree) != len(g.Shards):
		return fmt.Errorf("%w: a tree of %d shards, and members of %d", ErrGenesis, len(g.Tree),
			len(g.Shards))
	case len(g.Grown) == 0 && int(g.Shard) >= len(g.Shards):
		return fmt.Errorf("%w: shard %d of %d", ErrGenesis, g.Shard, len(g.Shards))
	case len(g.Grown) == 0 && !equalMembers(g.Members, g.Shards[g.Shard]):
		return fmt.Errorf("%w: the members are not those of shard %d", ErrGenesis, g.Shard)
	}
	if _, err := newShardTree(g.Tree, len(g.Shards)); err != nil {
		return err
	}
	first := newFirstMembers()
	for i, members := range g.Shards {
		if err := first.add(ShardID(i), members); err != nil {
			return err
		}
	}
	return g.validateGrown(first)
}

// firstMembers are the first members of a book's shards: their names, keys and addresses.
type firstMembers struct {
	names, keys, addresses map[string]ShardID
	total                  int
}

func newFirstMembers() *firstMembers {
	return &firstMembers{names: make(map[string]ShardID), keys: make(map[string]ShardID),
		addresses: make(map[string]ShardID)}
}

// add adds the first members of a shard of the genesis. It returns ErrGenesis if a name or a key
// serves twice.
func (f *firstMembers) add(shard ShardID, members []Member) error {
	if err := validateMembers(members); err != nil {
		return fmt.Errorf("shard %d: %w", shard, err)
	}
	if f.total += len(members); f.total > MaxShardedMembers {
		return fmt.Errorf("%w: more than %d members", ErrGenesis, MaxShardedMembers)
	}
	for m := range members {
		member := &members[m]
		if other, taken := f.names[member.Name]; taken {
			return fmt.Errorf("%w: a member named %s in shard %d and in shard %d", ErrGenesis,
				member.Name, other, shard)
		}
		if other, taken := f.keys[string(member.Key)]; taken && len(member.Key) > 0 {
			return fmt.Errorf("%w: member %s of shard %d has the key of a member of shard %d",
				ErrGenesis, member.Name, shard, other)
		}
		f.note(shard, member)
	}
	return nil
}

// note notes the name, the key and the address of a member.
func (f *firstMembers) note(shard ShardID, member *Member) {
	f.names[member.Name], f.keys[string(member.Key)] = shard, shard
	if member.Address != "" {
		f.addresses[member.Address] = shard
	}
}

// Sharded reports whether the book has several shards.
func (g *Genesis) Sharded() bool { return len(g.Shards) > 0 }

// ShardTree returns the tree of the book's shards, or nil if the book has only one shard. The
// genesis must be valid.
func (g *Genesis) ShardTree() *ShardTree {
	if !g.Sharded() {
		return nil
	}
	tree, err := newShardTree(g.Tree, len(g.Shards))
	for i := 0; i < len(g.Grown) && err == nil; i++ {
		tree = tree.Grow(g.Grown[i].Parent)
	}
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
	return g.GrownTo(g.Grown, shard)
}

func equalMembers(a, b []Member) bool {
	return slices.EqualFunc(a, b, func(one, other Member) bool { return one.equal(&other) })
}

func (m *Member) equal(other *Member) bool {
	return m.Name == other.Name && m.Address == other.Address &&
		slices.Compare(m.Key, other.Key) == 0
}
