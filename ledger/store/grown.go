package store

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/dgraph-io/badger/v4"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/state"
)

// A store keeps the directory with which the chain of each added shard begins (state.Seed), for the
// members of that shard to fetch, from the block with the addition on. A store of an added shard
// has its own, too: it is created with it (Options.Seed), and executes its blocks again from it. A
// store that began with a snapshot has the directories only of shards that were added later.

// ErrNoSeed reports that a store has not the directory with which a chain begins.
var ErrNoSeed = errors.New("store: the directory with which the shard's chain begins is not here")

// Additions returns the shards that were added to the book while it ran, as of the head, in the
// order of their numbers. It is read-only.
func (s *Store) Additions() []ledger.AddedShard {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	return s.state.Additions()
}

// AddedAt returns the height of the block of this chain in which a shard was added to the book. It
// is 0 for a shard that the chain has known from its beginning. It reports whether the book has the
// shard, as of the head.
func (s *Store) AddedAt(shard ledger.ShardID) (ledger.Height, bool) {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	return s.state.AddedAt(shard)
}

// BookChanges returns the number of changes of the book's shards, as of the head.
func (s *Store) BookChanges() uint64 {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	return s.state.BookChanges()
}

// GenesisOf returns the genesis of a shard that the book has as of the head, or ledger.ErrGenesis.
func (s *Store) GenesisOf(shard ledger.ShardID) (*ledger.Genesis, error) {
	return s.genesis.GrownTo(s.Additions(), shard)
}

// Concerned returns the shards that a client's transaction concerns that is in the block at a
// height, in ascending order, given the organisations as of the head and their homes as of the
// block. A shard that was added later is none of them. A book of one shard has only that.
func (s *Store) Concerned(t *ledger.Transaction, height ledger.Height) []ledger.ShardID {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	if s.state.ShardTree() == nil {
		return []ledger.ShardID{s.genesis.Shard}
	}
	return t.AppendDestinations(nil, s.state.ShardsAt(height),
		func(name ledger.OrganisationName) ledger.ShardID { return s.state.HomeAt(name, height) })
}

// BookShards returns the number of shards of the book as of the head.
func (s *Store) BookShards() int {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	return s.state.BookShards()
}

// shardsAt returns how many shards the book has for the transactions of a block.
func (s *Store) shardsAt(height ledger.Height) int {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	return s.state.ShardsAt(height)
}

// Seed returns the directory with which the chain of an added shard begins. It is read-only. It
// returns ErrNotFound if no such shard was added to the book, and ErrNoSeed if the store does not
// have its directory, because it began with a snapshot; then another node has it.
func (s *Store) Seed(shard ledger.ShardID) (seed []byte, err error) {
	s.mutex.RLock()
	height, known := s.state.AddedAt(shard)
	additions, at := s.state.Additions(), int(shard)-len(s.genesis.Shards)
	pending := s.unwritten.at(height)
	s.mutex.RUnlock()
	if !known || at < 0 || at >= len(additions) {
		return nil, fmt.Errorf("%w: shard %d was not added to the book while it ran", ErrNotFound,
			shard)
	}
	if pending != nil {
		for _, each := range pending.changes.Seeds {
			if each.Shard == shard {
				return each.Directory, nil
			}
		}
	}
	defer guard(max(1, height), &err)
	err = s.view(func(transaction *badger.Txn) error {
		seed, err = readSeed(transaction, shard)
		return err
	})
	if errors.Is(err, errMissing) {
		return nil, fmt.Errorf("%w: shard %d was added before the snapshot that this store began "+
			"with: ask another node", ErrNoSeed, shard)
	}
	if err == nil && ledger.SeedHash(seed) != additions[at].Directory {
		err = errRow
	}
	if err != nil {
		return nil, damaged(max(1, height), "the directory with which shard %d begins: %v", shard,
			err)
	}
	return seed, nil
}

// seedKey returns the key of a part of the directory with which the chain of a shard begins.
func seedKey(shard ledger.ShardID, chunk int) []byte {
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32([]byte{rowSeed},
		uint32(shard)), uint32(chunk))
}

// readSeed reads the directory with which the chain of a shard begins, or returns errMissing.
func readSeed(transaction *badger.Txn, shard ledger.ShardID) ([]byte, error) {
	rest, err := get(transaction, seedKey(shard, 0))
	if err != nil {
		return nil, err
	}
	length, size := binary.Uvarint(rest)
	if size <= 0 {
		return nil, errRow
	}
	seed := rest[size:]
	for chunk := 1; uint64(len(seed)) < length; chunk++ {
		more, err := get(transaction, seedKey(shard, chunk))
		if errors.Is(err, errMissing) || err == nil && len(more) == 0 {
			err = errRow
		}
		if err != nil {
			return nil, err
		}
		seed = append(seed, more...)
	}
	if uint64(len(seed)) != length {
		return nil, errRow
	}
	return seed, nil
}

// seedRows passes the rows of the directories with which the chains of added shards begin to put:
// the directory after its length, in parts.
func (s *Store) seedRows(seeds []state.Seed, put putRow) error {
	for _, seed := range seeds {
		data := append(binary.AppendUvarint(nil, uint64(len(seed.Directory))), seed.Directory...)
		err := s.eachChunk(data, func(chunk int, part []byte) error {
			return put("seed", seedKey(seed.Shard, chunk), part)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// beginSeeded writes the first rows of a new store of a shard that was added to the book, but for
// the genesis and the head: its directory, and the run of the entries of the state after block 0,
// which it returns.
func (s *Store) beginSeeded() ([]*run, error) {
	if s.options.Seed == nil {
		return nil, fmt.Errorf("%w: shard %d was added while the book ran: create the store with "+
			"the seed file that belongs to its genesis", ErrNoSeed, s.genesis.Shard)
	}
	begun, err := state.Begin(s.genesis, s.options.Seed)
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	batch := s.db.NewWriteBatch()
	defer batch.Cancel()
	put := s.putTo(batch.Set)
	w := s.newRunWriter(rowEntries, 0, uint64(begun.EntryCount()), put)
	err = state.EachInSeed(s.genesis, s.options.Seed, w.add)
	if err == nil {
		err = w.finish(s)
	}
	if err == nil {
		err = s.seedRows([]state.Seed{{Shard: s.genesis.Shard, Directory: s.options.Seed}}, put)
	}
	if err == nil {
		err = batch.Flush()
	}
	if err != nil {
		return nil, fmt.Errorf("store: the directory with which the chain begins: %w", err)
	}
	return []*run{w.run}, s.fence()
}

// keepSeed writes the directory with which the chain of an added shard begins if the store, which
// began with a snapshot, lacks it and the options have it.
func (s *Store) keepSeed() error {
	if len(s.genesis.Grown) == 0 || s.options.Seed == nil {
		return nil
	}
	err := s.db.View(func(transaction *badger.Txn) error {
		_, err := get(transaction, seedKey(s.genesis.Shard, 0))
		return err
	})
	if !errors.Is(err, errMissing) {
		return nil // Seed tells of damage
	}
	if err := state.EachInSeed(s.genesis, s.options.Seed, func(_, _ []byte) error {
		return nil
	}); err != nil {
		return fmt.Errorf("store: %w", err)
	}
	batch := s.db.NewWriteBatch()
	defer batch.Cancel()
	err = s.seedRows([]state.Seed{{Shard: s.genesis.Shard, Directory: s.options.Seed}},
		s.putTo(batch.Set))
	if err == nil {
		err = batch.Flush()
	}
	if err != nil {
		return fmt.Errorf("store: the directory with which the chain begins: %w", err)
	}
	return nil
}

// beginState returns the state after block 0. It returns ErrNoSeed if that needs a directory that
// is not here.
func (s *Store) beginState() (*state.State, error) {
	if len(s.genesis.Grown) == 0 {
		return state.New(s.genesis), nil
	}
	seed, err := s.Seed(s.genesis.Shard)
	if err != nil {
		return nil, fmt.Errorf("executing the blocks again: %w", err)
	}
	return state.Begin(s.genesis, seed)
}
