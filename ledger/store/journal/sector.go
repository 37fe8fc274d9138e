package journal

import (
	"encoding/binary"
	"hash/crc32"
)

const (
	// sectorSize is the unit that a disk writes whole or not at all.
	sectorSize = 512
	// headSize is the size of a sector's head: a checksum of the rest, the segment, the group, the
	// sector's place in the group, and how many sectors the group has.
	headSize = 4 + 8 + 8 + 4 + 4
	bodySize = sectorSize - headSize
	// pageSize is the alignment of groups. It is the unit in which the system writes files.
	pageSize = 4096
	// lengthSize is the size of the length before a group's payload.
	lengthSize = 4
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// head is what a sector says of itself.
type head struct {
	segment, group uint64
	place, count   uint32
}

// put writes the head and the checksum of a sector whose body is in place.
func (h head) put(sector []byte) {
	binary.BigEndian.PutUint64(sector[4:], h.segment)
	binary.BigEndian.PutUint64(sector[12:], h.group)
	binary.BigEndian.PutUint32(sector[20:], h.place)
	binary.BigEndian.PutUint32(sector[24:], h.count)
	binary.BigEndian.PutUint32(sector, crc32.Checksum(sector[4:sectorSize], castagnoli))
}

// condition is what a sector of a file turns out to be.
type condition uint8

const (
	// unwritten: zeros, or what an earlier use of the file left.
	unwritten condition = iota
	// whole: written in this use of the file.
	whole
	// harmed: neither.
	harmed
)

var zeros [sectorSize]byte

// read tells the condition of a sector of the file of a segment, and its head if it is whole.
func read(sector []byte, segment uint64) (condition, head) {
	if [sectorSize]byte(sector) == zeros {
		return unwritten, head{}
	}
	if binary.BigEndian.Uint32(sector) != crc32.Checksum(sector[4:sectorSize], castagnoli) {
		return harmed, head{}
	}
	h := head{
		segment: binary.BigEndian.Uint64(sector[4:]), group: binary.BigEndian.Uint64(sector[12:]),
		place: binary.BigEndian.Uint32(sector[20:]), count: binary.BigEndian.Uint32(sector[24:]),
	}
	switch {
	case h.segment < segment:
		return unwritten, head{}
	case h.segment > segment || h.place >= h.count:
		return harmed, head{}
	}
	return whole, h
}

// sectorsOf returns how many sectors a payload takes.
func sectorsOf(payload int) int { return (lengthSize + payload + bodySize - 1) / bodySize }
