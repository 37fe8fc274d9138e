package store

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/dgraph-io/badger/v4"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/state"
)

// A snapshot consists of: the magic; the genesis hash, and the height and hash of the snapshot's
// block; in version 2, the proof that this block is final, after its length (uvarint); for each
// block from 1, the header row (header and length of the encoded block), and the id
// and result of each of its transactions; for each entry of the state, the key and the value, each
// after its length (uvarint); an empty key; and the magic again.
const (
	snapshotMagic          = "ledgerd/snapshot/1\x00"
	certifiedSnapshotMagic = "ledgerd/snapshot/2\x00"
)

// certificateWait bounds how long a snapshot waits for the certificate of its block. In a chain
// whose members certify blocks it comes in a fraction of a second.
const certificateWait = 3 * time.Second

// Bounds of an entry of the state in a snapshot.
const (
	maxStateKey   = 1 << 10
	maxStateValue = 1 << 20
)

// WriteSnapshot writes a snapshot as of a block that is durable here, and returns that block.
// Blocks can be appended and filled in meanwhile. The memory that it needs does not grow with the
// state or the chain. If the chain has certificates, the snapshot has the one of its block. For
// absent blocks it uses the data of the snapshot that the store itself
// began with. It returns ErrNotFound if there is no block. It returns ErrAbsent, before it writes
// anything, if blocks are absent and the store began with a snapshot under a version of this
// package that did not keep that data.
func (s *Store) WriteSnapshot(ctx context.Context, to io.Writer) (head Head, err error) {
	if err := s.awaitWritten(s.AppendedHeight()); err != nil {
		return Head{}, err
	}
	if err := s.beginTask(); err != nil {
		return Head{}, err
	}
	defer s.tasks.Done()
	defer guard(1, &err)
	w := &snapshotWriter{store: s, ctx: ctx, out: bufio.NewWriterSize(to, 64<<10)}
	err = s.db.View(func(transaction *badger.Txn) error {
		w.transaction = transaction
		if err := w.write(); err != nil {
			return err
		}
		return w.out.Flush()
	})
	return headOf(w.head), err
}

// snapshotWriter writes one snapshot. It reads from one transaction of the database, which shows a
// consistent view.
type snapshotWriter struct {
	store       *Store
	ctx         context.Context
	transaction *badger.Txn
	out         *bufio.Writer
	head        state.Parent
	buffer      []byte
	// absent is the height up to which the store has only outlines of blocks.
	absent ledger.Height
}

// finality returns the encoded proof that the snapshot's block is final, or nil if there is none.
func (w *snapshotWriter) finality(height ledger.Height) ([]byte, error) {
	if w.store.CertifiedHeight() == 0 {
		return nil, nil
	}
	waiting, cancel := context.WithTimeout(w.ctx, certificateWait)
	defer cancel()
	if err := w.store.AwaitCertificate(waiting, height); err != nil {
		return nil, w.goOn()
	}
	finality, err := w.store.Finality(height)
	if errors.Is(err, ErrUncertified) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return finality.Encode(), nil
}

// goOn returns an error if the writer must stop.
func (w *snapshotWriter) goOn() error { return w.store.checkRunning(w.ctx) }

func (w *snapshotWriter) write() error {
	value, err := get(w.transaction, []byte{rowHead})
	if err != nil {
		return damaged(1, "head row: %v", err)
	}
	height, hash, err := decodeHeadRow(value)
	if err != nil {
		return damaged(1, "head row: %v", err)
	}
	if height == 0 {
		return fmt.Errorf("%w: there is no block to make a snapshot of", ErrNotFound)
	}
	missing, err := readMissing(w.transaction, height)
	if err != nil {
		return err
	}
	if w.absent = missing.absent; w.absent > 0 {
		// A store has the outlines of either all absent blocks or none.
		_, _, _, err := readOutline(w.transaction, 1)
		if errors.Is(err, errNoOutlines) {
			return fmt.Errorf("store: no snapshot can be made here yet: the blocks up to %d lie "+
				"%w: ask another node, or wait until this one has fetched them", w.absent, err)
		}
		if err != nil {
			return err
		}
	}
	magic := snapshotMagic
	finality, err := w.finality(height)
	if err != nil {
		return err
	}
	if finality != nil {
		magic = certifiedSnapshotMagic
	}
	w.buffer = append(append(w.buffer[:0], magic...), w.store.chainID[:]...)
	w.buffer = append(w.buffer, headRow(height, hash)...)
	if finality != nil {
		w.buffer = binary.AppendUvarint(w.buffer, uint64(len(finality)))
		w.buffer = append(w.buffer, finality...)
	}
	if _, err := w.out.Write(w.buffer); err != nil {
		return err
	}
	w.head = state.Parent{Header: w.store.genesis.Block().Header, Hash: w.store.chainID}
	for next := ledger.Height(1); next <= height; next++ {
		if err := w.writeBlock(next); err != nil {
			return err
		}
	}
	if w.head.Hash != hash {
		return damaged(height, "it has hash %s; the head row says %s", w.head.Hash, hash)
	}
	if err := w.writeState(height); err != nil {
		return err
	}
	_, err = w.out.WriteString(magic)
	return err
}

// writeBlock writes the header of a block, and the ids and results of its transactions.
func (w *snapshotWriter) writeBlock(height ledger.Height) error {
	if err := w.goOn(); err != nil {
		return err
	}
	header, length, err := readHeader(w.transaction, height)
	if err != nil {
		return err
	}
	if header.Previous != w.head.Hash {
		return damaged(height, "it does not follow block %d", height-1)
	}
	w.head = state.Parent{Header: header, Hash: header.Hash()}
	if height <= w.absent {
		return w.writeOutline(height)
	}
	encoded, err := readBody(w.transaction, height, length)
	if err != nil {
		return err
	}
	block, err := ledger.DecodeBlock(encoded)
	switch {
	case err != nil:
		return damaged(height, "%v", err)
	case block.Hash != w.head.Hash:
		return damaged(height, "its body belongs to another header")
	}
	w.buffer = append(w.buffer[:0], headerRow(header.Encode(), int(length))...)
	w.buffer = append(w.buffer, block.Outline()...)
	_, err = w.out.Write(w.buffer)
	return err
}

// writeState writes the state, which is that of the database's head.
func (w *snapshotWriter) writeState(height ledger.Height) error {
	_, runs, err := readRuns(w.transaction)
	if err != nil {
		return damaged(height, "the row of runs: %v", err)
	}
	sources := newMergedState(w.transaction, runs, nil)
	defer sources.close()
	for {
		if err := w.goOn(); err != nil {
			return err
		}
		key, value, more, err := sources.next()
		switch {
		case err != nil:
			return damaged(height, "the state: %v", err)
		case !more:
			return w.out.WriteByte(0)
		case len(value) == 0:
			continue
		}
		w.buffer = append(binary.AppendUvarint(w.buffer[:0], uint64(len(key))), key...)
		w.buffer = append(binary.AppendUvarint(w.buffer, uint64(len(value))), value...)
		if _, err := w.out.Write(w.buffer); err != nil {
			return err
		}
	}
}
