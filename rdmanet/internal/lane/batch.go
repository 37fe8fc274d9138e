package lane

import (
	"encoding/binary"
	"fmt"
	"io"
)

// Batches follow each other on the stream: a header, the lengths of the frames, the frames. All
// integers are big-endian. Every batch starts with a magic number, which reveals a stream out of
// step at the next batch.
const (
	batchMagic      = 0x6c_62 // "lb"
	batchHeaderSize = 16
	lengthSize      = 4
)

// A batch has at most BatchFramesMax frames. They have at most BatchBytesMax bytes in total, unless
// the batch is a single frame.
const (
	BatchFramesMax = 4096
	BatchBytesMax  = 256 << 10
)

// AppendBatchHeader appends everything that precedes the frames of a batch. first is the number of
// the first frame.
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

// slabBytes is the size of the buffers into which small batches are read, one after another.
const slabBytes = 256 << 10

// BatchReader reads batches from a stream. It never writes to the frames that it has returned,
// unless they are lent.
type BatchReader struct {
	stream   io.Reader
	frameMax int
	lent     bool // returned frames are valid only until the next read
	// The rest of the buffer for small batches. With lent frames, the buffer for all batches.
	slab    []byte
	lengths []byte // reused for every batch
	header  [batchHeaderSize]byte
}

// NewBatchReader returns a reader of frames of at most frameMax bytes. If lent is set, each batch
// is read into the memory of the previous one.
func NewBatchReader(stream io.Reader, frameMax int, lent bool) *BatchReader {
	return &BatchReader{stream: stream, frameMax: frameMax, lent: lent}
}

// Read appends the frames of the next batch, which must start with number first, to frames. It
// returns the stream's errors (io.EOF only between batches) or ErrProtocol.
func (r *BatchReader) Read(frames [][]byte, first uint64) ([][]byte, error) {
	if _, err := io.ReadFull(r.stream, r.header[:]); err != nil {
		return frames, err
	}
	count, size, err := checkHeader(r.header[:], first, r.frameMax)
	if err != nil {
		return frames, err
	}
	if cap(r.lengths) < count*lengthSize {
		r.lengths = make([]byte, count*lengthSize)
	}
	lengths := r.lengths[:count*lengthSize]
	if _, err := io.ReadFull(r.stream, lengths); err != nil {
		return frames, unexpected(err)
	}
	if err := checkLengths(lengths, size, r.frameMax); err != nil {
		return frames, err
	}
	body := r.room(size)
	if _, err := io.ReadFull(r.stream, body); err != nil {
		return frames, unexpected(err)
	}
	return appendFrames(frames, lengths, body), nil
}

// checkHeader returns how many frames a batch has and the sum of their bytes. The batch must start
// with frame number first.
func checkHeader(header []byte, first uint64, frameMax int) (count, size int, err error) {
	magic, number := binary.BigEndian.Uint16(header), binary.BigEndian.Uint64(header[8:])
	count = int(binary.BigEndian.Uint16(header[2:]))
	size = int(binary.BigEndian.Uint32(header[4:]))
	bound := BatchBytesMax
	if count == 1 {
		bound = frameMax
	}
	switch {
	case magic != batchMagic:
		err = fmt.Errorf("%w: batch starts with %#x", ErrProtocol, magic)
	case count == 0 || count > BatchFramesMax:
		err = fmt.Errorf("%w: batch of %d frames", ErrProtocol, count)
	case size > bound:
		err = fmt.Errorf("%w: batch of %d bytes, the bound is %d", ErrProtocol, size, bound)
	case number != first:
		err = fmt.Errorf("%w: batch starts with frame %d instead of %d", ErrProtocol, number, first)
	}
	return count, size, err
}

// checkLengths checks the lengths of a batch's frames against the sum of their bytes.
func checkLengths(lengths []byte, size, frameMax int) error {
	total := 0
	for ; len(lengths) > 0; lengths = lengths[lengthSize:] {
		length := int(binary.BigEndian.Uint32(lengths))
		if length > frameMax || length > size-total {
			return fmt.Errorf("%w: frame of %d bytes in a batch of %d", ErrProtocol, length, size)
		}
		total += length
	}
	if total != size {
		return fmt.Errorf("%w: frames of %d bytes in a batch of %d", ErrProtocol, total, size)
	}
	return nil
}

// appendFrames cuts a batch's frames out of its body, and appends them to frames.
func appendFrames(frames [][]byte, lengths, body []byte) [][]byte {
	for ; len(lengths) > 0; lengths = lengths[lengthSize:] {
		length := int(binary.BigEndian.Uint32(lengths))
		frames = append(frames, body[:length:length])
		body = body[length:]
	}
	return frames
}

// room returns a buffer that has no other user, unless frames are lent. Its contents are undefined.
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

// unexpected turns io.EOF in the middle of a batch into io.ErrUnexpectedEOF.
func unexpected(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}
