package store

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"slices"
	"sync/atomic"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/ristretto/v2/z"

	"github.com/ledgerd/ledgerd/ledger"
)

// The index finds transactions by their ids and blocks by their hashes. It is a set of sorted runs.
// A checkpoint writes one run, with the ids of its layer; runs are merged behind (merge.go). A run
// is cut into chunks of one row each. Memory has the first id of each chunk, and for the small runs
// a Bloom filter, so that a look-up reads one row of the run that has the id, and few others.
const (
	// recordSize is the size of an id in a run: the id, the height from the lowest one in the run,
	// and the place in the block with the kind in its highest bits.
	recordSize  = ledger.HashSize + 4 + 4
	kindShift   = 30
	placeMask   = 1<<kindShift - 1
	chunkOf     = 64 // records in a chunk
	filterBound = 4 << 20
	filterError = 0.01
)

// fanOutDefault is how many runs of a level are merged into one of the next level.
const fanOutDefault = 8

// run is a sorted run. All but its fields for look-ups are in the row of runs.
type run struct {
	number uint64
	level  uint8
	// first is the lowest height of the run's blocks, records the number of its records.
	first   ledger.Height
	records uint64

	// fences are the first bytes of each chunk's first id. filter is nil in a large run.
	fences []uint64
	filter *z.Bloom
}

func (r *run) chunks() uint64 { return (r.records + chunkOf - 1) / chunkOf }

// index is the store's index as it is in the database.
type index struct {
	// runs is a slice that is never changed, but replaced. The writer and the merger replace it.
	runs atomic.Pointer[[]*run]
	// next is the number of the next run. legacy says that there may be rows of single ids, from
	// before there were runs or from a snapshot.
	next   atomic.Uint64
	legacy bool
}

func (x *index) list() []*run {
	if list := x.runs.Load(); list != nil {
		return *list
	}
	return nil
}

func runKey(number, chunk uint64) []byte {
	key := binary.BigEndian.AppendUint64([]byte{rowRun}, number)
	return binary.BigEndian.AppendUint32(key, uint32(chunk))
}

// record is an entry of a run.
type record struct {
	id    ledger.Hash
	where position
}

func (r *record) append(to []byte, first ledger.Height) []byte {
	to = append(to, r.id[:]...)
	to = binary.BigEndian.AppendUint32(to, uint32(r.where.height-first))
	return binary.BigEndian.AppendUint32(to, r.where.index|uint32(r.where.kind)<<kindShift)
}

func decodeRecord(from []byte, first ledger.Height) record {
	place := binary.BigEndian.Uint32(from[ledger.HashSize+4:])
	return record{id: ledger.Hash(from), where: position{
		height: first + ledger.Height(binary.BigEndian.Uint32(from[ledger.HashSize:])),
		index:  place & placeMask, kind: byte(place >> kindShift)}}
}

// recordsOf returns the sorted records of a row of blocks.
func recordsOf(blocks []*pendingBlock) []record {
	count := len(blocks)
	for _, pending := range blocks {
		count += len(pending.block.Entries)
	}
	records := make([]record, 0, count)
	for _, pending := range blocks {
		block, height := pending.block, pending.block.Header.Height
		for i := range block.Entries {
			records = append(records, record{block.Entries[i].ID, position{height: height,
				index: uint32(i), kind: indexKind(block.Entries[i].Result)}})
		}
		records = append(records, record{block.Hash, position{height: height, kind: indexBlock}})
	}
	slices.SortFunc(records, func(a, b record) int {
		// The first bytes decide almost always, and are quick to compare.
		return cmp.Or(cmp.Compare(shortID(a.id), shortID(b.id)), bytes.Compare(a.id[:], b.id[:]))
	})
	return records
}

// runWriter writes the chunks of a run, whose records come in order.
type runWriter struct {
	run     *run
	put     putRow
	chunk   []byte
	pending int
}

func newRunWriter(number uint64, level uint8, first ledger.Height, expected uint64,
	put putRow) *runWriter {
	w := &runWriter{run: &run{number: number, level: level, first: first}, put: put}
	w.run.expect(expected)
	return w
}

// expect makes the filter of a run that will have this many records.
func (r *run) expect(records uint64) {
	if records <= filterBound {
		r.filter = z.NewBloomFilter(float64(max(records, 1)), filterError)
	}
}

// note adds an id to what memory has of a run.
func (r *run) note(id ledger.Hash) {
	if r.records%chunkOf == 0 {
		r.fences = append(r.fences, shortID(id))
	}
	if r.filter != nil {
		r.filter.Add(binary.BigEndian.Uint64(id[8:]))
	}
	r.records++
}

func (w *runWriter) add(r *record) error {
	if w.chunk == nil {
		w.chunk = make([]byte, 0, chunkOf*recordSize+checksumSize)
	}
	w.chunk = r.append(w.chunk, w.run.first)
	w.run.note(r.id)
	if w.pending++; w.pending == chunkOf {
		return w.flush()
	}
	return nil
}

// flush writes the chunk that is being filled. It must be called after the last record.
func (w *runWriter) flush() error {
	if w.pending == 0 {
		return nil
	}
	value := w.chunk
	w.chunk, w.pending = nil, 0
	return w.put("run", runKey(w.run.number, uint64(len(w.run.fences))-1), value)
}

// find looks up an id in the database.
func (s *Store) find(id ledger.Hash) (where position, found bool, err error) {
	for attempt := 0; ; attempt++ {
		runs := s.index.runs.Load()
		err = s.db.View(func(transaction *badger.Txn) (err error) {
			where, found, err = findIn(transaction, s.index.list(), id)
			return err
		})
		// A run may have been made after the transaction began, or have been merged and removed
		// before it. Then another look finds its records.
		if !errors.Is(err, errMissing) || attempt > 0 && runs == s.index.runs.Load() {
			break
		}
	}
	if found || err != nil || !s.index.legacy {
		return where, found, err
	}
	err = s.db.View(func(transaction *badger.Txn) error {
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
		if filter := runs[i].filter; filter != nil &&
			!filter.Has(binary.BigEndian.Uint64(id[8:])) {
			continue
		}
		where, found, err = runs[i].find(transaction, id)
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
		key := runKey(r.number, uint64(at))
		item, err := transaction.Get(key)
		if errors.Is(err, badger.ErrKeyNotFound) {
			return position{}, false, errMissing
		}
		if err == nil {
			err = item.Value(func(sealed []byte) error {
				chunk, err := unseal(key, sealed)
				if err == nil {
					where, found, err = findRecord(chunk, r.first, id)
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
func findRecord(chunk []byte, first ledger.Height, id ledger.Hash) (where position, found bool,
	err error) {
	if len(chunk) == 0 || len(chunk)%recordSize != 0 {
		return position{}, false, errRow
	}
	low, high := 0, len(chunk)/recordSize
	for low < high {
		middle := (low + high) / 2
		at := chunk[middle*recordSize:]
		switch bytes.Compare(at[:ledger.HashSize], id[:]) {
		case 0:
			return decodeRecord(at, first).where, true, nil
		case -1:
			low = middle + 1
		default:
			high = middle
		}
	}
	return position{}, false, nil
}

// The row of runs holds the number of the next run, and of each run its number, level, lowest
// height and number of records.
const runsRowSize = 8 + 1 + 8 + 8

func runsRow(next uint64, runs []*run) []byte {
	to := binary.BigEndian.AppendUint64(nil, next)
	for _, r := range runs {
		to = binary.BigEndian.AppendUint64(to, r.number)
		to = append(to, r.level)
		to = binary.BigEndian.AppendUint64(to, uint64(r.first))
		to = binary.BigEndian.AppendUint64(to, r.records)
	}
	return to
}

func decodeRunsRow(value []byte) (next uint64, runs []*run, err error) {
	if len(value) < 8 || (len(value)-8)%runsRowSize != 0 {
		return 0, nil, errRow
	}
	next = binary.BigEndian.Uint64(value)
	for value = value[8:]; len(value) > 0; value = value[runsRowSize:] {
		r := &run{number: binary.BigEndian.Uint64(value), level: value[8],
			first:   ledger.Height(binary.BigEndian.Uint64(value[9:])),
			records: binary.BigEndian.Uint64(value[17:])}
		if r.number >= next || r.records == 0 {
			return 0, nil, errRow
		}
		runs = append(runs, r)
	}
	return next, runs, nil
}

// loadIndex reads the index, checks that it has as many transactions and blocks as the chain,
// collects the ids of failed transactions, and removes what a crash left above the head.
func (s *Store) loadIndex(height ledger.Height, remains *badger.WriteBatch) error {
	s.failed = make(map[uint64]struct{})
	count := &indexCount{store: s, height: height}
	if err := s.loadRuns(count, remains); err != nil {
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
		c.store.failed[shortID(id)] = struct{}{}
	}
	c.transactions++
}

// loadRuns reads all runs that the row of runs names, and removes the rows of others: a crash left
// them before the row of runs named them, or after it ceased to.
func (s *Store) loadRuns(count *indexCount, remains *badger.WriteBatch) error {
	named, err := s.readRuns(count.height)
	if err != nil {
		return err
	}
	byNumber := make(map[uint64]*run, len(named))
	wanted := make(map[uint64]uint64, len(named))
	for _, r := range named {
		byNumber[r.number], wanted[r.number] = r, r.records
		r.expect(r.records)
		r.records = 0
	}
	var last ledger.Hash
	err = s.eachRow(rowRun, func(key, value []byte) error {
		if len(key) != 1+8+4 {
			return damaged(count.height, "row %x of the index: malformed key", key)
		}
		r := byNumber[binary.BigEndian.Uint64(key[1:])]
		if r == nil {
			return remains.Delete(bytes.Clone(key))
		}
		chunk := uint64(binary.BigEndian.Uint32(key[9:]))
		if chunk != r.records/chunkOf || r.records%chunkOf != 0 || len(value) == 0 ||
			len(value)%recordSize != 0 || len(value) > chunkOf*recordSize {
			return damaged(count.height, "row %x of the index: malformed", key)
		}
		for ; len(value) > 0; value = value[recordSize:] {
			record := decodeRecord(value, r.first)
			if r.records > 0 && bytes.Compare(last[:], record.id[:]) >= 0 ||
				record.where.height > count.height || record.where.kind >= indexVoid {
				return damaged(count.height, "row %x of the index: malformed", key)
			}
			last = record.id
			r.note(record.id)
			count.take(record.id, record.where)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, r := range named {
		if r.records != wanted[r.number] {
			return damaged(count.height, "run %d of the index has %d entries instead of %d",
				r.number, r.records, wanted[r.number])
		}
	}
	s.index.runs.Store(&named)
	return nil
}

// readRuns reads the row of runs. A store from before there were runs has none.
func (s *Store) readRuns(height ledger.Height) (named []*run, err error) {
	err = s.db.View(func(transaction *badger.Txn) error {
		value, err := get(transaction, []byte{rowRuns})
		if errors.Is(err, errMissing) {
			return nil
		}
		var next uint64
		if err == nil {
			next, named, err = decodeRunsRow(value)
		}
		if err != nil {
			return damaged(height, "the row of runs: %v", err)
		}
		s.index.next.Store(next)
		return nil
	})
	return named, err
}

// loadLegacyIndex reads the rows of single ids, and voids those of blocks above the head.
func (s *Store) loadLegacyIndex(count *indexCount, remains *badger.WriteBatch) error {
	return s.eachRow(rowIndex, func(key, value []byte) error {
		s.index.legacy = true
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
