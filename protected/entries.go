package protected

import "encoding/binary"

// The words behind the bytes of a log's entry, as offsets from the slot's end.
const (
	logTrailer   = 5 * Word
	logTimestamp = -5 * Word
	// upper half: how far below its index the leader knew all entries to be ordered; lower half:
	// how far below its index the leader knew all entries to be taken
	logKnown  = -4 * Word
	logOrigin = -3 * Word // the origin, in the upper half; and the length
	logNumber = -2 * Word
	logIndex  = -1 * Word
)

// logRing returns the layout of a log for entries up to a length.
func logRing(slots, entryMax int) Ring { return Ring{slots, Padded(entryMax) + logTrailer} }

// LogSize returns the size in bytes of the region of a log.
func LogSize(slots, entryMax int) int { return logRing(slots, entryMax).Size() }

// Entry is a log's entry without its bytes.
type Entry struct {
	// Index is the entry's place in the log, from 1 on. 0: there is no entry.
	Index uint64
	// Timestamp is that of the leader that made the entry its own last.
	Timestamp Timestamp
	// Origin and Number are the entry's identity, as Append was told. A no-op has none.
	Origin uint32
	Number uint64
	// Length is the number of its bytes.
	Length int

	ordered uint64 // all up to here was ordered when the entry was written, as its leader knew
	taken   uint64 // all up to here was taken by all members that are not excluded
}

// NoOp reports whether the entry is one that a leader put into the log for itself.
func (e Entry) NoOp() bool { return e.Origin == 0 }

// same reports whether two entries of one index hold the same bytes.
func (e Entry) same(other Entry) bool {
	return e.Origin == other.Origin && e.Number == other.Number
}

func (e Entry) known() uint64 { return (e.Index-e.ordered)<<32 | (e.Index - e.taken) }

func (e Entry) origin() uint64 { return uint64(e.Origin)<<32 | uint64(e.Length) }

// parse makes an entry of the words of a trailer. Words that no server writes give an entry without
// an index.
func parse(stamp, known, origin, number, index uint64, entryMax int) Entry {
	e := Entry{Timestamp: Timestamp(stamp), ordered: index - known>>32,
		taken: index - known&(1<<32-1), Origin: uint32(origin >> 32),
		Length: int(origin & (1<<32 - 1)), Number: number, Index: index}
	if e.Length > entryMax || known>>32 > index || known&(1<<32-1) > index {
		return Entry{}
	}
	return e
}

// parseTrailer makes an entry of a trailer's bytes.
func parseTrailer(b []byte, entryMax int) Entry {
	at := func(offset int) uint64 { return binary.NativeEndian.Uint64(b[logTrailer+offset:]) }
	return parse(at(logTimestamp), at(logKnown), at(logOrigin), at(logNumber), at(logIndex),
		entryMax)
}
