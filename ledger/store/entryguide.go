package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"math/bits"
	"slices"
	"sort"

	"github.com/dgraph-io/badger/v4"

	"github.com/ledgerd/ledgerd/ledger"
)

// A run of entries of the state has a guide, too (guide.go): the first key of each chunk, and a
// Bloom filter of the keys. So a look-up of a cold account reads one chunk of the run that has it,
// and few others; and a chunk that is missing is noticed.

// entriesFilterBound bounds the entries that the Bloom filter of a run reckons with. It has false
// answers if there are more.
const entriesFilterBound = 64 << 20

// keyList is a list of keys in their order, one after another in one piece of memory.
type keyList struct {
	data []byte
	ends []uint32
}

func (l *keyList) len() int { return len(l.ends) }

func (l *keyList) at(place int) []byte {
	begin := uint32(0)
	if place > 0 {
		begin = l.ends[place-1]
	}
	return l.data[begin:l.ends[place]]
}

// add appends a key. It reports whether there is room for it.
func (l *keyList) add(key []byte) bool {
	if uint64(len(l.data)+len(key)) > math.MaxUint32 {
		return false
	}
	l.data = append(l.data, key...)
	l.ends = append(l.ends, uint32(len(l.data)))
	return true
}

// upTo returns the number of keys that are not after a key.
func (l *keyList) upTo(key []byte) int {
	return sort.Search(l.len(), func(at int) bool { return bytes.Compare(l.at(at), key) > 0 })
}

// filterKey returns what a Bloom filter takes for the id of an entry. It is a part of the guides on
// the disk. A client can choose keys that look alike, and gains nothing by it.
func filterKey(key []byte) (id [24]byte) {
	hash := fnv.New64a()
	_, _ = hash.Write(key) // it never fails
	return filterID(hash.Sum64())
}

// filterID returns what a Bloom filter takes for a key with this sum of FNV-1a.
func filterID(sum uint64) (id [24]byte) {
	first := mix(sum)
	binary.BigEndian.PutUint64(id[8:], first)
	binary.BigEndian.PutUint64(id[16:], mix(first))
	return id
}

// filterKeys finds what filterKey returns for one key after the other. Keys in their order mostly
// begin like the one before, so it keeps the sum over each beginning of the last key.
type filterKeys struct {
	last []byte
	sums []uint64 // sums[i] is that of last[:i+1]
}

// The numbers of FNV-1a with 64 bits.
const (
	fnvBegin = 14695981039346656037
	fnvPrime = 1099511628211
)

func (f *filterKeys) id(key []byte) (id [24]byte) {
	shared, sum := sharedBytes(f.last, key), uint64(fnvBegin)
	if shared > 0 {
		sum = f.sums[shared-1]
	}
	f.last, f.sums = append(f.last[:shared], key[shared:]...), f.sums[:shared]
	for _, each := range key[shared:] {
		sum = (sum ^ uint64(each)) * fnvPrime
		f.sums = append(f.sums, sum)
	}
	return filterID(sum)
}

// sharedBytes returns how many bytes two keys have in common at their beginning.
func sharedBytes(a, b []byte) (shared int) {
	for ; shared+8 <= min(len(a), len(b)); shared += 8 {
		differ := binary.LittleEndian.Uint64(a[shared:]) ^ binary.LittleEndian.Uint64(b[shared:])
		if differ != 0 {
			return shared + bits.TrailingZeros64(differ)/8
		}
	}
	for shared < min(len(a), len(b)) && a[shared] == b[shared] {
		shared++
	}
	return shared
}

// mix spreads the bits of a number over all its bits ("Fast Splittable Pseudorandom Number
// Generators", Steele, Lea, Flood, 2014).
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// The guide of a run of entries begins with its version, the numbers of records, of bytes and of
// chunks of the run, the number of bytes of the first keys, that of words of the filter, and the
// number of the next run. The end of each first key among them follows, and then the keys and the
// filter. Guides of version 2 do not have the number of the next run.
const (
	entriesGuideVersion2 = 2
	entriesGuideVersion  = 3
	entriesGuideHeadSize = 1 + 6*8
)

func (r *run) encodeEntriesGuide() []byte {
	to := make([]byte, 0, entriesGuideHeadSize+r.guideBytes())
	to = append(to, entriesGuideVersion)
	for _, number := range [...]uint64{r.records, r.bytes, uint64(r.starts.len()),
		uint64(len(r.starts.data)), uint64(len(r.filter)), r.next} {
		to = binary.BigEndian.AppendUint64(to, number)
	}
	for _, end := range r.starts.ends {
		to = binary.BigEndian.AppendUint32(to, end)
	}
	to = append(to, r.starts.data...)
	for _, word := range r.filter {
		to = binary.BigEndian.AppendUint64(to, word)
	}
	return to
}

// guideBytes returns the size of a guide without its head.
func (r *run) guideBytes() int {
	return 8*(len(r.fences)+len(r.failed)+2*len(r.lapsing)+len(r.filter)) + 4*r.starts.len() +
		len(r.starts.data)
}

// decodeEntriesGuide gives a run that the row of runs names what its guide has. It returns
// errMissing if the guide does not have the length that it should have: an older version of this
// package removes some or all rows of such guides.
func (r *run) decodeEntriesGuide(guide []byte) error {
	size, head := entriesGuideHeadSize, [6]uint64{5: math.MaxUint64}
	if len(guide) > 0 && guide[0] == entriesGuideVersion2 {
		size -= 8
	}
	if len(guide) < size || guide[0] != entriesGuideVersion && guide[0] != entriesGuideVersion2 {
		return errRow
	}
	for i := range (size - 1) / 8 {
		head[i] = binary.BigEndian.Uint64(guide[1+8*i:])
	}
	guide = guide[size:]
	chunks, keys, words := head[2], head[3], head[4]
	if head[0] != r.records || head[1] != r.bytes || chunks > r.records || chunks == 0 ||
		keys > math.MaxUint32 || words > filterWords(entriesFilterBound) {
		return errRow
	}
	if uint64(len(guide)) != 4*chunks+keys+8*words {
		return errMissing
	}
	ends := make([]uint32, chunks)
	for i := range ends {
		ends[i], guide = binary.BigEndian.Uint32(guide), guide[4:]
	}
	starts := keyList{data: guide[:keys:keys], ends: ends}
	if !slices.IsSorted(ends) || uint64(ends[chunks-1]) != keys {
		return errRow
	}
	for i := 1; i < len(ends); i++ {
		if bytes.Compare(starts.at(i-1), starts.at(i)) >= 0 {
			return errRow
		}
	}
	guide = guide[keys:]
	filter := make(idFilter, words)
	for i := range filter {
		filter[i], guide = binary.BigEndian.Uint64(guide), guide[8:]
	}
	starts.data = bytes.Clone(starts.data)
	r.starts, r.filter, r.next = starts, filter, head[5]
	return nil
}

// loadEntriesGuides gives the runs of entries their guides. A run that an older version wrote has
// none: it is read, and gets one.
func (s *Store) loadEntriesGuides(height ledger.Height) error {
	return s.db.View(func(transaction *badger.Txn) error {
		for _, r := range of(rowEntries, s.runs.list()) {
			err := readGuide(transaction, r)
			if errors.Is(err, errMissing) {
				err = s.makeEntriesGuide(transaction, r)
				s.lacking.guides = append(s.lacking.guides, r)
			}
			if err != nil {
				return damaged(height, "the guide of run %d of the state: %v", r.number, err)
			}
		}
		return nil
	})
}

// makeEntriesGuide reads a run of entries, and gives it what its guide would have.
func (s *Store) makeEntriesGuide(transaction *badger.Txn, r *run) error {
	rows := newCursor(transaction, r, 0)
	defer rows.close()
	r.starts, r.filter = keyList{}, newIDFilter(min(r.records, entriesFilterBound))
	r.next = math.MaxUint64
	var keys filterKeys
	for {
		begins := len(rows.chunk) == 0
		more, err := rows.advance()
		if err != nil || !more {
			return err
		}
		id := keys.id(rows.key)
		if r.filter.add(id[:]); begins && !r.starts.add(rows.key) {
			return errRow
		}
	}
}

// entryFinder looks up entries of the state in the database. It keeps the last chunk of each run,
// so keys in their order are found faster.
type entryFinder struct {
	transaction *badger.Txn
	// runs are those of entries, the oldest first. legacy says that there are rows of single ones.
	runs   []*run
	legacy bool
	chunks []foundChunk
}

// foundChunk is the chunk of a run that was read last, of which data is nil before.
type foundChunk struct {
	place  int
	data   []byte
	buffer []byte
}

func newEntryFinder(transaction *badger.Txn, runs []*run, legacy bool) *entryFinder {
	f := &entryFinder{transaction: transaction, runs: of(rowEntries, runs), legacy: legacy}
	f.chunks = make([]foundChunk, len(f.runs))
	return f
}

// find returns the value of the entry with a key: in the newest run that has the key. It is nil if
// there is no such entry. It is valid until the next call.
func (f *entryFinder) find(key []byte) (value []byte, err error) {
	id := filterKey(key)
	for i := len(f.runs) - 1; i >= 0; i-- {
		if !f.runs[i].filter.mayHave(id[:]) {
			continue
		}
		value, found, err := f.findIn(i, key)
		if err != nil || found {
			return value, err
		}
	}
	if !f.legacy {
		return nil, nil
	}
	value, err = get(f.transaction, append([]byte{rowState}, key...))
	if errors.Is(err, errMissing) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	row, err := decodeStateRow(value)
	return row.after, err
}

// findIn looks up a key in the chunk of a run that may have it.
func (f *entryFinder) findIn(run int, key []byte) (value []byte, found bool, err error) {
	r, last := f.runs[run], &f.chunks[run]
	place := r.starts.upTo(key) - 1
	if place < 0 {
		return nil, false, nil
	}
	if last.data == nil || last.place != place {
		if last.data, err = r.readChunk(f.transaction, place, &last.buffer); err != nil {
			return nil, false, err
		}
		last.place = place
	}
	for chunk := last.data; len(chunk) > 0; {
		at, value, rest, err := r.kind.cut(chunk)
		if err != nil {
			return nil, false, err
		}
		switch bytes.Compare(at, key) {
		case 0:
			return value, true, nil
		case 1:
			return nil, false, nil
		}
		chunk = rest
	}
	return nil, false, nil
}

// readChunk reads a chunk of a run of entries that has its guide into the buffer, and unpacks it.
func (r *run) readChunk(transaction *badger.Txn, place int, buffer *[]byte) (chunk []byte,
	err error) {
	key := r.chunkKey(uint64(place), r.starts.at(place))
	item, err := transaction.Get(key)
	if errors.Is(err, badger.ErrKeyNotFound) {
		return nil, errMissing
	}
	if err != nil {
		return nil, fmt.Errorf("database: %w", err)
	}
	err = item.Value(func(sealed []byte) error {
		row, err := unseal(key, sealed)
		switch {
		case err != nil:
			return err
		case len(row) == 0:
			return errRow
		case row[0] == packedMark:
			chunk, err = r.kind.unpack(buffer, row)
			return err
		}
		*buffer = append((*buffer)[:0], row...) // the row is the database's
		chunk = *buffer
		return nil
	})
	if err == nil && len(chunk) == 0 {
		err = errRow
	}
	return chunk, err
}
