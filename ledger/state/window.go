package state

import (
	"encoding/binary"
	"strings"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/internal/codec"
)

// window records which sequence numbers of one stream were applied: the highest one, and a bit for
// each of the WindowSize numbers up to it. The bit of a number is at the number modulo WindowSize.
// A window in the state has at least one applied number.
type window struct {
	organisation ledger.OrganisationName
	stream       uint64
	high         uint64
	seen         [ledger.WindowSize / 64]uint64
	empty        bool
	mark         mark
}

func (w *window) bit(sequence uint64) (word *uint64, mask uint64) {
	return &w.seen[sequence%ledger.WindowSize/64], 1 << (sequence % 64)
}

// fresh reports whether a sequence number may be applied.
func (w *window) fresh(sequence uint64) bool {
	if w.empty || sequence > w.high {
		return true
	}
	word, mask := w.bit(sequence)
	return w.high-sequence < ledger.WindowSize && *word&mask == 0
}

// set marks a fresh number as applied.
func (w *window) set(sequence uint64) {
	switch {
	case w.empty || (sequence > w.high && sequence-w.high >= ledger.WindowSize):
		w.seen, w.high, w.empty = [ledger.WindowSize / 64]uint64{}, sequence, false
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
	to = append(codec.AppendString(append(to, kindWindow), w.organisation), 0, 0, 0, 0, 0, 0, 0, 0)
	binary.BigEndian.PutUint64(to[len(to)-8:], w.stream)
	keyLength = len(to) - start
	to = binary.BigEndian.AppendUint64(to, w.high)
	for _, word := range w.seen {
		to = binary.BigEndian.AppendUint64(to, word)
	}
	return to, keyLength
}

func (r *reader) window(key *reader) *window {
	organisation := ledger.OrganisationName(strings.Clone(string(key.organisationName())))
	w := &window{organisation: organisation, stream: key.Uint64(), high: r.Uint64()}
	for i := range w.seen {
		w.seen[i] = r.Uint64()
	}
	return w
}
