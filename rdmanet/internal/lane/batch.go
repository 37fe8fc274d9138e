package lane

import (
	"encoding/binary"
	"fmt"
	"io"
)

// Batches go one behind the other: a header, the frames' lengths, the frames. All integers are
// big-endian. Every batch starts with a number of its own, so that a stream out of step is noticed
// at the next one.
const (
	batchMagic      = 0x6c_62 // "lb"
	batchHeaderSize = 16
	lengthSize      = 4
)

// A batch has at most BatchFramesMax frames, and at most BatchBytesMax bytes of them unless it is a
// single frame.
const (
	BatchFramesMax = 4096
	BatchBytesMax  = 256 << 10
)

// AppendBatchHeader appends what stands before the frames of a batch, of which the first has that
// number.
func AppendBatchHeader(b []byte, frames [][]byte, first uint64) []byte {
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

// slabBytes is the size of the buffers that small batches are read into, one after the other.
const slabBytes = 256 << 10

// BatchReader takes batches off a stream. What it hands out is never written again, unless it is
// only lent.
type BatchReader struct {
	stream   io.Reader
	frameMax int
	lent     bool // what is handed out is valid until the next read only
	// what is left of the buffer for small batches; where frames are lent, the buffer for all
	slab    []byte
	lengths []byte // reused for every batch
	header  [batchHeaderSize]byte
}

// NewBatchReader reads frames of at most frameMax bytes. If they are lent, each batch is read into
// the memory of the one before.
func NewBatchReader(stream io.Reader, frameMax int, lent bool) *BatchReader {
	return &BatchReader{stream: stream, frameMax: frameMax, lent: lent}
}

// Read appends the next batch's frames, which must start with that number, to frames. Errors: the
// stream's, io.EOF only between batches; ErrProtocol.
func (r *BatchReader) Read(frames [][]byte, first uint64) ([][]byte, error) {
	header := r.header[:]
	if _, err := io.ReadFull(r.stream, header); err != nil {
		return frames, err
	}
	magic, count := binary.BigEndian.Uint16(header), int(binary.BigEndian.Uint16(header[2:]))
	size, number := int(binary.BigEndian.Uint32(header[4:])), binary.BigEndian.Uint64(header[8:])
	bound := BatchBytesMax
	if count == 1 {
		bound = r.frameMax
	}
	switch {
	case magic != batchMagic:
		return frames, fmt.Errorf("%w: batch starts with %#x", ErrProtocol, magic)
	case count == 0 || count > BatchFramesMax:
		return frames, fmt.Errorf("%w: batch of %d frames", ErrProtocol, count)
	case size > bound:
		return frames, fmt.Errorf("%w: batch of %d bytes, the bound is %d", ErrProtocol, size,
			bound)
	case number != first:
		return frames, fmt.Errorf("%w: batch starts with frame %d instead of %d", ErrProtocol,
			number, first)
	}
	if cap(r.lengths) < count*lengthSize {
		r.lengths = make([]byte, count*lengthSize)
	}
	lengths := r.lengths[:count*lengthSize]
	if _, err := io.ReadFull(r.stream, lengths); err != nil {
		return frames, unexpected(err)
	}
	total := 0
	for i := range count {
		length := int(binary.BigEndian.Uint32(lengths[i*lengthSize:]))
		if length > r.frameMax || length > size-total {
			return frames, fmt.Errorf("%w: frame of %d bytes in a batch of %d", ErrProtocol, length,
				size)
		}
		total += length
	}
	if total != size {
		return frames, fmt.Errorf("%w: frames of %d bytes in a batch of %d", ErrProtocol, total,
			size)
	}
	body := r.room(size)
	if _, err := io.ReadFull(r.stream, body); err != nil {
		return frames, unexpected(err)
	}
	for i := range count {
		length := int(binary.BigEndian.Uint32(lengths[i*lengthSize:]))
		frames = append(frames, body[:length:length])
		body = body[length:]
	}
	return frames, nil
}

// room gives a buffer that nobody else has, unless it is lent. What is in it is anything.
func (r *BatchReader) room(size int) []byte {
	if r.lent {
		if size > len(r.slab) {
			r.slab = unzeroed(max(size, min(2*len(r.slab), r.frameMax)))
		}
		return r.slab[:size]
	}
	if size > slabBytes/4 {
		return unzeroed(size)
	}
	if size > len(r.slab) {
		r.slab = unzeroed(slabBytes)
	}
	body := r.slab[:size:size]
	r.slab = r.slab[size:]
	return body
}

// unexpected turns an end in the middle of a batch into an error of its own.
func unexpected(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}
