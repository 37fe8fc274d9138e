package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/bits"
	"slices"

	"github.com/dgraph-io/badger/v4"

	"github.com/ledgerd/ledgerd/ledger"
)

// A guide is what memory has of a run of ids: the first bytes of each chunk's first id, the Bloom
// filter, the counts, and the ids of failed transactions. It is written together with the run, so
// that Open reads the guide, which has a fiftieth of the run's bytes, and not the run. A run that
// an older version wrote has none; Open reads it whole, and writes its guide.
//
// A lost guide is no damage, because the run has all that it has. A malformed one is.

// count is what a guide says of a run besides the fences and the filter.
type count struct {
	// blocks is the number of records of blocks. The others are of transactions or packed bundles,
	// of which failures is the number of those that failed, or of which the first transfer did.
	// lapses is the number of failed ones that have a deadline, unless that is far ahead.
	blocks, failures, lapses uint64
	// transactions is how many transactions the records stand for.
	transactions uint64
	// highest is the height of the highest block of a record.
	highest ledger.Height
	// next is the number of the next run when the guide was made. All rows of runs from that number
	// on are newer than those of this run.
	next uint64
}

// tally counts a record of a run of ids. failed has the first bytes of the ids of failed
// transactions, until the guide is made.
func (r *run) tally(key, value []byte) {
	where := decodePlaceOf(value)
	r.transactions += transactionsOf(key, where)
	switch r.highest = max(r.highest, where.height); where.kind {
	case indexBlock:
		r.blocks++
	case indexFailed:
		r.failures++
		short := binary.BigEndian.Uint64(key)
		if where.lapse == 0 {
			r.failed = append(r.failed, short)
			return
		}
		r.lapses++
		if of, over := r.spans.until(where.height, where.lapse); !over {
			r.lapsing = append(r.lapsing, lapsing{short, of, where.lapse == lapseWithin})
		}
	}
}

// chunksOf returns the number of chunks of a run of ids with this many records.
func chunksOf(records uint64) uint64 { return (records + chunkOf - 1) / chunkOf }

// A guide begins with its version, the numbers of records and of bytes of the run, the number of
// the next run, the number of records of blocks, the height of the highest one, the number of
// failed transactions, that of all transactions and that of words of the filter. The fences, the
// first bytes of the failed ids and the filter follow. If some of the failed transactions have a
// deadline, the guide is of version 2. Then it has after the number of words of the filter the
// number of those transactions, and how many of them follow the failed ids: those whose deadlines
// were not over when the guide was made. Each has the first bytes of its id, and the period of the
// deadline, in which the highest bit is set if it is the last one that the deadline may be in. The
// failed ids are the others.
const (
	guideVersion   = 1
	guideHeadSize  = 1 + 8*8
	guideVersion2  = 2
	guideHeadSize2 = guideHeadSize + 2*8
)

// encodeGuide returns the guide of a run of ids that is complete.
func (r *run) encodeGuide() []byte {
	to := make([]byte, 0, guideHeadSize2+r.guideBytes())
	numbers := func(some ...uint64) {
		for _, number := range some {
			to = binary.BigEndian.AppendUint64(to, number)
		}
	}
	to = append(to, guideVersion)
	numbers(r.records, r.bytes, r.next, r.blocks, uint64(r.highest), r.failures, r.transactions,
		uint64(len(r.filter)))
	if r.lapses > 0 {
		to[0] = guideVersion2
		numbers(r.lapses, uint64(len(r.lapsing)))
	}
	numbers(r.fences...)
	numbers(r.failed...)
	for _, each := range r.lapsing {
		numbers(each.short, each.guided())
	}
	numbers(r.filter...)
	return to
}

// decodeGuide gives a run that the row of runs names what its guide has. It returns errMissing if
// the guide has lost its end.
func (r *run) decodeGuide(guide []byte) error {
	headSize := guideHeadSize
	if len(guide) > 0 && guide[0] == guideVersion2 {
		headSize = guideHeadSize2
	}
	if len(guide) < headSize || guide[0] != guideVersion && guide[0] != guideVersion2 {
		return errRow
	}
	numbers := func(count uint64) []uint64 {
		list := make([]uint64, count)
		for i := range list {
			list[i], guide = binary.BigEndian.Uint64(guide), guide[8:]
		}
		return list
	}
	guide = guide[1:]
	head := append(numbers(uint64(headSize/8)), 0, 0)
	filter, lapses, listed := head[7], head[8], head[9]
	if head[0] != r.records || head[1] != r.bytes || head[3] > r.records ||
		head[5] > r.records-head[3] || filter > filterWords(filterBound) || lapses > head[5] ||
		listed > lapses || headSize == guideHeadSize2 && lapses == 0 {
		return errRow
	}
	always := head[5] - lapses
	switch size := 8 * (chunksOf(r.records) + always + 2*listed + filter); {
	case uint64(len(guide)) < size:
		return errMissing
	case uint64(len(guide)) > size:
		return errRow
	}
	r.count = count{next: head[2], blocks: head[3], highest: ledger.Height(head[4]),
		failures: head[5], lapses: lapses, transactions: head[6]}
	r.fences, r.failed = numbers(chunksOf(r.records)), numbers(always)
	r.lapsing = make([]lapsing, listed)
	for i := range r.lapsing {
		each := numbers(2)
		r.lapsing[i] = lapsing{each[0], period(each[1] &^ withinBit), each[1]&withinBit != 0}
	}
	r.filter = numbers(filter)
	if !slices.IsSorted(r.fences) {
		return errRow
	}
	return nil
}

// guideKey returns the key of a part of a run's guide.
func (r *run) guideKey(part int) []byte {
	return binary.BigEndian.AppendUint32(runPrefix(rowGuide, r.number), uint32(part))
}

// putGuide makes the guide of a run that is complete, and passes its rows to put.
func (s *Store) putGuide(r *run, put putRow) error {
	var guide []byte
	r.next = s.runs.next.Load()
	if r.kind == rowEntries {
		guide = r.encodeEntriesGuide()
		r.keys = filterKeys{}
	} else {
		guide = r.encodeGuide()
		r.failed, r.lapsing, r.spans = nil, nil, spans{}
	}
	return s.eachChunk(guide, func(part int, data []byte) error {
		return put("guide", r.guideKey(part), data)
	})
}

// readGuide gives a run what its guide has. It returns errMissing if the run has none, or
// one that is not whole: a crash may leave a part of a guide that Open was writing.
func readGuide(transaction *badger.Txn, r *run) error {
	var guide []byte
	for part := 0; ; part++ {
		data, err := get(transaction, r.guideKey(part))
		if errors.Is(err, errMissing) && part > 0 {
			if r.kind == rowEntries {
				return r.decodeEntriesGuide(guide)
			}
			return r.decodeGuide(guide)
		}
		if err != nil {
			return err
		}
		guide = append(guide, data...)
	}
}

// idFilter is a Bloom filter of ids. As they are hashes, their bytes choose the bits.
type idFilter []uint64

const (
	filterBits   = 10 // per id
	filterProbes = 7
)

func filterWords(records uint64) uint64 { return (max(records, 1)*filterBits + 63) / 64 }

func newIDFilter(records uint64) idFilter { return make(idFilter, filterWords(records)) }

// probe returns the word and the bit of a probe for an id.
func (f idFilter) probe(id []byte, number uint64) (word, bit uint64) {
	at := binary.BigEndian.Uint64(id[8:]) + number*(binary.BigEndian.Uint64(id[16:])|1)
	at, _ = bits.Mul64(at, uint64(len(f))*64)
	return at / 64, 1 << (at % 64)
}

func (f idFilter) add(id []byte) {
	for number := range uint64(filterProbes) {
		word, bit := f.probe(id, number)
		f[word] |= bit
	}
}

// mayHave reports whether the filter may have an id. One without words may have any.
func (f idFilter) mayHave(id []byte) bool {
	for number := range uint64(filterProbes) {
		if len(f) == 0 {
			break
		}
		if word, bit := f.probe(id, number); f[word]&bit == 0 {
			return false
		}
	}
	return true
}

// idRows reads rows of one run of ids in their order, and checks them.
type idRows struct {
	run    *run
	height ledger.Height // of the head
	// records is the number of records that the run must have, chunk that of the next chunk.
	records, chunk uint64
	last           []byte // the last id
}

// read reads the rows of chunks up to before another, and passes each record to visit. They must
// be complete, in order, and of blocks up to the head.
func (x *idRows) read(transaction *badger.Txn, before uint64,
	visit func(at uint64, key, value []byte) error) error {
	settings := badger.DefaultIteratorOptions
	settings.Prefix = x.run.prefix()
	rows := transaction.NewIterator(settings)
	defer rows.Close()
	for rows.Seek(x.run.chunkKey(x.chunk, nil)); x.chunk < before; rows.Next() {
		if !rows.Valid() {
			return damaged(x.height, "run %d of the index has %d chunks instead of %d",
				x.run.number, x.chunk, chunksOf(x.records))
		}
		key := rows.Item().Key()
		if !bytes.Equal(key, x.run.chunkKey(x.chunk, nil)) {
			return damaged(x.height, "row %x of the index: malformed key", key)
		}
		if err := rows.Item().Value(func(sealed []byte) error {
			chunk, err := unseal(key, sealed)
			if err == nil {
				err = x.visit(chunk, visit)
			}
			return err
		}); err != nil {
			return damaged(x.height, "row %x of the index: %v", key, err)
		}
		x.chunk++
	}
	if rows.Valid() && x.chunk == chunksOf(x.records) {
		return damaged(x.height, "run %d of the index has more than %d chunks", x.run.number,
			x.chunk)
	}
	return nil
}

// visit passes the records of the next chunk to visit.
func (x *idRows) visit(chunk []byte, visit func(at uint64, key, value []byte) error) error {
	at := x.chunk * chunkOf
	if uint64(len(chunk)) != recordSize*min(chunkOf, x.records-at) {
		return errRow
	}
	for ; len(chunk) > 0; chunk, at = chunk[recordSize:], at+1 {
		key, value := chunk[:ledger.HashSize], chunk[ledger.HashSize:recordSize]
		where := decodePlaceOf(value)
		if len(x.last) > 0 && bytes.Compare(x.last, key) >= 0 || where.height > x.height ||
			where.kind >= indexVoid {
			return errRow
		}
		x.last = append(x.last[:0], key...)
		if err := visit(at, key, value); err != nil {
			return err
		}
	}
	return nil
}

// readIDs reads a run of ids that the row of runs names, and gives it what its guide would have.
// Without spans, all deadlines count as over.
func readIDs(transaction *badger.Txn, r *run, height ledger.Height, found spans) error {
	rows := &idRows{run: r, height: height, records: r.records}
	r.fences, r.filter, r.count, r.failed, r.lapsing = nil, nil, count{}, nil, nil
	r.spans = found
	r.expect(r.records)
	r.records = 0
	return rows.read(transaction, chunksOf(rows.records), func(_ uint64, key, value []byte) error {
		r.note(key, value)
		return nil
	})
}

var errGuide = errors.New("the run's guide says otherwise")

// checkIDs goes on to check rows of a run of ids against the guide that memory has of it, up to
// before a chunk. It counts in seen what it reads.
func (s *Store) checkIDs(transaction *badger.Txn, rows *idRows, before uint64, seen *count) error {
	r := rows.run
	return rows.read(transaction, before, func(at uint64, key, value []byte) error {
		short, where := binary.BigEndian.Uint64(key), decodePlaceOf(value)
		seen.transactions += transactionsOf(key, where)
		if at%chunkOf == 0 && short != r.fences[at/chunkOf] || where.height > r.highest ||
			!r.filter.mayHave(key) {
			return errGuide
		}
		switch where.kind {
		case indexBlock:
			seen.blocks++
		case indexFailed:
			s.mutex.RLock()
			known := s.failed.knows(short, where)
			s.mutex.RUnlock()
			if seen.failures++; where.lapse > 0 {
				seen.lapses++
			}
			if !known {
				return errGuide
			}
		}
		return nil
	})
}
