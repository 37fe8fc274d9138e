package protected

import (
	"encoding/binary"
	"slices"

	"github.com/ledgerd/ledgerd/rdmanet"
)

// RingHeader is the size in bytes of the header before the slots of a ring: a cache line that the
// ring's owner writes.
const RingHeader = 64

// The words of a header, as offsets.
const (
	// HeadTaken is the last entry that the owner has taken. It needs nothing up to there any more.
	HeadTaken = iota * Word
	// HeadTicket is the ticket under which the ring was granted, where the process that asks reads
	// the answer there.
	HeadTicket
)

// Ring is the layout of a region of slots of equal size, used in turn by the numbers from 1 on. An
// entry fills its slot from the back: the message, and behind it words at places that do not depend
// on the message's length. The last word is the entry's number, the canary. The canary is therefore
// never where a payload was, and a reader that finds it finds everything before it.
type Ring struct {
	Slots int
	Slot  int // size of a slot, in bytes
}

// Size returns the size of the region.
func (r Ring) Size() int { return RingHeader + r.Slots*r.Slot }

// Place returns the slot of a number.
func (r Ring) Place(number uint64) int { return int((number - 1) % uint64(r.Slots)) }

// End returns the offset at which the slot of a number ends.
func (r Ring) End(number uint64) int { return RingHeader + (r.Place(number)+1)*r.Slot }

// Padded rounds a length up to whole words.
func Padded(length int) int { return (length + Word - 1) / Word * Word }

// The words behind the message of a buffer's entry, as offsets from the slot's end.
const (
	bufferTrailer = 2 * Word
	bufferLength  = -2 * Word
	bufferNumber  = -1 * Word
)

// BufferRing returns the layout of a buffer for messages up to a length.
func BufferRing(slots, messageMax int) Ring { return Ring{slots, BufferEntry(messageMax)} }

// BufferEntry returns the size of a message's entry in a buffer.
func BufferEntry(length int) int { return Padded(length) + bufferTrailer }

// appendBufferTrailer appends the words behind a message.
func appendBufferTrailer(b []byte, length int, number uint64) []byte {
	b = binary.NativeEndian.AppendUint64(b, uint64(length))
	return binary.NativeEndian.AppendUint64(b, number)
}

// Buffer is a ring of messages that one other process writes into this one's memory.
type Buffer struct {
	Held
	Ring Ring
}

// Found reports whether the message with a number is there.
func (b *Buffer) Found(number uint64) bool {
	return b.Region.Load(b.Ring.End(number)+bufferNumber) == number
}

// Message returns the bytes of a message that was found. A message that is longer than the slot is
// one that no process writes; it is returned as an empty one, and keeps its place in the stream.
func (b *Buffer) Message(number uint64, messageMax int) []byte {
	end := b.Ring.End(number)
	length := b.Region.Load(end + bufferLength)
	if length > uint64(messageMax) {
		length = 0
	}
	start := end - bufferTrailer - Padded(int(length))
	return b.Region.Bytes()[start : start+int(length)]
}

// Take says that the owner needs nothing up to a number any more.
func (b *Buffer) Take(number uint64) { b.Region.Store(HeadTaken, number) }

// Fill writes a message into the buffer, as its writer would.
func (b *Buffer) Fill(number uint64, message []byte) {
	end := b.Ring.End(number)
	copy(b.Region.Bytes()[end-bufferTrailer-Padded(len(message)):], message)
	b.Region.Store(end+bufferLength, uint64(len(message)))
	b.Region.Store(end+bufferNumber, number)
}

// PostMessage posts a message for a buffer at the other end of a way: the message, from memory that
// lent counts for, and then the words behind it. A short message is posted in one write. The caller
// has checked Room for two operations. The post of the last one has kind last, that of a message
// alone has kind first.
func (w *Ways) PostMessage(way *Way, ring Ring, first, last Kind, number uint64, message []byte,
	lent *int) {
	end, length := ring.End(number), len(message)
	start := end - BufferEntry(length)
	if size := end - start; size <= rdmanet.InlineMax {
		b := w.Inline(size)
		copy(b, message)
		appendBufferTrailer(b[:Padded(length)], length, number)
		w.Post(way, last, number, nil, rdmanet.Operation{Kind: rdmanet.OperationWrite,
			Offset: start, Bytes: b, Ring: true})
		return
	}
	w.Post(way, first, number, lent, rdmanet.Operation{Kind: rdmanet.OperationWrite,
		Offset: start, Bytes: message})
	b := w.Inline(bufferTrailer)
	appendBufferTrailer(b[:0], length, number)
	w.Post(way, last, number, nil, rdmanet.Operation{Kind: rdmanet.OperationWrite,
		Offset: end - bufferTrailer, Bytes: b, Ring: true})
}

// Outbox holds messages as they lie in the buffers of their targets, in this process's own memory,
// until they are taken there.
type Outbox struct {
	Ring  Ring
	slots []byte
	lent  []int // the writes under way from each slot
}

// NewOutbox returns an empty outbox.
func NewOutbox(ring Ring) *Outbox {
	return &Outbox{Ring: ring, slots: make([]byte, ring.Slots*ring.Slot),
		lent: make([]int, ring.Slots)}
}

// Lent reports whether a write under way takes its bytes from the slot of a number.
func (o *Outbox) Lent(number uint64) bool { return o.lent[o.Ring.Place(number)] > 0 }

// Slot returns the slot of a number.
func (o *Outbox) Slot(number uint64) []byte {
	return o.slots[o.Ring.Place(number)*o.Ring.Slot:][:o.Ring.Slot]
}

// Put makes the entry of a message of the given length, and returns the place for the message with
// that capacity. Nothing in the slot may be lent.
func (o *Outbox) Put(number uint64, length int) []byte {
	slot := o.Slot(number)
	appendBufferTrailer(slot[o.Ring.Slot-bufferTrailer:][:0], length, number)
	start := o.Ring.Slot - BufferEntry(length)
	return slot[start : start : start+length]
}

// Post posts the entry of a number for a buffer at the other end of a way, in one write.
func (o *Outbox) Post(w *Ways, way *Way, kind Kind, number uint64) {
	slot := o.Slot(number)
	start := o.Ring.Slot - BufferEntry(int(binary.NativeEndian.Uint64(
		slot[o.Ring.Slot+bufferLength:])))
	w.Post(way, kind, number, &o.lent[o.Ring.Place(number)], rdmanet.Operation{
		Kind: rdmanet.OperationWrite, Offset: o.Ring.End(number) - o.Ring.Slot + start,
		Bytes: slot[start:], Ring: true})
}

// Copy returns an outbox in the same state.
func (o *Outbox) Copy() *Outbox {
	return &Outbox{o.Ring, slices.Clone(o.slots), slices.Clone(o.lent)}
}

// SameCount returns the counter in a copy that corresponds to one of this outbox, or nil if it is
// none of it.
func (o *Outbox) SameCount(count *int, other *Outbox) *int {
	return SameCount(count, o.lent, other.lent)
}

// Outbox appends the entries of the numbers from first to last, and what is lent.
func (f *Facts) Outbox(o *Outbox, first, last uint64) {
	for number := first; number <= last; number++ {
		f.Bytes(o.Slot(number))
	}
	f.Lent(o.lent)
}
