package ledger

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
)

// A book of several shards grows by shards that the operators add below running ones (BookChange).
// The chain of such a shard begins where the addition is in the common order of all shards. Its
// genesis is that of the book, together with the additions up to its own. Its first block follows
// on a state that has the book's directory as it is at that place: the organisations, the charter,
// and the changes of the book. All chains compute the directory's hash there. The genesis names the
// hash, so a new member can take the directory itself, the seed, from any peer.

// AddedShard is a shard that was added to the book. Its number is that of the shards before it.
type AddedShard struct {
	// Parent is the shard right above it.
	Parent ShardID `json:"parent"`
	// Members are its first members.
	Members []Member `json:"members"`
	// Directory is the hash of the directory with which its chain begins (SeedHash).
	Directory Hash `json:"directory"`
}

const seedDomain = "ledgerd/seed/1\x00"

// SeedHash returns the hash of a directory with which the chain of an added shard begins: the
// SHA-256 of "ledgerd/seed/1", a zero byte and the directory.
func SeedHash(seed []byte) Hash {
	hasher := sha256.New()
	// Write of a hash never fails. A directory may be large, so it is not copied.
	_, _ = hasher.Write([]byte(seedDomain))
	_, _ = hasher.Write(seed)
	return Hash(hasher.Sum(nil))
}

// GenesisShards returns the number of shards with which the book began.
func (t *ShardTree) GenesisShards() int { return t.homes }

// GrownTo returns the genesis of a shard of the same book, given the shards that were added to the
// book. It returns ErrGenesis if there is no such shard. It shares the memory of g and added.
func (g *Genesis) GrownTo(added []AddedShard, shard ShardID) (*Genesis, error) {
	other := *g
	other.Shard, other.Grown = shard, nil
	switch count := len(g.Shards) + len(added); {
	case int(shard) < len(g.Shards):
		other.Members = g.Shards[shard]
	case g.Sharded() && int(shard) < count:
		other.Grown = added[: int(shard)-len(g.Shards)+1 : int(shard)-len(g.Shards)+1]
		other.Members = added[int(shard)-len(g.Shards)].Members
	default:
		return nil, fmt.Errorf("%w: shard %d of %d", ErrGenesis, shard, max(1, count))
	}
	return &other, nil
}

// BookShards returns the number of shards of the book as the genesis knows it: those that the book
// began with, and those that were added up to this chain's.
func (g *Genesis) BookShards() int { return max(1, len(g.Shards)+len(g.Grown)) }

// MayAdd decides on the addition of a shard to a book with these shards added before: Applied, or
// why not. It does not look at the parent. The decision depends only on the genesis of the book and
// the additions, so it is the same in all chains.
func (g *Genesis) MayAdd(added []AddedShard, addition *ShardAddition) Code {
	if len(g.Shards)+len(added) >= MaxShards {
		return TooManyShards
	}
	first := newFirstMembers()
	for _, members := range g.Shards {
		first.total += len(members)
		for i := range members {
			first.note(0, &members[i])
		}
	}
	for i := range added {
		first.total += len(added[i].Members)
		for m := range added[i].Members {
			first.note(0, &added[i].Members[m])
		}
	}
	return first.mayAdd(addition.Members)
}

// mayAdd adds the first members of a shard that is added, unless the code that it returns says why
// they may not be.
func (f *firstMembers) mayAdd(members []Member) Code {
	if f.total += len(members); f.total > MaxShardedMembers {
		return TooManyShards
	}
	for i := range members {
		member := &members[i]
		if _, taken := f.names[member.Name]; taken {
			return MemberNameTaken
		}
		if _, taken := f.keys[string(member.Key)]; taken {
			return MemberKeyTaken
		}
		if _, taken := f.addresses[member.Address]; taken {
			return MemberAddressTaken
		}
		f.note(0, member)
	}
	return Applied
}

// validateGrown checks the shards that were added to the book, given the first members of the
// others.
func (g *Genesis) validateGrown(first *firstMembers) error {
	if len(g.Grown) == 0 {
		return nil
	}
	last := g.BookShards() - 1
	switch {
	case last >= MaxShards:
		return fmt.Errorf("%w: %d shards, at most %d allowed", ErrGenesis, last+1, MaxShards)
	case int(g.Shard) != last:
		return fmt.Errorf("%w: the genesis of shard %d names shards up to %d", ErrGenesis, g.Shard,
			last)
	case !equalMembers(g.Members, g.Grown[len(g.Grown)-1].Members):
		return fmt.Errorf("%w: the members are not those of shard %d", ErrGenesis, g.Shard)
	}
	for i := range g.Grown {
		added, shard := &g.Grown[i], ShardID(len(g.Shards)+i)
		if added.Parent >= shard {
			return fmt.Errorf("%w: shard %d was added below shard %d", ErrGenesis, shard,
				added.Parent)
		}
		addition := ShardAddition{Parent: added.Parent, Members: added.Members}
		if err := addition.checkForm(); err != nil {
			return fmt.Errorf("%w: shard %d: %w", ErrGenesis, shard, err)
		}
		if code := first.mayAdd(added.Members); code != Applied {
			return fmt.Errorf("%w: the members of shard %d: %s", ErrGenesis, shard, code)
		}
	}
	return nil
}

// appendGrown appends the encoding of the genesis of a shard that was added.
func (g *Genesis) appendGrown(to []byte) []byte {
	to = g.appendBook(append(to, grownVersion))
	return AppendAddedShards(to, g.Grown)
}

// AppendAddedShards appends an encoding of shards that were added to a book: their number, and for
// each the parent, the members and the directory.
func AppendAddedShards(to []byte, added []AddedShard) []byte {
	to = binary.AppendUvarint(to, uint64(len(added)))
	for i := range added {
		to = appendMembers(binary.AppendUvarint(to, uint64(added[i].Parent)), added[i].Members)
		to = append(to, added[i].Directory[:]...)
	}
	return to
}

// grown reads the end of the genesis of a shard that was added.
func (r *reader) grown(g *Genesis) {
	const smallest = 2 + 3 + HashSize
	g.Grown = make([]AddedShard, r.Count("added shards", MaxShards, smallest))
	for i := range g.Grown {
		g.Grown[i] = AddedShard{Parent: r.shard(), Members: r.members(), Directory: r.Hash()}
	}
	if len(g.Grown) == 0 {
		r.Fail("no added shards")
		return
	}
	g.Shard = ShardID(g.BookShards() - 1)
	g.Members = g.Grown[len(g.Grown)-1].Members
}

// validateAddedMembers checks what the first members of an added shard need. They join a running
// book, so each needs a key and an address, as a member that joins a shard does.
func validateAddedMembers(members []Member) error {
	if err := validateMembers(members); err != nil {
		return err
	}
	for i := range members {
		if err := members[i].Validate(); err != nil {
			return fmt.Errorf("member %s: %w", members[i].Name, err)
		}
	}
	return nil
}
