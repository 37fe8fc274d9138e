package store

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"

	"github.com/dgraph-io/badger/v4"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/state"
)

// maxChunk is the maximum number of bytes of an encoded block in one row.
const maxChunk = 256 << 10

// full reports whether the newest layer is large enough to go to the database. The caller must hold
// the mutex.
func (s *Store) full() bool {
	newest := s.unwritten.newest()
	return newest.bytes >= int(s.options.CheckpointBytes) ||
		len(newest.blocks) >= s.options.checkpointBlocks
}

// write runs the writer. It moves layers of blocks to the database, in order, until the store is
// closed and no block is left, or until a write fails.
func (s *Store) write() {
	defer s.writer.Done()
	for {
		sealed := s.nextLayer()
		if sealed == nil {
			return
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

// nextLayer waits for a layer to write. It returns nil when there is nothing left to do.
func (s *Store) nextLayer() *layer {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for {
		some := len(s.unwritten.newest().blocks) > 0
		switch {
		case s.failure != nil || s.closed && !some:
			return nil
		case some && (s.closed || s.full() || s.wanted > s.written):
			return s.unwritten.seal()
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
// returns, the database has them on the disk, and the journal's groups before the one of the last
// block are released. The layer's blocks must be in the journal first. Otherwise a crash could
// leave blocks in the database that this disk never announced, and lose them again.
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
		row := seal(runsKey, runsRow(s.index.next.Load(), runs))
		if err := transaction.Set(runsKey, row); err != nil {
			return err
		}
		return transaction.Set(headKey, seal(headKey, headRow(height, last.block.Hash)))
	})
	if err != nil {
		return err
	}
	s.mutex.RLock()
	group := last.group
	s.mutex.RUnlock()
	if err := s.settle(&last.block.Header, last.block.Hash, group-1); err != nil {
		return err
	}
	s.adopt(runs, replaced)
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
// It returns the layer's run of the index.
func (s *Store) rows(sealed *layer, set func(key, value []byte) error) (added *run, err error) {
	put := func(step string, key, value []byte) error {
		s.options.onWrite(step)
		return set(key, seal(key, value))
	}
	var arena []byte
	for _, pending := range sealed.blocks {
		if err := s.blockRows(pending, put); err != nil {
			return nil, err
		}
	}
	if added, err = s.indexRows(sealed.blocks, put); err != nil {
		return nil, err
	}
	if err := historyRows(historyOf(sealed.blocks), &arena, put); err != nil {
		return nil, err
	}
	height := sealed.blocks[len(sealed.blocks)-1].block.Header.Height
	for _, change := range entriesOf(sealed.blocks) {
		row := stateRow{height: height, before: change.Before, after: change.After}
		value := row.append(carve(&arena, 8+10+len(change.Before)+len(change.After)))
		if err := put("state", stateKey(change.Key), value); err != nil {
			return nil, err
		}
	}
	return added, nil
}

// indexRows passes the rows of a run with the ids of blocks to put.
func (s *Store) indexRows(blocks []*pendingBlock, put putRow) (*run, error) {
	records := recordsOf(blocks)
	writer := newRunWriter(s.index.next.Add(1)-1, 0, blocks[0].block.Header.Height,
		uint64(len(records)), put)
	for i := range records {
		if err := writer.add(&records[i]); err != nil {
			return nil, err
		}
	}
	return writer.run, writer.flush()
}

// blockRows passes the rows to put that concern one block alone.
func (s *Store) blockRows(pending *pendingBlock, put putRow) error {
	block, height := pending.block, pending.block.Header.Height
	err := s.eachChunk(pending.encoded, func(chunk int, part []byte) error {
		return put("body", bodyKey(height, chunk), part)
	})
	if err != nil {
		return err
	}
	if err := shardRows(height, pending.changes, put); err != nil {
		return err
	}
	return put("header", heightKey(rowHeader, height),
		headerRow(block.Header.Encode(), len(pending.encoded)))
}

// entriesOf returns the changes of a row of blocks to the state: of each entry, its value before
// the first block and after the last one.
func entriesOf(blocks []*pendingBlock) []state.Change {
	if len(blocks) == 1 {
		return blocks[0].changes.Entries
	}
	var merged []state.Change
	places := make(map[string]int)
	for _, pending := range blocks {
		for _, change := range pending.changes.Entries {
			place, changed := places[string(change.Key)]
			if !changed {
				places[string(change.Key)] = len(merged)
				merged = append(merged, change)
				continue
			}
			merged[place].After = change.After
		}
	}
	slices.SortFunc(merged, func(a, b state.Change) int { return bytes.Compare(a.Key, b.Key) })
	return merged
}

// step is a step of an account's history: the transaction that was applied to the account.
type step struct {
	state.HistoryChange
	height ledger.Height
}

// historyOf returns the steps of a row of blocks, those of each account adjacent and in order.
func historyOf(blocks []*pendingBlock) []step {
	count := 0
	for _, pending := range blocks {
		count += len(pending.changes.History)
	}
	steps := make([]step, 0, count)
	for _, pending := range blocks {
		for _, change := range pending.changes.History {
			steps = append(steps, step{change, pending.block.Header.Height})
		}
	}
	slices.SortFunc(steps, func(a, b step) int {
		return cmp.Or(cmp.Compare(a.Number, b.Number), cmp.Compare(a.Ordinal, b.Ordinal))
	})
	return steps
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

// maxSteps bounds the steps in one history row. A row ends before each ordinal that is a multiple
// of it. So if a crash leaves rows of blocks that are lost, the rows of other blocks in their place
// begin at the same ordinals, and replace them.
const maxSteps = 512

// historyRows passes the history rows of steps to put, which are in the order of historyOf.
func historyRows(steps []step, arena *[]byte, put putRow) error {
	for len(steps) > 0 {
		count := 1
		most := min(len(steps), maxSteps-int(steps[0].Ordinal%maxSteps))
		for count < most && steps[count].Number == steps[0].Number {
			count++
		}
		value := appendHistory(carve(arena, historySize(count)), steps[:count])
		if err := put("history", historyKey(steps[0].Number, steps[0].Ordinal),
			value); err != nil {
			return err
		}
		steps = steps[count:]
	}
	return nil
}

// byAccount returns a copy of a block's history in which the steps of each account are adjacent and
// in order.
func byAccount(history []state.HistoryChange) []state.HistoryChange {
	sorted := slices.Clone(history)
	slices.SortFunc(sorted, func(a, b state.HistoryChange) int {
		return cmp.Or(cmp.Compare(a.Number, b.Number), cmp.Compare(a.Ordinal, b.Ordinal))
	})
	return sorted
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
