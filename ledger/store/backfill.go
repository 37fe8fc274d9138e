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

// A store that began with a snapshot lacks two things of the blocks up to it, and gets them back in
// this order:
//
//   - The bodies, from the snapshot downward (Fill): blocks from absent+1 on are here. So the
//     newest ones, which others most often ask for, come first, and one number says what is here.
//   - The rows that only executing a block tells: histories, entries of streams and ends of waits
//     (Index), since the steps of a history are numbered from the genesis on. Index executes all
//     blocks from the genesis, once they are here, so that a store that began with a snapshot has
//     then also checked what it had only believed.
//
// The A row says how far both have come. It moves only after the rows that it speaks of are on the
// disk, so that a crash costs the work since, and what was written twice is the same. When nothing
// is missing, the row goes.

// missing is the A row: up to which height bodies of blocks, and rows of indexes, are not here.
type missing struct{ absent, unindexed ledger.Height }

func (m missing) row() []byte {
	to := binary.BigEndian.AppendUint64(nil, uint64(m.absent))
	return binary.BigEndian.AppendUint64(to, uint64(m.unindexed))
}

// readMissing reads the A row; nothing is missing where there is none. A row of 8 bytes is of a
// version that filled nothing in.
func readMissing(transaction *badger.Txn, head ledger.Height) (missing, error) {
	value, err := get(transaction, []byte{rowAbsent})
	switch {
	case errors.Is(err, errMissing):
		return missing{}, nil
	case err != nil:
		return missing{}, damaged(1, "where the store began: %v", err)
	case len(value) != 8 && len(value) != 16:
		return missing{}, damaged(1, "where the store began: malformed")
	}
	m := missing{absent: ledger.Height(binary.BigEndian.Uint64(value))}
	m.unindexed = m.absent
	if len(value) == 16 {
		m.unindexed = ledger.Height(binary.BigEndian.Uint64(value[8:]))
	}
	if m.unindexed > head || m.absent > m.unindexed {
		return missing{}, damaged(1, "where the store began: malformed")
	}
	return m, nil
}

// loadMissing reads what is missing, and removes outlines that a crash kept from being removed.
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

// Absent returns the height up to which blocks are not here, since the store began with a snapshot;
// 0 where all are.
func (s *Store) Absent() ledger.Height { return ledger.Height(s.absent.Load()) }

// Unindexed returns the height up to which steps of histories, entries of streams and ends of waits
// are not found: that of the snapshot that the store began with, until Index is through; else 0. It
// is Absent or more, and where it is 0 the store is like one that began with the genesis.
func (s *Store) Unindexed() ledger.Height { return ledger.Height(s.unindexed.Load()) }

func (s *Store) errAbsent(height ledger.Height) error {
	return fmt.Errorf("store: block %d lies %w, and the blocks up to %d are not here yet: ask "+
		"another "+
		"node", height, ErrAbsent, s.Absent())
}

func (s *Store) errUnindexed(what string) error {
	return fmt.Errorf("store: %s lies %w, and what leads to the blocks up to %d is not here "+
		"yet: ask "+
		"another node", what, ErrAbsent, s.Unindexed())
}

// beginTask notes that something reads or fills the database, whose end Close waits for:
// tasks.Done.
func (s *Store) beginTask() error {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.closed {
		return ErrClosed
	}
	s.tasks.Add(1)
	return nil
}

// goOn returns why a task should not go on.
func (s *Store) goOn(ctx context.Context) error {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	if s.closed {
		return ErrClosed
	}
	return ctx.Err()
}

// Fill takes the blocks from one height up to Absent. It calls fetch, which gives them to add in
// ascending order; add returns their encoded sizes. When fetch returns nil and all were added, they
// are durable, and Absent is the height below. Otherwise nothing changes, and Fill may be called
// again. Each block is checked against the hash in the chain (ErrMismatch): where it comes from
// does not matter. Blocks are appended and read meanwhile as ever. ErrNotFound where first is not
// from 1 to Absent; ErrDiskFull; ErrClosed; what fetch returns.
func (s *Store) Fill(first ledger.Height,
	fetch func(add func(*ledger.Block) (bytes int, err error)) error) (err error) {
	defer guard(first, &err)
	s.filling.Lock()
	defer s.filling.Unlock()
	last := s.Absent()
	if first < 1 || first > last {
		return fmt.Errorf("%w: nothing is to be filled in at block %d; absent are those up to %d",
			ErrNotFound, first, last)
	}
	if err := s.beginTask(); err != nil {
		return err
	}
	defer s.tasks.Done()
	next := first
	err = fetch(func(block *ledger.Block) (bytes int, err error) {
		if block.Header.Height != next || next > last {
			return 0, fmt.Errorf("%w: block %d to be filled in, want %d to %d", ErrMismatch,
				block.Header.Height, next, last)
		}
		if bytes, err = s.fillBlock(block); err == nil {
			next++
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
	return s.move(missing{absent: first - 1, unindexed: s.Unindexed()})
}

// fillBlock writes the body of a block and its header's row, and returns the body's size.
func (s *Store) fillBlock(block *ledger.Block) (bytes int, err error) {
	height := block.Header.Height
	defer guard(height, &err)
	if err := s.goOn(context.Background()); err != nil {
		return 0, err
	}
	hash, err := s.hash(height)
	if err != nil {
		return 0, err
	}
	// Decoding checks that the header is the one of the body; the block came from who knows where.
	encoded := block.Encode()
	checked, err := ledger.DecodeBlock(encoded)
	switch {
	case err != nil:
		return 0, fmt.Errorf("%w: block %d: %w", ErrMismatch, height, err)
	case checked.Hash != hash:
		return 0, fmt.Errorf("%w: block %d has hash %s, and the chain has %s", ErrMismatch, height,
			checked.Hash, hash)
	}
	if err := s.requireSpace(len(encoded)); err != nil {
		return 0, err
	}
	batch := s.db.NewWriteBatch()
	defer batch.Cancel()
	put := func(step string, key, value []byte) error {
		s.options.onWrite(step)
		return batch.Set(key, seal(key, value))
	}
	err = s.eachChunk(encoded, func(chunk int, part []byte) error {
		return put("fill body", bodyKey(height, chunk), part)
	})
	if err != nil {
		return 0, s.failFilling(err)
	}
	// The snapshot's word for the length is the only thing in it that nothing confirms.
	err = put("fill header", heightKey(rowHeader, height),
		headerRow(checked.Header.Encode(), len(encoded)))
	if err != nil {
		return 0, s.failFilling(err)
	}
	s.options.onWrite("fill flush")
	if err := batch.Flush(); err != nil {
		return 0, s.failFilling(err)
	}
	return len(encoded), nil
}

// failFilling stops all writing after the database failed.
func (s *Store) failFilling(err error) error { return s.fail(fmt.Errorf("filling in: %w", err)) }

// move makes durable what was filled in, then says in the A row what is missing still, and then
// removes what is of no use any more.
func (s *Store) move(m missing) error {
	s.options.onWrite("fill fence")
	if err := s.fence(true); err != nil {
		return s.failFilling(err)
	}
	s.options.onWrite("fill absent")
	key := []byte{rowAbsent}
	err := s.db.Update(func(transaction *badger.Txn) error {
		if m == (missing{}) {
			return transaction.Delete(key)
		}
		return transaction.Set(key, seal(key, m.row()))
	})
	if err != nil {
		return s.failFilling(err)
	}
	s.options.onWrite("fill absent fence")
	// A reader may be told that a block is here only once a crash cannot take that back: others let
	// their copies go because of it.
	if err := s.fence(true); err != nil {
		return s.failFilling(err)
	}
	before := s.Absent()
	s.absent.Store(uint64(m.absent))
	s.unindexed.Store(uint64(m.unindexed))
	s.options.onWrite("fill outlines")
	if err := s.removeOutlines(m.absent, before); err != nil {
		return s.failFilling(err)
	}
	return nil
}

// removeOutlines removes the outlines of blocks above one height up to another.
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

// Index writes the rows of histories, streams and settlements that a store lacks that began with a
// snapshot, once all blocks are here (ErrAbsent before): it executes them from the genesis, and
// finds on the way what a snapshot could not show, a block whose results do not follow (a
// *DamageError). It needs the memory of a second state meanwhile. Each, where not nil, is called
// before each block with its encoded size, so that the caller can set the pace, and ends Index with
// its error. An Index that was ended begins again.
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
	state := ledger.NewState(s.genesis)
	for height := ledger.Height(1); height <= last; height++ {
		if err := s.goOn(ctx); err != nil {
			return err
		}
		if err := s.indexBlock(height, state, each); err != nil {
			return err
		}
	}
	return s.move(missing{})
}

// indexBlock executes the next block and writes what that tells.
func (s *Store) indexBlock(height ledger.Height, state *ledger.State,
	each func(ledger.Height, int) error) error {
	// Past the cache of blocks, where they would take the place of those that are asked for.
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
	if err := s.requireSpace(0); err != nil {
		return err
	}
	block, err := ledger.DecodeBlock(encoded)
	switch {
	case err != nil:
		return damaged(height, "%v", err)
	case block.Hash != hash:
		return damaged(height, "its body belongs to another header")
	}
	executed, changes := state.Execute(ledger.Redraft(block))
	if executed.Hash != block.Hash || changes.OutOfPlace > 0 {
		return damaged(height, "executing it gives another result: %s", difference(block, executed))
	}
	batch := s.db.NewWriteBatch()
	defer batch.Cancel()
	put := func(step string, key, value []byte) error {
		s.options.onWrite(step)
		return batch.Set(key, seal(key, value))
	}
	var arena []byte
	err = historyRows(height, changes.History, &arena, put)
	if err == nil {
		err = shardRows(height, changes, put)
	}
	if err == nil {
		s.options.onWrite("index flush")
		err = batch.Flush()
	}
	if err != nil {
		return s.failFilling(err)
	}
	return nil
}

// writeOutline writes the ids and results of a block that is absent, as the snapshot said them.
func (w *snapshotWriter) writeOutline(height ledger.Height) error {
	outline, length, err := w.readOutline(height)
	if err != nil {
		return err
	}
	const step = ledger.HashSize + ledger.ResultSize
	ids, results := make([]ledger.Hash, 0, len(outline)/step),
		make([]ledger.Result, 0, len(outline)/step)
	for rest := outline; len(rest) >= step; rest = rest[step:] {
		result, err := ledger.DecodeResult(rest[ledger.HashSize:step])
		if err != nil {
			return damaged(height, "outline: %v", err)
		}
		ids, results = append(ids, ledger.Hash(rest[:ledger.HashSize])), append(results, result)
	}
	if err := ledger.CheckResults(&w.head.Header, ids, results); err != nil {
		return damaged(height, "outline: %v", err)
	}
	w.buffer = append(headerRow(w.head.Header.Encode(), int(length)), outline...)
	_, err = w.out.Write(w.buffer)
	return err
}

// readOutline reads the outline of a block that is absent, and the length that its header's row
// says.
func (w *snapshotWriter) readOutline(height ledger.Height) (outline []byte, length uint64,
	err error) {
	header, length, err := readHeader(w.transaction, height)
	if err != nil {
		return nil, 0, err
	}
	size := uint64(header.Transactions) * (ledger.HashSize + ledger.ResultSize)
	if height == 1 && size > 0 {
		// Stores that began with a snapshot before outlines were kept have none.
		if _, err := get(w.transaction, chunkKey(rowOutline, 1, 0)); errors.Is(err, errMissing) {
			return nil, 0, fmt.Errorf("store: no snapshot can be made here yet: what it needs "+
				"of the "+
				"blocks up to %d lies %w: ask another node, or wait until this one has fetched them",
				w.absent, ErrAbsent)
		}
	}
	outline, err = readChunks(w.transaction, rowOutline, height, size)
	return outline, length, err
}
