package store

import (
	"fmt"
	"sort"

	"github.com/ledgerd/ledgerd/ledger"
)

// Wait is how entries of this chain wait for one other shard.
type Wait struct {
	Shard ledger.ShardID
	// Count counts the entries, and Old those of them whose blocks are not younger than asked for.
	Count, Old uint64
	// Since is the time of the block with the oldest of them.
	Since ledger.Milliseconds
}

// Waiting returns how cross-shard transactions wait for the verdicts of other shards as of the
// head, ascending by shard. It also returns how many of the transactions are in blocks of a time or
// of an earlier one; a transaction that waits for several shards counts once there. It needs no
// more of the blocks than their headers.
func (s *Store) Waiting(time ledger.Milliseconds) (by []Wait, old uint64, err error) {
	oldest, since, waits, err := s.OldestPending()
	if err != nil || !waits {
		return nil, 0, err
	}
	upTo := ledger.Height(0)
	if since <= time {
		if upTo, err = s.lastAt(time, oldest.Height, s.Head().Height); err != nil {
			return nil, 0, fmt.Errorf("transactions that wait: %w", err)
		}
	}
	s.mutex.RLock()
	found, count := s.state.Waiting(upTo)
	s.mutex.RUnlock()
	for _, each := range found {
		header, _, err := s.Header(each.Oldest)
		if err != nil {
			return nil, 0, fmt.Errorf("oldest transaction that waits for shard %d: %w", each.Shard,
				err)
		}
		by = append(by, Wait{Shard: each.Shard, Count: uint64(each.Count), Old: uint64(each.Old),
			Since: header.Time})
	}
	return by, uint64(count), nil
}

// lastAt returns the last block of a time or of an earlier one, among blocks of which the first is
// one. No block is older than its parent.
func (s *Store) lastAt(time ledger.Milliseconds, first, last ledger.Height) (ledger.Height, error) {
	var failed error
	younger := sort.Search(int(last-first), func(i int) bool {
		header, _, err := s.Header(first + 1 + ledger.Height(i))
		if err != nil && failed == nil {
			failed = err
		}
		return err != nil || header.Time > time
	})
	return first + ledger.Height(younger), failed
}

// Untaken returns how entries of the stream to a child wait there, if the child has the entries up
// to a number. It returns the zero value if none waits. Old counts those in blocks of a time or of
// an earlier one. It needs no more of the blocks than their headers, and their rows of the stream.
func (s *Store) Untaken(child ledger.ShardID, taken uint64,
	time ledger.Milliseconds) (Wait, error) {
	first, last, any := s.FirstUntaken(child, taken)
	if !any {
		return Wait{}, nil
	}
	waiting := Wait{Shard: child, Count: last - first + 1}
	at := func(number uint64) (ledger.Milliseconds, error) {
		where, err := s.forward(child, number)
		if err != nil {
			return 0, err
		}
		header, _, err := s.Header(where.height)
		return header.Time, err
	}
	var err error
	if waiting.Since, err = at(first); err != nil {
		return Wait{}, fmt.Errorf("oldest entry that shard %d has not taken: %w", child, err)
	}
	var failed error
	waiting.Old = uint64(sort.Search(int(waiting.Count), func(i int) bool {
		written, err := at(first + uint64(i))
		if err != nil && failed == nil {
			failed = err
		}
		return err != nil || written > time
	}))
	if failed != nil {
		return Wait{}, fmt.Errorf("entries that shard %d has not taken: %w", child, failed)
	}
	return waiting, nil
}
