package store

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/dgraph-io/badger/v4"

	"github.com/ledgerd/ledgerd/ledger"
)

// A store that began with a snapshot lacks two things about the blocks up to the snapshot. It gets
// them back in this order:
//
//   - The bodies, from the snapshot downward (Fill). The store always has the blocks above absent.
//     So the newest blocks, which other nodes request most, come first, and one number tells which
//     blocks are here. With them come the rows of streams, because a child shard that was down for
//     long needs entries of these blocks (childentries.go).
//   - The rows that only the execution of a block yields: histories and ends of waits (Index). The
//     steps of a history are numbered from the genesis, so Index executes all blocks from the
//     genesis, once they are here. By that, the store also verifies the state that it took from the
//     snapshot.
//
// The A row holds the progress of both. It is updated only after the rows that it describes are on
// the disk. So a crash costs only the work since the last update, and repeated writes write the
// same rows. When nothing is missing, the A row is deleted.

// missing is the A row: the heights up to which bodies of blocks and rows of indexes are not here.
type missing struct {
	absent, unindexed ledger.Height
	// streamed are the positions of the streams to child shards as of block absent, in the order of
	// state.Legs. It is empty if there are no children. It is also empty if the
	// positions are unknown, because the snapshot was taken over by a version without them.
	streamed []uint64
}

func (m missing) row() []byte {
	to := binary.BigEndian.AppendUint64(nil, uint64(m.absent))
	to = binary.BigEndian.AppendUint64(to, uint64(m.unindexed))
	for _, position := range m.streamed {
		to = binary.BigEndian.AppendUint64(to, position)
	}
	return to
}

// readMissing reads the A row. If there is none, nothing is missing. A row of 8 bytes comes from a
// version that did not fill in blocks, and one of 16 bytes may come from a version that placed no
// entries of streams.
func readMissing(transaction *badger.Txn, head ledger.Height) (missing, error) {
	value, err := get(transaction, []byte{rowAbsent})
	switch {
	case errors.Is(err, errMissing):
		return missing{}, nil
	case err != nil:
		return missing{}, damaged(1, "where the store began: %v", err)
	case len(value) < 8 || len(value)%8 != 0:
		return missing{}, damaged(1, "where the store began: malformed")
	}
	m := missing{absent: ledger.Height(binary.BigEndian.Uint64(value))}
	m.unindexed = m.absent
	if len(value) >= 16 {
		m.unindexed = ledger.Height(binary.BigEndian.Uint64(value[8:]))
		for rest := value[16:]; len(rest) > 0; rest = rest[8:] {
			m.streamed = append(m.streamed, binary.BigEndian.Uint64(rest))
		}
	}
	if m.unindexed > head || m.absent > m.unindexed {
		return missing{}, damaged(1, "where the store began: malformed")
	}
	return m, nil
}

// loadMissing reads the A row, and removes outlines that a crash left behind.
func (s *Store) loadMissing(head ledger.Height) error {
	var m missing
	err := s.db.View(func(transaction *badger.Txn) (err error) {
		m, err = readMissing(transaction, head)
		return err
	})
	if err != nil {
		return err
	}
	s.absent.Store(uint64(m.absent))
	s.unindexed.Store(uint64(m.unindexed))
	return s.removeOutlines(m.absent, math.MaxUint64)
}

// Absent returns the height up to which blocks are not here because the store began with a
// snapshot. It is 0 if all blocks are here.
func (s *Store) Absent() ledger.Height { return ledger.Height(s.absent.Load()) }

// Unindexed returns the height up to which steps of histories and ends of waits cannot be found. It
// is the height of the snapshot that the store began with until Index is finished, and 0
// afterwards. It is at least Absent. When it is 0, the store is like one that began with the
// genesis.
func (s *Store) Unindexed() ledger.Height { return ledger.Height(s.unindexed.Load()) }

func (s *Store) errAbsent(height ledger.Height) error {
	return &AbsentError{Height: height, Absent: s.Absent()}
}

// Borrow keeps an absent block, from any source, in memory for the next reads, until others take
// its room. It checks the block against the hash in the chain (ErrMismatch). The store shares the
// block's memory.
func (s *Store) Borrow(block *ledger.Block) (err error) {
	height := block.Header.Height
	defer guard(height, &err)
	if err := s.exists(height); err != nil {
		return err
	}
	checked, encoded, err := s.trusted(block)
	if err == nil {
		s.cache.put(checked, len(encoded))
	}
	return err
}

// trusted returns a block from a source that is not trusted as it is in the chain, with its
// encoding, or ErrMismatch.
func (s *Store) trusted(block *ledger.Block) (*ledger.Block, []byte, error) {
	height := block.Header.Height
	hash, err := s.hash(height)
	if err != nil {
		return nil, nil, err
	}
	encoded := block.Encode()
	checked, err := ledger.DecodeBlock(encoded) // checks that the body matches the header
	switch {
	case err != nil:
		return nil, nil, fmt.Errorf("%w: block %d: %w", ErrMismatch, height, err)
	case checked.Hash != hash:
		return nil, nil, fmt.Errorf("%w: block %d has hash %s, and the chain has %s", ErrMismatch,
			height, checked.Hash, hash)
	}
	return checked, encoded, nil
}

func (s *Store) errUnindexed(what string) error {
	return fmt.Errorf("store: %s lies %w, and the blocks up to %d are not indexed here yet: ask "+
		"another node", what, ErrAbsent, s.Unindexed())
}

// beginTask registers a task that reads or fills the database. Close waits for its end. The caller
// must call tasks.Done, and may hold the mutex.
func (s *Store) beginTask() error {
	s.tasking.Lock()
	defer s.tasking.Unlock()
	if s.tasksEnded {
		return ErrClosed
	}
	s.tasks.Add(1)
	return nil
}

// checkRunning returns an error if a task must stop: the store was closed, or ctx is done.
func (s *Store) checkRunning(ctx context.Context) error {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	if s.closed {
		return ErrClosed
	}
	return ctx.Err()
}

// Fill adds the blocks from first up to Absent. It calls fetch, which must pass them to add in
// ascending order. add returns a block's encoded size. When fetch has returned nil and all blocks
// were added, they are durable, and Absent is first-1. Otherwise nothing changes, and Fill may be
// called again. Each block is checked against the hash in the chain (ErrMismatch), so its source
// need not be trusted. Blocks can be appended and read meanwhile. Fill returns ErrNotFound if first
// is not between 1 and Absent, ErrDiskFull, ErrNoDescriptors, ErrClosed, or the error of fetch.
func (s *Store) Fill(first ledger.Height,
	fetch func(add func(*ledger.Block) (bytes int, err error)) error) (err error) {
	defer guard(first, &err)
	s.filling.Lock()
	defer s.filling.Unlock()
	last := s.Absent()
	if first < 1 || first > last {
		return fmt.Errorf("%w: block %d cannot be filled in: the blocks up to %d are absent",
			ErrNotFound, first, last)
	}
	if err := s.beginTask(); err != nil {
		return err
	}
	defer s.tasks.Done()
	entries, err := s.beginEntries()
	if err != nil {
		return err
	}
	next := first
	err = fetch(func(block *ledger.Block) (bytes int, err error) {
		if block.Header.Height != next || next > last {
			return 0, fmt.Errorf("%w: block %d to be filled in, want %d to %d", ErrMismatch,
				block.Header.Height, next, last)
		}
		filled, bytes, err := s.fillBlock(block)
		if err == nil {
			next++
			entries.add(filled)
		}
		return bytes, err
	})
	switch {
	case err != nil:
		return err
	case next <= last:
		return fmt.Errorf("%w: the blocks from %d to %d were not filled in", ErrMismatch, next,
			last)
	}
	streamed, err := entries.write(first)
	if err != nil {
		return err
	}
	return s.move(missing{absent: first - 1, unindexed: s.Unindexed(), streamed: streamed})
}

// fillBlock writes the body and the header row of a block. It returns the block as it was checked,
// and the size of the body.
func (s *Store) fillBlock(block *ledger.Block) (filled *ledger.Block, bytes int, err error) {
	height := block.Header.Height
	defer guard(height, &err)
	if err := s.checkRunning(context.Background()); err != nil {
		return nil, 0, err
	}
	checked, encoded, err := s.trusted(block)
	if err != nil {
		return nil, 0, err
	}
	if err := errors.Join(s.requireSpace(len(encoded)), s.requireDescriptors()); err != nil {
		return nil, 0, err
	}
	batch := s.db.NewWriteBatch()
	defer batch.Cancel()
	put := func(step string, key, value []byte) error {
		s.options.onWrite(step)
		return batch.Set(key, seal(key, value))
	}
	if err := s.bodyRows(&packer{}, "fill body", height, encoded, put); err != nil {
		return nil, 0, s.failFilling(err)
	}
	// Write the header row again with this length: nothing confirms the length in the snapshot.
	err = put("fill header", heightKey(rowHeader, height),
		headerRow(checked.Header.Encode(), len(encoded)))
	if err != nil {
		return nil, 0, s.failFilling(err)
	}
	s.options.onWrite("fill flush")
	if err := batch.Flush(); err != nil {
		return nil, 0, s.failFilling(err)
	}
	return checked, len(encoded), nil
}

// failFilling stops all writing after a failure of the database.
func (s *Store) failFilling(err error) error { return s.fail(fmt.Errorf("filling in: %w", err)) }

// move makes the added rows durable, updates the A row, and then removes outlines that are no
// longer needed.
func (s *Store) move(m missing) error {
	s.options.onWrite("fill fence")
	if err := s.fence(); err != nil {
		return s.failFilling(err)
	}
	s.options.onWrite("fill absent")
	key, termsFrom := []byte{rowAbsent}, s.termsFrom.Load()
	if m.unindexed == 0 && termsFrom <= s.unindexed.Load() {
		termsFrom = 0
	}
	err := s.db.Update(func(transaction *badger.Txn) error {
		if m.unindexed == 0 {
			// The rows of terms that the store lacked because of the snapshot are there, too.
			// Others may be missing if an earlier version went on with it.
			if termsFrom == 0 {
				if err := setTermsHeight(transaction, rowTermsFrom, 0); err != nil {
					return err
				}
			}
			return transaction.Delete(key)
		}
		return transaction.Set(key, seal(key, m.row()))
	})
	if err != nil {
		return s.failFilling(err)
	}
	s.options.onWrite("fill absent fence")
	// Report a block as present only once a crash cannot undo that, because other nodes delete
	// their copies when they learn that it is here.
	if err := s.fence(); err != nil {
		return s.failFilling(err)
	}
	before := s.Absent()
	s.absent.Store(uint64(m.absent))
	s.unindexed.Store(uint64(m.unindexed))
	s.termsFrom.Store(termsFrom)
	s.options.onWrite("fill outlines")
	if err := s.removeOutlines(m.absent, before); err != nil {
		return s.failFilling(err)
	}
	return nil
}

// removeOutlines removes the outlines of the blocks above one height, up to and including another.
func (s *Store) removeOutlines(above, to ledger.Height) error {
	batch := s.db.NewWriteBatch()
	defer batch.Cancel()
	err := s.db.View(func(transaction *badger.Txn) error {
		settings := badger.DefaultIteratorOptions
		settings.Prefix, settings.PrefetchValues = []byte{rowOutline}, false
		rows := transaction.NewIterator(settings)
		defer rows.Close()
		for rows.Seek(heightKey(rowOutline, above+1)); rows.Valid(); rows.Next() {
			if binary.BigEndian.Uint64(rows.Item().Key()[1:]) > uint64(to) {
				break
			}
			if err := batch.Delete(rows.Item().KeyCopy(nil)); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		err = batch.Flush()
	}
	if err != nil {
		return fmt.Errorf("store: database: %w", err)
	}
	return nil
}

// Index writes the rows of histories, streams and settlements that a store lacks because it began
// with a snapshot. All blocks must be here (otherwise ErrAbsent). It executes them from the
// genesis. Thereby it finds blocks whose results do not follow from their transactions, which a
// snapshot cannot reveal (a *DamageError). It needs memory for a second state, and for more
// accounts than may be in memory a database on the disk (replay.go). If each is not nil, Index
// calls it before each block with the block's encoded size, which lets the caller set the pace. An
// error of each ends Index. An interrupted Index starts from the beginning.
func (s *Store) Index(ctx context.Context, each func(height ledger.Height,
	bytes int) error) (err error) {
	defer guard(1, &err)
	s.filling.Lock()
	defer s.filling.Unlock()
	last := s.Unindexed()
	if last == 0 {
		return nil
	}
	if absent := s.Absent(); absent > 0 {
		return s.errAbsent(absent)
	}
	if err := s.beginTask(); err != nil {
		return err
	}
	defer s.tasks.Done()
	if err := s.indexBlocks(ctx, last, each, s.indexRows); err != nil {
		return err
	}
	return s.move(missing{})
}

// IndexTerms writes the rows of the terms and assets that blocks replaced, as far as the store
// lacks them because an earlier version wrote it: those of the blocks up to TermsFrom, which is 0
// afterwards. Index has to have ended before (otherwise ErrAbsent). It executes the blocks as Index
// does.
func (s *Store) IndexTerms(ctx context.Context, each func(height ledger.Height,
	bytes int) error) (err error) {
	defer guard(1, &err)
	s.filling.Lock()
	defer s.filling.Unlock()
	last := s.TermsFrom()
	if last == 0 {
		return nil
	}
	if s.Unindexed() > 0 {
		return s.errUnindexed("what the blocks replaced")
	}
	if err := s.beginTask(); err != nil {
		return err
	}
	defer s.tasks.Done()
	err = s.indexBlocks(ctx, last, each, func(indexed *pendingBlock, put putRow) error {
		return termsRows(indexed.block, indexed.changes, put)
	})
	if err != nil {
		return err
	}
	s.options.onWrite("terms fence")
	if err := s.fence(); err != nil {
		return s.failFilling(err)
	}
	s.options.onWrite("terms from")
	err = s.db.Update(func(transaction *badger.Txn) error {
		return setTermsHeight(transaction, rowTermsFrom, 0)
	})
	if err != nil {
		return s.failFilling(err)
	}
	s.termsFrom.Store(0)
	return nil
}

// indexBlocks executes the blocks from the genesis up to a height, and writes the rows that rows
// passes to put for each.
func (s *Store) indexBlocks(ctx context.Context, last ledger.Height,
	each func(ledger.Height, int) error,
	rows func(indexed *pendingBlock, put putRow) error) (err error) {
	replayed, err := s.newReplay()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, replayed.end()) }()
	for height := ledger.Height(1); height <= last; height++ {
		if err := s.checkRunning(ctx); err != nil {
			return err
		}
		if err := s.indexBlock(height, replayed, each, rows); err != nil {
			return err
		}
	}
	return nil
}

// indexBlock executes the next block and writes the resulting rows.
func (s *Store) indexBlock(height ledger.Height, replayed *replay,
	each func(ledger.Height, int) error,
	rows func(indexed *pendingBlock, put putRow) error) error {
	// Bypass the cache of blocks, so that these blocks do not displace requested ones.
	hash, err := s.hash(height)
	if err != nil {
		return err
	}
	encoded, err := s.readBody(height, hash)
	if err != nil {
		return err
	}
	if each != nil {
		if err := each(height, len(encoded)); err != nil {
			return err
		}
	}
	if err := errors.Join(s.requireSpace(0), s.requireDescriptors()); err != nil {
		return err
	}
	block, err := ledger.DecodeBlock(encoded)
	switch {
	case err != nil:
		return damaged(height, "%v", err)
	case block.Hash != hash:
		return damaged(height, "its body belongs to another header")
	}
	executed, changes, err := replayed.execute(block)
	if err != nil {
		return err
	}
	if executed.Hash != block.Hash || changes.OutOfPlace > 0 {
		return damaged(height, "executing it gives another result: %s", difference(block, executed))
	}
	batch := s.db.NewWriteBatch()
	defer batch.Cancel()
	put := func(step string, key, value []byte) error {
		s.options.onWrite(step)
		return batch.Set(key, seal(key, value))
	}
	err = rows(&pendingBlock{block: block, changes: changes}, put)
	if err == nil {
		s.options.onWrite("index flush")
		err = batch.Flush()
	}
	if err != nil {
		return s.failFilling(err)
	}
	return nil
}

// indexRows passes the rows to put that a block has which came with a snapshot, and that only its
// execution yields.
func (s *Store) indexRows(indexed *pendingBlock, put putRow) error {
	block, changes := indexed.block, indexed.changes
	var arena []byte
	err := new(layerSorter).historyOf([]*pendingBlock{indexed}).records(
		func(number, ordinal uint64, steps []step) error {
			value := appendHistory(carve(&arena, historySize(len(steps))), steps)
			return put("history", historyKey(number, ordinal), value)
		})
	if err == nil {
		err = errors.Join(shardRows(block, changes, put), s.seedRows(changes.Seeds, put),
			termsRows(block, changes, put))
	}
	if blocks := []*pendingBlock{indexed}; err == nil && s.balancesDue(blocks) != nil {
		entries, order := new(layerSorter).entriesOf(blocks)
		err = eachInOrder(entries, order, s.balancePutter(blocks, put))
	}
	return err
}
