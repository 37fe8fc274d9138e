package store

import (
	"bytes"
	"container/heap"
	"errors"
	"fmt"
	"slices"

	"github.com/dgraph-io/badger/v4"

	"github.com/ledgerd/ledgerd/ledger"
)

// merging is the state of the goroutine that merges runs. The store's mutex guards it.
type merging struct {
	// made is a run that the row of runs does not name yet, and from are those that it replaces.
	made *run
	from []*run
	// gone are runs that the row of runs no longer names, durably. Their rows are to be removed.
	gone []*run
}

// merge runs the merger. It merges runs of one level into one of the next level, and removes those
// that a checkpoint has replaced, until the store is closed or a write fails.
func (s *Store) merge() {
	defer s.writer.Done()
	for {
		from, gone := s.nextMerge()
		if from == nil && gone == nil {
			return
		}
		var err error
		if gone != nil {
			err = s.removeRuns(gone)
		} else {
			err = s.mergeRuns(from)
		}
		switch {
		case errors.Is(err, ErrClosed):
			return
		case err != nil:
			_ = s.fail(fmt.Errorf("merging the index: %w", err))
			return
		}
	}
}

// nextMerge waits for runs to merge, or to remove. Both are nil when the store is closed.
func (s *Store) nextMerge() (from, gone []*run) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for s.failure == nil && !s.closed {
		if gone, s.merging.gone = s.merging.gone, nil; gone != nil {
			return nil, gone
		}
		if s.merging.made == nil {
			if from = mergeable(s.index.list(), s.options.fanOut); from != nil {
				return from, nil
			}
		}
		s.changed.Wait()
	}
	return nil, nil
}

// mergeable returns the oldest runs of the lowest level that has enough of them, or nil.
func mergeable(runs []*run, fanOut int) []*run {
	levels := make(map[uint8][]*run)
	for _, r := range runs {
		levels[r.level] = append(levels[r.level], r)
	}
	for level := uint8(0); int(level) <= len(runs); level++ {
		if len(levels[level]) >= fanOut {
			return levels[level][:fanOut]
		}
	}
	return nil
}

// rowsPerCheck is how many rows the merger writes between two looks at the descriptors that are
// left. The database cannot go on after it failed to open its next log.
const rowsPerCheck = 64

// mergeRuns writes the records of runs as one run, which the next checkpoint puts in their place.
func (s *Store) mergeRuns(from []*run) (err error) {
	defer guard(s.AppendedHeight(), &err)
	records, first := uint64(0), from[0].first
	for _, r := range from {
		records, first = records+r.records, min(first, r.first)
	}
	if err := s.retrySpace(int(records * recordSize)); err != nil {
		return err
	}
	transaction := s.db.NewTransaction(false)
	defer transaction.Discard()
	sources, err := newMergeHeap(transaction, from)
	if err != nil {
		return damaged(first, "the index: %v", err)
	}
	batch := s.db.NewWriteBatch()
	defer batch.Cancel()
	rows := 0
	writer := newRunWriter(s.index.next.Add(1)-1, from[0].level+1, first, records,
		func(step string, key, value []byte) error {
			if s.isClosed() {
				return ErrClosed
			}
			s.options.onWrite(step)
			if rows++; rows%rowsPerCheck == 0 {
				if err := s.awaitDescriptors(); err != nil {
					return err
				}
			}
			return batch.Set(key, seal(key, value))
		})
	for len(sources) > 0 {
		lowest := sources[0]
		record := lowest.record()
		if err := writer.add(&record); err != nil {
			return err
		}
		more, err := lowest.advance(transaction)
		switch {
		case err != nil:
			return damaged(first, "the index: %v", err)
		case more:
			heap.Fix(&sources, 0)
		default:
			heap.Pop(&sources)
		}
	}
	if err := writer.flush(); err != nil {
		return err
	}
	s.options.onWrite("merge flush")
	if err := s.awaitDescriptors(); err != nil {
		return err
	}
	if err := batch.Flush(); err != nil {
		return err
	}
	s.mutex.Lock()
	s.merging.made, s.merging.from = writer.run, from
	s.mutex.Unlock()
	return nil
}

// cursor is a position in a run that is being merged.
type cursor struct {
	run   *run
	next  uint64 // the next chunk
	chunk []byte
}

// advance goes to the next record.
func (c *cursor) advance(transaction *badger.Txn) (more bool, err error) {
	if len(c.chunk) > recordSize {
		c.chunk = c.chunk[recordSize:]
		return true, nil
	}
	if c.next == c.run.chunks() {
		return false, nil
	}
	c.chunk, err = get(transaction, runKey(c.run.number, c.next))
	if err == nil && (len(c.chunk) == 0 || len(c.chunk)%recordSize != 0) {
		err = errRow
	}
	c.next++
	return err == nil, err
}

func (c *cursor) record() record { return decodeRecord(c.chunk, c.run.first) }

// mergeHeap orders cursors by the ids that they are at.
type mergeHeap []*cursor

func newMergeHeap(transaction *badger.Txn, runs []*run) (mergeHeap, error) {
	var sources mergeHeap
	for _, r := range runs {
		c := &cursor{run: r}
		more, err := c.advance(transaction)
		if err != nil {
			return nil, err
		}
		if more {
			sources = append(sources, c)
		}
	}
	heap.Init(&sources)
	return sources, nil
}

func (h mergeHeap) Len() int { return len(h) }
func (h mergeHeap) Less(i, j int) bool {
	return bytes.Compare(h[i].chunk[:ledger.HashSize], h[j].chunk[:ledger.HashSize]) < 0
}
func (h mergeHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }

// Push adds a cursor.
func (h *mergeHeap) Push(x any) { *h = append(*h, x.(*cursor)) }

// Pop removes the last cursor.
func (h *mergeHeap) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}

// removeRuns removes the rows of runs that were replaced.
func (s *Store) removeRuns(gone []*run) (err error) {
	defer guard(s.AppendedHeight(), &err)
	batch := s.db.NewWriteBatch()
	defer batch.Cancel()
	for _, r := range gone {
		for chunk := range r.chunks() {
			if s.isClosed() {
				return ErrClosed
			}
			s.options.onWrite("remove")
			if chunk%rowsPerCheck == 0 {
				if err := s.awaitDescriptors(); err != nil {
					return err
				}
			}
			if err := batch.Delete(runKey(r.number, chunk)); err != nil {
				return err
			}
		}
	}
	return batch.Flush()
}

// nextRuns returns the runs that the next row of runs names: those of now with a new one, and a
// merged one in place of those that it was made from, which replaced returns.
func (s *Store) nextRuns(added *run) (runs, replaced []*run) {
	s.mutex.RLock()
	made, from := s.merging.made, s.merging.from
	s.mutex.RUnlock()
	for _, r := range s.index.list() {
		if !slices.Contains(from, r) {
			runs = append(runs, r)
		}
	}
	if made != nil {
		// The runs of a level stay ordered by age, and the lower levels are the newer ones.
		at := slices.IndexFunc(runs, func(r *run) bool { return r.level < made.level })
		if at < 0 {
			at = len(runs)
		}
		runs = slices.Insert(runs, at, made)
	}
	return append(runs, added), from
}

// adopt makes runs those of the index, once the row of runs that names them is on the disk. The
// replaced ones are removed.
func (s *Store) adopt(runs, replaced []*run) {
	s.index.runs.Store(&runs)
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if replaced != nil {
		s.merging.made, s.merging.from = nil, nil
		s.merging.gone = replaced
	}
	s.changed.Broadcast()
}
