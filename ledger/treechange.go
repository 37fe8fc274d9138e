package ledger

import (
	"fmt"
	"slices"
)

// A change of the tree hangs a shard S below another parent (ShardRehang). The stream to S from the
// old parent ends with the change, and that from the new one begins right after it. S takes entries
// of the one until it has executed the change, and of the other one from then on.
//
// Entries of both have numbers, so their numbers must not overlap: a late entry, or what a member
// once vouched for, must never be taken for one of another stream. Therefore the numbers of a
// stream that a change begins come after all that change 1, 2 and so on began: change n begins with
// StreamBase(n), which counts as taken where the change is executed, and its first entry is one
// above. So a shard's position only ever grows, whichever shards were its parents.

// streamBits is how many bits of an entry's number count the entries since the stream began. A
// shard that gets 1,000 entries a second takes 34 years to use them up.
const streamBits = 40

// MaxRehang bounds the number of a change of the book that hangs a shard elsewhere.
const MaxRehang = 1<<(64-streamBits) - 1

// StreamBase returns the number before the first entry of the stream that a change of the tree
// begins, given the number of the change. It is 0 for 0: a stream that began with the shard.
func StreamBase(change uint64) uint64 { return change << streamBits }

// StreamOf returns the change of the tree with which the stream began that has this number, or 0.
func StreamOf(number uint64) (change uint64) { return number >> streamBits }

// StreamLag returns how many entries a child lacks of the stream with which it is now, if the last
// one is streamed and it has all up to carried. Of a stream from before, it lacks what that has.
func StreamLag(streamed, carried uint64) uint64 {
	return streamed - min(streamed, max(carried, StreamBase(StreamOf(streamed))))
}

// TreeChange is a change of the tree of a book's shards.
type TreeChange struct {
	// Number is that of the change of the book.
	Number   uint64
	Shard    ShardID
	From, To ShardID
}

// Grow returns the tree with a further shard below parent, a shard of t. The number of the new
// shard is that of the shards of t, which does not change.
func (t *ShardTree) Grow(parent ShardID) *ShardTree {
	grown, err := newShardTree(append(slices.Clone(t.parents), parent), t.homes)
	if err != nil || int(parent) >= t.Shards() {
		panic(fmt.Sprintf("ledger: a shard is added below shard %d of %d", parent, t.Shards()))
	}
	grown.rehung = t.rehung
	return grown
}

// MayRehang decides whether a shard may be hung below another one, as far as that depends on the
// tree: Applied, or why not.
func (t *ShardTree) MayRehang(change *ShardRehang) Code {
	switch parent, below := t.Parent(change.Shard); {
	case !t.has(change.Shard) || !t.has(change.Parent):
		return UnknownShard
	case !below || parent == change.Parent || t.Reaches(change.Shard, change.Parent):
		return BadParent
	}
	return Applied
}

// Rehang returns the tree with a shard hung below another one, by a change of the book with this
// number, which MayRehang allows. t does not change.
func (t *ShardTree) Rehang(number uint64, change *ShardRehang) *ShardTree {
	if code := t.MayRehang(change); code != Applied {
		panic(fmt.Sprintf("ledger: shard %d is hung below shard %d: %s", change.Shard,
			change.Parent, code))
	}
	made := TreeChange{Number: number, Shard: change.Shard, From: t.parents[change.Shard],
		To: change.Parent}
	parents := slices.Clone(t.parents)
	parents[change.Shard] = change.Parent
	return t.with(parents, append(slices.Clip(t.rehung), made))
}

// RehangAll returns the tree after further changes, in order. It takes a time in proportion to
// their number, and returns ErrMalformed if one of them cannot have been made.
func (t *ShardTree) RehangAll(changes []TreeChange) (*ShardTree, error) {
	if len(changes) == 0 {
		return t, nil
	}
	parents := slices.Clone(t.parents)
	for _, c := range changes {
		if !t.has(c.Shard) || !t.has(c.To) || parents[c.Shard] != c.From || c.From == c.Shard ||
			c.From == c.To {
			return nil, fmt.Errorf("%w: change %d hangs shard %d from below %d below %d",
				ErrMalformed, c.Number, c.Shard, c.From, c.To)
		}
		for above := c.To; ; above = parents[above] {
			if above == c.Shard {
				return nil, fmt.Errorf("%w: change %d hangs shard %d below itself",
					ErrMalformed, c.Number, c.Shard)
			}
			if parents[above] == above {
				break
			}
		}
		parents[c.Shard] = c.To
	}
	return t.with(parents, slices.Concat(t.rehung, changes)), nil
}

// with returns the tree with these parents, which are a tree, after these changes.
func (t *ShardTree) with(parents []ShardID, rehung []TreeChange) *ShardTree {
	other, err := newShardTree(parents, t.homes)
	if err != nil {
		panic(fmt.Sprintf("ledger: the tree after %d changes: %v", len(rehung), err))
	}
	other.rehung = rehung
	return other
}

// Rehung returns the changes of the tree so far, in order. It is read-only.
func (t *ShardTree) Rehung() []TreeChange { return t.rehung }

// Before returns the tree as it was when the book had this number of shards, from those of its
// genesis to all of t, and this number of changes of the tree. There must have been such a tree.
func (t *ShardTree) Before(shards, rehung int) *ShardTree {
	if shards == t.Shards() && rehung == len(t.rehung) {
		return t
	}
	if shards < t.homes || shards > t.Shards() || rehung > len(t.rehung) {
		panic(fmt.Sprintf("ledger: the first %d shards of a book that began with %d, after %d "+
			"changes of the tree", shards, t.homes, rehung))
	}
	parents := slices.Clone(t.parents)
	for _, change := range slices.Backward(t.rehung[rehung:]) {
		parents[change.Shard] = change.From
	}
	return t.with(parents[:shards], slices.Clip(t.rehung[:rehung]))
}

// FirstParents returns the parents of the shards before all changes of the tree, by shard: of one
// that was added, the shard below which it was added.
func (t *ShardTree) FirstParents() []ShardID {
	parents := slices.Clone(t.parents)
	for _, change := range slices.Backward(t.rehung) {
		parents[change.Shard] = change.From
	}
	return parents
}

// Was reports whether there was such a tree (Before), of which shards hang below these only.
func (t *ShardTree) Was(shards, rehung int) bool {
	return shards >= t.homes && shards <= t.Shards() && rehung >= 0 && rehung <= len(t.rehung) &&
		!slices.ContainsFunc(t.rehung[:rehung], func(change TreeChange) bool {
			return int(change.Shard) >= shards || int(change.To) >= shards
		})
}

// FormerParents returns the shards that were right above a shard, without its present parent.
func (t *ShardTree) FormerParents(shard ShardID) (former []ShardID) {
	present, _ := t.Parent(shard)
	for _, change := range t.rehung {
		if change.Shard == shard && change.From != present &&
			!slices.Contains(former, change.From) {
			former = append(former, change.From)
		}
	}
	return former
}

// FormerChildren returns the shards that were right below a shard, without its present children.
func (t *ShardTree) FormerChildren(shard ShardID) (former []ShardID) {
	for _, change := range t.rehung {
		if present, _ := t.Parent(change.Shard); change.From == shard && present != shard &&
			!slices.Contains(former, change.Shard) {
			former = append(former, change.Shard)
		}
	}
	return former
}

// Began returns the change of the tree that hung a shard where it is, or 0.
func (t *ShardTree) Began(shard ShardID) (change uint64) {
	for _, made := range t.rehung {
		if made.Shard == shard {
			change = made.Number
		}
	}
	return change
}

// ParentsFrom returns the shards from which a shard takes the entries after a number that is in its
// chain, in order: first those from before changes of the tree that it has not executed, and at
// last its present parent. A shard may be among them more than once. The root has none.
func (t *ShardTree) ParentsFrom(shard ShardID, number uint64) (parents []ShardID) {
	present, below := t.Parent(shard)
	if !below {
		return nil
	}
	began := StreamOf(number)
	for _, change := range t.rehung {
		if change.Shard == shard && change.Number > began {
			parents = append(parents, change.From)
		}
	}
	return append(parents, present)
}

// ParentOf returns the shard from which an entry of a number comes that is in a shard's chain, and
// false for the root.
func (t *ShardTree) ParentOf(shard ShardID, number uint64) (ShardID, bool) {
	if parents := t.ParentsFrom(shard, number); len(parents) > 0 {
		return parents[0], true
	}
	return 0, false
}
