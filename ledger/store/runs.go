package store

import (
	"encoding/binary"
	"errors"
	"slices"
	"sync/atomic"

	"github.com/dgraph-io/badger/v4"

	"github.com/ledgerd/ledgerd/ledger"
)

// A run is a sorted sequence of records, cut into chunks of one row each. A checkpoint writes one
// run of each kind for its layer, and runs are merged behind (merge.go). The row of runs names all
// of them. It is written together with the head row, so the runs always have what the blocks up to
// the head did, and nothing else.
//
// Of records with the same key in several runs, the one in the newest run counts.
type run struct {
	kind   runKind
	number uint64
	level  uint8
	// records is the number of the run's records, bytes that of the bytes in its rows.
	records, bytes uint64

	// Of a run of ids, memory has its guide (guide.go): the first bytes of each chunk's first id,
	// of one that is not large a Bloom filter, and counts.
	fences []uint64
	filter idFilter
	count
	// failed has the first bytes of the ids of failed transactions until the guide is on its way
	// to the disk. lapsing has those that have a deadline that was not over when the run was made.
	// spans find them.
	failed  []uint64
	lapsing []lapsing
	spans   spans

	// Of a run of entries, memory has its guide (entryguide.go): the first keys of its chunks, and
	// in filter a Bloom filter. keys finds what the filter takes for the keys, until the guide is
	// on its way to the disk.
	starts keyList
	keys   filterKeys
}

// runKind is what a run has: the kind of its rows.
type runKind byte

// runKinds are the kinds of runs.
var runKinds = []runKind{rowRun, rowSteps, rowEntries}

// chunkBytes is the size at which a chunk of records of any length ends.
const chunkBytes = 8 << 10

// fanOutDefault is how many runs of a level are merged into one of the next level.
const fanOutDefault = 8

// runSet are the runs that the row of runs names.
type runSet struct {
	// runs is a slice that is never changed, but replaced. It is in the order of age within each
	// kind, the oldest first. The writer replaces it.
	runs atomic.Pointer[[]*run]
	// next is the number of the next run.
	next atomic.Uint64
}

func (x *runSet) list() []*run {
	if list := x.runs.Load(); list != nil {
		return *list
	}
	return nil
}

// find returns the run with a number, or nil if the row of runs does not name it.
func (x *runSet) find(number uint64) *run {
	list := x.list()
	at := slices.IndexFunc(list, func(r *run) bool { return r.number == number })
	if at < 0 {
		return nil
	}
	return list[at]
}

// look reads from the runs in the database. It reads again if a row was missing: a run may have
// been made after the transaction began, or have been merged and removed before it. Then another
// look finds its records. Rows that are missing while the runs stay the same are lost.
func (s *Store) look(read func(transaction *badger.Txn) error) error {
	for again := false; ; again = true {
		runs := s.runs.runs.Load()
		err := s.view(read)
		s.options.onLook()
		if !errors.Is(err, errMissing) || again && runs == s.runs.runs.Load() {
			return err
		}
	}
}

// of returns the runs of a kind, the oldest first.
func of(kind runKind, runs []*run) []*run {
	var some []*run
	for _, r := range runs {
		if r.kind == kind {
			some = append(some, r)
		}
	}
	return some
}

// prefix begins the keys of the run's rows.
func (r *run) prefix() []byte { return runPrefix(r.kind, r.number) }

func runPrefix(kind runKind, number uint64) []byte {
	return binary.BigEndian.AppendUint64([]byte{byte(kind)}, number)
}

const runPrefixSize = 1 + 8

// chunkKey returns the key of the run's next row. In a run of ids it has the chunk's number: memory
// knows the first ids. In others it has the first key, so that the database finds the chunk.
func (r *run) chunkKey(chunk uint64, first []byte) []byte {
	if r.kind == rowRun {
		return binary.BigEndian.AppendUint32(r.prefix(), uint32(chunk))
	}
	return append(r.prefix(), first...)
}

// appendRecord appends a record to a chunk: in a run of ids, with a fixed length; in others, the
// key and the value after their lengths.
func (k runKind) appendRecord(to, key, value []byte) []byte {
	if k != rowRun {
		to = binary.AppendUvarint(binary.AppendUvarint(to, uint64(len(key))), uint64(len(value)))
	}
	return append(append(to, key...), value...)
}

// cut returns the first record of a chunk, and the rest of the chunk.
func (k runKind) cut(chunk []byte) (key, value, rest []byte, err error) {
	lengths := [2]uint64{ledger.HashSize, recordSize - ledger.HashSize}
	if k != rowRun {
		for i := range lengths {
			var size int
			if lengths[i], size = binary.Uvarint(chunk); size <= 0 {
				return nil, nil, nil, errRow
			}
			chunk = chunk[size:]
		}
	}
	all := uint64(len(chunk))
	if lengths[0] == 0 || lengths[0] > all || lengths[1] > all-lengths[0] {
		return nil, nil, nil, errRow
	}
	end := lengths[0] + lengths[1]
	return chunk[:lengths[0]], chunk[lengths[0]:end], chunk[end:], nil
}

// runWriter writes the chunks of a run, whose records come in order.
type runWriter struct {
	run    *run
	put    putRow
	chunks uint64
	chunk  []byte
	first  []byte // the first key of the chunk
	// count is the number of records in the chunk, bytes the size at which one ends.
	count, bytes int
	packer       packer
}

// newRunWriter begins a run of at most the expected number of records.
func (s *Store) newRunWriter(kind runKind, level uint8, expected uint64, put putRow) *runWriter {
	w := &runWriter{put: put, bytes: s.options.chunkBytes,
		run: &run{kind: kind, number: s.runs.next.Add(1) - 1, level: level}}
	w.run.expect(expected)
	if kind == rowRun {
		s.mutex.RLock()
		w.run.spans = s.settledSpans
		s.mutex.RUnlock()
	}
	return w
}

// add adds a record. It keeps neither the key nor the value.
func (w *runWriter) add(key, value []byte) error {
	if w.full(len(key) + len(value)) {
		if err := w.flush(); err != nil {
			return err
		}
	}
	if w.count == 0 {
		w.first = append(w.first[:0], key...)
		if w.run.kind == rowEntries && !w.run.starts.add(key) {
			return errRow
		}
		if size := w.size(len(key)+len(value)) + checksumSize; cap(w.chunk) < size {
			w.chunk = make([]byte, 0, size)
		}
	}
	w.chunk = w.run.kind.appendRecord(w.chunk, key, value)
	w.count++
	w.run.note(key, value)
	return nil
}

// full reports whether a chunk ends before a record of this size.
func (w *runWriter) full(size int) bool {
	if w.run.kind == rowRun {
		return w.count == chunkOf
	}
	return w.count > 0 && len(w.chunk)+size > w.bytes
}

// size returns a capacity for a chunk that begins with a record of this size.
func (w *runWriter) size(first int) int {
	if w.run.kind == rowRun {
		return chunkOf * recordSize
	}
	return max(w.bytes, first) + 2*binary.MaxVarintLen32
}

// finish writes what is left after the last record: the last chunk, and the guide of a run of ids
// or entries.
func (w *runWriter) finish(s *Store) error {
	if err := w.flush(); err != nil || w.run.kind == rowSteps || w.run.records == 0 {
		return err
	}
	return s.putGuide(w.run, w.put)
}

// flush writes the chunk that is being filled.
func (w *runWriter) flush() error {
	if w.count == 0 {
		return nil
	}
	key, value := w.run.chunkKey(w.chunks, w.first), w.chunk
	if w.run.kind == rowRun {
		w.chunk = nil
	} else {
		value, w.chunk = w.packer.packChunk(w.run.kind, w.chunk), w.chunk[:0]
	}
	w.count, w.chunks = 0, w.chunks+1
	w.run.bytes += uint64(len(value))
	return w.put(w.run.kind.step(), key, value)
}

// step names the writing of a run's row.
func (k runKind) step() string {
	switch k {
	case rowSteps:
		return "history"
	case rowEntries:
		return "state"
	}
	return "run"
}

// The row of runs holds the number of the next run, and of each run its kind, number, level,
// number of records and number of bytes.
const runsRowSize = 1 + 8 + 1 + 8 + 8

func runsRow(next uint64, runs []*run) []byte {
	to := binary.BigEndian.AppendUint64(nil, next)
	for _, r := range runs {
		to = binary.BigEndian.AppendUint64(append(to, byte(r.kind)), r.number)
		to = binary.BigEndian.AppendUint64(append(to, r.level), r.records)
		to = binary.BigEndian.AppendUint64(to, r.bytes)
	}
	return to
}

func decodeRunsRow(value []byte) (next uint64, runs []*run, err error) {
	if len(value) < 8 || (len(value)-8)%runsRowSize != 0 {
		return 0, nil, errRow
	}
	next = binary.BigEndian.Uint64(value)
	for value = value[8:]; len(value) > 0; value = value[runsRowSize:] {
		r := &run{kind: runKind(value[0]), number: binary.BigEndian.Uint64(value[1:]),
			level: value[9], records: binary.BigEndian.Uint64(value[10:]),
			bytes: binary.BigEndian.Uint64(value[18:])}
		if r.number >= next || !slices.Contains(runKinds, r.kind) {
			return 0, nil, errRow
		}
		runs = append(runs, r)
	}
	return next, runs, nil
}

// readRuns reads the row of runs. A store from before there were runs has none.
func readRuns(transaction *badger.Txn) (next uint64, named []*run, err error) {
	value, err := get(transaction, []byte{rowRuns})
	if errors.Is(err, errMissing) {
		return 0, nil, nil
	}
	if err == nil {
		next, named, err = decodeRunsRow(value)
	}
	return next, named, err
}

// loadRuns reads the row of runs.
func (s *Store) loadRuns(height ledger.Height) error {
	return s.db.View(func(transaction *badger.Txn) error {
		next, named, err := readRuns(transaction)
		if err != nil {
			return damaged(height, "the row of runs: %v", err)
		}
		s.runs.next.Store(next)
		s.runs.runs.Store(&named)
		s.left.runs, s.left.next = make(map[uint64]runKind), next
		for _, r := range named {
			s.left.runs[r.number] = r.kind
		}
		return nil
	})
}

// removeRemains removes the rows that a crash left of runs that were being made, because the next
// runs get their numbers. The batch may write some of them at once. So everything that Open checks
// must be in order before.
func (s *Store) removeRemains(height ledger.Height, remains *badger.WriteBatch) error {
	next := s.runs.next.Load()
	return s.db.View(func(transaction *badger.Txn) error {
		for _, kind := range runRows {
			err := eachRowFrom(transaction, runPrefix(kind, next), remains.Delete)
			if err != nil {
				return damaged(height, "the runs: %v", err)
			}
		}
		// Other blocks may take the places of those above the head.
		return eachRowFrom(transaction, heightKey(rowHashes, height+1), remains.Delete)
	})
}

// runRows are the kinds of rows that belong to runs.
var runRows = append([]runKind{rowGuide}, runKinds...)

// eachRowFrom visits the keys of the rows of the kind of a key, from that key on.
func eachRowFrom(transaction *badger.Txn, from []byte, visit func(key []byte) error) error {
	settings := badger.DefaultIteratorOptions
	settings.PrefetchValues, settings.Prefix = false, from[:1]
	rows := transaction.NewIterator(settings)
	defer rows.Close()
	for rows.Seek(from); rows.Valid(); rows.Next() {
		if err := visit(rows.Item().KeyCopy(nil)); err != nil {
			return err
		}
	}
	return nil
}

// removeReplaced removes the rows of runs that the row of runs ceased to name before the store was
// opened: a process may end before it has removed them all. It is done behind, because the
// database passes each row that was removed before, one after the other.
func (s *Store) removeReplaced() error {
	pace := s.newPace()
	for _, kind := range runRows {
		for from := uint64(0); from < s.left.next; {
			var err error
			if from, err = s.removeSome(pace, kind, from); err != nil {
				return err
			}
		}
	}
	return nil
}

// removeSome removes some rows of a kind of runs that were replaced, from a number on. It returns
// the number from which to go on.
func (s *Store) removeSome(pace *pace, kind runKind, from uint64) (uint64, error) {
	batch := s.db.NewWriteBatch()
	defer batch.Cancel()
	err := s.db.View(func(transaction *badger.Txn) error {
		settings := badger.DefaultIteratorOptions
		settings.PrefetchValues, settings.Prefix = false, []byte{byte(kind)}
		rows := transaction.NewIterator(settings)
		defer rows.Close()
		rows.Seek(runPrefix(kind, from))
		for removed := 0; rows.Valid(); {
			key := rows.Item().KeyCopy(nil)
			if len(key) < runPrefixSize {
				return errRow
			}
			from = binary.BigEndian.Uint64(key[1:])
			if from >= s.left.next || removed == rowsPerCheck {
				return nil
			}
			if of, named := s.left.runs[from]; named && (of == kind || kind == rowGuide) {
				rows.Seek(runPrefix(kind, from+1)) // pass the whole run at once
				continue
			}
			s.options.onWrite("remove")
			if err := batch.Delete(key); err != nil {
				return err
			}
			removed++
			rows.Next()
		}
		from = s.left.next
		return nil
	})
	if err == nil {
		err = s.awaitDescriptors()
	}
	if err == nil {
		err = batch.Flush()
	}
	if err == nil {
		err = pace.step()
	}
	return from, err
}
