package store

import (
	"slices"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/state"
)

// Lost reports whether the operators settled with a shard that is lost, as of the head.
func (s *Store) Lost(shard ledger.ShardID) bool {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	return s.state.Lost(shard)
}

// Losses returns the settlements with shards that are lost, ordered by shard, as of the head.
func (s *Store) Losses() []state.Loss {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	return s.state.Losses()
}

// presentAt leaves out those shards with which the operators had settled before the block at a
// height: nothing was sent to them any more. It may change the slice.
func (s *Store) presentAt(height ledger.Height, shards []ledger.ShardID) []ledger.ShardID {
	losses := s.Losses()
	if len(losses) == 0 {
		return shards
	}
	return slices.DeleteFunc(shards, func(shard ledger.ShardID) bool {
		return slices.ContainsFunc(losses, func(loss state.Loss) bool {
			return loss.Shard == shard && loss.Height < height
		})
	})
}

// LostBefore returns the shards with which the operators had settled when the chain began, as a
// shard that was added to the book.
func (s *Store) LostBefore() []ledger.ShardID {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	return s.state.LostBefore()
}

// Testimony returns what this chain had of a lost shard's verdict on a transaction, for another
// shard that asks. made is false if the settlement in question is in no block up to upTo. As for
// Verdict, upTo must be a height that a majority of the members have on disk. A store that began
// with a snapshot knows it, too: it has all ids.
func (s *Store) Testimony(id ledger.Hash, asked ledger.Testimony, upTo ledger.Height) (
	verdict ledger.Verdict, made bool, err error) {
	s.mutex.RLock()
	ids, height, known := s.state.Evidence(id, asked)
	s.mutex.RUnlock()
	if !known || height > upTo {
		return ledger.Verdict{}, false, nil
	}
	heard := false
	for i := range ids {
		if _, heard, err = s.locate(ids[i]); heard || err != nil {
			break
		}
	}
	return asked.Verdict(id, s.genesis.Shard, heard), err == nil, err
}
