package ledger

import (
	"bytes"
	"slices"
	"sync"
)

// decodedEntries remembers the last entries of a parent's stream that were decoded. More than half
// of a shard's members propose each entry, and repeat it until it is in the chain, so a node meets
// the same bytes several times. It is safe for concurrent use.
type decodedEntries struct {
	mu            sync.Mutex
	recent, older map[Hash]decodedEntry
	bytes         int // of recent
}

// decodedEntry is what DecodeCarried makes of encoded. Nothing changes it.
type decodedEntry struct {
	encoded []byte
	bundle  *Bundle
	kept    []bool
}

// decodedEntriesBytes is how many bytes of entries recent and older each hold, at most, if no
// single entry has more. Decoded, an entry takes a few times its bytes.
const decodedEntriesBytes = 4 << 20

// decode is DecodeCarried of bytes with the given CarriedHash, except that equal bytes may give the
// same bundle and the same kept, which the caller must not change.
func (d *decodedEntries) decode(encoded []byte, hash Hash) (bundle *Bundle, kept []bool,
	err error) {
	if found, is := d.find(hash); is && bytes.Equal(found.encoded, encoded) {
		return found.bundle, found.kept, nil
	}
	// The bundle shares its encoding's memory, which would keep a whole batch in memory.
	own := slices.Clone(encoded)
	if bundle, kept, err = DecodeCarried(own); err == nil {
		d.add(hash, decodedEntry{own, bundle, kept})
	}
	return bundle, kept, err
}

func (d *decodedEntries) find(hash Hash) (found decodedEntry, is bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if found, is = d.recent[hash]; !is {
		found, is = d.older[hash]
	}
	return found, is
}

func (d *decodedEntries) add(hash Hash, entry decodedEntry) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.recent == nil || d.bytes+len(entry.encoded) > decodedEntriesBytes {
		d.recent, d.older, d.bytes = make(map[Hash]decodedEntry), d.recent, 0
	}
	if _, again := d.recent[hash]; !again {
		d.recent[hash] = entry
		d.bytes += len(entry.encoded)
	}
}
