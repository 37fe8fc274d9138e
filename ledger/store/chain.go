package store

import (
	"encoding/binary"
	"fmt"

	"github.com/dgraph-io/badger/v4"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/state"
)

// segmentLength is the number of blocks between two checkpoints.
const segmentLength = 64

// maxSegments bounds the verified segments kept in memory.
const maxSegments = 256

// chain provides the hash of every block. It keeps in memory the hash of every segmentLength-th
// block and of all blocks from the last of those on. For another block, the store walks down the
// headers from the next checkpoint, because each header commits to the previous block.
type chain struct {
	// checkpoints[k] is the hash of block k*segmentLength. recent has the hashes from the last
	// checkpoint on.
	checkpoints []ledger.Hash
	recent      []ledger.Hash
	segments    map[ledger.Height]*segment
}

type segment [segmentLength]ledger.Hash

// append adds the hash of the next block. The first one is the genesis hash.
func (c *chain) append(hash ledger.Hash) {
	if len(c.checkpoints) == 0 || len(c.recent) == segmentLength {
		c.checkpoints = append(c.checkpoints, hash)
		c.recent = c.recent[:0]
	}
	c.recent = append(c.recent, hash)
}

// hashesPerRow bounds the hashes in one row of hashes.
const hashesPerRow = 64

// A row of hashes has the hashes of every segmentLength-th block, from the one in its key on. So
// Open need not read the headers before the last of them. Such rows follow each other without a
// gap. If some are missing, Open reads the headers from there on.
func hashesRow(hashes []ledger.Hash) []byte {
	row := make([]byte, 0, len(hashes)*ledger.HashSize+checksumSize)
	for _, hash := range hashes {
		row = append(row, hash[:]...)
	}
	return row
}

// putHashes passes rows of hashes to put, the first of which is that of a block.
func putHashes(first ledger.Height, hashes []ledger.Hash, put putRow) error {
	for len(hashes) > 0 {
		some := hashes[:min(len(hashes), hashesPerRow)]
		if err := put("hashes", heightKey(rowHashes, first), hashesRow(some)); err != nil {
			return err
		}
		first, hashes = first+ledger.Height(len(some))*segmentLength, hashes[len(some):]
	}
	return nil
}

// checkpointRow passes the row with the hashes of a layer's checkpoints to put, if it has any.
func (s *Store) checkpointRow(blocks []*pendingBlock, put putRow) error {
	var hashes []ledger.Hash
	var first ledger.Height
	for _, pending := range blocks {
		if height := pending.block.Header.Height; height%segmentLength == 0 {
			if hashes = append(hashes, pending.block.Hash); len(hashes) == 1 {
				first = height
			}
		}
	}
	if len(hashes) == 0 {
		return nil
	}
	return put("hashes", heightKey(rowHashes, first), hashesRow(hashes))
}

// readHashes returns the hashes of the genesis and of every segmentLength-th block, up to the head
// or to a gap in their rows.
func (s *Store) readHashes(transaction *badger.Txn, head ledger.Height) (hashes []ledger.Hash,
	err error) {
	hashes = append(hashes, s.chainID)
	settings := badger.DefaultIteratorOptions
	settings.Prefix = []byte{rowHashes}
	rows := transaction.NewIterator(settings)
	defer rows.Close()
	for rows.Rewind(); rows.Valid(); rows.Next() {
		key := rows.Item().Key()
		if len(key) != 1+8 {
			return nil, damaged(head, "row of hashes %x: malformed key", key)
		}
		first := ledger.Height(binary.BigEndian.Uint64(key[1:]))
		if first > head || first > ledger.Height(len(hashes))*segmentLength {
			break
		}
		err := rows.Item().Value(func(sealed []byte) error {
			row, err := unseal(key, sealed)
			if err == nil {
				hashes, err = addHashes(hashes, first, head, row)
			}
			return err
		})
		if err != nil {
			return nil, damaged(max(first, 1), "its row of hashes: %v", err)
		}
	}
	return hashes, nil
}

// addHashes adds the hashes of a row that begins with that of a block. Of those that another row
// has, both must be the same.
func addHashes(hashes []ledger.Hash, first, head ledger.Height, row []byte) ([]ledger.Hash,
	error) {
	if first%segmentLength != 0 || len(row) == 0 || len(row)%ledger.HashSize != 0 {
		return nil, errRow
	}
	for height := first; len(row) > 0 && height <= head; height += segmentLength {
		switch at := int(height / segmentLength); {
		case at == len(hashes):
			hashes = append(hashes, ledger.Hash(row))
		case hashes[at] != ledger.Hash(row):
			return nil, fmt.Errorf("it says %s, and another row %s", ledger.Hash(row), hashes[at])
		}
		row = row[ledger.HashSize:]
	}
	return hashes, nil
}

// eachHeader reads the headers after a block up to a height, and calls visit with each as at. They
// must exist and form a chain.
func eachHeader(transaction *badger.Txn, at *state.Parent, last ledger.Height,
	visit func() error) error {
	settings := badger.DefaultIteratorOptions
	settings.Prefix = []byte{rowHeader}
	rows := transaction.NewIterator(settings)
	defer rows.Close()
	rows.Seek(heightKey(rowHeader, at.Header.Height+1))
	for next := at.Header.Height + 1; next <= last; next++ {
		header, err := nextHeader(rows, next)
		if err != nil {
			return err
		}
		if header.Previous != at.Hash ||
			header.Total != at.Header.Total+uint64(header.Transactions) {
			return damaged(next, "it does not follow block %d", next-1)
		}
		*at = state.Parent{Header: header, Hash: header.Hash()}
		if err := visit(); err != nil {
			return err
		}
	}
	return nil
}

// hash returns the hash of the block at a height, which must not be above the head.
func (s *Store) hash(height ledger.Height) (ledger.Hash, error) {
	number, offset := height/segmentLength, height%segmentLength
	s.mutex.RLock()
	if number == ledger.Height(len(s.chain.checkpoints)-1) {
		hash := s.chain.recent[offset]
		s.mutex.RUnlock()
		return hash, nil
	}
	known, above := s.chain.segments[number], s.chain.checkpoints[number+1]
	below := s.chain.checkpoints[number]
	s.mutex.RUnlock()
	if known != nil {
		return known[offset], nil
	}
	loaded, err := s.loadSegment(number, below, above)
	if err != nil {
		return ledger.Hash{}, err
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if len(s.chain.segments) >= maxSegments {
		clear(s.chain.segments)
	}
	s.chain.segments[number] = loaded
	return loaded[offset], nil
}

// loadSegment reads the headers between two checkpoints and checks that they form a chain.
func (s *Store) loadSegment(number ledger.Height, below, above ledger.Hash) (loaded *segment,
	err error) {
	first := number * segmentLength
	defer guard(first+1, &err)
	loaded = new(segment)
	// Any transaction of the database that begins later finds the blocks that are not pending now.
	s.mutex.RLock()
	pending := s.unwritten
	s.mutex.RUnlock()
	err = s.view(func(transaction *badger.Txn) error {
		expected := above
		for height := first + segmentLength; height > first; height-- {
			if unwritten := pending.at(height); unwritten != nil {
				expected = unwritten.block.Header.Previous
				loaded[height-1-first] = expected
				continue
			}
			header, _, err := readHeader(transaction, height)
			if err != nil {
				return err
			}
			if header.Hash() != expected {
				return damaged(height, "its header is not the one in the chain")
			}
			expected = header.Previous
			loaded[height-1-first] = expected
		}
		if expected != below {
			return damaged(first+1, "its header does not follow block %d", first)
		}
		return nil
	})
	return loaded, err
}

// readHeader reads a header from the database, and the length of its encoded block. It checks only
// the checksum and the height.
func readHeader(transaction *badger.Txn, height ledger.Height) (ledger.Header, uint64, error) {
	value, err := get(transaction, heightKey(rowHeader, height))
	if err != nil {
		return ledger.Header{}, 0, damaged(height, "header: %v", err)
	}
	header, length, err := decodeHeaderRow(value)
	if err != nil || header.Height != height {
		return ledger.Header{}, 0, damaged(height, "header: malformed")
	}
	return header, length, nil
}

func (s *Store) pendingAt(height ledger.Height) *pendingBlock {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	return s.unwritten.at(height)
}
