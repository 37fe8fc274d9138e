package verbs

import (
	"encoding/binary"
	"fmt"
	"io"
)

// A lane's stream is a row of batches: a header, the frames' lengths, the frames. All integers are big-endian.
const (
	batchMagic      = 0x76_62 // "vb"
	batchHeaderSize = 16
	lengthSize      = 4
	// A batch has at most batchFramesMax frames, and at most batchBytesMax bytes of them unless it is a single frame.
	batchFramesMax = 4096
	batchBytesMax  = 256 << 10
	// slabBytes is the size of the buffers that small batches are read into, one after the other.
	slabBytes = 256 << 10
)

// appendBatch appends the header and the lengths of a batch that starts with the frame of that number.
func appendBatch(b []byte, frames [][]byte, first uint64) []byte {
	size := 0
	for _, frame := range frames {
		size += len(frame)
	}
	b = binary.BigEndian.AppendUint16(b, batchMagic)
	b = binary.BigEndian.AppendUint16(b, uint16(len(frames)))
	b = binary.BigEndian.AppendUint32(b, uint32(size))
	b = binary.BigEndian.AppendUint64(b, first)
	for _, frame := range frames {
		b = binary.BigEndian.AppendUint32(b, uint32(len(frame)))
	}
	return b
}

// batchReader takes batches off a stream. What it hands out is never written again.
type batchReader struct {
	stream   io.Reader
	frameMax int
	header   [batchHeaderSize]byte
	slab     []byte // what is left of the buffer for small batches
	lengths  []byte // reused for every batch
}

// read appends the next batch's frames, which must start with that number, to frames.
func (r *batchReader) read(frames [][]byte, first uint64) ([][]byte, error) {
	if _, err := io.ReadFull(r.stream, r.header[:]); err != nil {
		return frames, err
	}
	magic, count := binary.BigEndian.Uint16(r.header[:]), int(binary.BigEndian.Uint16(r.header[2:]))
	size, number := int(binary.BigEndian.Uint32(r.header[4:])), binary.BigEndian.Uint64(r.header[8:])
	bound := batchBytesMax
	if count == 1 {
		bound = r.frameMax
	}
	if magic != batchMagic || count == 0 || count > batchFramesMax || size > bound || number != first {
		return frames, fmt.Errorf("%w: a batch of %d frames and %d bytes from frame %d, expected %d, which starts with %#x", errProtocol, count, size, number, first, magic)
	}
	if cap(r.lengths) < count*lengthSize {
		r.lengths = make([]byte, count*lengthSize)
	}
	lengths := r.lengths[:count*lengthSize]
	if _, err := io.ReadFull(r.stream, lengths); err != nil {
		return frames, err
	}
	total := 0
	for i := range count {
		length := int(binary.BigEndian.Uint32(lengths[i*lengthSize:]))
		if length > r.frameMax || length > size-total {
			return frames, fmt.Errorf("%w: a frame of %d bytes in a batch of %d", errProtocol, length, size)
		}
		total += length
	}
	if total != size {
		return frames, fmt.Errorf("%w: frames of %d bytes in a batch of %d", errProtocol, total, size)
	}
	body := r.room(size)
	if _, err := io.ReadFull(r.stream, body); err != nil {
		return frames, err
	}
	for i := range count {
		length := int(binary.BigEndian.Uint32(lengths[i*lengthSize:]))
		frames = append(frames, body[:length:length])
		body = body[length:]
	}
	return frames, nil
}

// room gives a buffer that nobody else has.
func (r *batchReader) room(size int) []byte {
	if size > slabBytes/4 {
		return make([]byte, size)
	}
	if size > len(r.slab) {
		r.slab = make([]byte, slabBytes)
	}
	body := r.slab[:size:size]
	r.slab = r.slab[size:]
	return body
}
