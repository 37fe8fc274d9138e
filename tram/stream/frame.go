package stream

import (
	"encoding/binary"
	"fmt"
)

// A record has this layout in a ring. Each line is a word of 8 bytes, little-endian, except the
// entry:
//
//	kind (2 bytes, never zero), zero (2 bytes), the entry's length in bytes (4 bytes)
//	the entry's number
//	the entry, padded with zeros to a whole word
//	the canary, which follows from length and number and is never zero
//
// If the next record does not fit before the ring's end, one word of kind skip stands there and the
// record lies at the ring's beginning.
const (
	wordSize   = 8
	recordHead = 2 * wordSize
	recordTail = wordSize

	kindEntry = 0x5453
	kindSkip  = 0x7053

	kindMask   = 0xffff
	lengthFrom = 32 // the first bit of the length
)

// skipBytes is the word that sends a reader to the ring's beginning. It must not be changed.
var skipBytes = binary.LittleEndian.AppendUint64(nil, kindSkip)

// Memory is a ring's memory at its reader: an rdmanet.Region. Only the ring's writer writes it; the
// reader clears what it releases.
type Memory interface {
	// Size returns the size in bytes.
	Size() int
	// Bytes returns the memory itself.
	Bytes() []byte
	// Load reads the word at an offset divisible by 8. Everything that the writer wrote before this
	// word is visible to later reads.
	Load(offset int) uint64
}

// RecordSize returns how many bytes of a ring an entry of the given length takes.
func RecordSize(length int) int {
	return recordHead + padded(length) + recordTail
}

// padded rounds a length up to whole words.
func padded(length int) int { return (length + wordSize - 1) / wordSize * wordSize }

// canary returns the last word of a record.
func canary(number uint64, length int) uint64 {
	return (number^uint64(length)<<40)*0x9e3779b97f4a7c15 | 1
}

// putRecord writes an entry's record. The record fills b.
func putRecord(b []byte, number uint64, entry []byte) {
	binary.LittleEndian.PutUint64(b, kindEntry|uint64(len(entry))<<lengthFrom)
	binary.LittleEndian.PutUint64(b[wordSize:], number)
	filled := copy(b[recordHead:], entry)
	clear(b[recordHead+filled : len(b)-recordTail])
	binary.LittleEndian.PutUint64(b[len(b)-recordTail:], canary(number, len(entry)))
}

// load reads a word that a writer on a machine of any byte order wrote.
func load(memory Memory, offset int) uint64 {
	var b [wordSize]byte
	binary.NativeEndian.PutUint64(b[:], memory.Load(offset))
	return binary.LittleEndian.Uint64(b[:])
}

// record is the record at a place of a ring.
type record struct {
	// size is the number of bytes of the ring that the record takes, 0 if no whole record lies
	// there yet.
	size   int
	number uint64 // 0 for a word that sends the reader to the beginning
	entry  []byte // a part of the ring
}

// recordAt reads the record at an offset. It returns ErrRecord if no write under way can make these
// bytes a record.
func recordAt(memory Memory, offset, entryMax int) (record, error) {
	room := memory.Size() - offset
	head := load(memory, offset)
	switch {
	case head == 0:
		return record{}, nil
	case head == kindSkip:
		return record{size: room}, nil
	case head&kindMask != kindEntry || head>>16&0xffff != 0:
		return record{}, fmt.Errorf("%w: head %#x at byte %d", ErrRecord, head, offset)
	}
	length := int(head >> lengthFrom)
	if length > entryMax || RecordSize(length) > room {
		return record{}, fmt.Errorf("%w: an entry of %d bytes at byte %d, with room for %d and "+
			"%d allowed", ErrRecord, length, offset, room-recordHead-recordTail, entryMax)
	}
	size := RecordSize(length)
	last := load(memory, offset+size-recordTail)
	if last == 0 {
		return record{}, nil
	}
	number := load(memory, offset+wordSize)
	if number == 0 || last != canary(number, length) {
		return record{}, fmt.Errorf("%w: entry %d of %d bytes at byte %d ends with %#x", ErrRecord,
			number, length, offset, last)
	}
	return record{size: size, number: number,
		entry: memory.Bytes()[offset+recordHead : offset+recordHead+length : offset+recordHead+
			length]}, nil
}
