package store

import (
	"errors"
	"fmt"

	"github.com/dgraph-io/badger/v4"

	"github.com/ledgerd/ledgerd/ledger"
)

// A store that began with a snapshot has the outlines of the blocks that are absent: the ids and
// results of their transactions, to which the headers commit. So it can pass them on in a snapshot
// of its own, and knows what result each of these transactions had.

// errNoOutlines reports that the store began with a snapshot under a version without outlines.
var errNoOutlines = fmt.Errorf("%w, and are not here", ErrAbsent)

// readOutline reads the outline of an absent block, and the body length in its header row. It
// returns errNoOutlines if there is no such outline.
func readOutline(transaction *badger.Txn, height ledger.Height) (header ledger.Header,
	outline []byte, length uint64, err error) {
	header, length, err = readHeader(transaction, height)
	if err != nil {
		return header, nil, 0, err
	}
	var begin []byte
	if header.Transactions > 0 || header.ByBundle {
		begin, err = get(transaction, chunkKey(rowOutline, height, 0))
		if errors.Is(err, errMissing) {
			return header, nil, 0, errNoOutlines
		}
	}
	var size int
	if err == nil {
		size, err = ledger.OutlineSize(&header, begin[:min(len(begin), ledger.OutlinePrefix)])
	}
	if err != nil {
		return header, nil, 0, damaged(height, "outline: %v", err)
	}
	outline, err = readChunks(transaction, rowOutline, height, uint64(size))
	return header, outline, length, err
}

// writeOutline writes the ids and results of an absent block, as the store's own snapshot had them.
func (w *snapshotWriter) writeOutline(height ledger.Height) error {
	header, outline, length, err := readOutline(w.transaction, height)
	if errors.Is(err, errNoOutlines) {
		return damaged(height, "outline: missing")
	}
	if err != nil {
		return err
	}
	if _, err := ledger.DecodeOutline(&header, outline); err != nil {
		return damaged(height, "outline: %v", err)
	}
	w.buffer = append(headerRow(header.Encode(), int(length)), outline...)
	_, err = w.out.Write(w.buffer)
	return err
}

// result returns the height of a transaction, and an entry with its id and result. If the block is
// absent, the entry has nothing else. It returns ErrNotFound if no block has the transaction, and
// ErrAbsent if neither the block nor its outline is here.
func (s *Store) result(id ledger.Hash) (height ledger.Height, entry *ledger.Entry, absent bool,
	err error) {
	found, err := s.Transaction(id)
	if errors.Is(err, ErrAbsent) {
		height, entry, err := s.outlined(id)
		if !errors.Is(err, errFilled) {
			return height, entry, true, err
		}
		found, err = s.Transaction(id)
		return found.Height, found.Entry, false, err
	}
	return found.Height, found.Entry, false, err
}

// errFilled reports that a block has been filled in while its outline was looked for.
var errFilled = errors.New("store: the block is no longer absent")

// outlined is result for a transaction of an absent block. It returns errFilled if the block is
// not absent any more.
func (s *Store) outlined(id ledger.Hash) (height ledger.Height, entry *ledger.Entry, err error) {
	where, found, err := s.locate(id)
	if err == nil && !found {
		err = fmt.Errorf("%w: transaction %s", ErrNotFound, id)
	}
	if err != nil {
		return 0, nil, err
	}
	height = where.height
	defer guard(height, &err)
	hash, err := s.hash(height)
	if err != nil {
		return 0, nil, err
	}
	err = s.view(func(transaction *badger.Txn) error {
		missing, err := readMissing(transaction, s.AppendedHeight())
		if err != nil {
			return err
		}
		if height > missing.absent {
			return errFilled
		}
		header, outline, _, err := readOutline(transaction, height)
		switch {
		case errors.Is(err, errNoOutlines):
			return s.errAbsent(height)
		case err != nil:
			return err
		case header.Hash() != hash:
			return damaged(height, "its header is not the one in the chain")
		}
		entries, err := ledger.DecodeOutline(&header, outline)
		switch {
		case err != nil:
			return damaged(height, "outline: %v", err)
		case int(where.index) >= len(entries) || entries[where.index].ID != id:
			return damaged(height, "the index says that transaction %d has id %s", where.index, id)
		}
		entry = &ledger.Entry{ID: id, Decoded: new(ledger.Transaction),
			Result: entries[where.index].Result}
		return nil
	})
	return height, entry, err
}
