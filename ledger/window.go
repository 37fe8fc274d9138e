package ledger

import "encoding/binary"

// WindowSize is the number of sequence numbers that a stream remembers, up to and including the
// highest applied one.
const WindowSize = 1024

// window records which sequence numbers of one stream were applied: the highest one, and a bit for
// each of the WindowSize numbers up to it. The bit of a number is at the number modulo WindowSize.
// A window in the state has at least one applied number.
type window struct {
	organisation OrganisationName
	stream       uint64
	high         uint64
	seen         [WindowSize / 64]uint64
	empty        bool
	mark         mark
}

func (w *window) bit(sequence uint64) (word *uint64, mask uint64) {
	return &w.seen[sequence%WindowSize/64], 1 << (sequence % 64)
}

// fresh reports whether a sequence number may be applied.
func (w *window) fresh(sequence uint64) bool {
	if w.empty || sequence > w.high {
		return true
	}
	word, mask := w.bit(sequence)
	return w.high-sequence < WindowSize && *word&mask == 0
}

// set marks a fresh number as applied.
func (w *window) set(sequence uint64) {
	switch {
	case w.empty || (sequence > w.high && sequence-w.high >= WindowSize):
		w.seen, w.high, w.empty = [WindowSize / 64]uint64{}, sequence, false
	case sequence > w.high:
		// The bits of the skipped numbers still belong to numbers that leave the window.
		for skipped := w.high + 1; skipped <= sequence && skipped != 0; skipped++ {
			word, mask := w.bit(skipped)
			*word &^= mask
		}
		w.high = sequence
	}
	word, mask := w.bit(sequence)
	*word |= mask
}

// appendEntry appends the entry. While the highest number is below WindowSize, some bits stand for
// no number. They stay clear, so a window has only one encoding.
func (w *window) appendEntry(to []byte) (entry []byte, keyLength int) {
	start := len(to)
	to = append(appendString(append(to, kindWindow), w.organisation), 0, 0, 0, 0, 0, 0, 0, 0)
	binary.BigEndian.PutUint64(to[len(to)-8:], w.stream)
	keyLength = len(to) - start
	to = binary.BigEndian.AppendUint64(to, w.high)
	for _, word := range w.seen {
		to = binary.BigEndian.AppendUint64(to, word)
	}
	return to, keyLength
}

func (r *reader) window(key *reader) *window {
	w := &window{organisation: OrganisationName(clone(key.string("bytes of organisation",
		MaxOrganisationName))), stream: key.uint64(), high: r.uint64()}
	for i := range w.seen {
		w.seen[i] = r.uint64()
	}
	return w
}
