package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/dgraph-io/badger/v4"

	"github.com/ledgerd/ledgerd/ledger"
)

// The index finds transactions by their ids and blocks by their hashes. It is a set of runs
// (runs.go), so that a look-up reads one row of the run that has the id, and few others.
const (
	// recordSize is the size of an id in a run: the id, the height, and the place in the block with
	// the kind in its highest bits, below them a bit that marks a packed bundle, and then the lapse
	// of a failed transaction's deadline. A packed bundle has one record, with the id of its last
	// transfer and the place of the first one.
	heightSize  = 5
	recordSize  = ledger.HashSize + heightSize + 4
	kindShift   = 30
	packedBit   = 1 << (kindShift - 1)
	lapseShift  = 24
	lapseMask   = packedBit>>lapseShift - 1
	placeMask   = 1<<lapseShift - 1
	chunkOf     = 64 // records in a chunk
	filterBound = 4 << 20

	_ = uint(placeMask - (ledger.MaxBlockTransactions - 1))
	_ = uint(lapseMask - lapseWithin)
)

// record is an entry of a run of ids.
type record struct {
	id    ledger.Hash
	where position
}

// value returns the value of a record.
func (r *record) value() (value [recordSize - ledger.HashSize]byte) {
	height := uint64(r.where.height)
	if height>>(8*heightSize) != 0 {
		panic(fmt.Sprintf("store: height %d is not below 2^40", height))
	}
	value[0] = byte(height >> 32)
	binary.BigEndian.PutUint32(value[1:], uint32(height))
	place := r.where.index | uint32(r.where.kind)<<kindShift | uint32(r.where.lapse)<<lapseShift
	if r.where.packed {
		place |= packedBit
	}
	binary.BigEndian.PutUint32(value[heightSize:], place)
	return value
}

// decodeRecord decodes the id and value of a record, of recordSize bytes together.
func decodeRecord(from []byte) record {
	return record{id: ledger.Hash(from), where: decodePlaceOf(from[ledger.HashSize:])}
}

// decodePlaceOf decodes the value of a record.
func decodePlaceOf(value []byte) position {
	place := binary.BigEndian.Uint32(value[heightSize:])
	return position{
		height: ledger.Height(value[0])<<32 | ledger.Height(binary.BigEndian.Uint32(value[1:])),
		index:  place & placeMask, kind: byte(place >> kindShift), packed: place&packedBit != 0,
		lapse: lapse(place >> lapseShift & lapseMask)}
}

// transactionsOf returns how many transactions a record stands for, given its key.
func transactionsOf(key []byte, where position) uint64 {
	switch {
	case where.kind == indexBlock:
		return 0
	case where.packed:
		_, last := ledger.PackedPlace(ledger.Hash(key))
		return uint64(last) + 1
	}
	return 1
}

// expect makes the filter of a run that will have this many records.
func (r *run) expect(records uint64) {
	switch {
	case r.kind == rowRun && records <= filterBound:
		r.filter = newIDFilter(records)
	case r.kind == rowEntries:
		r.filter = newIDFilter(min(records, entriesFilterBound))
	}
}

// note counts a record, and adds it to what memory has of a run.
func (r *run) note(key, value []byte) {
	switch r.kind {
	case rowEntries:
		id := r.keys.id(key)
		r.filter.add(id[:])
	case rowRun:
		if r.records%chunkOf == 0 {
			r.fences = append(r.fences, binary.BigEndian.Uint64(key))
		}
		if r.filter != nil {
			r.filter.add(key)
		}
		r.tally(key, value)
	}
	r.records++
}

// find looks up an id in the database.
func (s *Store) find(id ledger.Hash) (where position, found bool, err error) {
	err = s.look(func(transaction *badger.Txn) (err error) {
		where, found, err = findIn(transaction, of(rowRun, s.runs.list()), id)
		return err
	})
	if found || err != nil || !s.legacyIndex {
		return where, found, err
	}
	err = s.view(func(transaction *badger.Txn) error {
		value, err := get(transaction, indexKey(id))
		if errors.Is(err, errMissing) {
			return nil
		}
		if err == nil {
			where, err = decodePosition(value)
		}
		found = err == nil && where.kind != indexVoid
		return err
	})
	return where, found, err
}

// findIn looks up an id in runs, the newest first.
func findIn(transaction *badger.Txn, runs []*run, id ledger.Hash) (where position,
	found bool, err error) {
	for i := len(runs) - 1; i >= 0 && !found && err == nil; i-- {
		if runs[i].filter.mayHave(id[:]) {
			where, found, err = runs[i].find(transaction, id)
		}
	}
	return where, found, err
}

// find looks up an id in the chunks that may have it: the last one that begins before it, and any
// that begin with its first bytes.
func (r *run) find(transaction *badger.Txn, id ledger.Hash) (where position, found bool,
	err error) {
	short := shortID(id)
	at, _ := slices.BinarySearch(r.fences, short)
	for at = max(at, 1) - 1; at < len(r.fences) && r.fences[at] <= short; at++ {
		key := r.chunkKey(uint64(at), nil)
		item, err := transaction.Get(key)
		if errors.Is(err, badger.ErrKeyNotFound) {
			return position{}, false, errMissing
		}
		if err == nil {
			err = item.Value(func(sealed []byte) error {
				chunk, err := unseal(key, sealed)
				if err == nil {
					where, found, err = findRecord(chunk, id)
				}
				return err
			})
		}
		if err != nil || found {
			return where, found, err
		}
	}
	return position{}, false, nil
}

// findRecord looks up an id in a chunk.
func findRecord(chunk []byte, id ledger.Hash) (where position, found bool,
	err error) {
	if len(chunk) == 0 || len(chunk)%recordSize != 0 {
		return position{}, false, errRow
	}
	low, high := 0, len(chunk)/recordSize
	for low < high {
		middle := (low + high) / 2
		if bytes.Compare(chunk[middle*recordSize:][:ledger.HashSize], id[:]) < 0 {
			low = middle + 1
		} else {
			high = middle
		}
	}
	if low*recordSize == len(chunk) {
		return position{}, false, nil
	}
	// The first record that is not before the id is its own, or that of its packed bundle.
	at := decodeRecord(chunk[low*recordSize:])
	at.where.lapse = 0
	if !at.where.packed {
		return at.where, at.id == id, nil
	}
	first, place := ledger.PackedPlace(id)
	bundle, _ := ledger.PackedPlace(at.id)
	at.where.index, at.where.packed = at.where.index+uint32(place), false
	return at.where, first == bundle, nil
}

// loadIndex reads the index, checks that it has as many transactions and blocks as the chain,
// collects the ids of failed transactions, and removes what a crash left above the head.
func (s *Store) loadIndex(height ledger.Height, remains *badger.WriteBatch) error {
	s.failed = newFailedIDs()
	s.failed.now = periodOf(s.head.Header.Time)
	count := &indexCount{store: s, height: height}
	if err := s.loadIDs(count); err != nil {
		return err
	}
	if err := s.loadLegacyIndex(count, remains); err != nil {
		return err
	}
	if count.transactions != s.head.Header.Total || count.blocks != uint64(height) {
		return damaged(height, "the index has %d transactions and %d blocks; the chain has %d "+
			"and %d", count.transactions, count.blocks, s.head.Header.Total, height)
	}
	return nil
}

// indexCount counts what the index has.
type indexCount struct {
	store                *Store
	height               ledger.Height
	transactions, blocks uint64
}

func (c *indexCount) take(id ledger.Hash, where position) {
	switch where.kind {
	case indexBlock:
		c.blocks++
		return
	case indexFailed:
		c.store.failed.add(shortID(id))
	}
	c.transactions++
}

// loadIDs reads the guides of all runs of ids, and the rows of those that have none, or of which
// the database may have lost rows.
func (s *Store) loadIDs(count *indexCount) error {
	runs := s.runs.list()
	return s.db.View(func(transaction *badger.Txn) error {
		for _, r := range of(rowRun, runs) {
			if err := s.loadRun(transaction, r, runs, count.height); err != nil {
				return err
			}
			count.transactions += r.transactions
			count.blocks += r.blocks
		}
		return nil
	})
}

// loadLegacyIndex reads the rows of single ids, and voids those of blocks above the head.
func (s *Store) loadLegacyIndex(count *indexCount, remains *badger.WriteBatch) error {
	return s.eachRow(rowIndex, func(key, value []byte) error {
		s.legacyIndex = true
		where, err := decodePosition(value)
		if err != nil || len(key) != 1+ledger.HashSize {
			return damaged(count.height, "index row %x: malformed", key)
		}
		switch {
		case where.kind == indexVoid:
			return nil
		case where.height > count.height:
			key := bytes.Clone(key)
			return remains.Set(key, seal(key, position{height: count.height,
				kind: indexVoid}.append(nil)))
		}
		count.take(ledger.Hash(key[1:]), where)
		return nil
	})
}
