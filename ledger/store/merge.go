package store

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dgraph-io/badger/v4"
)

// merging is the state of the goroutine that merges runs (runs.go). The store's mutex guards it.
type merging struct {
	// made is a run that is complete and that the row of runs does not name yet, and from are those
	// that it replaces.
	made *run
	from []*run
	// under are what the merges under way merge. All but the last one rest meanwhile.
	under []rank
	// gone are runs that the row of runs no longer names, durably. Their rows are to be removed.
	gone []*run
}

// merge runs the merger. It merges runs of one level into one of the next level, and removes those
// that a checkpoint has replaced, until the store is closed or a write fails.
//
// A merge in a large book may take a minute of a processor. So merges rest while blocks come, as
// other work behind does, unless runs pile up: more of them make look-ups slower. What layers bring
// meanwhile is merged during the rests of others.
func (s *Store) merge() {
	defer s.writer.Done()
	for {
		next := s.nextMerge()
		if next == nil {
			return
		}
		err := s.do(next)
		if errors.Is(err, ErrClosed) {
			return
		}
		if err != nil {
			_ = s.fail(fmt.Errorf("merging runs: %w", err))
			return
		}
	}
}

// mergeTask is what the merger does next: it merges runs into one of a level, or removes runs that
// are gone.
type mergeTask struct {
	from  []*run
	level uint8
	gone  []*run
}

func (s *Store) do(next *mergeTask) error {
	if next.gone != nil {
		return s.removeRuns(next.gone)
	}
	return s.mergeRuns(next.from, next.level)
}

// nextMerge waits for something to merge, or to remove. It returns nil when the store is closed.
func (s *Store) nextMerge() *mergeTask {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for s.failure == nil && !s.closed && !s.isEnding() {
		if next := s.dueMerge(); next != nil {
			return next
		}
		s.changed.Wait()
	}
	return nil
}

// dueMerge returns what is to be done now, or nil if there is nothing. The caller must hold the
// mutex.
func (s *Store) dueMerge() *mergeTask {
	if gone := s.merging.gone; gone != nil {
		s.merging.gone = nil
		return &mergeTask{gone: gone}
	}
	if s.merging.made == nil {
		if from, level := mergeable(s.runs.list(), s.options.fanOut, s.merging.under); from != nil {
			return &mergeTask{from: from, level: level}
		}
	}
	return nil
}

// rank are the runs of a kind and level.
type rank struct {
	level uint8
	kind  runKind
}

func ranksOf(runs []*run) map[rank][]*run {
	ranks := make(map[rank][]*run)
	for _, r := range runs {
		of := rank{r.level, r.kind}
		ranks[of] = append(ranks[of], r)
	}
	return ranks
}

// mergeable returns runs to merge, of a kind and of the lowest level that has enough of them, and
// the level of the merged run. It returns nil if there are none. While merges are under way, these
// are of no higher level than the last one, and of none of their ranks.
func mergeable(runs []*run, fanOut int, under []rank) (from []*run, into uint8) {
	ranks, highest := ranksOf(runs), len(runs)
	if len(under) > 0 {
		highest = int(under[len(under)-1].level)
	}
	for level := 0; level <= highest; level++ {
		for _, kind := range runKinds {
			of := rank{uint8(level), kind}
			if slices.Contains(under, of) {
				continue
			}
			if from, into = chosen(ranks[of], fanOut); from != nil {
				return from, into
			}
		}
	}
	return nil, 0
}

// chosen returns those of the runs of a kind and level, the oldest first, that are to be merged,
// and the level of the merged run. They are the oldest fanOut, which become one run of the next
// level. But while the layers of now bring few of what those of earlier days brought many, large
// runs would be merged for the sake of small ones. So small ones are merged among themselves, and
// the merged one stays in the level, as long as the newest fanOut are small beside the oldest.
func chosen(some []*run, fanOut int) (from []*run, into uint8) {
	if len(some) < fanOut {
		return nil, 0
	}
	oldest, newest := some[:fanOut], some[len(some)-1:]
	small := fanOut*fanOut*int(rowBytes(newest)) < int(rowBytes(oldest))
	if small && len(some) < 2*fanOut-1 {
		return nil, 0
	}
	newest = some[len(some)-fanOut:]
	if small && fanOut*int(rowBytes(newest)) < int(rowBytes(oldest)) {
		return newest, newest[0].level
	}
	return oldest, oldest[0].level + 1
}

// rowBytes returns how many bytes the rows of runs have.
func rowBytes(runs []*run) (bytes uint64) {
	for _, r := range runs {
		bytes += r.bytes
	}
	return bytes
}

// pileFactor is for how many merges the runs of a kind and level may be enough before merges rest
// no more.
const pileFactor = 2

// eagerPile is how many runs more than one merge takes an eager store lets pile up.
const eagerPile = 2

// pileUp reports whether there are as many runs of a kind and level: they come faster than they are
// merged.
func (s *Store) pileUp(many int) bool {
	for _, some := range ranksOf(s.runs.list()) {
		if len(some) >= many {
			return true
		}
	}
	return false
}

// restPiece is how long merges rest before they look whether others are due, or runs pile up.
const restPiece = time.Second

// rest lets the merges that are under way rest, for as long as the work of this one wants. Others
// of no higher level go on meanwhile. It ends if runs pile up.
func (s *Store) rest(p *pace) error {
	for left := p.length(time.Now()); ; left -= restPiece {
		if err := s.mergeMeanwhile(); err != nil {
			return err
		}
		if left <= 0 || s.pileUp(pileFactor*s.options.fanOut) {
			return p.skip()
		}
		if err := p.wait(min(left, restPiece)); err != nil {
			return err
		}
	}
}

// mergeMeanwhile makes the merges that are due while others rest.
func (s *Store) mergeMeanwhile() error {
	for {
		s.mutex.Lock()
		next := s.dueMerge()
		s.mutex.Unlock()
		if next == nil {
			return nil
		}
		if err := s.do(next); err != nil {
			return err
		}
	}
}

// rowsPerCheck is how many rows the merger writes between two looks at the descriptors that are
// left. The database cannot go on after it failed to open its next log.
const rowsPerCheck = 64

// mergeRuns writes the records of runs as one run of a level, which the next checkpoint puts in
// their place.
func (s *Store) mergeRuns(from []*run, level uint8) (err error) {
	height := s.AppendedHeight()
	defer guard(height, &err)
	kind, records, bytes := from[0].kind, uint64(0), rowBytes(from)
	for _, r := range from {
		records += r.records
	}
	// The rows are written twice before those that they replace are gone: to a log, and to a table.
	// retrySpace reckons with more, as for blocks.
	if err := s.retrySpace(int(bytes / 4)); err != nil {
		return err
	}
	// An entry that does not exist any more needs no record once no older run can have one.
	oldest := of(kind, s.runs.list())[0] == from[0] && !s.legacyState
	transaction := s.db.NewTransaction(false)
	defer func() { transaction.Discard() }()
	sources := newMerged(transaction, from)
	defer sources.close()
	batch := s.db.NewWriteBatch()
	defer batch.Cancel()
	if kind == rowEntries { // several of them may have an entry
		s.mutex.RLock()
		records = min(records, uint64(s.state.EntryCount()))
		s.mutex.RUnlock()
	}
	s.beginMerge(rank{from[0].level, kind})
	defer s.endMerge()
	rows, pace := 0, s.newPace()
	pace.least = 0
	writer := s.newRunWriter(kind, level, records,
		func(step string, key, value []byte) error {
			if s.isEnding() {
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
	for written := 0; ; {
		if rows > written && pace.due() {
			written = rows
			sources.pause()
			transaction.Discard()
			if err := s.rest(pace); err != nil {
				return err
			}
			transaction = s.db.NewTransaction(false)
			sources.resume(transaction)
		}
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
	return s.noteMerged(writer.run, from)
}

// beginMerge notes that a merge is under way, and endMerge that the last one has ended.
func (s *Store) beginMerge(of rank) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.merging.under = append(s.merging.under, of)
}

func (s *Store) endMerge() {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.merging.under = s.merging.under[:len(s.merging.under)-1]
	s.changed.Broadcast()
}

// noteMerged lets the next checkpoint put a run in the place of those that it was made from. It
// waits for the checkpoint that puts in the run of a smaller merge.
func (s *Store) noteMerged(made *run, from []*run) error {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for s.merging.made != nil {
		if s.failure != nil || s.isEnding() {
			return ErrClosed
		}
		s.changed.Wait()
	}
	s.merging.made, s.merging.from = made, from
	return nil // endMerge tells those that wait
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
		if s.isEnding() {
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
		s.merging.gone = append(s.merging.gone, replaced...)
	}
	s.changed.Broadcast()
}
