package store

import (
	"errors"
	"fmt"

	"github.com/dgraph-io/badger/v4"

	"github.com/ledgerd/ledgerd/ledger"
)

// Header returns the header and hash of a block, or ErrNotFound for a height above the head.
func (s *Store) Header(height ledger.Height) (header ledger.Header, hash ledger.Hash, err error) {
	defer guard(height, &err)
	if err := s.exists(height); err != nil {
		return ledger.Header{}, ledger.Hash{}, err
	}
	if height == 0 {
		return s.genesis.Block().Header, s.chainID, nil
	}
	if pending := s.pendingAt(height); pending != nil {
		return pending.block.Header, pending.block.Hash, nil
	}
	if block := s.cache.get(height); block != nil {
		return block.Header, block.Hash, nil
	}
	if hash, err = s.hash(height); err != nil {
		return ledger.Header{}, ledger.Hash{}, err
	}
	err = s.view(func(transaction *badger.Txn) error {
		header, _, err = readHeader(transaction, height)
		return err
	})
	if err == nil && header.Hash() != hash {
		err = damaged(height, "its header is not the one in the chain")
	}
	return header, hash, err
}

// view reads from the database. It returns ErrClosed once Close began, and Close waits until it is
// done: a read of a database that is being closed fails in any way.
func (s *Store) view(read func(transaction *badger.Txn) error) error {
	if err := s.beginTask(); err != nil {
		return err
	}
	defer s.tasks.Done()
	return s.db.View(read)
}

func (s *Store) exists(height ledger.Height) error {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	switch {
	case s.closed:
		return ErrClosed
	case height > s.head.Header.Height:
		return fmt.Errorf("%w: block %d, the head is block %d", ErrNotFound, height,
			s.head.Header.Height)
	}
	return nil
}

// Block returns a block that was checked against its header and the chain, or ErrNotFound for a
// height above the head. The block is read-only.
func (s *Store) Block(height ledger.Height) (block *ledger.Block, err error) {
	defer guard(height, &err)
	if err := s.exists(height); err != nil {
		return nil, err
	}
	if height == 0 {
		return s.genesis.Block(), nil
	}
	if pending := s.pendingAt(height); pending != nil {
		return pending.block, nil
	}
	if block := s.cache.get(height); block != nil {
		return block, nil
	}
	if height <= s.Absent() {
		return nil, s.errAbsent(height)
	}
	hash, err := s.hash(height)
	if err != nil {
		return nil, err
	}
	encoded, err := s.readBody(height, hash)
	if err != nil {
		return nil, err
	}
	block, err = ledger.DecodeBlock(encoded)
	switch {
	case err != nil:
		return nil, damaged(height, "%v", err)
	case block.Hash != hash:
		return nil, damaged(height, "its body belongs to another header")
	}
	s.cache.put(block, len(encoded))
	return block, nil
}

// readBody joins the chunks of an encoded block. The checked header row has their total length.
func (s *Store) readBody(height ledger.Height, hash ledger.Hash) (encoded []byte, err error) {
	err = s.view(func(transaction *badger.Txn) error {
		header, length, err := readHeader(transaction, height)
		if err != nil {
			return err
		}
		if header.Hash() != hash {
			return damaged(height, "its header is not the one in the chain")
		}
		encoded, err = readBody(transaction, height, length)
		return err
	})
	return encoded, err
}

// readChunks joins the chunks of an encoded block or of an outline, up to a total length.
func readChunks(transaction *badger.Txn, kind byte, height ledger.Height,
	length uint64) (encoded []byte, err error) {
	var unpacked []byte
	for chunk := 0; uint64(len(encoded)) < length; chunk++ {
		part, err := get(transaction, chunkKey(kind, height, chunk))
		if err == nil && kind == rowPacked {
			part, err = unpackPart(&unpacked, part)
		}
		if err != nil {
			return nil, damaged(height, "body, part %d: %v", chunk, err)
		}
		if len(part) == 0 || uint64(len(encoded)+len(part)) > length {
			return nil, damaged(height, "body, part %d: %d bytes do not fit", chunk, len(part))
		}
		encoded = append(encoded, part...)
	}
	return encoded, nil
}

// locate looks up an id or block hash in the index.
func (s *Store) locate(id ledger.Hash) (where position, found bool, err error) {
	s.mutex.RLock()
	height, closed := s.head.Header.Height, s.closed
	where, found = s.unwritten.find(id)
	s.mutex.RUnlock()
	if closed {
		return position{}, false, ErrClosed
	}
	if found {
		return where, true, nil
	}
	return s.locateWritten(height, id)
}

// locateWritten looks up an id or block hash in the database. height is the height of the head.
func (s *Store) locateWritten(height ledger.Height, id ledger.Hash) (where position, found bool,
	err error) {
	defer guard(height, &err)
	if where, found, err = s.find(id); err != nil && !errors.Is(err, ErrClosed) {
		err = damaged(height, "index of %s: %v", id, err)
	}
	return where, found, err
}

// BlockByHash returns the block with a hash, or ErrNotFound.
func (s *Store) BlockByHash(hash ledger.Hash) (*ledger.Block, error) {
	if hash == s.chainID {
		return s.Block(0)
	}
	where, found, err := s.locate(hash)
	if err != nil {
		return nil, err
	}
	if !found || where.kind != indexBlock {
		return nil, fmt.Errorf("%w: block %s", ErrNotFound, hash)
	}
	block, err := s.Block(where.height)
	if err == nil && block.Hash != hash {
		err = damaged(where.height, "the index says that it has hash %s", hash)
	}
	return block, err
}

// Found is a transaction and its place.
type Found struct {
	Height ledger.Height
	// Index is the transaction's place in the block.
	Index int
	Entry *ledger.Entry
	Block *ledger.Block
}

// Known reports whether a block has a transaction with this id, applied or failed.
func (s *Store) Known(id ledger.Hash) (bool, error) {
	where, found, err := s.locate(id)
	return found && where.kind != indexBlock, err
}

// KnownIn reports, for each transaction of a bundle, whether a block has a transaction with its id,
// as Known does. It returns nil if no block has any of them. It does not read the disk for
// transactions with fresh nonces, unless they failed before.
func (s *Store) KnownIn(bundle *ledger.Bundle) (known []bool, err error) {
	unsure, err := s.unsure(bundle)
	for _, i := range unsure {
		found, failure := s.Known(bundle.ID(i))
		if failure != nil {
			return nil, failure
		}
		if found && known == nil {
			known = make([]bool, bundle.Len())
		}
		if found {
			known[i] = true
		}
		for j := range known {
			known[j] = known[j] || bundle.Packed() // a block has all of it or nothing
		}
	}
	return known, err
}

// unsure returns the places of the transactions that must be looked up to find out whether they
// were in an earlier block.
func (s *Store) unsure(bundle *ledger.Bundle) (places []int, err error) {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	if s.closed {
		return nil, ErrClosed
	}
	for i := range bundle.Len() {
		if !s.unseen(bundle.ID(i), bundle.Transaction(i)) {
			places = append(places, i)
		}
		if bundle.Packed() { // the first transfer stands for all
			break
		}
	}
	return places, nil
}

// Transaction returns the transaction with this id, applied or failed, or ErrNotFound.
func (s *Store) Transaction(id ledger.Hash) (Found, error) {
	where, found, err := s.locate(id)
	if err != nil {
		return Found{}, err
	}
	if !found || where.kind == indexBlock {
		return Found{}, fmt.Errorf("%w: transaction %s", ErrNotFound, id)
	}
	result, err := s.at(where)
	if err == nil && result.Entry.ID != id {
		err = damaged(where.height, "the index says that transaction %d has id %s", where.index, id)
	}
	return result, err
}

// at returns the transaction at a position that is the result of a look-up.
func (s *Store) at(where position) (Found, error) {
	block, err := s.Block(where.height)
	if errors.Is(err, ErrNotFound) {
		return Found{}, damaged(s.AppendedHeight(), "an index points to block %d, above the head",
			where.height)
	}
	if err != nil {
		return Found{}, err
	}
	if int(where.index) >= block.Len() {
		return Found{}, damaged(where.height, "an index points to transaction %d of %d",
			where.index, block.Len())
	}
	entry := block.Entry(int(where.index))
	return Found{Height: where.height, Index: int(where.index), Entry: &entry, Block: block}, nil
}

// Proof returns the proof of the transaction with this id, or ErrNotFound.
func (s *Store) Proof(id ledger.Hash) (*ledger.Proof, error) {
	found, err := s.Transaction(id)
	if err != nil {
		return nil, err
	}
	return found.Block.Proof(found.Index), nil
}

// Organisation returns a registered organisation, read-only.
func (s *Store) Organisation(name ledger.OrganisationName) (ledger.Organisation, bool) {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	return s.state.Organisation(name)
}

// Organisations returns all organisations, ordered by name.
func (s *Store) Organisations() []ledger.Organisation {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	return s.state.Organisations()
}

// NextSequence returns the number after the highest applied one of a stream of nonces, or 1 for a
// new stream.
func (s *Store) NextSequence(organisation ledger.OrganisationName, stream uint64) uint64 {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	return s.state.NextSequence(organisation, stream)
}

// Use returns what an organisation keeps in this shard, as of the head.
func (s *Store) Use(organisation ledger.OrganisationName) ledger.Quotas {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	return s.state.Use(organisation)
}

// RecordValue is the last value of a record and the transaction that wrote it.
type RecordValue struct {
	Value  []byte
	Height ledger.Height
	Index  int
	ID     ledger.Hash
}

// Record returns the last value of a record, or ErrNotFound.
func (s *Store) Record(key ledger.RecordKey) (RecordValue, error) {
	s.mutex.RLock()
	place, found := s.state.Record(key)
	s.mutex.RUnlock()
	if !found {
		return RecordValue{}, fmt.Errorf("%w: record %.150q", ErrNotFound, string(key))
	}
	return s.recordAt(key, place)
}
