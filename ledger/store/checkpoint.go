package store

import (
	"bytes"
	"fmt"

	"github.com/dgraph-io/badger/v4"

	"github.com/ledgerd/ledgerd/ledger"
)

// maxChunk is the maximum number of bytes of an encoded block in one row.
const maxChunk = 256 << 10

// full reports whether the newest layer is large enough to go to the database. The caller must hold
// the mutex.
func (s *Store) full() bool {
	newest := s.unwritten.newest()
	return newest.bytes >= int(s.options.CheckpointBytes) || newest.held >= maxPendingBytes/2 ||
		len(newest.blocks) >= s.options.checkpointBlocks
}

// write runs the writer. It moves layers of blocks to the database, in order, until the store is
// closed and no block is left, or until a write fails. It also releases groups of the journal that
// no block needs.
func (s *Store) write() {
	defer s.writer.Done()
	for {
		sealed, more := s.nextLayer()
		if !more {
			return
		}
		if sealed == nil {
			if s.releaseGroups() != nil {
				return // the store has failed
			}
			continue
		}
		err := s.retryDescriptors(s.requireDescriptors)
		if err == nil || outOfDescriptors(err) { // the latter: closing, this is the last attempt
			err = s.checkpoint(sealed)
		}
		s.mutex.Lock()
		if err != nil && s.failure == nil {
			s.failure = fmt.Errorf("%w: block %d: %w", ErrFailed,
				sealed.blocks[0].block.Header.Height, err)
		}
		if err == nil {
			s.unwritten.drop()
			s.written = sealed.blocks[len(sealed.blocks)-1].block.Header.Height
		}
		s.changed.Broadcast()
		s.mutex.Unlock()
		if err == nil {
			for _, pending := range sealed.blocks {
				s.cache.put(pending.block, len(pending.encoded))
			}
		}
	}
}

// nextLayer waits for a layer to write. The layer is nil if groups of the journal are to be
// released and there is no block. There is no more when the store has failed or is closed.
func (s *Store) nextLayer() (sealed *layer, more bool) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for {
		some := len(s.unwritten.newest().blocks) > 0
		switch {
		case s.failure != nil || s.closed && !some:
			return nil, false
		case some && (s.closed || s.crowded || s.full() || s.wanted > s.written):
			s.crowded = false
			sealed := s.unwritten.seal()
			sealed.spans = s.failed.spans
			return sealed, true
		case s.crowded:
			s.crowded = false
			return nil, true
		}
		s.changed.Wait()
	}
}

// awaitWritten waits until the database has the block at a height.
func (s *Store) awaitWritten(target ledger.Height) error {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.wanted = max(s.wanted, target)
	s.changed.Broadcast()
	for s.written < target && s.failure == nil && !s.closed {
		s.changed.Wait()
	}
	switch {
	case s.written >= target:
		return nil
	case s.failure != nil:
		return s.failure
	}
	return ErrClosed
}

// checkpoint moves a layer to the database: the rows of its blocks, and then the head row. When it
// returns, the database has them on the disk, and the journal's groups that only they needed are
// released. The layer's blocks must be in the journal first. Otherwise a crash could leave blocks
// in the database that this disk never announced, and lose them again.
func (s *Store) checkpoint(sealed *layer) (err error) {
	last := sealed.blocks[len(sealed.blocks)-1]
	height := last.block.Header.Height
	defer guard(height, &err)
	if s.DurableHeight() < height {
		if err := s.Sync(); err != nil && s.DurableHeight() < height {
			return err
		}
	}
	batch := s.db.NewWriteBatch()
	defer batch.Cancel()
	added, err := s.rows(sealed, batch.Set)
	if err != nil {
		return err
	}
	runs, replaced := s.nextRuns(added)
	s.noteLeaves(sealed)
	s.options.onWrite("flush")
	if err := batch.Flush(); err != nil {
		return err
	}
	// The database may have split the batch, and may begin a new log with the head row. So the head
	// row waits until all logs are durable.
	s.options.onWrite("fence")
	if err := s.fence(); err != nil {
		return err
	}
	headKey, runsKey := []byte{rowHead}, []byte{rowRuns}
	s.options.onWrite("head")
	err = s.db.Update(func(transaction *badger.Txn) error {
		row := seal(runsKey, runsRow(s.runs.next.Load(), runs))
		if err := transaction.Set(runsKey, row); err != nil {
			return err
		}
		if err := setTermsHeight(transaction, rowTermsTo, height); err != nil {
			return err
		}
		return transaction.Set(headKey, seal(headKey, headRow(height, last.block.Hash)))
	})
	if err != nil {
		return err
	}
	s.mutex.RLock()
	group := s.unneeded(height)
	s.mutex.RUnlock()
	if err := s.settle(&last.block.Header, last.block.Hash, group); err != nil {
		return err
	}
	s.mutex.Lock()
	s.settledSpans = sealed.spans
	s.mutex.Unlock()
	s.adopt(runs, replaced)
	s.settleLeaves(height)
	return nil
}

// settle makes the database durable up to its head, and records that. The journal's groups up to a
// group are released.
func (s *Store) settle(head *ledger.Header, hash ledger.Hash, group uint64) error {
	s.options.onWrite("sync database")
	if err := s.db.Sync(); err != nil {
		return fmt.Errorf("sync: %w", err)
	}
	s.flushes.Add(databaseFlushes)
	s.options.onWrite("sync logs")
	if err := s.fence(); err != nil {
		return err
	}
	err := s.mark(func(next *tip) {
		next.height, next.hash, next.total = head.Height, hash, head.Total
		next.group = max(next.group, group)
	})
	if err != nil {
		return err
	}
	if s.journal != nil {
		s.journal.Release(group)
	}
	return nil
}

// databaseFlushes is how many files the database flushes when it syncs: its log of writes and its
// log of large values.
const databaseFlushes = 2

// fence syncs the database's logs, which must be durable before the next write.
func (s *Store) fence() error {
	s.logsMu.Lock()
	defer s.logsMu.Unlock()
	return s.retryDescriptors(s.logs.sync)
}

// chunk returns the size of a body row. It is small enough for the database's transactions.
func (s *Store) chunk() int { return int(min(maxChunk, s.options.MemTableBytes/32)) }

// rows passes all rows of a layer except the head row and the row of runs to set, with checksums.
// It returns the layer's runs.
func (s *Store) rows(sealed *layer, set func(key, value []byte) error) (added []*run, err error) {
	put := s.putTo(set)
	var p packer
	for _, pending := range sealed.blocks {
		if err := s.blockRows(&p, pending, put); err != nil {
			return nil, err
		}
	}
	for _, kind := range runKinds {
		if added, err = s.runRows(kind, sealed, put, added); err != nil {
			return nil, err
		}
	}
	if s.labelled.Load() {
		last := sealed.blocks[len(sealed.blocks)-1].block.Header.Height
		if err := labelsRow(last, put); err != nil {
			return nil, err
		}
	}
	return added, s.checkpointRow(sealed.blocks, put)
}

// putTo returns a function that passes rows to set, with checksums.
func (s *Store) putTo(set func(key, value []byte) error) putRow {
	return func(step string, key, value []byte) error {
		s.options.onWrite(step)
		return set(key, seal(key, value))
	}
}

// runRows passes the rows of a layer's run of a kind to put, and appends the run to added, unless
// it has no record.
func (s *Store) runRows(kind runKind, sealed *layer, put putRow,
	added []*run) ([]*run, error) {
	var writer *runWriter
	var err error
	switch kind {
	case rowRun:
		records, order := s.sorter.recordsOf(sealed.blocks)
		writer = s.newRunWriter(kind, 0, uint64(len(records)), put)
		writer.run.spans = sealed.spans
		for i := 0; i < len(order) && err == nil; i++ {
			next := &records[order[i].at]
			value := next.value()
			err = writer.add(next.id[:], value[:])
		}
	case rowSteps:
		steps := s.sorter.historyOf(sealed.blocks)
		writer = s.newRunWriter(kind, 0, uint64(len(steps.order)), put)
		var arena []byte
		err = steps.records(func(number, ordinal uint64, steps []step) error {
			arena = appendHistory(appendStepKey(arena[:0], number, ordinal), steps)
			return writer.add(arena[:stepKeySize], arena[stepKeySize:])
		})
	case rowEntries:
		entries, order := s.sorter.entriesOf(sealed.blocks)
		writer = s.newRunWriter(kind, 0, uint64(len(order)), put)
		keep := s.balancePutter(sealed.blocks, put)
		err = s.db.View(func(transaction *badger.Txn) error {
			label := s.labelPutter(transaction, put)
			return eachInOrder(entries, order, func(key, after []byte) error {
				if err := keep(key, after); err != nil {
					return err
				}
				if err := label(key, after); err != nil {
					return err
				}
				return writer.add(key, after)
			})
		})
		s.sorter.forget()
	}
	if err == nil {
		err = writer.finish(s)
	}
	if err == nil && writer.run.records > 0 {
		added = append(added, writer.run)
	}
	return added, err
}

// blockRows passes the rows to put that concern one block alone.
func (s *Store) blockRows(p *packer, pending *pendingBlock, put putRow) error {
	block, height := pending.block, pending.block.Header.Height
	if err := s.bodyRows(p, "body", height, pending.encoded, put); err != nil {
		return err
	}
	if err := shardRows(block, pending.changes, put); err != nil {
		return err
	}
	if err := s.seedRows(pending.changes.Seeds, put); err != nil {
		return err
	}
	if err := termsRows(block, pending.changes, put); err != nil {
		return err
	}
	return put("header", heightKey(rowHeader, height),
		headerRow(block.Header.Encode(), len(pending.encoded)))
}

// putRow writes a row to the database. The step names the kind of row.
type putRow func(step string, key, value []byte) error

// eachChunk splits data into parts that fit into one row and passes copies of them to put.
func (s *Store) eachChunk(data []byte, put func(chunk int, part []byte) error) error {
	for chunk := 0; len(data) > 0; chunk++ {
		length := min(len(data), s.chunk())
		if err := put(chunk, bytes.Clone(data[:length])); err != nil {
			return err
		}
		data = data[length:]
	}
	return nil
}

// carve returns an empty slice with room for size bytes and a checksum. It cuts the slice from
// shared memory.
func carve(arena *[]byte, size int) []byte {
	size += checksumSize
	if cap(*arena)-len(*arena) < size {
		*arena = make([]byte, 0, max(64<<10, size))
	}
	start := len(*arena)
	*arena = (*arena)[:start+size]
	return (*arena)[start : start : start+size]
}
