package store

import (
	"errors"
	"fmt"
	"slices"

	"github.com/dgraph-io/badger/v4"
)

// merging is the state of the goroutine that merges runs (runs.go). The store's mutex guards it.
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
			_ = s.fail(fmt.Errorf("merging runs: %w", err))
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
			if from = mergeable(s.runs.list(), s.options.fanOut); from != nil {
				return from, nil
			}
		}
		s.changed.Wait()
	}
	return nil, nil
}

// mergeable returns the oldest runs of a kind and of the lowest level that has enough of them, or
// nil.
func mergeable(runs []*run, fanOut int) []*run {
	type rank struct {
		level uint8
		kind  runKind
	}
	ranks := make(map[rank][]*run)
	for _, r := range runs {
		of := rank{r.level, r.kind}
		ranks[of] = append(ranks[of], r)
	}
	for level := 0; level <= len(runs); level++ {
		for _, kind := range runKinds {
			if some := ranks[rank{uint8(level), kind}]; len(some) >= fanOut {
				return some[:fanOut]
			}
		}
	}
	return nil
}

// rowsPerCheck is how many rows the merger writes between two looks at the descriptors that are
// left. The database cannot go on after it failed to open its next log.
const rowsPerCheck = 64

// mergeRuns writes the records of runs as one run, which the next checkpoint puts in their place.
func (s *Store) mergeRuns(from []*run) (err error) {
	height := s.AppendedHeight()
	defer guard(height, &err)
	kind, records, bytes := from[0].kind, uint64(0), uint64(0)
	for _, r := range from {
		records, bytes = records+r.records, bytes+r.bytes
	}
	// The rows are written twice before those that they replace are gone: to a log, and to a table.
	// retrySpace reckons with more, as for blocks.
	if err := s.retrySpace(int(bytes / 4)); err != nil {
		return err
	}
	// An entry that does not exist any more needs no record once no older run can have one.
	oldest := of(kind, s.runs.list())[0] == from[0] && !s.legacyState
	transaction := s.db.NewTransaction(false)
	defer transaction.Discard()
	sources := newMerged(transaction, from)
	defer sources.close()
	batch := s.db.NewWriteBatch()
	defer batch.Cancel()
	if kind == rowEntries { // several of them may have an entry
		s.mutex.RLock()
		records = min(records, uint64(s.state.EntryCount()))
		s.mutex.RUnlock()
	}
	rows := 0
	writer := s.newRunWriter(kind, from[0].level+1, records,
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
	for {
		key, value, more, err := sources.next()
		if err != nil {
			return damaged(height, "the runs: %v", err)
		}
		if !more {
			break
		}
		if len(value) == 0 && oldest {
			continue
		}
		if err := writer.add(key, value); err != nil {
			return err
		}
	}
	if err := writer.finish(s); err != nil {
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

// removeRuns removes the rows of runs that were replaced.
func (s *Store) removeRuns(gone []*run) (err error) {
	defer guard(s.AppendedHeight(), &err)
	transaction := s.db.NewTransaction(false)
	defer transaction.Discard()
	batch := s.db.NewWriteBatch()
	defer batch.Cancel()
	for _, r := range gone {
		if err := s.removeRun(transaction, r, batch.Delete); err != nil {
			return err
		}
	}
	return batch.Flush()
}

func (s *Store) removeRun(transaction *badger.Txn, r *run, remove func(key []byte) error) error {
	if r.kind != rowSteps {
		guide := runPrefix(rowGuide, r.number)
		if err := s.removeRows(transaction, guide, remove); err != nil {
			return err
		}
	}
	return s.removeRows(transaction, r.prefix(), remove)
}

// removeRows removes the rows whose keys begin with a prefix.
func (s *Store) removeRows(transaction *badger.Txn, prefix []byte,
	remove func(key []byte) error) error {
	settings := badger.DefaultIteratorOptions
	settings.PrefetchValues, settings.Prefix = false, prefix
	rows := transaction.NewIterator(settings)
	defer rows.Close()
	row := 0
	for rows.Rewind(); rows.Valid(); rows.Next() {
		if s.isClosed() {
			return ErrClosed
		}
		s.options.onWrite("remove")
		if row++; row%rowsPerCheck == 0 {
			if err := s.awaitDescriptors(); err != nil {
				return err
			}
		}
		if err := remove(rows.Item().KeyCopy(nil)); err != nil {
			return err
		}
	}
	return nil
}

// nextRuns returns the runs that the next row of runs names: those of now with new ones, and a
// merged one in place of those that it was made from, which replaced returns.
func (s *Store) nextRuns(added []*run) (runs, replaced []*run) {
	s.mutex.RLock()
	made, from := s.merging.made, s.merging.from
	s.mutex.RUnlock()
	for _, r := range s.runs.list() {
		switch {
		case made != nil && r == from[len(from)-1]: // the runs of a kind stay ordered by age
			runs = append(runs, made)
		case !slices.Contains(from, r):
			runs = append(runs, r)
		}
	}
	return append(runs, added...), from
}

// adopt makes runs those of the store, once the row of runs that names them is on the disk. The
// replaced ones are removed.
func (s *Store) adopt(runs, replaced []*run) {
	s.runs.runs.Store(&runs)
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if replaced != nil {
		s.merging.made, s.merging.from = nil, nil
		s.merging.gone = replaced
	}
	s.changed.Broadcast()
}
