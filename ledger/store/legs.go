package store

import (
	"slices"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/state"
)

// A shard may be hung below another one while the book runs. So the streams between two shards may
// end, and begin again later with greater numbers. The parts of them, the legs, follow from the
// changes of the tree, which are in the state.

// legs returns the parts of the streams to those shards that are or were right below this one.
func (s *Store) legs() []state.Leg {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	return s.state.Legs()
}

// legsAbove returns the parts of the streams from those shards that are or were right above.
func (s *Store) legsAbove() []state.Leg {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	return s.state.LegsAbove()
}

// legEnd returns the last entry of that part of the stream to a child to which a number belongs, or
// 0 if there is no such part. The caller holds the lock.
func (s *Store) legEnd(child ledger.ShardID, number uint64) uint64 {
	legs := s.state.Legs()
	at := slices.IndexFunc(legs, func(leg state.Leg) bool {
		return leg.Child == child && leg.Has(number)
	})
	if at < 0 {
		return 0
	}
	return legs[at].Last
}

// Ends returns the last entry of that part of the stream to a child to which a number belongs, as
// of the head, or 0 if there is no such part.
func (s *Store) Ends(child ledger.ShardID, number uint64) uint64 {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	return s.legEnd(child, number)
}

// FirstUntaken returns the first entry for a child that has entries up to a number and lacks this
// one, and the last one of the same part of the stream. It reports whether there is one.
func (s *Store) FirstUntaken(child ledger.ShardID, taken uint64) (first, last uint64, any bool) {
	for _, leg := range s.legs() {
		if leg.Child == child && leg.Last > max(taken, leg.Base()) {
			return max(taken, leg.Base()) + 1, leg.Last, true
		}
	}
	return 0, 0, false
}

// Fed returns the shards that are right below this one, or were and may still need entries from
// here, in ascending order, as of the head.
func (s *Store) Fed() (all []ledger.ShardID) {
	for _, leg := range s.legs() {
		if !slices.Contains(all, leg.Child) {
			all = append(all, leg.Child)
		}
	}
	slices.Sort(all)
	return all
}

// Rehangs returns the changes of the tree so far, in order, as of the head.
func (s *Store) Rehangs() []state.Rehang {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	return s.state.Rehangs()
}

// TreeUpTo returns the tree of the shards after the blocks up to a height, or nil if the book has
// only one shard.
func (s *Store) TreeUpTo(height ledger.Height) *ledger.ShardTree {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	return s.state.TreeAt(height + 1)
}

// rehungUpTo returns how many changes of the tree are in the blocks up to a height.
func (s *Store) rehungUpTo(height ledger.Height) int {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	return s.state.RehungAt(height + 1)
}

// RehungAt returns how many changes of the tree are before a place.
func (s *Store) RehungAt(place Place) (int, error) {
	rehung := s.rehungUpTo(place.Height)
	if place.Entries == 0 || s.rehungUpTo(place.Height+1) == rehung {
		return rehung, nil
	}
	block, err := s.Block(place.Height + 1)
	if err != nil {
		return 0, err
	}
	for i := range min(int(place.Entries), block.Len()) {
		entry := block.Entry(i)
		if change := entry.Transaction().Book; change != nil && change.Rehang != nil &&
			entry.Result.OK() {
			rehung++
		}
	}
	return rehung, nil
}

// TreeAt returns the tree of the shards at a place, or nil if the book has only one shard.
func (s *Store) TreeAt(place Place) (*ledger.ShardTree, error) {
	tree := s.ShardTree()
	if tree == nil {
		return nil, nil
	}
	shards, err := s.ShardsAt(place)
	if err != nil {
		return nil, err
	}
	rehung, err := s.RehungAt(place)
	if err != nil {
		return nil, err
	}
	return tree.Before(shards, rehung), nil
}

// everHas reports whether a position in the parent's stream is one that some place has, or may have
// later. A change of the tree leaves a gap: right after the last entry from the old parent, the
// position is that with which the stream from the new one begins.
func (s *Store) everHas(carried uint64) bool {
	legs := s.legsAbove()
	for i := 1; i < len(legs); i++ {
		if legs[i-1].Last <= carried && carried < legs[i].Base() {
			return false
		}
	}
	return true
}

// after returns the position in the parent's stream after an entry. After a change of the tree that
// gives this shard another parent, it is that with which the stream from the new one begins.
func (s *Store) after(number uint64) uint64 {
	legs := s.legsAbove()
	for i := range legs {
		if legs[i].Ended > 0 && legs[i].Last == number && i+1 < len(legs) {
			return legs[i+1].Base()
		}
	}
	return number
}
