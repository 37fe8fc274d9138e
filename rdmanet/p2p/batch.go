package p2p

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
)

// gatherMin is the size from which a frame is written from where it is, in bytes. Smaller ones are copied together, for every piece has its price.
const gatherMin = 4 << 10

// pieceWriter is where batches go: it writes the pieces one behind the other, from where they are. The list is its to change.
type pieceWriter interface {
	writePieces(pieces *net.Buffers) error
}

// batchWriter puts batches on a connection.
type batchWriter struct {
	to     pieceWriter
	buffer []byte      // reused for every batch: the header, and small frames
	pieces net.Buffers // reused for every batch
	rest   net.Buffers // what a write has left of pieces
}

// write puts the frames on the connection as one batch, the first of them with that number: the header, small frames copied behind it and large ones from
// where they are.
func (w *batchWriter) write(frames [][]byte, first uint64) error {
	size := 0
	for _, frame := range frames {
		size += len(frame)
	}
	b := w.buffer[:0]
	b = binary.BigEndian.AppendUint16(b, batchMagic)
	b = binary.BigEndian.AppendUint16(b, uint16(len(frames)))
	b = binary.BigEndian.AppendUint32(b, uint32(size))
	b = binary.BigEndian.AppendUint64(b, first)
	for _, frame := range frames {
		b = binary.BigEndian.AppendUint32(b, uint32(len(frame)))
	}
	pieces, from := w.pieces[:0], 0
	for _, frame := range frames {
		if len(frame) < gatherMin {
			b = append(b, frame...)
			continue
		}
		pieces, from = append(pieces, b[from:], frame), len(b)
	}
	if from < len(b) {
		pieces = append(pieces, b[from:])
	}
	w.buffer, w.pieces, w.rest = b, pieces, pieces
	err := w.to.writePieces(&w.rest)
	clear(pieces)
	return err
}

// slabBytes is the size of the buffers that small batches are read into, one after the other.
const slabBytes = 256 << 10

// batchReader takes batches off a stream. What it hands out is never written again, unless it is only lent.
type batchReader struct {
	stream   *bufio.Reader
	frameMax int
	lent     bool   // what is handed out is valid until the next read only
	slab     []byte // what is left of the buffer for small batches; where frames are lent, the buffer for all
	lengths  []byte // reused for every batch
}

func newBatchReader(stream io.Reader, frameMax int, lent bool) *batchReader {
	return &batchReader{stream: bufio.NewReaderSize(stream, 16<<10), frameMax: frameMax, lent: lent}
}

// read appends the next batch's frames, which must start with that number, to frames.
func (r *batchReader) read(frames [][]byte, first uint64) ([][]byte, error) {
	var header [batchHeaderSize]byte
	if _, err := io.ReadFull(r.stream, header[:]); err != nil {
		return frames, err
	}
	magic, count := binary.BigEndian.Uint16(header[:]), int(binary.BigEndian.Uint16(header[2:]))
	size, number := int(binary.BigEndian.Uint32(header[4:])), binary.BigEndian.Uint64(header[8:])
	bound := batchBytesMax
	if count == 1 {
		bound = r.frameMax
	}
	switch {
	case magic != batchMagic:
		return frames, fmt.Errorf("%w: batch starts with %#x", errProtocol, magic)
	case count == 0 || count > batchFramesMax:
		return frames, fmt.Errorf("%w: batch of %d frames", errProtocol, count)
	case size > bound:
		return frames, fmt.Errorf("%w: batch of %d bytes, the bound is %d", errProtocol, size, bound)
	case number != first:
		return frames, fmt.Errorf("%w: batch starts with frame %d instead of %d", errProtocol, number, first)
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
			return frames, fmt.Errorf("%w: frame of %d bytes in a batch of %d", errProtocol, length, size)
		}
		total += length
	}
	if total != size {
		return frames, fmt.Errorf("%w: frames of %d bytes in a batch of %d", errProtocol, total, size)
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
func (r *batchReader) room(size int) []byte {
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
