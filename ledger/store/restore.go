package store

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/dgraph-io/badger/v4"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/state"
)

// partialSuffix is appended to the name of a store's folder while the store is being restored.
const partialSuffix = ".partial"

// restoreSpaceEvery is the number of blocks or entries between two checks of the free space.
const restoreSpaceEvery = 4096

// Restore makes a store from a snapshot in dir, which must be empty or not exist. It first reads
// which block the snapshot is of, and checks the certificates that prove from the genesis that the
// block is final. Then it calls trust. Unless the block is certified, trust must return an error if
// the chain does not have the block, because everything else is checked against its hash. A
// snapshot whose certificates do not hold is an ErrSnapshot. The store appears as a whole or
// not at all. It must then be opened with Open. Restore returns ErrSnapshot, ErrForeign,
// ErrDiskFull, ErrLocked, or the error of trust, the reader or ctx.
func Restore(ctx context.Context, dir string, genesis *ledger.Genesis, options Options,
	from io.Reader, trust func(height ledger.Height, hash ledger.Hash, certified bool) error) (
	head Head, err error) {
	if err := genesis.Validate(); err != nil {
		return Head{}, err
	}
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return Head{}, fmt.Errorf("store: %w", err)
	}
	if len(entries) > 0 {
		return Head{}, fmt.Errorf("%w: %s is not empty: a snapshot makes a new store; choose "+
			"another folder", ErrForeign, dir)
	}
	partial := dir + partialSuffix
	if err := os.RemoveAll(partial); err != nil {
		return Head{}, fmt.Errorf("store: %w", err)
	}
	if err := os.MkdirAll(partial, 0o700); err != nil {
		return Head{}, fmt.Errorf("store: %w", err)
	}
	r := &restoring{
		store: &Store{dir: partial, options: options.withDefaults(), genesis: genesis,
			chainID: genesis.Hash(), book: genesis.Book()},
		ctx: ctx, in: bufio.NewReaderSize(from, 64<<10),
	}
	if err := r.run(trust); err != nil {
		return Head{}, errors.Join(err, os.RemoveAll(partial))
	}
	if err := os.Rename(partial, dir); err != nil {
		return Head{}, fmt.Errorf("store: %w", err)
	}
	if err := syncDirectory(filepath.Dir(filepath.Clean(dir))); err != nil {
		return Head{}, fmt.Errorf("store: %w", err)
	}
	return headOf(r.head), nil
}

// restoring is a restore in progress.
type restoring struct {
	store *Store
	ctx   context.Context
	in    *bufio.Reader
	batch *badger.WriteBatch
	head  state.Parent
	// streamed are the positions of the streams to child shards as of the head (state.Legs).
	streamed []uint64
	taken    int
	buffer   []byte
	// ids are records of which no run is written yet, hashes those of every segmentLength-th block.
	// runs are those that are written.
	ids    []record
	hashes []ledger.Hash
	runs   []*run
	// magic is how the snapshot begins and ends. finality proves that its block is final; nil if
	// the snapshot has no certificates.
	magic    string
	finality *ledger.Finality
}

// run fills the folder, and closes all files in it.
func (r *restoring) run(trust func(ledger.Height, ledger.Hash, bool) error) (err error) {
	defer guard(1, &err)
	s := r.store
	s.changed, s.certifiedMore = sync.NewCond(&s.mutex), make(chan struct{})
	s.logs.dir = filepath.Join(s.dir, databaseFolder)
	if s.lock, err = lockFolder(s.dir); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.release()) }()
	height, hash, err := r.prefix()
	if err != nil {
		return err
	}
	if err := trust(height, hash, r.finality != nil); err != nil {
		return err
	}
	if err := s.requireSpace(0); err != nil {
		return err
	}
	if s.marker, err = createMarker(s.dir, s.chainID); err != nil {
		return err
	}
	if err := s.openDatabase(); err != nil {
		return err
	}
	r.batch = s.db.NewWriteBatch()
	defer func() { r.batch.Cancel() }()
	if err := r.blocks(height); err != nil {
		return err
	}
	if r.head.Hash != hash {
		return r.bad("block %d has hash %s, and should have %s", height, r.head.Hash, hash)
	}
	if err := r.entries(height); err != nil {
		return err
	}
	if err := r.certificates(height); err != nil {
		return err
	}
	return r.finish()
}

// finish writes the first and last rows, and makes everything durable.
func (r *restoring) finish() error {
	s := r.store
	for key, value := range map[byte][]byte{
		rowGenesis: s.genesis.Encode(),
		rowAbsent: missing{absent: r.head.Header.Height, unindexed: r.head.Header.Height,
			streamed: r.streamed}.row(),
		rowHead: headRow(r.head.Header.Height, r.head.Hash),
		rowRuns: runsRow(s.runs.next.Load(), r.runs),
	} {
		if err := r.put([]byte{key}, value); err != nil {
			return err
		}
	}
	if err := putHashes(segmentLength, r.hashes, r.putStep); err != nil {
		return err
	}
	if err := r.batch.Flush(); err != nil {
		return fmt.Errorf("store: database: %w", err)
	}
	if err := s.db.Sync(); err != nil {
		return fmt.Errorf("store: database: %w", err)
	}
	if err := s.fence(); err != nil {
		return err
	}
	header := &r.head.Header
	if err := s.marker.write(tip{genesis: s.chainID, height: header.Height, hash: r.head.Hash,
		total: header.Total}); err != nil {
		return err
	}
	return syncDirectory(s.dir)
}

func (r *restoring) bad(format string, arguments ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrSnapshot}, arguments...)...)
}

// read reads the next size bytes of the snapshot. They are valid until the next call.
func (r *restoring) read(size int) ([]byte, error) {
	if cap(r.buffer) < size {
		r.buffer = make([]byte, size)
	}
	r.buffer = r.buffer[:size]
	_, err := io.ReadFull(r.in, r.buffer)
	return r.buffer, r.cut(err)
}

// cut returns an error for a failure of the reader. It reports an early end as ErrSnapshot.
func (r *restoring) cut(err error) error {
	switch {
	case err == nil:
		return nil
	case r.ctx.Err() != nil:
		return r.ctx.Err()
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return r.bad("cut short")
	}
	return fmt.Errorf("store: reading a snapshot: %w", err)
}

// put adds a row to the database.
func (r *restoring) put(key, value []byte) error {
	if err := r.batch.Set(key, seal(key, value)); err != nil {
		return fmt.Errorf("store: database: %w", err)
	}
	return nil
}

// flush gives the rows so far to the database, so that they can be read.
func (r *restoring) flush() error {
	if err := r.batch.Flush(); err != nil {
		return fmt.Errorf("store: database: %w", err)
	}
	r.batch = r.store.db.NewWriteBatch()
	return nil
}

// goOn returns an error if the restore must stop.
func (r *restoring) goOn() error {
	if r.taken++; r.taken%restoreSpaceEvery == 0 {
		if err := r.store.requireSpace(0); err != nil {
			return err
		}
	}
	return r.ctx.Err()
}

// prefix reads the height and hash of the snapshot's block.
func (r *restoring) prefix() (ledger.Height, ledger.Hash, error) {
	prefix, err := r.read(len(snapshotMagic) + 2*ledger.HashSize + 8)
	if err != nil {
		return 0, ledger.Hash{}, err
	}
	r.magic = string(prefix[:len(snapshotMagic)])
	if r.magic != snapshotMagic && r.magic != certifiedSnapshotMagic {
		return 0, ledger.Hash{}, r.bad("it does not begin like a snapshot")
	}
	prefix = prefix[len(snapshotMagic):]
	if chain := ledger.Hash(prefix[:ledger.HashSize]); chain != r.store.chainID {
		return 0, ledger.Hash{}, r.bad("it is of the chain with genesis %s, not %s", chain,
			r.store.chainID)
	}
	height, hash, err := decodeHeadRow(prefix[ledger.HashSize:])
	if err != nil || height == 0 {
		return 0, ledger.Hash{}, r.bad("it is of block %d", height)
	}
	if r.magic == certifiedSnapshotMagic {
		encoded, err := r.text(ledger.MaxFinalityBytes)
		if err != nil {
			return 0, ledger.Hash{}, err
		}
		if r.finality, err = ledger.DecodeFinality(bytes.Clone(encoded)); err != nil {
			return 0, ledger.Hash{}, r.bad("%v", err)
		}
		if err := ledger.NewAuditor(r.store.genesis).Verify(r.finality, height, hash); err != nil {
			return 0, ledger.Hash{}, r.bad("%v", err)
		}
	}
	return height, hash, nil
}

// certificates writes the certificates of the snapshot that are of its blocks.
func (r *restoring) certificates(height ledger.Height) error {
	if r.finality == nil {
		return nil
	}
	for _, c := range append(slices.Clone(r.finality.Changes), r.finality.Certificate) {
		if c.Height > height {
			continue
		}
		if err := r.put(heightKey(rowCertificate, c.Height), c.Encode()); err != nil {
			return err
		}
	}
	return nil
}

// blocks reads the headers, ids and results of all blocks. Each must follow the previous one.
func (r *restoring) blocks(height ledger.Height) error {
	r.head = state.Parent{Header: r.store.genesis.Block().Header, Hash: r.store.chainID}
	for next := ledger.Height(1); next <= height; next++ {
		if err := r.goOn(); err != nil {
			return err
		}
		if err := r.block(next, height); err != nil {
			return err
		}
	}
	return nil
}

// block reads what the snapshot has of a block. last is the height of its last one.
func (r *restoring) block(height, last ledger.Height) error {
	row, err := r.read(ledger.HeaderSize + 8)
	if err != nil {
		return err
	}
	header, length, err := decodeHeaderRow(row)
	if err != nil {
		return r.bad("block %d: %v", height, err)
	}
	if header.Height != height || header.Previous != r.head.Hash ||
		header.Total != r.head.Header.Total+uint64(header.Transactions) ||
		header.Transactions > ledger.MaxBlockTransactions {
		return r.bad("block %d does not follow block %d", height, height-1)
	}
	r.head = state.Parent{Header: header, Hash: header.Hash()}
	r.store.failed.advance(&header)
	if err := r.put(heightKey(rowHeader, height),
		headerRow(header.Encode(), int(length))); err != nil {
		return err
	}
	encoded, err := r.outline(&header)
	if err != nil {
		return err
	}
	outline, err := ledger.DecodeOutline(&header, encoded)
	if err != nil {
		return r.bad("block %d: %v", height, err)
	}
	for i := range outline {
		entry := &outline[i]
		r.ids = append(r.ids, record{entry.ID, position{height: height, index: entry.Index,
			kind: indexKind(entry.Result), packed: entry.Transfers > 0,
			lapse: lapseInOutline(r.store.genesis, entry.Result)}})
	}
	err = r.store.eachChunk(encoded, func(chunk int, part []byte) error {
		return r.put(chunkKey(rowOutline, height, chunk), part)
	})
	if err != nil {
		return err
	}
	if height%segmentLength == 0 {
		r.hashes = append(r.hashes, r.head.Hash)
	}
	r.ids = append(r.ids, record{r.head.Hash, position{height: height, kind: indexBlock}})
	if len(r.ids) < r.store.options.idsPerRun && height < last {
		return nil
	}
	return r.idRun()
}

// outline reads the outline of a block.
func (r *restoring) outline(header *ledger.Header) ([]byte, error) {
	var prefix []byte
	if header.ByBundle {
		read, err := r.read(ledger.OutlinePrefix)
		if err != nil {
			return nil, err
		}
		prefix = bytes.Clone(read)
	}
	size, err := ledger.OutlineSize(header, prefix)
	if err != nil {
		return nil, r.bad("block %d: %v", header.Height, err)
	}
	outline := prefix
	for len(outline) < size { // in parts, so that memory is only taken for what is there
		part, err := r.read(min(size-len(outline), 1<<20))
		if err != nil {
			return nil, err
		}
		outline = append(outline, part...)
	}
	return outline, nil
}

// idsPerRunDefault is the number of records at which a run of ids ends that is made from a
// snapshot. One that was merged once has as many.
const idsPerRunDefault = 128 << 10

// idRun writes the records that came as a run.
func (r *restoring) idRun() error {
	slices.SortFunc(r.ids, func(a, b record) int { return bytes.Compare(a.id[:], b.id[:]) })
	w := r.store.newRunWriter(rowRun, 1, uint64(len(r.ids)), r.putStep)
	w.run.spans = r.store.failed.spans
	for i := range r.ids {
		value := r.ids[i].value()
		if i > 0 && r.ids[i].id == r.ids[i-1].id {
			return r.bad("%s is there twice", r.ids[i].id)
		}
		if err := w.add(r.ids[i].id[:], value[:]); err != nil {
			return err
		}
	}
	if err := w.finish(r.store); err != nil {
		return err
	}
	w.run.fences, w.run.filter = nil, nil // Open reads them again
	r.runs, r.ids = append(r.runs, w.run), r.ids[:0]
	return nil
}

func (r *restoring) putStep(_ string, key, value []byte) error { return r.put(key, value) }

// entries reads the state and checks it against the last header. Its entries come in order, and
// become one run. They are checked as Open does it, once the database has them.
func (r *restoring) entries(height ledger.Height) error {
	w := r.store.newRunWriter(rowEntries, 0, 0, r.putStep)
	var last []byte
	for {
		if err := r.goOn(); err != nil {
			return err
		}
		key, err := r.text(maxStateKey)
		if err != nil {
			return err
		}
		if len(key) == 0 {
			break
		}
		if bytes.Compare(last, key) >= 0 {
			return r.bad("the entries of the state are not in order")
		}
		last = append(last[:0], key...)
		value, err := r.text(maxStateValue)
		if err != nil {
			return err
		}
		if len(value) == 0 {
			return r.bad("an entry of the state is empty")
		}
		if err := w.add(last, value); err != nil {
			return err
		}
	}
	if err := r.endEntries(w); err != nil {
		return err
	}
	if err := r.checkState(height); err != nil {
		return err
	}
	end, err := r.read(len(snapshotMagic))
	if err != nil {
		return err
	}
	if string(end) != r.magic {
		return r.bad("it does not end like a snapshot")
	}
	return nil
}

// checkState reads the state from the database, and checks it against the last header.
func (r *restoring) checkState(height ledger.Height) error {
	if err := r.flush(); err != nil {
		return err
	}
	r.store.head = r.head
	r.store.runs.runs.Store(&r.runs)
	var damage *DamageError
	if err := r.store.loadState(height, r.batch); errors.As(err, &damage) {
		return r.bad("%s", damage.Reason)
	} else if err != nil {
		return err
	}
	for _, leg := range r.store.state.Legs() {
		r.streamed = append(r.streamed, leg.Last)
	}
	// Open reads the state again, but not all accounts if their leaves are in a file.
	if r.store.beginLeaves(height, r.head.Hash); r.store.leaves.wanted {
		r.store.tryBase(nil)
	}
	r.store.state = nil
	return nil
}

// endEntries completes the run of the state. Its level is that of a run of this size that was
// merged. How many entries a snapshot has is known only at its end. So the run's filter, whose size
// follows from that, is made from the rows that the database has then.
func (r *restoring) endEntries(w *runWriter) error {
	if err := w.flush(); err != nil || w.run.records == 0 {
		return err
	}
	if err := r.flush(); err != nil {
		return err
	}
	err := r.store.db.View(func(transaction *badger.Txn) error {
		return r.store.makeEntriesGuide(transaction, w.run)
	})
	if err == nil {
		err = r.store.putGuide(w.run, r.putStep)
	}
	if err != nil {
		return fmt.Errorf("store: the guide of the state: %w", err)
	}
	for size := w.run.bytes; size > uint64(r.store.options.CheckpointBytes); size /= fanOutDefault {
		w.run.level++
	}
	r.runs = append(r.runs, w.run)
	return nil
}

// text reads a byte string after its length.
func (r *restoring) text(most uint64) ([]byte, error) {
	length, err := binary.ReadUvarint(r.in)
	if err != nil {
		return nil, r.cut(err)
	}
	if length > most {
		return nil, r.bad("an entry has a part of %d bytes, which is too large", length)
	}
	return r.read(int(length))
}
