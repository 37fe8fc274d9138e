package store

import (
	"github.com/dgraph-io/badger/v4"

	"github.com/ledgerd/ledgerd/ledger"
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
