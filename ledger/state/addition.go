package state

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/internal/codec"
)

// A shard is added at one place of the common order. Every chain notes it there, with the hash of
// the directory as it is right after the addition: the organisations, the charter, the assets and
// the changes of the book. That is the same in all chains, so the chain of the new shard begins
// with it (Begin). The new shard has no accounts yet. Its stream from its parent begins after the
// addition, so it gets exactly what follows in the common order.
//
// The heights at which organisations were registered and moved and shards were added differ between
// chains. So the directory has none. In the chain of a shard that was added, what its directory has
// counts as of block 0. Of a move it has only which organisation went from where to where, because
// all shards must decide alike on later moves.

// ErrSeed reports that the directory with which the chain of an added shard is to begin is not the
// one that its genesis names.
var ErrSeed = errors.New("ledger: not the directory with which the shard's chain begins")

// addition is a shard that was added to the book, as an entry of the state.
type addition struct {
	ledger.AddedShard
	shard ledger.ShardID
	// height is that of the block with the addition; 0 if the chain began with it.
	height ledger.Height
	mark   mark
}

// Seed is the directory with which the chain of an added shard begins.
type Seed struct {
	Shard ledger.ShardID
	// Directory has, in ascending order of their keys, the entries of the charter, of the changes
	// of the book, of the organisations, of the assets and of moves: each key and each value after
	// its length. It is read-only.
	Directory []byte
}

// Additions returns the shards that were added to the book, in the order of their numbers. It is
// read-only.
func (s *State) Additions() []ledger.AddedShard {
	added := make([]ledger.AddedShard, len(s.growth.added))
	for i, each := range s.growth.added {
		added[i] = each.AddedShard
	}
	return added
}

// AddedAt returns the height of the block of this chain in which a shard was added to the book. It
// is 0 for a shard that the chain has known from its beginning. It reports whether the book has the
// shard.
func (s *State) AddedAt(shard ledger.ShardID) (ledger.Height, bool) {
	if s.tree == nil {
		return 0, shard == 0
	}
	at := int(shard) - len(s.genesis.Shards)
	if at >= 0 && at < len(s.growth.added) {
		return s.growth.added[at].height, true
	}
	return 0, at < 0
}

// BookShards returns the number of shards of the book.
func (s *State) BookShards() int {
	if s.tree == nil {
		return 1
	}
	return s.tree.Shards()
}

// ShardsAt returns how many shards the book has for the transactions of a block. An addition is the
// last transaction of its block, so the shard counts from the next one on.
func (s *State) ShardsAt(height ledger.Height) int {
	if s.tree == nil {
		return 1
	}
	shards := len(s.genesis.Shards)
	for _, each := range s.growth.added {
		if each.height < height {
			shards++
		}
	}
	return shards
}

// mayAddShard decides on the addition of a shard.
func (s *State) mayAddShard(a *ledger.ShardAddition) ledger.Code {
	switch {
	case int(a.Parent) >= s.tree.Shards():
		return ledger.UnknownShard
	case s.Lost(a.Parent):
		return ledger.ShardLost
	}
	return s.genesis.MayAdd(s.Additions(), a)
}

// addShard adds a shard that mayAddShard allowed.
func (s *State) addShard(a *ledger.ShardAddition) {
	added := &addition{shard: ledger.ShardID(s.tree.Shards()), height: s.height,
		AddedShard: ledger.AddedShard{Parent: a.Parent,
			Members: make([]ledger.Member, len(a.Members))}, mark: mark{touched: true}}
	for i := range a.Members {
		added.Members[i] = cloneMember(&a.Members[i])
	}
	s.growth.added = append(s.growth.added, added)
	s.tree = s.tree.Grow(a.Parent)
	if a.Parent == s.shard {
		// Its number is the highest, so the children stay in order.
		s.children = append(s.children, &stream{shard: added.shard})
		if s.fault == FaultChildEarly {
			s.forward = append(s.forward, true)
		}
	}
	seed := Seed{Shard: added.shard, Directory: s.appendDirectory(nil)}
	added.Directory = ledger.SeedHash(seed.Directory)
	s.seeds = append(s.seeds, seed)
}

// finishAdditions collects the entries of the shards that the block added, and their directories.
func (s *State) finishAdditions(changes *Changes) {
	for _, each := range s.growth.added {
		if each.mark.touched {
			s.settle(changes, each.mark, each.appendEntry)
			each.mark = mark{}
		}
	}
	changes.Seeds, s.seeds = s.seeds, nil
}

// appendDirectory appends the directory as the chain of the last added shard begins with it, whose
// hash is not set yet.
func (s *State) appendDirectory(to []byte) []byte {
	var buffer []byte
	show := func(each entry) {
		var keyLength int
		buffer, keyLength = each.appendEntry(buffer[:0])
		to = codec.AppendString(to, buffer[:keyLength])
		to = codec.AppendString(to, buffer[keyLength:])
	}
	if s.charter.Number > 0 {
		show(&s.charter)
	}
	show(&s.growth)
	for _, each := range s.growth.added {
		placeless := *each
		placeless.height = 0
		show(&placeless)
	}
	for _, each := range s.growth.rehung {
		show(&rehang{TreeChange: each.TreeChange})
	}
	organisations := make([]*organisation, 0, len(s.organisations))
	for _, each := range s.organisations {
		organisations = append(organisations, each)
	}
	slices.SortFunc(organisations, func(a, b *organisation) int {
		return cmp.Compare(a.Name, b.Name)
	})
	for _, each := range organisations {
		placeless := *each
		placeless.Registered = 0
		if s.fault == FaultDirectoryShort {
			placeless.Policy = nil
		}
		show(&placeless)
	}
	for _, each := range s.assets.all {
		show(each.placeless())
	}
	for _, each := range s.moves.all {
		show(&move{number: each.number, organisation: each.organisation, from: each.from,
			to: each.to})
	}
	return to
}

// Begin returns the state after block 0 of the chain of a shard that was added to a book. The seed
// is the directory that its genesis names. It returns ErrSeed if it is another one. For all other
// chains, which need no seed, it is New.
func Begin(genesis *ledger.Genesis, seed []byte) (*State, error) {
	s := New(genesis)
	if len(genesis.Grown) == 0 {
		return s, nil
	}
	err := EachInSeed(genesis, seed, s.Restore)
	if err == nil {
		err = s.Complete(nil)
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// EachInSeed calls visit with the key and value of every entry of the state after block 0 of the
// chain of a shard that was added to a book, in ascending order of their keys. It returns ErrSeed
// if the seed is not the directory that the genesis names.
func EachInSeed(genesis *ledger.Genesis, seed []byte, visit func(key, value []byte) error) error {
	if len(genesis.Grown) == 0 {
		return fmt.Errorf("%w: shard %d was not added to the book, but is there from its beginning",
			ErrSeed, genesis.Shard)
	}
	own := &genesis.Grown[len(genesis.Grown)-1]
	if hash := ledger.SeedHash(seed); hash != own.Directory {
		return fmt.Errorf("%w: its hash is %s, and the genesis names %s", ErrSeed, hash,
			own.Directory)
	}
	last := &addition{AddedShard: *own, shard: genesis.Shard}
	entry, keyLength := last.appendEntry(nil)
	var before []byte
	for r := read(seed); len(r.Data) > 0; {
		key := r.Bytes("bytes of key", len(r.Data))
		value := r.Bytes("bytes of value", len(r.Data))
		if r.Err == nil && (len(key) == 0 || bytes.Compare(before, key) >= 0 ||
			!inDirectory(key[0])) {
			r.Fail("key %x", key)
		}
		if r.Err != nil {
			return fmt.Errorf("%w: %w", ErrSeed, r.Err)
		}
		if bytes.Equal(key, entry[:keyLength]) {
			value = entry[keyLength:] // the directory is without its own hash
		}
		if err := visit(key, value); err != nil {
			return err
		}
		before = key
	}
	return nil
}

// inDirectory reports whether entries of a kind are part of the directory.
func inDirectory(kind byte) bool {
	return kind == kindCharter || kind == kindGrowth || kind == kindOrganisation ||
		kind == kindMove || kind == kindAsset
}

// additionKeySize is the size of the key of the entry of an added shard.
const additionKeySize = 2 + 4 + 1

// appendEntry appends the entry: the parent, the members, the hash of the directory and the height.
func (a *addition) appendEntry(to []byte) (entry []byte, keyLength int) {
	to = append(binary.BigEndian.AppendUint32(append(to, kindGrowth, 1), uint32(a.shard)), 0)
	to = binary.AppendUvarint(to, uint64(a.Parent))
	to = binary.AppendUvarint(to, uint64(len(a.Members)))
	for i := range a.Members {
		to = codec.AppendString(to, a.Members[i].Name)
		to = codec.AppendString(to, a.Members[i].Key)
		to = codec.AppendString(to, a.Members[i].Address)
	}
	to = append(to, a.Directory[:]...)
	return binary.AppendUvarint(to, uint64(a.height)), additionKeySize
}

// restoreAddition puts the entry of an added shard into the state. It reports whether there was one
// already. The tree grows in Complete.
func (g *growth) restoreAddition(key []byte, r *reader) (of entry, again bool, err error) {
	if len(key) != additionKeySize {
		return nil, false, fmt.Errorf("%w: key %x", ErrEntry, key)
	}
	restored := &addition{shard: ledger.ShardID(binary.BigEndian.Uint32(key[2:]))}
	restored.Parent = r.shard()
	restored.Members = make([]ledger.Member, r.Count("members", ledger.MaxMembers, 3))
	for i := range restored.Members {
		restored.Members[i] = r.member()
	}
	restored.Directory, restored.height = r.Hash(), ledger.Height(r.Uvarint())
	at, again := slices.BinarySearchFunc(g.added, restored.shard,
		func(each *addition, shard ledger.ShardID) int { return cmp.Compare(each.shard, shard) })
	if !again {
		g.added = slices.Insert(g.added, at, restored)
	}
	return restored, again, nil
}

// streamTo returns the stream from or to a shard that may be a neighbour in the present tree, and
// whether it was restored before.
func (g *growth) streamTo(shard ledger.ShardID) (found *stream, again bool) {
	at := slices.IndexFunc(g.streams, func(each *stream) bool { return each.shard == shard })
	if at >= 0 {
		return g.streams[at], true
	}
	found = &stream{shard: shard}
	g.streams = append(g.streams, found)
	return found, false
}

// completeGrowth makes the tree of the shards after all entries were restored.
func (s *State) completeGrowth() error {
	if s.tree == nil {
		if s.growth.number > 0 || len(s.growth.added) > 0 {
			return fmt.Errorf("%w: changes of the shards of a book of one shard", ErrEntry)
		}
		return nil
	}
	if uint64(len(s.growth.added)) > s.growth.number {
		return fmt.Errorf("%w: %d shards were added in %d changes of the book", ErrEntry,
			len(s.growth.added), s.growth.number)
	}
	if len(s.growth.added) < len(s.genesis.Grown) {
		return fmt.Errorf("%w: %d shards were added, and the genesis has %d of them", ErrEntry,
			len(s.growth.added), len(s.genesis.Grown))
	}
	first, err := s.genesis.GrownTo(nil, 0)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrEntry, err)
	}
	s.tree = first.ShardTree()
	for i, each := range s.growth.added {
		if int(each.shard) != s.tree.Shards() || each.Parent >= each.shard ||
			each.shard >= ledger.MaxShards {
			return fmt.Errorf("%w: shard %d was added below shard %d, after %d shards", ErrEntry,
				each.shard, each.Parent, s.tree.Shards())
		}
		if i < len(s.genesis.Grown) && !each.is(&s.genesis.Grown[i]) {
			return fmt.Errorf("%w: shard %d is not the one that the genesis names", ErrEntry,
				each.shard)
		}
		s.tree = s.tree.Grow(each.Parent)
	}
	if err := s.completeRehangs(); err != nil {
		return err
	}
	return s.completeStreams()
}

// is reports whether the genesis of a later shard names the shard so.
func (a *addition) is(named *ledger.AddedShard) bool {
	return a.Parent == named.Parent && a.Directory == named.Directory &&
		slices.EqualFunc(a.Members, named.Members, func(one, other ledger.Member) bool {
			return one.Name == other.Name && bytes.Equal(one.Key, other.Key) &&
				one.Address == other.Address
		})
}

// completeStreams makes the streams from and to the shards that are right above and below this one
// now. Those that were restored have their numbers.
func (s *State) completeStreams() error {
	restored := append(s.growth.streams, s.children...)
	if s.parent != nil {
		restored = append(restored, s.parent)
	}
	s.growth.streams = nil
	s.newStreams()
	for _, each := range restored {
		now := s.streamOf(each.shard)
		switch {
		case now != nil:
			now.number = max(now.number, each.number)
		case each.number > 0:
			return fmt.Errorf("%w: a stream from or to shard %d", ErrEntry, each.shard)
		}
	}
	return nil
}
