package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/dgraph-io/badger/v4"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/state"
)

// Open checks what the database may have lost without an error, and leaves the rest to a goroutine:
// the blocks of its tables, the older headers and the older ids.
//
// The database drops without an error what follows damage in one of its logs. It does so with
// nothing that is in a table: the manifest names the tables, and each has checksums. So Open reads
// the headers and ids whose rows may still be in a log: those before which not at least
// unsettledBytes were written.

// memTables is the number of full memtables that the database holds back at most.
const memTables = 3

// unsettledBytes is a number of bytes after which the database certainly has in tables what was
// written before: those of the memtable that is being filled, of the full ones, of one that is
// being written to a table, and one more because a batch may exceed them.
func (s *Store) unsettledBytes() uint64 {
	if s.options.unsettledBytes > 0 {
		return s.options.unsettledBytes
	}
	return (memTables + 3) * uint64(s.options.MemTableBytes)
}

// headerRowBytes is less than the database's log takes for the row of a header.
const headerRowBytes = ledger.HeaderSize + 8 + checksumSize + 1 + 8

// mayHaveLost returns a height, at most most, after which the database may have lost headers
// without an error. It reads few headers, of which it believes the totals. In blocks by bundle, the
// transfers of a packed bundle may share one row, so there only the blocks count.
func (s *Store) mayHaveLost(transaction *badger.Txn, most, head ledger.Height) (ledger.Height,
	error) {
	total := func(height ledger.Height) (uint64, error) {
		if height == 0 {
			return 0, nil
		}
		header, _, err := readHeader(transaction, height)
		if header.ByBundle {
			return 0, err
		}
		return header.Total, err
	}
	last, err := total(head)
	if err != nil {
		return 0, err
	}
	low, high := ledger.Height(0), most/segmentLength // in segments
	for low < high {
		middle := (low + high + 1) / 2
		before, err := total(middle * segmentLength)
		if err != nil {
			return 0, err
		}
		blocks := uint64(head - middle*segmentLength)
		if blocks*headerRowBytes+(last-min(before, last)+blocks)*recordSize <
			s.unsettledBytes() {
			high = middle - 1
		} else {
			low = middle
		}
	}
	return low * segmentLength, nil
}

// settledChunks returns the number of the first chunks of a run of ids that the database certainly
// has in tables. All rows of runs that were begun after the run's end were written behind it.
func (s *Store) settledChunks(r *run, runs []*run) uint64 {
	bytes := uint64(0)
	for _, other := range runs {
		if other.number >= r.next {
			bytes += other.bytes
		}
	}
	all := chunksOf(r.records)
	if bytes >= s.unsettledBytes() {
		return all
	}
	return all - min(all, chunksOf((s.unsettledBytes()-bytes)/recordSize+chunkOf))
}

// loadRun reads the guide of a run of ids, and checks rows that the database may have lost. If the
// run has no guide, it reads all its rows.
func (s *Store) loadRun(transaction *badger.Txn, r *run, runs []*run, height ledger.Height) error {
	err := readGuide(transaction, r)
	if errors.Is(err, errMissing) {
		if err = readIDs(transaction, r, height, s.failed.spans); err == nil && r.lapses > 0 {
			if err = s.loadSpans(transaction, height); err == nil {
				err = readIDs(transaction, r, height, s.failed.spans)
			}
		}
		if err == nil {
			s.failed.addRun(r)
			s.lacking.guides = append(s.lacking.guides, r)
		}
		return err
	}
	if err == nil && r.highest > height {
		err = errRow
	}
	if err != nil {
		return damaged(height, "the guide of run %d of the index: %v", r.number, err)
	}
	if r.lapses > 0 {
		if err := s.loadSpans(transaction, height); err != nil {
			return err
		}
	}
	s.failed.addRun(r)
	r.failed, r.lapsing = nil, nil
	settled := uint64(0)
	if !s.options.CheckAll {
		settled = s.settledChunks(r, runs)
	}
	rows := &idRows{run: r, height: height, records: r.records, chunk: settled}
	var seen count
	if err := s.checkIDs(transaction, rows, chunksOf(r.records), &seen); err != nil {
		return err
	}
	if settled == 0 {
		return rows.complete(&seen)
	}
	s.left.ids = append(s.left.ids, idsLeft{r.number, settled, seen})
	return nil
}

// complete checks the counts of a run of ids of which all rows were read.
func (x *idRows) complete(seen *count) error {
	if seen.blocks != x.run.blocks || seen.failures != x.run.failures ||
		seen.lapses != x.run.lapses || seen.transactions != x.run.transactions {
		return damaged(x.height, "run %d of the index has %d blocks and %d transactions, of which "+
			"%d failed; its guide says %d, %d and %d", x.run.number, seen.blocks,
			seen.transactions, seen.failures, x.run.blocks, x.run.transactions, x.run.failures)
	}
	return nil
}

// checkUnsettled reads the rows of entries of the state that the database may have lost, of runs
// that have their guides.
func (s *Store) checkUnsettled() error {
	runs := s.runs.list()
	entries := of(rowEntries, runs)
	failures := make([]error, len(entries))
	onAllProcessors(len(entries), func(part int) {
		defer guard(s.head.Header.Height, &failures[part])
		r := entries[part]
		after := uint64(0)
		for _, other := range runs {
			if other.number >= r.next {
				after += other.bytes
			}
		}
		failures[part] = s.db.View(func(transaction *badger.Txn) error {
			return r.readLast(transaction, int64(s.unsettledBytes())-int64(after))
		})
	})
	return errors.Join(failures...)
}

// readLast reads the last rows of a run of entries that has its guide, until they have so many
// bytes.
func (r *run) readLast(transaction *badger.Txn, bytes int64) error {
	if bytes <= 0 {
		return nil
	}
	settings := badger.DefaultIteratorOptions
	settings.Prefix, settings.Reverse, settings.PrefetchValues = r.prefix(), true, false
	rows := transaction.NewIterator(settings)
	defer rows.Close()
	last := r.starts.len() - 1
	rows.Seek(r.chunkKey(uint64(last), r.starts.at(last)))
	for place := last; place >= 0 && bytes > 0; place-- {
		key := r.chunkKey(uint64(place), r.starts.at(place))
		if !rows.Valid() || string(rows.Item().Key()) != string(key) {
			return errMissing
		}
		if err := rows.Item().Value(func(sealed []byte) error {
			row, err := unseal(key, sealed)
			bytes -= int64(len(row))
			return err
		}); err != nil {
			return err
		}
		rows.Next()
	}
	return nil
}

// lacking is what a store that an older version wrote lacks, and gets when it is opened.
type lacking struct {
	guides []*run
	// hashes are those of every segmentLength-th block from first on.
	hashes []ledger.Hash
	first  ledger.Height
}

// complement writes what the store lacks, if the disk has space for it. What it writes follows from
// what Open has read.
func (s *Store) complement() error {
	size := len(s.lacking.hashes) * ledger.HashSize
	for _, r := range s.lacking.guides {
		size += guideHeadSize + r.guideBytes()
	}
	if size == 0 || s.requireSpace(size) != nil {
		return nil
	}
	batch := s.db.NewWriteBatch()
	defer batch.Cancel()
	put := s.putTo(batch.Set)
	for _, r := range s.lacking.guides {
		// Rows of another guide may be left.
		err := s.db.View(func(transaction *badger.Txn) error {
			return s.removeRows(transaction, runPrefix(rowGuide, r.number), batch.Delete)
		})
		if err == nil {
			err = s.putGuide(r, put)
		}
		if err != nil {
			return fmt.Errorf("store: database: %w", err)
		}
	}
	if err := putHashes(s.lacking.first, s.lacking.hashes, put); err != nil {
		return fmt.Errorf("store: database: %w", err)
	}
	s.lacking = lacking{}
	if err := batch.Flush(); err != nil {
		return fmt.Errorf("store: database: %w", err)
	}
	return nil
}

// left is what Open leaves to be checked.
type left struct {
	// tables are those of which the blocks are to be checked.
	tables []tableFile
	// header is the last header.
	header ledger.Height
	ids    []idsLeft
	// runs has the kinds of the runs that the row of runs named, next was the number of the next
	// one. Rows of others with lower numbers are to be removed.
	runs map[uint64]runKind
	next uint64
}

// idsLeft are the chunks before one of the run of ids with a number. seen counts what Open has read
// of the others.
type idsLeft struct {
	number, before uint64
	seen           count
}

// uncheckedFile is there while the tables' blocks have not been checked, and after damage was found
// behind. A process that ended in this time, without Close, may have done so because of a damaged
// block: the database panics. Therefore the next Open checks everything, and the blocks before it
// opens the database.
const uncheckedFile = "unchecked"

// beginTables checks the tables. It returns an error if one is damaged.
func (s *Store) beginTables() error {
	switch _, err := os.Stat(filepath.Join(s.dir, uncheckedFile)); {
	case err == nil:
		s.options.CheckAll = true
	case !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("store: %w", err)
	}
	tables, err := tablesOf(filepath.Join(s.dir, databaseFolder))
	if err == nil {
		err = checkTables(tables, s.options.CheckAll)
	}
	if err != nil || s.options.CheckAll || len(tables) == 0 {
		return err
	}
	s.left.tables = tables
	return s.noteUnchecked()
}

func (s *Store) noteUnchecked() error {
	if err := os.WriteFile(filepath.Join(s.dir, uncheckedFile), nil, 0o600); err != nil {
		return fmt.Errorf("store: %w", err)
	}
	return nil
}

// endTables removes the note of unchecked tables.
func (s *Store) endTables() error {
	err := os.Remove(filepath.Join(s.dir, uncheckedFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("store: %w", err)
	}
	return nil
}

// noteFound notes at the end of a process whether the next Open must check everything: after
// damage, so that a damaged disk does not take part again until it is found again.
func (s *Store) noteFound(found error) error {
	switch {
	case errors.Is(found, ErrDamaged):
		return s.noteUnchecked()
	case s.left.tables != nil:
		return s.endTables()
	}
	return nil
}

// Checked waits until everything is checked that Open left. It returns a *DamageError if there is
// damage, the context's error, or ErrClosed if the store is closed before. After damage, or another
// failure, the store accepts no more blocks.
func (s *Store) Checked(ctx context.Context) error {
	select {
	case <-s.checked:
		return s.found
	case <-ctx.Done():
		return ctx.Err()
	}
}

// check checks what Open left, until the store is closed.
func (s *Store) check() {
	defer s.writer.Done()
	defer close(s.checked)
	s.found = s.checkLeft()
	if s.found != nil && !errors.Is(s.found, ErrClosed) {
		_ = s.fail(errors.Join(s.found, s.noteFound(s.found)))
	}
}

func (s *Store) checkLeft() (err error) {
	defer guard(1, &err)
	if err := s.checkTablesLeft(); err != nil {
		return err
	}
	if err := s.endTables(); err != nil {
		return err
	}
	if err := s.checkHeadersLeft(); err != nil {
		return err
	}
	for _, part := range s.left.ids {
		if err := s.checkIDsLeft(part); err != nil {
			return err
		}
	}
	for number, kind := range s.left.runs {
		if kind == rowEntries && !s.options.CheckAll {
			if err := s.checkEntriesLeft(number); err != nil {
				return err
			}
		}
	}
	return s.removeReplaced()
}

// checkTablesLeft checks the blocks of the tables that were there when the store was opened. The
// database may remove some meanwhile.
func (s *Store) checkTablesLeft() error {
	pace := s.newPace()
	pace.steady = true // a process that is killed before the end makes the next start check all
	for _, t := range s.left.tables {
		if err := t.check(true); err != nil && t.isNamed() {
			return err
		}
		if err := pace.step(); err != nil {
			return err
		}
	}
	return nil
}

// headersPerLook is how many headers a check reads from one transaction of the database, which
// keeps what was removed since its begin.
const headersPerLook = 1024

func (s *Store) checkHeadersLeft() error {
	pace := s.newPace()
	at := state.Parent{Header: s.genesis.Block().Header, Hash: s.chainID}
	for at.Header.Height < s.left.header {
		last := min(at.Header.Height+headersPerLook, s.left.header)
		err := s.db.View(func(transaction *badger.Txn) error {
			return eachHeader(transaction, &at, last, func() error {
				height := at.Header.Height
				s.mutex.RLock()
				defer s.mutex.RUnlock()
				if height%segmentLength == 0 &&
					at.Hash != s.chain.checkpoints[height/segmentLength] {
					return damaged(height, "it has hash %s; the row of hashes says %s", at.Hash,
						s.chain.checkpoints[height/segmentLength])
				}
				return nil
			})
		})
		if err != nil {
			return err
		}
		if err := pace.step(); err != nil {
			return err
		}
	}
	return nil
}

// checkEntriesLeft checks that the guide of a run of entries finds each entry.
func (s *Store) checkEntriesLeft(number uint64) error {
	pace, height, passed := s.newPace(), s.AppendedHeight(), uint64(0)
	for place, chunks := 0, 1; place < chunks; place += chunksPerLook {
		err := s.db.View(func(transaction *badger.Txn) error {
			// The rows of a run are removed only after it is no longer among these.
			r := s.runs.find(number)
			if r == nil {
				chunks = 0
				return nil
			}
			if chunks = r.starts.len(); place >= chunks {
				return nil
			}
			var to []byte
			if place+chunksPerLook < chunks {
				to = r.starts.at(place + chunksPerLook)
			}
			entries := newRangeCursor(transaction, r, 0, r.starts.at(place), to)
			entries.checks = true
			for more := true; more; {
				var err error
				if more, err = entries.advance(); err != nil {
					return err
				}
			}
			if passed += entries.inRange; to == nil && passed != r.records {
				return errGuide
			}
			return nil
		})
		if err != nil {
			return damaged(height, "run %d of the state: %v", number, err)
		}
		if err := pace.step(); err != nil {
			return err
		}
	}
	return nil
}

// chunksPerLook is how many chunks of ids or entries a check reads from one transaction of the
// database.
const chunksPerLook = 256

func (s *Store) checkIDsLeft(part idsLeft) error {
	pace := s.newPace()
	rows, seen := &idRows{height: s.AppendedHeight()}, part.seen
	for rows.chunk < part.before {
		err := s.db.View(func(transaction *badger.Txn) error {
			// The rows of a run are removed only after it is no longer among these.
			if rows.run = s.runs.find(part.number); rows.run == nil {
				return nil
			}
			rows.records = rows.run.records
			return s.checkIDs(transaction, rows, min(rows.chunk+chunksPerLook, part.before), &seen)
		})
		if err != nil || rows.run == nil {
			return err
		}
		if err := pace.step(); err != nil {
			return err
		}
	}
	return rows.complete(&seen)
}
