package store

import (
	"bytes"
	"context"
	"fmt"

	"github.com/dgraph-io/badger/v4"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/state"
)

// EachEntry calls visit with the entries of blocks, from a place on to the block upTo or, newest
// first, from the place back to that block, until visit returns false. A block that is only in part
// after the place, or before it, is visited in that part. EachEntry returns ErrFarBack once that
// takes more than the effort; it has visited the entries of at least one block then, unless the
// effort is too small for any.
func (s *Store) EachEntry(ctx context.Context, from Place, upTo ledger.Height, newestFirst bool,
	effort *Effort, visit func(block *ledger.Block, index int) (more bool)) error {
	height, first := from.Height+1, int(from.Entries)
	if newestFirst && from.Entries == 0 {
		height = from.Height // the place is at the end of this block
	}
	for ; newestFirst && height >= upTo && height > 0 || !newestFirst && height <= upTo; first = 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		block, err := s.Block(height)
		if err == nil {
			err = effort.look(ctx, block)
		}
		if err != nil {
			return err
		}
		if newestFirst {
			last := block.Len()
			if first > 0 {
				last = min(last, first)
			}
			for i := last - 1; i >= 0; i-- {
				if !visit(block, i) {
					return nil
				}
			}
			height--
			continue
		}
		for i := first; i < block.Len(); i++ {
			if !visit(block, i) {
				return nil
			}
		}
		height++
	}
	return nil
}

// ListedRecord is a record with its key, and the time of the block that last wrote it.
type ListedRecord struct {
	Key ledger.RecordKey
	RecordValue
	Time ledger.Milliseconds
}

// recordsLooked bounds the rows that one call of Records looks at, and recordsBytes the values that
// it returns, but for the last one.
const (
	recordsLooked = 4096
	recordsBytes  = 1 << 20
)

// Records returns at most limit records after the given key whose keys have a prefix, by key, as of
// the head. It does a bounded work. next is the key of the last record that it looked at, and more
// says that there may be records after it.
func (s *Store) Records(prefix string, after ledger.RecordKey, limit int) (page []ListedRecord,
	next ledger.RecordKey, more bool, err error) {
	height := s.AppendedHeight()
	defer guard(height, &err)
	from := state.AppendRecordKey(nil, max(ledger.RecordKey(prefix), after))
	to := append(from[:1:1], bytes.Repeat([]byte{0xff}, ledger.MaxAccountPath+1)...)
	var places []state.RecordPlace
	err = s.look(func(transaction *badger.Txn) error {
		s.mutex.RLock()
		pending, runs := s.unwritten.blocks, s.runs.list()
		s.mutex.RUnlock()
		entries := newMergedRange(transaction, runs, s.legacyState, pending, from, to)
		defer entries.close()
		page, places, more = nil, nil, false
		for looked := 0; ; looked++ {
			key, value, left, err := entries.next()
			if err != nil || !left {
				return err
			}
			found := state.RecordOfKey(key)
			if !bytes.HasPrefix([]byte(found), []byte(prefix)) {
				return nil
			}
			if after != "" && found == after {
				continue
			}
			if len(page) == limit || looked >= recordsLooked {
				more = true
				return nil
			}
			if next = found; len(value) == 0 {
				continue
			}
			place, err := state.DecodeRecordPlace(value)
			if err != nil {
				return err
			}
			page, places = append(page, ListedRecord{Key: found}), append(places, place)
		}
	})
	if err != nil {
		return nil, "", false, damagedUnless(ErrClosed, err, height, "the records")
	}
	size := 0
	for i := range page {
		if size > recordsBytes {
			return page[:i], page[i-1].Key, true, nil
		}
		header, _, err := s.Header(places[i].Height)
		if err != nil {
			return nil, "", false, err
		}
		page[i].Time = header.Time
		if page[i].RecordValue, err = s.recordAt(page[i].Key, places[i]); err != nil {
			return nil, "", false, fmt.Errorf("record %s: %w", page[i].Key, err)
		}
		size += len(page[i].Value)
	}
	return page, next, more, nil
}
