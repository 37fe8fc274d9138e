package store

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/dgraph-io/badger/v4"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/state"
)

// maxChunk is the maximum number of bytes of an encoded block in one row.
const maxChunk = 256 << 10

// Apply verifies the signatures of a delivered round, seals the round, executes the block and
// appends it. Bundles with a wrong signature are left out. The block is readable when Apply
// returns, and durable after the next Sync. The block is nil if the round has nothing new. The
// payloads must not change any more. After ErrDiskFull or ErrNoDescriptors the store is unchanged,
// and Apply may be called again with the same round. A *DamageError from a look-up of transaction
// ids changes nothing either. After ErrFailed or ErrClosed the store accepts no more blocks.
func (s *Store) Apply(epoch ledger.Epoch, round ledger.Round, payloads [][]byte) (*ledger.Block,
	error) {
	s.applying.Lock()
	defer s.applying.Unlock()
	size := 0
	for _, payload := range payloads {
		size += len(payload)
	}
	if err := s.ready(size); err != nil {
		return nil, err
	}
	draft, err := s.seal(epoch, round, s.options.Verify(payloads))
	if err != nil {
		return nil, fmt.Errorf("store: sealing round %d: %w", round, err)
	}
	if draft == nil {
		return nil, nil
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	block, changes := s.state.Execute(draft)
	s.publish(block, changes)
	return block, nil
}

// seal makes the draft of the next block from a round. It returns nil if the round has nothing new.
func (s *Store) seal(epoch ledger.Epoch, round ledger.Round,
	batches []*ledger.VerifiedBatch) (draft *state.Draft, err error) {
	if s.genesis.Sharded() {
		return s.sealShard(epoch, round, batches)
	}
	parent := s.head
	parent.Members = s.Membership
	draft = state.Seal(parent, epoch, round, batches, func(id ledger.Hash,
		transaction *ledger.Transaction) bool {
		known, failure := s.executed(id, transaction)
		if failure != nil && err == nil {
			err = failure
		}
		return known
	})
	return draft, err
}

// Append appends a block that another node made. The block must follow the head; otherwise Append
// returns ErrMismatch and changes nothing. It executes the block. If that gives another block,
// Append also returns ErrMismatch, and the store accepts no more blocks, because one of the two
// nodes is wrong. Append verifies the signatures first: if one is wrong, it returns an error that
// matches ledger.ErrSignature, and changes nothing. As in Verify, the block's time must not be
// before its parent's. No other check of the time is possible, because the clocks that determined
// it are in the round and not in the block.
func (s *Store) Append(block *ledger.Block) error {
	if err := ledger.VerifySignatures(block); err != nil {
		return fmt.Errorf("block %d: %w", block.Header.Height, err)
	}
	return s.AppendVerified(block)
}

// AppendVerified is Append for a block whose signatures this node has verified before, such as one
// of its own chain.
func (s *Store) AppendVerified(block *ledger.Block) error {
	s.applying.Lock()
	defer s.applying.Unlock()
	if err := s.ready(0); err != nil {
		return err
	}
	if block.Header.Height != s.head.Header.Height+1 || block.Header.Previous != s.head.Hash {
		return fmt.Errorf("%w: block %d after %s, the head is block %d %s", ErrMismatch,
			block.Header.Height, block.Header.Previous, s.head.Header.Height, s.head.Hash)
	}
	if block.Header.Time < s.head.Header.Time {
		return fmt.Errorf("%w: block %d has time %d, the block before has %d", ErrMismatch,
			block.Header.Height, block.Header.Time, s.head.Header.Time)
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	executed, changes := s.state.Execute(state.Redraft(block))
	if executed.Hash != block.Hash || changes.OutOfPlace > 0 {
		s.failure = fmt.Errorf("%w: %w: executing block %d gives %s, with %d transactions out "+
			"of place; it says %s", ErrFailed, ErrMismatch, block.Header.Height, executed.Hash,
			changes.OutOfPlace, block.Hash)
		s.changed.Broadcast()
		return s.failure
	}
	s.publish(executed, changes)
	return nil
}

// ready waits for room in the writer's queue and checks that the disk has space for size more
// bytes.
func (s *Store) ready(size int) error {
	if err := errors.Join(s.requireSpace(size), s.requireDescriptors()); err != nil {
		return fmt.Errorf("%w; the node then resumes by itself", err)
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for !s.closed && s.failure == nil && (len(s.pending) >= maxPendingBlocks ||
		s.pendingBytes >= maxPendingBytes) {
		s.changed.Wait()
	}
	if s.closed {
		return ErrClosed
	}
	return s.failure
}

// executed reports whether a transaction was in an earlier block.
func (s *Store) executed(id ledger.Hash, transaction *ledger.Transaction) (bool, error) {
	s.mutex.RLock()
	unseen := s.unseen(id, transaction)
	s.mutex.RUnlock()
	if unseen {
		return false, nil
	}
	return s.Known(id)
}

// unseen reports that a transaction was in no earlier block, if that is certain without reading the
// disk. This is the common case. A transaction with a fresh nonce was never applied, and s.failed
// has the ids of all transactions that failed, were set aside or were relayed to other shards. A
// registration takes no nonce in a book of several shards, so it is always looked up. The caller
// must hold the mutex, and no block may be appended meanwhile.
func (s *Store) unseen(id ledger.Hash, transaction *ledger.Transaction) bool {
	if !transaction.TakesNonce() || len(transaction.Registrations) > 0 ||
		!s.state.Fresh(transaction.Signer, transaction.Nonce) {
		return false
	}
	_, mayHaveFailed := s.failed[shortID(id)]
	return !mayHaveFailed
}

func shortID(id ledger.Hash) uint64 { return binary.BigEndian.Uint64(id[:]) }

// publish makes an executed block visible and passes it to the writer. The caller must hold the
// mutex.
func (s *Store) publish(block *ledger.Block, changes *state.Changes) {
	pending := &pendingBlock{block: block, encoded: block.Encode(), changes: changes,
		ids: make(map[ledger.Hash]uint32, len(block.Entries))}
	for i := range block.Entries {
		pending.ids[block.Entries[i].ID] = uint32(i)
		if indexKind(block.Entries[i].Result) == indexFailed {
			s.failed[shortID(block.Entries[i].ID)] = struct{}{}
		}
	}
	s.head = state.Parent{Header: block.Header, Hash: block.Hash}
	s.chain.append(block.Hash)
	s.pending = append(s.pending, pending)
	s.pendingBytes += len(pending.encoded)
	s.changed.Broadcast()
}

// write runs the writer. It writes pending blocks to the database, in order, until the store is
// closed and no block is pending, or until a write fails.
func (s *Store) write() {
	defer s.writer.Done()
	for {
		s.mutex.Lock()
		for len(s.pending) == 0 && !s.closed && s.failure == nil {
			s.changed.Wait()
		}
		if len(s.pending) == 0 || s.failure != nil {
			s.mutex.Unlock()
			return
		}
		next := s.pending[0]
		s.mutex.Unlock()

		err := s.retryDescriptors(s.requireDescriptors)
		if err == nil || outOfDescriptors(err) { // the latter: closing, this is the last attempt
			err = s.writeBlock(next)
		}

		s.mutex.Lock()
		if err != nil {
			s.failure = fmt.Errorf("%w: block %d: %w", ErrFailed, next.block.Header.Height, err)
		} else {
			s.cache.put(next.block, len(next.encoded))
			s.pending = s.pending[1:]
			s.pendingBytes -= len(next.encoded)
			s.written = next.block.Header.Height
		}
		s.changed.Broadcast()
		s.mutex.Unlock()
	}
}

// writeBlock writes the rows of a block and then the head row. It uses one transaction of the
// database if they fit, and otherwise writes them one after the other.
func (s *Store) writeBlock(pending *pendingBlock) (err error) {
	defer guard(pending.block.Header.Height, &err)
	if err := s.fence(false); err != nil {
		return err
	}
	headKey := []byte{rowHead}
	head := seal(headKey, headRow(pending.block.Header.Height, pending.block.Hash))
	rows, size := s.countRows(pending)
	if int64(rows) < s.db.MaxBatchCount()/2 && size < s.db.MaxBatchSize()/2 {
		transaction := s.db.NewTransaction(true)
		defer transaction.Discard()
		if err := s.rows(pending, transaction.Set); err != nil {
			return err
		}
		if err := transaction.Set(headKey, head); err != nil {
			return err
		}
		s.options.onWrite("commit")
		return transaction.Commit()
	}
	// The database may split the batch, so the head row must wait until all other rows are durable.
	batch := s.db.NewWriteBatch()
	defer batch.Cancel()
	if err := s.rows(pending, batch.Set); err != nil {
		return err
	}
	s.options.onWrite("flush")
	if err := batch.Flush(); err != nil {
		return err
	}
	s.options.onWrite("fence")
	if err := s.fence(true); err != nil {
		return err
	}
	s.options.onWrite("head")
	return s.db.Update(func(transaction *badger.Txn) error {
		return transaction.Set(headKey, head)
	})
}

// fence syncs the logs that must be durable before the next write: the full ones, and if active is
// set also the log that is being written.
func (s *Store) fence(active bool) error {
	s.logsMu.Lock()
	defer s.logsMu.Unlock()
	return s.retryDescriptors(func() error { return s.logs.sync(active) })
}

// countRows returns the number of rows of a block and a bound on their size in bytes.
func (s *Store) countRows(pending *pendingBlock) (rows int, size int64) {
	const overhead = 64
	rows = 3 + len(pending.encoded)/s.chunk() + 1 + len(pending.ids) +
		len(pending.changes.Entries) + len(pending.changes.History) +
		len(pending.changes.Forwards) + len(pending.changes.Settlements)
	bytes := len(pending.encoded) + ledger.HeaderSize + overhead*rows + 33*len(pending.ids) +
		17*len(pending.changes.History)
	for i := range pending.changes.Entries {
		change := &pending.changes.Entries[i]
		bytes += len(change.Key) + len(change.Before) + len(change.After)
	}
	return rows, int64(bytes)
}

// chunk returns the size of a body row. It is small enough for the database's transactions.
func (s *Store) chunk() int { return int(min(maxChunk, s.options.MemTableBytes/32)) }

// rows passes all rows of a block except the head row to set, with checksums.
func (s *Store) rows(pending *pendingBlock, set func(key, value []byte) error) error {
	block, height := pending.block, pending.block.Header.Height
	put := func(step string, key, value []byte) error {
		s.options.onWrite(step)
		return set(key, seal(key, value))
	}
	err := s.eachChunk(pending.encoded, func(chunk int, part []byte) error {
		return put("body", bodyKey(height, chunk), part)
	})
	if err != nil {
		return err
	}
	var arena []byte
	// Write the rows in key order: then the database inserts neighbours close together.
	for _, i := range byID(block.Entries) {
		where := position{height: height, index: i, kind: indexKind(block.Entries[i].Result)}
		if err := put("index", indexKey(block.Entries[i].ID),
			where.append(carve(&arena, positionSize))); err != nil {
			return err
		}
	}
	if err := historyRows(height, pending.changes.History, &arena, put); err != nil {
		return err
	}
	for i := range pending.changes.Entries {
		change := &pending.changes.Entries[i]
		row := stateRow{height: height, before: change.Before, after: change.After}
		value := row.append(carve(&arena, 8+10+len(change.Before)+len(change.After)))
		if err := put("state", stateKey(change.Key), value); err != nil {
			return err
		}
	}
	if err := shardRows(height, pending.changes, put); err != nil {
		return err
	}
	where := position{height: height, kind: indexBlock}
	if err := put("index", indexKey(block.Hash), where.append(nil)); err != nil {
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

// historyRows passes the history rows of a block to put.
func historyRows(height ledger.Height, changes []state.HistoryChange, arena *[]byte,
	put putRow) error {
	for history := byAccount(changes); len(history) > 0; {
		steps := 1
		for steps < len(history) && history[steps].Number == history[0].Number {
			steps++
		}
		value := appendHistory(carve(arena, 8+4*steps), height, history[:steps])
		if err := put("history", historyKey(history[0].Number, history[0].Ordinal),
			value); err != nil {
			return err
		}
		history = history[steps:]
	}
	return nil
}

// byID returns the indexes of the entries, ordered by id.
func byID(entries []ledger.Entry) []uint32 {
	order := make([]uint32, len(entries))
	for i := range order {
		order[i] = uint32(i)
	}
	slices.SortFunc(order, func(a, b uint32) int {
		return bytes.Compare(entries[a].ID[:], entries[b].ID[:])
	})
	return order
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

// Sync makes all blocks durable that were appended before the call. After it has returned, neither
// kill -9 nor a power cut can lose them. One sync serves all calls that wait at the same time.
func (s *Store) Sync() error {
	s.mutex.RLock()
	target := s.head.Header.Height
	s.mutex.RUnlock()
	s.syncing.Lock()
	defer s.syncing.Unlock()
	written, err := s.awaitWritten(target)
	switch {
	case err != nil:
		return err
	case s.durable >= target:
		return s.writeKnowledge() // only the knowledge of durability may be new
	}
	return s.makeDurable(written)
}

// awaitWritten waits until the writer has written the block at target. It returns the last written
// block, or the zero value if target is already durable.
func (s *Store) awaitWritten(target ledger.Height) (tip, error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for s.written < target && s.failure == nil && !s.closed {
		s.changed.Wait()
	}
	switch {
	case s.written >= target && s.durable >= target:
		return tip{}, nil
	case s.failure != nil:
		return tip{}, s.failure
	case s.closed:
		return tip{}, ErrClosed
	}
	// The block at written is the parent of the first pending block, or the head.
	last := tip{genesis: s.chainID, height: s.head.Header.Height, hash: s.head.Hash,
		total: s.head.Header.Total}
	if len(s.pending) > 0 {
		first := s.pending[0].block.Header
		last.height, last.hash, last.total = first.Height-1, first.Previous,
			first.Total-uint64(first.Transactions)
	}
	return last, nil
}

// databaseFlushes is how many files the database flushes when it syncs: its log of writes and its
// log of large values.
const databaseFlushes = 2

// Flushes returns how often the store has flushed a file or a folder to the disk since it was
// opened, to make blocks durable. What the database flushes by itself does not count.
func (s *Store) Flushes() uint64 { return s.flushes.Load() + s.logs.flushes.Load() }

func (s *Store) makeDurable(written tip) (err error) {
	defer guard(written.height, &err)
	s.options.onWrite("sync database")
	if err := s.db.Sync(); err != nil {
		return s.fail(fmt.Errorf("sync: %w", err))
	}
	s.flushes.Add(databaseFlushes)
	s.options.onWrite("sync logs")
	if err := s.fence(true); err != nil {
		return s.fail(err)
	}
	s.options.onWrite("marker")
	if err := s.marker.write(s.withKnowledge(written)); err != nil {
		return s.fail(err)
	}
	s.flushes.Add(1)
	s.options.onWrite("durable")
	s.mutex.Lock()
	s.durable = written.height
	s.mutex.Unlock()
	return nil
}

// withKnowledge returns the marker with the store's knowledge of durability added.
func (s *Store) withKnowledge(next tip) tip {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	next.known = min(s.known, next.height)
	next.perhaps = s.perhaps
	return next
}

// writeKnowledge writes a marker of the same height if the store's knowledge has changed since the
// last one. The caller must hold syncing, and everything that the last marker names must be
// durable.
func (s *Store) writeKnowledge() error {
	last := s.marker.last
	next := s.withKnowledge(last)
	if next == last {
		return nil
	}
	return s.marker.write(next)
}

// fail stops all writing. After a failed fsync the content of the disk is unknown.
func (s *Store) fail(err error) error {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.failure == nil {
		s.failure = errors.Join(ErrFailed, err)
	}
	s.changed.Broadcast()
	return s.failure
}
